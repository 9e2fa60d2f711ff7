//! The types of plain (unquoted) scalars in YAML 1.1, as `goyaml.v2` resolves them.

/// The resolved value of a plain scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that only fits 64 bits without a sign.
    Wide(u64),
    Float(f64),
    String,
}

pub(super) fn resolve(s: &str) -> Plain {
    match s {
        "" | "~" | "null" | "Null" | "NULL" => Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Plain::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Plain::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Plain::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Plain::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Plain::Float(f64::NEG_INFINITY),
        _ => number(s),
    }
}

fn number(s: &str) -> Plain {
    // The cheap exit: nearly all scalars of a manifest start with a letter.
    if !s.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Plain::String;
    }
    // Go reads a number that begins with its fraction by its own syntax, in which underscores are between digits.
    if s.starts_with('.') && !underscores_are_inside(s) {
        return Plain::String;
    }
    // YAML 1.1 allows underscores in numbers.
    let plain = s.replace('_', "");
    if let Some(i) = integer(&plain) {
        return i;
    }
    if is_float(&plain)
        && let Ok(f) = plain.parse::<f64>()
        // A number that overflows is a string.
        && f.is_finite()
    {
        return Plain::Float(f);
    }
    Plain::String
}

fn underscores_are_inside(s: &str) -> bool {
    let b = s.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| b.get(at)).is_some_and(u8::is_ascii_digit);
    let inside = |at: usize| is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1));
    s.match_indices('_').all(|(at, _)| inside(at))
}

/// Parses integers with Go's base-0 prefixes: `0x1f`, `0b11`, `0o17`, `017`, with an optional sign.
fn integer(s: &str) -> Option<Plain> {
    let (negative, digits) = match s.as_bytes().first()? {
        b'-' => (true, &s[1..]),
        b'+' => (false, &s[1..]),
        _ => (false, s),
    };
    let prefixed = |a: &str, b: &str| digits.strip_prefix(a).or_else(|| digits.strip_prefix(b));
    let (radix, digits) = if let Some(d) = prefixed("0x", "0X") {
        (16, d)
    } else if let Some(d) = prefixed("0b", "0B") {
        (2, d)
    } else if let Some(d) = prefixed("0o", "0O") {
        (8, d)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    // A lone prefix such as `0x`, or a digit outside the radix: `09` is a string, but `0.9` goes on as a float.
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    // i128 holds every 64-bit value of either sign without overflow checks.
    match i128::from_str_radix(digits, radix) {
        Ok(n) => {
            let n = if negative { -n } else { n };
            match (i64::try_from(n), u64::try_from(n)) {
                (Ok(i), _) => Some(Plain::Int(i)),
                // Go reads no sign before these.
                (_, Ok(n)) if !s.starts_with('+') => Some(Plain::Wide(n)),
                _ => None,
            }
        }
        Err(_) => None,
    }
}

/// Matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(s: &str) -> bool {
    let s = s.strip_prefix(['-', '+']).unwrap_or(s);
    let (mantissa, exponent) = match s.split_once(['e', 'E']) {
        Some((m, e)) => (m, Some(e)),
        None => (s, None),
    };
    let digits = |t: &str| t.bytes().all(|c| c.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_ok = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['-', '+']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    mantissa_ok && exponent_ok
}

/// True for strings that YAML 1.1 parsers read as base 60 numbers (`1:20`); they must be quoted. Matches
/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`.
pub(super) fn is_base60(s: &str) -> bool {
    let s = s.strip_prefix(['-', '+']).unwrap_or(s);
    // The cheap exit, as for numbers.
    if !s.starts_with(|c: char| c.is_ascii_digit()) || !s.contains(':') {
        return false;
    }
    let (whole, fraction) = s.split_once('.').unwrap_or((s, ""));
    let loose = |t: &str| t.bytes().all(|c| c.is_ascii_digit() || c == b'_');
    let sixtieth = |t: &str| matches!(t.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']);
    let Some((first, rest)) = whole.split_once(':') else {
        return false;
    };
    loose(first) && rest.split(':').all(sixtieth) && loose(fraction)
}

/// True for strings that YAML 1.1 parsers read as timestamps: `2001-01-01`, `2001-12-14t21:59:43.10-05:00`.
pub(super) fn is_timestamp(s: &str) -> bool {
    timestamp(s.as_bytes()).is_some()
}

/// Reads a timestamp in one of goyaml's formats, as Go's `time.Parse` does: with one or two digits for all but the
/// year.
fn timestamp(b: &[u8]) -> Option<()> {
    let (year, rest) = b.split_at_checked(4)?;
    if !year.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let year = year.iter().fold(0, |n, c| n * 10 + u32::from(c - b'0'));
    let mut rest = Digits(rest);
    rest.skip(b'-')?;
    let month = rest.number(1, 12)?;
    rest.skip(b'-')?;
    rest.number(1, days_in(year, month))?;
    let Some(&separator) = rest.0.first() else {
        return Some(());
    };
    // Only the formats with a letter have a zone.
    let has_zone = matches!(separator, b'T' | b't');
    if !has_zone && separator != b' ' {
        return None;
    }
    rest.skip(separator)?;
    while !has_zone && rest.skip(b' ').is_some() {}
    rest.number(0, 23)?;
    rest.skip(b':')?;
    rest.number(0, 59)?;
    rest.skip(b':')?;
    rest.number(0, 59)?;
    if let [b'.' | b',', fraction @ ..] = rest.0
        && fraction.first().is_some_and(u8::is_ascii_digit)
    {
        let digits = fraction.iter().take_while(|c| c.is_ascii_digit()).count();
        rest.0 = &fraction[digits..];
    }
    match rest.0 {
        [] if !has_zone => Some(()),
        [b'Z'] if has_zone => Some(()),
        [b'+' | b'-', offset @ ..] if has_zone && offset.len() == 5 => {
            let mut offset = Digits(offset);
            // Go takes 24 hours and 60 minutes, too.
            offset.number(0, 24)?;
            offset.skip(b':')?;
            offset.number(0, 60)?;
            offset.0.is_empty().then_some(())
        }
        _ => None,
    }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The unread rest of a timestamp.
struct Digits<'s>(&'s [u8]);

impl Digits<'_> {
    /// A number of one or two digits.
    fn number(&mut self, min: u32, max: u32) -> Option<u32> {
        let count = self.0.iter().take(2).take_while(|c| c.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let n = digits.iter().fold(0, |n, c| n * 10 + u32::from(c - b'0'));
        (count > 0 && (min..=max).contains(&n)).then_some(n)
    }

    fn skip(&mut self, c: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[c])?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_resolve_as_in_go_yaml() {
        for text in [
            "2001-01-01",
            "2024-2-29",
            "2001-12-14t21:59:43.10-05:00",
            "2001-12-14T1:2:3Z",
            "2001-12-14  21:59:43,1",
            "0000-02-29",
        ] {
            assert!(is_timestamp(text), "{text}");
        }
        for text in [
            "2001-02-29",
            "2024-13-45",
            "2024-01-15-1",
            "2001-12-14T21:59:43",
            "2001-12-14 21:59:43Z",
            "2001-12-14T24:00:00Z",
            "2001-12-14T21:59:43+5:00",
            "2001-12-",
            "20011-1-1",
            "2001-12-14 ",
            "2001",
        ] {
            assert!(!is_timestamp(text), "{text}");
        }
    }
}
