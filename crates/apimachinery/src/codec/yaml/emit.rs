//! The YAML encoder, with the output format of `sigs.k8s.io/yaml`.
//!
//! Start at [`to_string`].

use super::resolve::{Plain, is_base60, is_timestamp, resolve};
use crate::codec::json::{self, DEEPEST_INDENT};
use crate::value::Value;

/// Encodes a document with a final newline and without `---`.
pub fn to_string(v: &Value) -> String {
    let mut out = String::with_capacity(1024);
    match v {
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
            for (k, v) in m.iter() {
                if !std::mem::take(&mut begun) {
                    pad(indent, out);
                }
                // YAML limits implicit keys in length; goyaml writes long ones as explicit keys.
                if k.len() > 128 {
                    out.push_str("? ");
                    one_line(k, out);
                    out.push('\n');
                    pad(indent, out);
                } else {
                    one_line(k, out);
                }
                out.push(':');
                match v {
                    Value::Object(_) | Value::Array(_) if is_deep(indent) => {
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
        Value::String(s) if fits_block(s) => text_block(s, indent.max(2), out),
        Value::String(s) => one_line(s, out),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Characters allowed outside double quotes. Like upstream's writer, four-byte characters are escaped.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn fits_block(s: &str) -> bool {
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

/// Writes a string on one line with the least quoting its content allows.
fn one_line(s: &str, out: &mut String) {
    // Double quotes for strings that would read back as another type, and for special characters.
    let other_type = resolve(s) != Plain::String || is_base60(s) || is_timestamp(s) || s == "<<" || s == "=";
    if other_type || !s.chars().all(is_printable) {
        double_quoted(s, out);
    } else if fits_plain(s) {
        out.push_str(s);
    } else {
        out.push('\'');
        out.push_str(&s.replace('\'', "''"));
        out.push('\'');
    }
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

fn double_quoted(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            c if u32::from(c) < 0x10000 => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
}
