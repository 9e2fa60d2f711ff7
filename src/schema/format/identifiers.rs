//! Identifiers, numbers with check digits, colours and encodings.

pub(super) fn hex(s: &str) -> bool {
    s.bytes().all(|b| b.is_ascii_hexdigit())
}

pub(super) fn uuid(s: &str, version: u8) -> bool {
    let mut digits = s.bytes();
    for (i, group) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        // Dashes between the groups are optional in upstream's pattern.
        if i > 0 && digits.clone().next() == Some(b'-') {
            digits.next();
        }
        for at in 0..group {
            let Some(d) = digits.next().filter(u8::is_ascii_hexdigit) else {
                return false;
            };
            // The version is the first digit of the third group, the variant that of the fourth (RFC 4122).
            let wrong_version = i == 2 && at == 0 && version > 0 && d != b'0' + version;
            let wrong_variant =
                i == 3 && at == 0 && version > 3 && !matches!(d, b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
            if wrong_version || wrong_variant {
                return false;
            }
        }
    }
    digits.next().is_none()
}

/// The ASCII digits of `s` without the characters that `skip` matches; `None` if any others remain.
fn digits(s: &str, skip: impl Fn(char) -> bool) -> Option<Vec<u32>> {
    s.chars().filter(|c| !skip(*c)).map(|c| c.to_digit(10)).collect()
}

fn is_separator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{c}' | '\r' | '-')
}

pub(super) fn isbn10(s: &str) -> bool {
    let s: String = s.chars().filter(|c| !is_separator(*c)).collect();
    // `X` stands for 10 as a check digit only.
    let (body, check) = match s.strip_suffix('X') {
        Some(body) => (body, Some(10)),
        None => (s.as_str(), None),
    };
    let Some(mut all) = digits(body, |_| false) else {
        return false;
    };
    all.extend(check);
    // Weights 1 to 10; valid if the sum is divisible by 11 (ISO 2108).
    all.len() == 10 && (1..).zip(&all).map(|(i, d)| i * d).sum::<u32>() % 11 == 0
}

pub(super) fn isbn13(s: &str) -> bool {
    let Some(all) = digits(s, is_separator) else {
        return false;
    };
    // Weights alternate between 1 and 3 (EAN-13).
    all.len() == 13 && [1, 3].iter().cycle().zip(&all).map(|(f, d)| f * d).sum::<u32>() % 10 == 0
}

/// A number of a known issuer with a valid check digit; anything but digits is ignored.
pub(super) fn credit_card(s: &str) -> bool {
    let all: String = s.chars().filter(char::is_ascii_digit).collect();
    let prefix = |n: usize| all.get(..n).and_then(|p| p.parse::<u32>().ok()).unwrap_or(0);
    let issuer = match all.len() {
        13 => prefix(1) == 4,
        14 => (300..=305).contains(&prefix(3)) || matches!(prefix(2), 36 | 38),
        15 => matches!(prefix(2), 34 | 37) || matches!(prefix(4), 2131 | 1800),
        16 => {
            let known = prefix(1) == 4 || (51..=55).contains(&prefix(2)) || prefix(2) == 65;
            known || prefix(4) == 6011 || prefix(2) == 35
        }
        _ => false,
    };
    // The Luhn algorithm: every second digit from the right is doubled, with the digits of the product added up.
    let doubled = |d: u32| if d > 4 { d * 2 - 9 } else { d * 2 };
    let digits = all.bytes().rev().map(|b| u32::from(b - b'0'));
    let sum: u32 = digits
        .enumerate()
        .map(|(i, d)| if i % 2 == 1 { doubled(d) } else { d })
        .sum();
    issuer && sum.is_multiple_of(10)
}

/// `000-00-0000`, or with spaces.
pub(super) fn ssn(s: &str) -> bool {
    s.len() == 11
        && s.bytes().enumerate().all(|(i, b)| match i {
            3 | 6 => matches!(b, b'-' | b' '),
            _ => b.is_ascii_digit(),
        })
}

pub(super) fn hex_color(s: &str) -> bool {
    let digits = s.strip_prefix('#').unwrap_or(s);
    matches!(digits.len(), 3 | 6) && hex(digits)
}

/// `rgb(0, 128, 255)`
pub(super) fn rgb_color(s: &str) -> bool {
    let Some(inner) = s.strip_prefix("rgb(").and_then(|s| s.strip_suffix(')')) else {
        return false;
    };
    let parts: Vec<&str> = inner.split(',').collect();
    let number = |p: &&str| {
        let p = p.trim_matches([' ', '\t', '\n', '\u{c}', '\r']);
        let plain = !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()) && (p == "0" || !p.starts_with('0'));
        plain && p.parse::<u16>().is_ok_and(|n| n <= 255)
    };
    parts.len() == 3 && parts.iter().all(number)
}

/// Padded base64 of at least one byte.
pub(super) fn base64(s: &str) -> bool {
    // At most two padding characters, and only at the end.
    let digits = s.trim_end_matches('=');
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    !s.is_empty() && s.len().is_multiple_of(4) && s.len() - digits.len() <= 2 && digits.bytes().all(fine)
}
