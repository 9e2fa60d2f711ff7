//! Regular expressions in Go's RE2 syntax, matched in linear time.
//!
//! The `regex` crate has nearly the same syntax. The differences are translated here: in Go `\d \w \s \b` are ASCII
//! only, a lone `{` and a `[` inside a class are literals, and `\Q…\E` quotes.

use regex::Regex;

/// Maximum size of the compiled program in bytes, because schemas come from users.
const SIZE_LIMIT: usize = 1 << 20;

/// A compiled regular expression with its source.
#[derive(Debug)]
pub(super) struct Pattern {
    source: Box<str>,
    regex: Regex,
}

impl Pattern {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// The syntax error, in one line.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let regex = regex::RegexBuilder::new(&translate(source))
            .size_limit(SIZE_LIMIT)
            .build()
            .map_err(|e| match e {
                regex::Error::CompiledTooBig(_) => "expression too large".to_owned(),
                other => last_line(&other.to_string()),
            })?;
        Ok(Self {
            source: source.into(),
            regex,
        })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// True if the expression matches anywhere in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    line.trim().trim_start_matches("error: ").to_owned()
}

fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 8);
    let mut rest = source;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let Some(e) = after.chars().next() else {
                    out.push('\\');
                    return out;
                };
                rest = &after[e.len_utf8()..];
                match e {
                    'Q' if !in_class => {
                        let (literal, behind) = rest.split_once("\\E").unwrap_or((rest, ""));
                        out.push_str(&regex::escape(literal));
                        rest = behind;
                    }
                    _ => out.push_str(&escape(e, in_class)),
                }
                continue;
            }
            '[' if in_class && !after.starts_with(':') => out.push_str("\\["),
            '[' if in_class => {
                // A POSIX class such as `[:alpha:]` is copied as a whole.
                let end = after.find(":]").map_or(0, |i| i + 2);
                out.push('[');
                out.push_str(&after[..end]);
                rest = &after[end..];
                continue;
            }
            '[' => {
                in_class = true;
                out.push('[');
                rest = after;
                if let Some(r) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = r;
                }
                if let Some(r) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = r;
                }
                continue;
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && after.starts_with('-') => out.push_str("\\-"),
            '{' if !in_class && !is_repetition(after) => out.push_str("\\{"),
            other => out.push(other),
        }
        rest = after;
    }
    out
}

/// Translates Go's escape `\e`.
fn escape(e: char, in_class: bool) -> String {
    let class = |inside: &str, negated: bool| match (in_class, negated) {
        (true, false) => inside.to_owned(),
        (_, false) => format!("[{inside}]"),
        (_, true) => format!("[^{inside}]"),
    };
    match e {
        'd' => class("0-9", false),
        'D' => class("0-9", true),
        'w' => class("0-9A-Za-z_", false),
        'W' => class("0-9A-Za-z_", true),
        's' => class("\\t\\n\\f\\r ", false),
        'S' => class("\\t\\n\\f\\r ", true),
        'b' if !in_class => "(?-u:\\b)".to_owned(),
        // A byte-wise `\B` could match inside a multi-byte character, but `str` positions are never inside one.
        'B' if !in_class => "(?-u:\\B)".to_owned(),
        '<' | '>' => e.to_string(),
        other => format!("\\{other}"),
    }
}

/// True if `after`, what follows `{`, is a repetition: `n}`, `n,}` or `n,m}`.
fn is_repetition(after: &str) -> bool {
    let Some((inside, _)) = after.split_once('}') else {
        return false;
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (low, high) = inside.split_once(',').unwrap_or((inside, ""));
    !low.is_empty() && digits(low) && digits(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap().is_match(text)
    }

    #[test]
    fn perl_classes_are_ascii_only_as_in_go() {
        assert!(matches(r"^\d+$", "12") && !matches(r"^\d+$", "٣"));
        assert!(matches(r"^[\w-]+$", "a_b-C") && !matches(r"^\w+$", "é"));
        assert!(matches(r"^[^\d]$", "é") && matches(r"^[\D]$", "é"));
        assert!(matches(r"^.{2}$", "éa") && matches(r"\bfoo\b", "a foo b"));
    }

    #[test]
    fn literals_of_go_syntax_are_escaped() {
        assert!(matches("^[[]$", "[") && matches("^a{x}$", "a{x}") && matches("^[a&&b]$", "&"));
        assert!(matches("^[]a]$", "]") && matches("^[[:alpha:]]+$", "ab") && matches(r"^\Qa.b\E$", "a.b"));
        assert!(!matches(r"^\Qa.b\E$", "axb") && matches(r"^a{2,3}$", "aaa"));
    }

    #[test]
    fn an_invalid_pattern_gives_a_one_line_error() {
        assert_eq!(Pattern::new("(").unwrap_err(), "unclosed group");
        assert_eq!(Pattern::new("(a{1000}){1000}").unwrap_err(), "expression too large");
    }
}
