//! Errors of parser and checker, with the place in the source they point to.

use crate::types::Type;
use std::fmt;

/// The errors of an expression, formatted as cel-go formats them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issues {
    list: Vec<Issue>,
    /// The type of the expression, if it has one: its constants are wrong.
    of_constants: Option<Type>,
}

/// An error at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// From 1; -1 if the error has no place.
    pub line: i64,
    /// In code points, from 1.
    pub column: i64,
    /// The error.
    pub message: String,
    snippet: Option<String>,
}

/// Longer lines are not shown.
const MAX_SNIPPET: usize = 16_384;
/// Maximum number of errors; further ones are dropped.
pub(crate) const MAX_ISSUES: usize = 100;

impl Issues {
    pub(crate) fn unplaced(message: String) -> Self {
        Self {
            list: vec![Issue {
                line: -1,
                column: 0,
                message,
                snippet: None,
            }],
            of_constants: None,
        }
    }

    pub(crate) fn of_constants(message: String, result: Type) -> Self {
        Self {
            of_constants: Some(result),
            ..Self::unplaced(message)
        }
    }

    /// True if the expression is well-typed, but a constant subexpression fails: cel-go reports that when it
    /// makes a program of the expression ("program instantiation failed").
    pub fn is_of_constants(&self) -> bool {
        self.of_constants.is_some()
    }

    /// The type of an expression that is well-typed.
    pub(crate) fn result_type(&self) -> Option<&Type> {
        self.of_constants.as_ref()
    }

    /// Places each error, in the order of the source.
    pub(crate) fn place(source: &str, mut errors: Vec<(u32, String)>) -> Self {
        errors.sort_by_key(|(at, _)| *at);
        errors.truncate(MAX_ISSUES);
        let mut starts = vec![0u32];
        for (i, c) in source.chars().enumerate() {
            if c == '\n' {
                starts.push(i as u32 + 1);
            }
        }
        let lines: Vec<&str> = source.split('\n').collect();
        let is_empty = source.is_empty();
        let place = |(at, message): (u32, String)| {
            let line = starts.partition_point(|s| *s <= at) - 1;
            let column = at - starts[line];
            let text = lines[line];
            Issue {
                line: line as i64 + 1,
                // An empty text has no column that could be shown.
                column: i64::from(column) + i64::from(!is_empty),
                message,
                snippet: (!is_empty && text.len() <= MAX_SNIPPET).then(|| draw(text, column as usize)),
            }
        };
        Self {
            list: errors.into_iter().map(place).collect(),
            of_constants: None,
        }
    }

    /// The errors, in the order of the source.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.list.iter()
    }
}

/// The line, and below it dots up to the column. Wide characters get wide dots, so that the mark stays in its
/// column.
fn draw(line: &str, column: usize) -> String {
    let line = line.replace('\t', " ");
    let mut out = format!("\n | {line}\n | ");
    for c in line.chars().take(column) {
        out.push(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
    }
    let wide = line.chars().nth(column).is_some_and(|c| c.len_utf8() > 1);
    out.push(if wide { '\u{ff3e}' } else { '^' });
    out
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_of_constants() {
            return self.list.iter().try_for_each(|issue| f.write_str(&issue.message));
        }
        for (i, issue) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            issue.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        f.write_str(self.snippet.as_deref().unwrap_or(""))
    }
}

impl std::error::Error for Issues {}
