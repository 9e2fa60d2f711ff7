//! Escaping and unescaping of HTML entities in attribute values.

/// Escapes as Go's `html.EscapeString`. With `entities`, entities already present are kept.
pub(super) fn escape(value: &[u8], entities: bool, out: &mut Vec<u8>) {
    for (i, b) in value.iter().enumerate() {
        match b {
            b'&' if entities && is_entity(&value[i + 1..]) => out.push(b'&'),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            // As in Go's `x/net/html`: a parser would turn the raw character into a line feed.
            b'\r' => out.extend_from_slice(b"&#13;"),
            b => out.push(*b),
        }
    }
}

fn is_entity(after: &[u8]) -> bool {
    let word = |b: &u8| !(b.is_ascii_alphanumeric() || *b == b'#');
    let end = after.iter().position(word).unwrap_or(after.len());
    end > 0 && after.get(end) == Some(&b';')
}

/// Replaces the entities that occur in links.
pub(super) fn unescaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let here = &rest[at..];
        // No entity contains another `&`. Searched beyond it, a row of them would take quadratic time.
        let name = here[1..].split(['&', ';']).next().unwrap_or("");
        let after = here[1 + name.len()..].strip_prefix(';');
        let meant = after.and_then(|after| Some((character(name)?, after)));
        rest = match meant {
            Some((c, after)) => {
                out.push(c);
                after
            }
            None => {
                out.push('&');
                &here[1..]
            }
        };
    }
    out.push_str(rest);
    out
}

fn character(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = entity.strip_prefix('#')?;
            let (radix, digits) = match number.strip_prefix(['x', 'X']) {
                Some(hex) => (16, hex),
                None => (10, number),
            };
            // Also parses a plus sign, with which a browser reads the text as it is.
            let code = u32::from_str_radix(digits, radix)
                .ok()
                .filter(|_| !digits.starts_with('+'));
            char::from_u32(code?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ampersands_are_read_once() {
        // Quadratic, this would take minutes.
        let row = "&".repeat(4 << 20) + ";";
        assert_eq!(unescaped(&row), row);
        assert_eq!(unescaped("&&amp;&#x2f&#47;&nope;&lt"), "&&&#x2f/&nope;&lt");
    }

    #[test]
    fn numeric_entities_have_no_sign() {
        assert_eq!(unescaped("&#47;&#x2f;&#X2F;&amp;"), "///&");
        assert_eq!(unescaped("&#+47;&#x+2f;"), "&#+47;&#x+2f;");
    }
}
