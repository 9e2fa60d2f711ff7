//! Errors of parser and checker, with the place in the source they point to.

use crate::types::Type;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use torana_apimachinery::interrupt::checkpoint;

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
    /// cel-go's message, without the place.
    pub message: String,
    snippet: Option<Snippet>,
}

/// The line of an error, shared by errors of the same line, and the column to mark. Formatted on display only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Snippet {
    line: Arc<str>,
    column: usize,
}

/// Longer lines are left out of the message.
const MAX_SNIPPET: usize = 16_384;
/// No further error is written once the text exceeds this many bytes. Every use of the text is cut below that.
const MAX_TEXT: usize = 64 * 1024;
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
        // Stable, so errors at one place stay in the order in which they were found.
        errors.sort_by_key(|(at, _)| *at);
        // After sorting, so that the first errors of the source are kept.
        errors.truncate(MAX_ISSUES);
        let mut starts = vec![0u32];
        for (i, c) in source.chars().enumerate() {
            if c == '\n' {
                starts.push(i as u32 + 1);
            }
        }
        let lines: Vec<&str> = source.split('\n').collect();
        let is_empty = source.is_empty();
        let mut shown: Option<(usize, Arc<str>)> = None;
        let place = |(at, message): (u32, String)| {
            // `starts` begins with 0, so there is always a line.
            let line = starts.partition_point(|s| *s <= at) - 1;
            let column = at - starts[line];
            let text = lines[line];
            // An empty text has no line to print.
            let snippet = (!is_empty && text.len() <= MAX_SNIPPET).then(|| {
                // Errors of one line follow each other, so remembering the last line is enough to share it.
                let (_, text) = match shown.take().filter(|(last, _)| *last == line) {
                    Some(known) => shown.insert(known),
                    // cel-go replaces tabs, so that the mark below stays in its column.
                    None => shown.insert((line, text.replace('\t', " ").into())),
                };
                Snippet {
                    line: text.clone(),
                    column: column as usize,
                }
            });
            Issue {
                line: line as i64 + 1,
                // An empty text has no column to report.
                column: i64::from(column) + i64::from(!is_empty),
                message,
                snippet,
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
impl fmt::Display for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n | {}\n | ", self.line)?;
        let mut rest = self.line.chars();
        for c in rest.by_ref().take(self.column) {
            f.write_char(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' })?;
        }
        let wide = rest.next().is_some_and(|c| c.len_utf8() > 1);
        f.write_char(if wide { '\u{ff3e}' } else { '^' })
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_of_constants() {
            // cel-go reports a failed program with the bare error, without place.
            return self.list.iter().try_for_each(|issue| f.write_str(&issue.message));
        }
        let mut written = 0;
        for (i, issue) in self.list.iter().enumerate() {
            checkpoint();
            if written > MAX_TEXT {
                return write!(f, "\n... ({} more errors)", self.list.len() - i);
            }
            if i > 0 {
                f.write_str("\n")?;
            }
            // Formatted first, to know its length.
            let text = issue.to_string();
            written += text.len();
            f.write_str(&text)?;
        }
        Ok(())
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        self.snippet.iter().try_for_each(|snippet| snippet.fmt(f))
    }
}

impl std::error::Error for Issues {}

#[cfg(test)]
mod tests {
    use crate::Environment;

    #[test]
    fn errors_on_one_line_share_its_text_which_is_bounded() {
        let names = (0..200).map(|i| format!("undeclared_{i:03}{}", "_".repeat(40)));
        let source = names.collect::<Vec<_>>().join(" +\t");
        let issues = Environment::default().compile(&source).unwrap_err();
        let snippets: Vec<_> = issues.iter().map(|i| i.snippet.as_ref().unwrap()).collect();
        assert_eq!(snippets.len(), super::MAX_ISSUES);
        assert!(
            snippets
                .iter()
                .all(|s| std::sync::Arc::ptr_eq(&s.line, &snippets[0].line))
        );
        let text = issues.to_string();
        assert!(text.len() < super::MAX_TEXT + 2 * source.len() + 1000, "{}", text.len());
        assert!(text.ends_with(" more errors)"));
        let each: String = issues.iter().take(3).map(|i| format!("{i}\n")).collect();
        assert!(text.starts_with(&each) && each.contains(&format!("\n | {}\n | ^", source.replace('\t', " "))));
    }
}
