//! The YAML encoder, with the output format of `sigs.k8s.io/yaml`.
//!
//! Start at [`to_string`].

use super::scalar;
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
            inline(scalar, 2, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Encodes an element of a list that is a member of the document, behind its `- ` and with a final newline.
/// Where long lines are broken depends on the nesting.
pub fn to_item(v: &Value) -> String {
    let mut out = String::with_capacity(1024);
    out.push_str("- ");
    element(v, 0, &mut out);
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
                let is_explicit = scalar::is_explicit_key(k);
                if is_explicit {
                    out.push_str("? ");
                    scalar::value(k, indent + 2, out);
                    out.push('\n');
                    pad(indent, out);
                } else {
                    scalar::key(k, out);
                }
                out.push(':');
                match v {
                    Value::Object(_) | Value::Array(_) if is_deep(indent) => {
                        // JSON on one line is valid YAML, which keeps deep documents readable by the same decoder.
                        out.push(' ');
                        out.push_str(&json::to_string(v));
                        out.push('\n');
                    }
                    Value::Object(m) if !m.is_empty() => member(v, indent + 2, is_explicit, out),
                    // Behind an explicit key, a list begins on its line, and so has to be indented.
                    Value::Array(a) if !a.is_empty() && is_explicit => member(v, indent + 2, true, out),
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
                element(v, indent, out);
            }
        }
        _ => {}
    }
}

/// Writes an element of a list, behind its `- `.
fn element(v: &Value, indent: usize, out: &mut String) {
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

/// Writes a container behind a key, on the line of the key if that is explicit.
fn member(v: &Value, indent: usize, is_explicit: bool, out: &mut String) {
    out.push(if is_explicit { ' ' } else { '\n' });
    block(v, indent, is_explicit, out);
}

/// Writes a scalar or an empty container. `indent` applies to the lines of a block scalar.
fn inline(v: &Value, indent: usize, out: &mut String) {
    match v {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Float(_) => float(v, out),
        Value::String(s) => scalar::value(s, indent, out),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Upstream makes YAML of JSON, where a float may have been written like an integer.
fn float(v: &Value, out: &mut String) {
    let text = json::to_string(v);
    match text.parse::<i64>() {
        // Anew, because of the sign of zero.
        Ok(n) => out.push_str(&n.to_string()),
        Err(_) if text.parse::<u64>().is_ok() => out.push_str(&text),
        Err(_) => out.push_str(&crate::patch::go_print(v)),
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
    fn long_keys_and_keys_with_breaks_are_explicit_like_upstreams() {
        let long = "a".repeat(129);
        let mut object = json!({"d": 1});
        object.set(&[&long], json!({"x": 1, "z": [1, {"a": 2}]}));
        let listed = to_string(&object).replace(&long, "LONG");
        assert_eq!(listed, "? LONG\n: x: 1\n  z:\n  - 1\n  - a: 2\nd: 1\n");
        let mut inner = json!({});
        inner.set(&[&long], json!(["x", {"b": 1}]));
        let nested = to_string(&json!({"r": inner})).replace(&long, "LONG");
        assert_eq!(nested, "r:\n  ? LONG\n  : - x\n    - b: 1\n");
        assert_eq!(to_string(&json!({"a\nb": "c", "d": 1})), "? |-\n  a\n  b\n: c\nd: 1\n");
    }

    #[test]
    fn floats_are_written_as_they_are_in_json() {
        for (float, want) in [
            (1e7, "10000000"),
            (1e19, "10000000000000000000"),
            (1e20, "1e+20"),
            (-0.0, "0"),
            (1.5e-7, "1.5e-07"),
            (1_234_567.5, "1.2345675e+06"),
        ] {
            assert_eq!(to_string(&Value::Float(float)), format!("{want}\n"));
        }
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
