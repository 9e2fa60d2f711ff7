//! The error of upstream's library for a text that the parser refuses. Both find the same mistakes, but with different
//! messages and line numbers.
//!
//! Start at [`of`]; [`Nesting`] follows the events, since some messages name the line of a collection.

use saphyr_parser::{Event, Marker, ScanError, Span};

/// The lines on which the collections around an event start, the innermost last.
#[derive(Default)]
pub(super) struct Nesting(Vec<usize>);

impl Nesting {
    pub(super) fn follow(&mut self, event: &Event<'_>, span: Span) {
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => self.0.push(span.start.line()),
            Event::SequenceEnd | Event::MappingEnd => {
                self.0.pop();
            }
            _ => {}
        }
    }
}

/// The line that upstream's message names, 0 for none, and the message.
pub(super) fn of(error: &ScanError, nesting: &Nesting, text: &str) -> (usize, String) {
    let (info, at) = (error.info(), *error.marker());
    // Upstream leaves out the construct that it was reading.
    let problem = match info.split_once(", ") {
        Some((doing, problem)) if doing.starts_with("while ") => problem,
        _ => info,
    };
    if problem == "found unknown anchor" {
        return (0, format!("unknown anchor '{}' referenced", alias(text, at)));
    }
    let line = match found_by(info) {
        Finder::Scanner => scanners_line(info, at, text),
        Finder::Parser => parsers_line(info, at, nesting),
    };
    (line, words(problem, text).to_owned())
}

/// The part of upstream's library that finds a mistake.
enum Finder {
    /// Produces tokens: it counts lines from 1, but never names the first.
    Scanner,
    /// Produces collections from tokens: it counts lines from 0, and does not name line 0.
    Parser,
}

fn found_by(info: &str) -> Finder {
    const IN_COLLECTIONS: [&str; 3] = ["while parsing a flow", "while parsing a block", "while parsing a node"];
    match info {
        "misplaced bracket" | PRECEDES | TRAILING => Finder::Parser,
        info if IN_COLLECTIONS.iter().any(|doing| info.starts_with(doing)) => Finder::Parser,
        _ => Finder::Scanner,
    }
}

const PRECEDES: &str = "':' may not precede any of `[{` in flow mapping";
const TRAILING: &str = "invalid trailing content after double-quoted scalar";

/// Upstream names the start of what it was reading, and the place of the mistake only if that is on the first line.
fn scanners_line(info: &str, start: Marker, text: &str) -> usize {
    match (info, start.line()) {
        ("a block scalar content cannot start with a tab", 1) => 2,
        // The end of the text.
        ("while scanning a quoted scalar, found unexpected end of stream", 1) => match text.matches('\n').count() {
            0 => 0,
            breaks => breaks + 1,
        },
        (_, 1) => 0,
        (_, line) => line,
    }
}

/// Like [`scanners_line`]: a collection that starts after the first line is named instead of the mistake in it.
fn parsers_line(info: &str, mistake: Marker, nesting: &Nesting) -> usize {
    let in_collection = info.starts_with("while parsing a flow") || info.starts_with("while parsing a block");
    let start = nesting.0.last().copied().filter(|start| in_collection && *start > 1);
    start.unwrap_or_else(|| mistake.line()).saturating_sub(1)
}

fn words<'p>(problem: &'p str, text: &str) -> &'p str {
    match problem {
        "simple key expected" | "simple key expect ':'" => "could not find expected ':'",
        "expected ',' or ']'" => "did not find expected ',' or ']'",
        // The misspelling is upstream's.
        "did not find expected hexadecimal number" => "did not find expected hexdecimal number",
        "misplaced bracket" => "did not find expected node content",
        "found a tab" => "found a tab character that violates indentation",
        "a block scalar content cannot start with a tab" => {
            "found a tab character where an indentation space is expected"
        }
        // A text in brackets is a single flow collection, nearly always an object.
        TRAILING if !text.trim_start().starts_with(['{', '[']) => "did not find expected key",
        PRECEDES | TRAILING => "did not find expected ',' or '}'",
        other if other.starts_with("tab") || other.starts_with("unexpected character: ") => {
            "found character that cannot start any token"
        }
        other => other,
    }
}

/// The name of the alias at a place.
fn alias(text: &str, at: Marker) -> String {
    let name = text.chars().skip(at.index()).skip_while(|c| *c == '*');
    name.take_while(|c| !c.is_whitespace() && !matches!(c, ',' | '[' | ']' | '{' | '}'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::decode;

    #[test]
    fn mistakes_are_worded_and_placed_like_upstream() {
        for (text, want) in [
            ("a: b\nkind: c\nx\n", "line 4: could not find expected ':'"),
            ("a: *\n", "did not find expected alphabetic or numeric character"),
            ("a: *b c\n", "unknown anchor 'b' referenced"),
            ("é: [*b]\n", "unknown anchor 'b' referenced"),
            ("{a: {b:[c]}\n", "did not find expected ',' or '}'"),
            (r#"{"a" 1}"#, "did not find expected ',' or '}'"),
            ("{\"a\":[1,2\n", "line 1: did not find expected ',' or ']'"),
            ("a: {\n", "line 1: did not find expected node content"),
            ("a: }\n", "did not find expected node content"),
            ("a:\n\t- b\n", "line 2: found character that cannot start any token"),
            ("a: @b\n", "found character that cannot start any token"),
            ("a: 'b", "found unexpected end of stream"),
            ("a: 'b\n", "line 2: found unexpected end of stream"),
            ("a: b\nc: 'd\n\n", "line 2: found unexpected end of stream"),
            ("- a\nb: c\n", "line 1: did not find expected '-' indicator"),
            ("a: b\n- c\n", "line 1: did not find expected key"),
            ("a: |x\n", "did not find expected comment or line break"),
            (
                "a: |\n\tb\n",
                "line 2: found a tab character where an indentation space is expected",
            ),
        ] {
            let error = decode(text.as_bytes()).map_err(|e| e.to_string());
            assert_eq!(error, Err(format!("yaml: {want}")), "{text:?}");
        }
    }
}
