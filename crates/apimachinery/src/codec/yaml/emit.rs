//! The YAML encoder, with the output format of `sigs.k8s.io/yaml`.
//!
//! Start at [`to_string`].

use super::resolve::{Plain, is_base60, is_timestamp, resolve};
use crate::codec::json::{self, DEEPEST_INDENT};
use crate::interrupt::pause;
use crate::value::Value;

/// Encodes a document with a final newline and without `---`.
pub fn to_string(v: &Value) -> String {
    let mut out = String::with_capacity(1024);
    match v {
        // Empty containers are written inline.
        Value::Object(m) if !m.is_empty() => block(v, 0, false, &mut out),
        Value::Array(a) if !a.is_empty() => block(v, 0, false, &mut out),
        scalar => {
            inline(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Encodes a document as bytes.
pub fn to_vec(v: &Value) -> Vec<u8> {
    to_string(v).into_bytes()
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Containers below this depth are written as JSON (which is valid YAML) on one line; see [`DEEPEST_INDENT`].
fn is_deep(indent: usize) -> bool {
    indent / 2 >= DEEPEST_INDENT
}

/// Writes the lines of a container. If `begun`, the first line is already indented (after `- `).
fn block(v: &Value, indent: usize, begun: bool, out: &mut String) {
    let mut begun = begun;
    match v {
        Value::Object(m) => {
            for (k, v) in in_order(m.iter().collect()) {
                pause();
                if !std::mem::take(&mut begun) {
                    pad(indent, out);
                }
                // YAML limits implicit keys in length; goyaml writes long ones as explicit keys.
                if k.len() > 128 {
                    out.push_str("? ");
                    folded(k, None, out);
                    out.push('\n');
                    pad(indent, out);
                } else {
                    folded(k, None, out);
                }
                out.push(':');
                match v {
                    Value::Object(_) | Value::Array(_) if is_deep(indent) => {
                        // JSON on one line is valid YAML, which keeps deep documents readable by the same decoder.
                        out.push(' ');
                        out.push_str(&json::to_string(v));
                        out.push('\n');
                    }
                    Value::Object(m) if !m.is_empty() => {
                        out.push('\n');
                        block(v, indent + 2, false, out);
                    }
                    Value::Array(a) if !a.is_empty() => {
                        out.push('\n');
                        // Like upstream, a list is not indented relative to its key.
                        block(v, indent, false, out);
                    }
                    scalar => {
                        out.push(' ');
                        inline(scalar, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(a) => {
            for v in a {
                if !std::mem::take(&mut begun) {
                    pad(indent, out);
                }
                out.push_str("- ");
                match v {
                    Value::Object(_) | Value::Array(_) if is_deep(indent) => {
                        out.push_str(&json::to_string(v));
                        out.push('\n');
                    }
                    Value::Object(m) if !m.is_empty() => block(v, indent + 2, true, out),
                    Value::Array(a) if !a.is_empty() => block(v, indent + 2, true, out),
                    scalar => {
                        inline(scalar, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        _ => {}
    }
}

/// Writes a scalar or an empty container. `indent` applies to the lines of a block scalar.
fn inline(v: &Value, indent: usize, out: &mut String) {
    match v {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Float(_) => out.push_str(&crate::patch::go_print(v)),
        // The content of a block scalar must be indented, also at the top level.
        Value::String(s) if fits_block(s) => text_block(s, indent.max(2), out),
        Value::String(s) => folded(s, Some(indent), out),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Characters allowed outside double quotes. Like upstream's writer, four-byte characters are escaped.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn fits_block(s: &str) -> bool {
    // A leading space would need an indentation indicator, and goyaml quotes such strings instead.
    s.contains('\n')
        && !s.starts_with([' ', '\n'])
        && s.chars().all(|c| c == '\n' || is_printable(c))
        && s.split('\n').all(|line| !line.ends_with(' '))
}

fn text_block(s: &str, indent: usize, out: &mut String) {
    let body = s.trim_end_matches('\n');
    // The chomping indicator preserves the number of final newlines.
    out.push_str(match s.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    let lines = s.strip_suffix('\n').unwrap_or(s);
    for line in lines.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
}

/// Writes a string with the least quoting its content allows. With an indent, lines are broken at the first
/// single space behind the column of [`WIDTH`], like upstream's.
fn folded(s: &str, indent: Option<usize>, out: &mut String) {
    // Double quotes for strings that would read back as another type, and for special characters.
    // The last two are the merge key and YAML 1.1's value key, which plain scalars would be taken for.
    let other_type = resolve(s) != Plain::String || is_base60(s) || is_timestamp(s) || s == "<<" || s == "=";
    // Without spaces there is nowhere to break, and the column, which costs a scan, is not needed.
    let indent = indent.filter(|_| s.contains(' '));
    let mut line = Line {
        column: indent.map_or(0, |_| column(out)),
        indent,
        after_space: false,
    };
    if other_type || !s.chars().all(is_printable) {
        // The opening quote takes a column.
        line.column += 1;
        double_quoted(s, &mut line, out);
    } else if fits_plain(s) {
        line.text(s, false, out);
    } else {
        out.push('\'');
        line.column += 1;
        line.text(s, true, out);
        out.push('\'');
    }
}

/// Lines are broken behind this column.
const WIDTH: usize = 80;

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
}

/// The members in the order of upstream's writer: letters behind other characters, numbers by value.
fn in_order<'v>(mut members: Vec<(&'v str, &'v Value)>) -> Vec<(&'v str, &'v Value)> {
    // The usual case: keys without digits or mixed classes are already in order.
    if members.is_sorted_by(|a, b| !precedes(b.0, a.0)) {
        return members;
    }
    // The order is not total, so the sort of the standard library might panic.
    let behind = in_order(members.split_off(members.len() / 2));
    let ahead = in_order(members);
    let mut out = Vec::with_capacity(ahead.len() + behind.len());
    let (mut ahead, mut behind) = (ahead.into_iter().peekable(), behind.into_iter().peekable());
    while let (Some(a), Some(b)) = (ahead.peek(), behind.peek()) {
        pause();
        // Takes from the front half on ties, which keeps the merge stable.
        let next = if precedes(b.0, a.0) {
            behind.next()
        } else {
            ahead.next()
        };
        out.extend(next);
    }
    out.extend(ahead);
    out.extend(behind);
    out
}

/// Whether upstream's writer puts one key before another.
fn precedes(a: &str, b: &str) -> bool {
    // The common prefix in bytes, cut between characters.
    let same: usize = (a.chars().zip(b.chars()))
        .take_while(|(x, y)| x == y)
        .map(|(x, _)| x.len_utf8())
        .sum();
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    let (Some(x), Some(y)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return rest_a.len() < rest_b.len();
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, false) => {}
        (_, is_letter) => return is_letter,
    }
    // Zeros behind another digit are part of a longer number.
    let before = a[..same].trim_end_matches('0');
    let is_inside = before.ends_with(|c: char| c.is_ascii_digit());
    let lead = i64::from((x == '0' || y == '0') && is_inside);
    let number = |rest: &str| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit);
        digits.fold((lead, 0_usize), |(n, length), digit| {
            // Wraps like Go's integer arithmetic, so that absurdly long numbers sort like upstream's.
            let next = n.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
            (next, length + 1)
        })
    };
    let (m, n) = (number(rest_a), number(rest_b));
    if m == n { x < y } else { m < n }
}

fn fits_plain(s: &str) -> bool {
    let mut chars = s.chars();
    let (first, second) = (chars.next(), chars.next());
    let first_ok = match first {
        None | Some(' ') => false,
        Some('-' | '?' | ':') => second.is_some_and(|c| c != ' '),
        Some(',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => false,
        Some(_) => true,
    };
    first_ok
        && !s.starts_with("---")
        && !s.starts_with("...")
        && !s.ends_with([' ', ':'])
        && !s.contains(": ")
        && !s.contains(" #")
}

fn double_quoted(s: &str, line: &mut Line, out: &mut String) {
    out.push('"');
    let mut escaped = String::new();
    for (i, c) in s.char_indices() {
        let inner = i > 0 && i + 1 < s.len();
        if let Some(indent) = line.breaks().filter(|_| c == ' ' && inner) {
            line.next_line(indent, out);
            // A break swallows spaces that follow it; the backslash marks the first one as content.
            if s[i + 1..].starts_with(' ') {
                line.push('\\', out);
            }
            line.after_space = true;
            continue;
        }
        escaped.clear();
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c if is_printable(c) => escaped.push(c),
            c if u32::from(c) < 0x100 => escaped.push_str(&format!("\\x{:02X}", u32::from(c))),
            c if u32::from(c) < 0x10000 => escaped.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => escaped.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
        out.push_str(&escaped);
        line.column += escaped.chars().count();
        line.after_space = c == ' ';
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn long_lines_are_broken_at_spaces_like_upstreams() {
        let words = "x in version \"v1\" cannot be handled as a StatefulSet: no kind \"x\" is registered for version \"apps/v1\"";
        assert_eq!(
            to_string(&json!({"message": words})),
            "message: 'x in version \"v1\" cannot be handled as a StatefulSet: no kind \"x\" is registered\n  for version \"apps/v1\"'\n"
        );
        let long = "a".repeat(80);
        for (text, want) in [
            (format!("{long} b c"), format!("k: {long}\n  b c\n")),
            (format!("{long}  b c"), format!("k: {long}  b\n  c\n")),
            (
                format!("é{}\x01 b  c", &long[..74]),
                format!("k: \"é{}\\x01\n  b  c\"\n", &long[..74]),
            ),
            (format!("\x01{long}  b"), format!("k: \"\\x01{long}\n  \\ b\"\n")),
            (format!("{long}-{long}"), format!("k: {long}-{long}\n")),
        ] {
            assert_eq!(to_string(&json!({"k": text.clone()})), want, "{text}");
        }
        let listed = to_string(&json!({"l": [{"k": format!("{long} b")}]}));
        assert_eq!(listed, format!("l:\n- k: {long}\n    b\n"));
    }

    #[test]
    fn keys_are_ordered_like_upstreams() {
        let sorted = [
            "", ".", "1a", "8", "80", "443", "A", "a", "a.b", "a8", "a10", "a100", "aB", "ab",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(precedes(a, b), i < j, "{a} {b}");
            }
        }
        let members: Vec<String> = (0..50).map(|i| format!("k{}", i * 37 % 50)).collect();
        let object = Value::Object(members.iter().map(|k| (k.as_str(), Value::Null)).collect());
        let keys = to_string(&object).replace(": null", "");
        assert_eq!(
            keys.lines().map(str::to_owned).collect::<Vec<_>>(),
            (0..50).map(|i| format!("k{i}")).collect::<Vec<_>>()
        );
    }
}
