//! Why a text is not an IP address, in the words of Go's `netip.ParseAddr`.

use torana_apimachinery::field::quote;

/// The message, and the text from the error on if the message shows it.
type Wrong<'s> = (&'static str, &'s str);

/// The message for a text that is not an address.
pub(super) fn refusal(text: &str) -> String {
    // Go decides the family by the first of these characters.
    let first = text.find(['.', ':', '%']).map(|i| text.as_bytes()[i]);
    let wrong = match first {
        Some(b'.') => v4(text),
        Some(b':') => match text.split_once('%') {
            Some((_, "")) => Some(("zone must be a non-empty string", "")),
            Some((address, _)) => v6(address),
            None => v6(text),
        },
        Some(_) => Some(("missing IPv6 address", "")),
        None => None,
    };
    let (why, rest) = wrong.unwrap_or(("unable to parse IP", ""));
    match rest {
        "" => format!("ParseAddr({}): {why}", quote(text)),
        rest => format!("ParseAddr({}): {why} (at {})", quote(text), quote(rest)),
    }
}

fn v4(text: &str) -> Option<Wrong<'_>> {
    let (mut value, mut digits, mut dots) = (0, 0, 0);
    for (i, c) in text.char_indices() {
        match (c, c.to_digit(10)) {
            (_, Some(_)) if digits == 1 && value == 0 => {
                return Some(("IPv4 field has octet with leading zero", ""));
            }
            (_, Some(digit)) => {
                value = value * 10 + digit;
                digits += 1;
                if value > 255 {
                    return Some(("IPv4 field has value >255", ""));
                }
            }
            ('.', None) if digits == 0 || i + 1 == text.len() => {
                return Some(("IPv4 field must have at least one digit", &text[i..]));
            }
            ('.', None) if dots == 3 => return Some(("IPv4 address too long", "")),
            ('.', None) => {
                dots += 1;
                (value, digits) = (0, 0);
            }
            _ => return Some(("unexpected character", &text[i..])),
        }
    }
    (dots < 3).then_some(("IPv4 address too short", ""))
}

/// Reads groups of 16 bits from the left; `rest` is what is left to read.
fn v6(text: &str) -> Option<Wrong<'_>> {
    let (mut rest, mut groups, mut gap) = (text, 0, false);
    if let Some(after) = text.strip_prefix("::") {
        (rest, gap) = (after, true);
        if rest.is_empty() {
            return None;
        }
    }
    while groups < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Some(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Some(("each colon-separated field must have at least one digit", rest));
        }
        // A dotted quad may only replace the last two groups.
        if rest[digits..].starts_with('.') {
            return match groups {
                g if !gap && g != 6 => Some((
                    "embedded IPv4 address must replace the final 2 fields of the address",
                    rest,
                )),
                g if g > 6 => Some((
                    "too many hex fields to fit an embedded IPv4 at the end of the address",
                    rest,
                )),
                _ => v4(rest),
            };
        }
        groups += 1;
        rest = &rest[digits..];
        rest = match rest.strip_prefix(':') {
            _ if rest.is_empty() => break,
            None => return Some(("unexpected character, want colon", rest)),
            Some("") => return Some(("colon must be followed by more characters", rest)),
            Some(after) => after,
        };
        if let Some(after) = rest.strip_prefix(':') {
            if gap {
                return Some(("multiple :: in address", rest));
            }
            (rest, gap) = (after, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    match (groups, gap) {
        _ if !rest.is_empty() => Some(("trailing garbage after address", rest)),
        (8, true) => Some(("the :: must expand to at least one field of zeros", "")),
        (8, false) | (_, true) => None,
        (_, false) => Some(("address string too short", "")),
    }
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn messages_contain_the_error_and_its_position() {
        for (text, why) in [
            ("", "unable to parse IP"),
            ("web", "unable to parse IP"),
            ("%eth0", "missing IPv6 address"),
            ("10.0.0", "IPv4 address too short"),
            ("10.0.0.0.0", "IPv4 address too long"),
            ("10.0.0.01", "IPv4 field has octet with leading zero"),
            ("10.0.0.256", "IPv4 field has value >255"),
            ("10..0.1", r#"IPv4 field must have at least one digit (at ".0.1")"#),
            ("10.0.0.0/8", r#"unexpected character (at "/8")"#),
            ("1:2", "address string too short"),
            ("12345::", r#"each group must have 4 or less digits (at "12345::")"#),
            (
                "x::",
                r#"each colon-separated field must have at least one digit (at "x::")"#,
            ),
            ("1::2::3", r#"multiple :: in address (at ":3")"#),
            ("1:", r#"colon must be followed by more characters (at ":")"#),
            ("1:2g", r#"unexpected character, want colon (at "g")"#),
            ("1:2:3:4:5:6:7:8:9", r#"trailing garbage after address (at "9")"#),
            ("1:2:3:4:5:6:7:8::", "the :: must expand to at least one field of zeros"),
            (
                "1:2.3.4.5",
                r#"embedded IPv4 address must replace the final 2 fields of the address (at "2.3.4.5")"#,
            ),
        ] {
            assert_eq!(refusal(text), format!("ParseAddr({text:?}): {why}"));
        }
    }
}
