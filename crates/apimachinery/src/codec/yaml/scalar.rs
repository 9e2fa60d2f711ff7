//! Strings in the styles that `goyaml.v2` chooses for them: plain, quoted, or as a literal block.
//!
//! Start at [`value`] and [`key`].

use super::resolve::{Plain, is_base60, is_timestamp, resolve};

/// Lines are broken behind this column.
const WIDTH: usize = 80;
/// Longer keys, in bytes, are written as explicit ones: YAML limits the others in length.
const SIMPLE_KEY: usize = 128;

/// Writes a string that is not a simple key. Its further lines are indented; its last line is not ended.
pub(super) fn value(s: &str, indent: usize, out: &mut String) {
    match Style::of(s) {
        Style::Literal => literal(s, indent, out),
        style => flow(s, style, Some(indent), out),
    }
}

/// Writes a simple key, which stays on its line.
pub(super) fn key(s: &str, out: &mut String) {
    // Upstream writes the merge key plain, and could not read it again.
    let style = if s == "<<" { Style::Double } else { Style::of(s) };
    flow(s, style, None, out);
}

/// Whether a key has to be written behind `? `.
pub(super) fn is_explicit_key(s: &str) -> bool {
    s.len() > SIMPLE_KEY || s.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

impl Style {
    /// The style with the least quoting that the content allows.
    fn of(s: &str) -> Self {
        // One pass for what every style depends on.
        let (mut is_special, mut indicates) = (false, s.starts_with("---") || s.starts_with("..."));
        let (mut breaks, mut space_before_break) = (false, false);
        let mut before = None;
        let mut chars = s.chars().peekable();
        while let Some(c) = chars.next() {
            let blank_follows = chars.peek().is_none_or(|next| *next == ' ');
            indicates |= match (before, c) {
                (
                    None,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
                ) => true,
                (None, '-' | '?') | (_, ':') => blank_follows,
                (Some(' '), '#') => true,
                _ => false,
            };
            is_special |= c != '\n' && !is_printable(c);
            breaks |= c == '\n';
            space_before_break |= before == Some(' ') && c == '\n';
            before = Some(c);
        }
        if breaks {
            // Spaces at the end of a line are easily lost, so they are quoted.
            return match is_special || space_before_break || s.ends_with(' ') {
                true => Self::Double,
                false => Self::Literal,
            };
        }
        // Strings that would read back as another type.
        let other_type = || resolve(s) != Plain::String || is_base60(s) || is_timestamp(s);
        if is_special || other_type() {
            Self::Double
        } else if indicates || s.starts_with(' ') || s.ends_with(' ') {
            Self::Single
        } else {
            Self::Plain
        }
    }
}

/// Characters allowed outside double quotes. Like upstream's writer, four-byte characters are escaped. The
/// separators U+2028 and U+2029 are escaped, too: upstream breaks lines at them, as in YAML 1.1 only.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn literal(s: &str, indent: usize, out: &mut String) {
    out.push('|');
    // Without it, the spaces or breaks at the start would count as indentation.
    if s.starts_with([' ', '\n']) {
        out.push('2');
    }
    // The chomping indicator preserves the number of final newlines; a single newline is nothing but a final one.
    match s.strip_suffix('\n') {
        None => out.push('-'),
        Some(rest) if rest.is_empty() || rest.ends_with('\n') => out.push('+'),
        Some(_) => {}
    }
    for line in s.strip_suffix('\n').unwrap_or(s).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
}

/// Writes a plain or quoted scalar. With an indent, lines are broken at the first single space behind the
/// column of [`WIDTH`], like upstream's.
fn flow(s: &str, style: Style, indent: Option<usize>, out: &mut String) {
    // Without spaces there is nowhere to break, and the column, which costs a scan, is not needed.
    let indent = indent.filter(|_| s.contains(' '));
    let mut line = Line {
        column: indent.map_or(0, |_| column(out)),
        indent,
        after_space: false,
    };
    match style {
        Style::Plain => line.text(s, false, out),
        Style::Single => {
            line.push('\'', out);
            line.text(s, true, out);
            out.push('\'');
        }
        // A literal block is never asked for here.
        Style::Double | Style::Literal => {
            line.push('"', out);
            line.escaped(s, out);
            out.push('"');
        }
    }
}

/// The column at the end of the text.
fn column(out: &str) -> usize {
    let line = out.rfind('\n').map_or(out, |at| &out[at + 1..]);
    line.chars().count()
}

/// The line that a scalar is written to.
struct Line {
    column: usize,
    /// The indent of further lines; without one, the scalar stays on its line.
    indent: Option<usize>,
    after_space: bool,
}

impl Line {
    /// Whether a space, which is not the first character, is to become a break.
    fn breaks(&self) -> Option<usize> {
        self.indent.filter(|_| !self.after_space && self.column > WIDTH)
    }

    fn next_line(&mut self, indent: usize, out: &mut String) {
        out.push('\n');
        pad(indent, out);
        self.column = indent;
    }

    fn push(&mut self, c: char, out: &mut String) {
        out.push(c);
        self.column += 1;
    }

    /// Writes a plain scalar, or what is between single quotes.
    fn text(&mut self, s: &str, quoted: bool, out: &mut String) {
        if self.indent.is_none() {
            return match quoted {
                true => out.push_str(&s.replace('\'', "''")),
                false => out.push_str(s),
            };
        }
        let mut chars = s.chars().peekable();
        let mut is_first = true;
        while let Some(c) = chars.next() {
            match self.breaks() {
                // A line is broken at a single space only: the parser folds a break into exactly one.
                Some(indent) if c == ' ' && !is_first && chars.peek().is_some_and(|next| *next != ' ') => {
                    self.next_line(indent, out);
                }
                _ => self.push(c, out),
            }
            if c == '\'' && quoted {
                self.push(c, out);
            }
            self.after_space = c == ' ';
            is_first = false;
        }
    }

    /// Writes what is between double quotes.
    fn escaped(&mut self, s: &str, out: &mut String) {
        // Upstream looks for a byte order mark at the start of the string, whichever character it is about to write.
        let escapes_all = s.starts_with('\u{feff}');
        let mut escaped = String::new();
        for (i, c) in s.char_indices() {
            let inner = i > 0 && i + 1 < s.len();
            if let Some(indent) = self.breaks().filter(|_| c == ' ' && inner && !escapes_all) {
                self.next_line(indent, out);
                // A break swallows spaces that follow it; the backslash marks the first one as content.
                if s[i + 1..].starts_with(' ') {
                    self.push('\\', out);
                }
                self.after_space = true;
                continue;
            }
            escaped.clear();
            match c {
                c if is_printable(c) && !escapes_all && c != '"' && c != '\\' => escaped.push(c),
                c => escape(c, &mut escaped),
            }
            out.push_str(&escaped);
            self.column += escaped.chars().count();
            self.after_space = c == ' ';
        }
    }
}

fn escape(c: char, out: &mut String) {
    let short = match c {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        c => {
            let code = u32::from(c);
            return out.push_str(&match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            });
        }
    };
    out.push('\\');
    out.push(short);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of go.yaml.in/yaml/v2 v2.4.
    #[test]
    fn strings_are_quoted_like_upstreams() {
        for (text, want) in [
            ("10.0.0.1:6443", "10.0.0.1:6443"),
            ("8080:80", "8080:80"),
            ("1:20", "\"1:20\""),
            ("+1:20.5_", "\"+1:20.5_\""),
            ("=", "="),
            ("<<", "<<"),
            ("1e3", "\"1e3\""),
            ("1.", "\"1.\""),
            ("1e999", "1e999"),
            (".5_0", "\".5_0\""),
            ("._5", "._5"),
            ("1_000", "\"1_000\""),
            ("2024-1-5", "\"2024-1-5\""),
            ("2024-13-45", "2024-13-45"),
            ("~", "\"~\""),
            ("-", "'-'"),
            ("? a", "'? a'"),
            ("a ", "'a '"),
            ("a #b", "'a #b'"),
            ("a:", "'a:'"),
            ("a\tb", "\"a\\tb\""),
            ("a\x07\0\x1b\u{85}\u{a0}", "\"a\\a\\0\\e\\N\u{a0}\""),
            ("\u{feff}a", "\"\\uFEFF\\x61\""),
            ("aé日本😀", "\"aé日本\\U0001F600\""),
            (" a\nb", "|2-\n   a\n  b"),
            ("\na", "|2-\n\n  a"),
            ("\n", "|2+\n"),
            ("a\n\n", "|+\n  a\n"),
            ("a: b\n#c\n\n\nd", "|-\n  a: b\n  #c\n\n\n  d"),
            ("a \nb", "\"a \\nb\""),
        ] {
            let mut out = String::new();
            value(text, 2, &mut out);
            assert_eq!(out, want, "{text:?}");
        }
    }
}
