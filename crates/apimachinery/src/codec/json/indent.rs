//! Indents compact JSON without decoding it, so that indented documents keep the order of their members.

use super::projection::string_end;

/// Values nested deeper than this are written on one line. Otherwise, at a thousand levels, every short list
/// element would be preceded by two kilobytes of spaces.
pub(crate) const DEEPEST_INDENT: usize = 64;

/// Appends this crate's compact encoding of a value as upstream's `?pretty=true` writes it: two spaces of
/// indent, empty containers on one line, no final newline. `depth` is the nesting level of the value in its
/// document.
///
/// Text that is not such an encoding is indented wrongly, but completely.
pub fn indent(compact: &[u8], depth: usize, out: &mut Vec<u8>) {
    let (mut depth, mut at) = (depth, 0);
    while let Some(&b) = compact.get(at) {
        // Compact input has no white space outside of strings, so a byte is either structural or part of a scalar.
        at += 1;
        let opens = matches!(b, b'{' | b'[');
        if opens && compact.get(at).is_some_and(|next| *next == b + 2) {
            // An empty container: in ASCII, a closing brace or bracket is two behind the opening one.
            out.extend_from_slice(&[b, b + 2]);
            at += 1;
            continue;
        }
        match b {
            b'"' => {
                // An unterminated string runs to the end: the function is total, and only formats what we encoded.
                let end = string_end(compact, at).unwrap_or(compact.len());
                out.extend_from_slice(&compact[at - 1..end]);
                at = end;
            }
            b'{' | b'[' => {
                out.push(b);
                depth += 1;
                line(depth, out);
            }
            b'}' | b']' => {
                line_before_close(depth, out);
                // Saturating: text that is not our encoding may close more than it opens.
                depth = depth.saturating_sub(1);
                out.push(b);
            }
            b',' => {
                out.push(b);
                line(depth, out);
            }
            b':' if depth <= DEEPEST_INDENT => out.extend_from_slice(b": "),
            _ => out.push(b),
        }
    }
}

/// Starts the line of a member or element of a container at this depth.
fn line(depth: usize, out: &mut Vec<u8>) {
    if depth <= DEEPEST_INDENT {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    }
}

/// Starts the line on which the container with members at this depth closes.
fn line_before_close(depth: usize, out: &mut Vec<u8>) {
    if depth <= DEEPEST_INDENT {
        line(depth.saturating_sub(1), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_text_is_indented_as_go_does() {
        let text = br#"{"b":[1,{"a":"x:{,\"}"},[],{}],"a":{"c":null}}"#;
        let mut out = Vec::new();
        indent(text, 0, &mut out);
        let want = "{\n  \"b\": [\n    1,\n    {\n      \"a\": \"x:{,\\\"}\"\n    },\n    [],\n    {}\n  ],\n  \"a\": {\n    \"c\": null\n  }\n}";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn other_text_is_indented_to_its_end() {
        for odd in ["", "\"", "]]", "{", "{\"a", "[}", "\"\\"] {
            let mut out = Vec::new();
            indent(odd.as_bytes(), 0, &mut out);
            let kept: Vec<u8> = out.into_iter().filter(|b| !b.is_ascii_whitespace()).collect();
            assert_eq!(kept, odd.as_bytes());
        }
    }
}
