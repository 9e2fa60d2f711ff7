//! The types of plain (unquoted) scalars in YAML 1.1, as `goyaml.v2` resolves them.

/// The resolved value of a plain scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Int(i64),
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
    // YAML 1.1 allows underscores in numbers.
    let plain = s.replace('_', "");
    if let Some(i) = integer(&plain) {
        return i;
    }
    if is_float(&plain)
        && let Ok(f) = plain.parse()
    {
        return Plain::Float(f);
    }
    Plain::String
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
            match i64::try_from(n) {
                Ok(i) => Some(Plain::Int(i)),
                // Values that only fit an unsigned integer become floats in the JSON tree.
                Err(_) if n > 0 && n <= i128::from(u64::MAX) => Some(Plain::Float(n as f64)),
                Err(_) => None,
            }
        }
        Err(_) => None,
    }
}

/// Matches `[-+]?[0-9]*\.?[0-9]+([eE][-+][0-9]+)?`; the sign of the exponent is mandatory.
fn is_float(s: &str) -> bool {
    let s = s.strip_prefix(['-', '+']).unwrap_or(s);
    let (mantissa, exponent) = match s.split_once(['e', 'E']) {
        Some((m, e)) => (m, Some(e)),
        None => (s, None),
    };
    let digits = |t: &str| t.bytes().all(|c| c.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some((a, b)) => digits(a) && !b.is_empty() && digits(b),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    // YAML 1.1 requires the sign, which is why `1e3` stays a string.
    let exponent_ok = exponent.is_none_or(|e| e.strip_prefix(['-', '+']).is_some_and(|d| !d.is_empty() && digits(d)));
    mantissa_ok && exponent_ok
}

/// True for strings that YAML 1.1 parsers read as base 60 numbers (`1:20`); they must be quoted.
pub(super) fn is_base60(s: &str) -> bool {
    let s = s.strip_prefix(['-', '+']).unwrap_or(s);
    s.starts_with(|c: char| c.is_ascii_digit())
        && s.contains(':')
        && s.bytes().all(|c| c.is_ascii_digit() || matches!(c, b':' | b'.' | b'_'))
}

/// True for strings that YAML 1.1 parsers read as timestamps: `2001-01-01`, `2001-12-14t21:59:43.10-05:00`.
pub(super) fn is_timestamp(s: &str) -> bool {
    let b = s.as_bytes();
    let digits = b.iter().take_while(|c| c.is_ascii_digit()).count();
    // goyaml checks for four digits and a dash before it tries its timestamp formats.
    digits == 4
        && b.get(4) == Some(&b'-')
        && b[5..].iter().take_while(|c| c.is_ascii_digit()).count() > 0
        && b.iter().filter(|c| **c == b'-').count() >= 2
        && b.iter()
            .all(|c| c.is_ascii_digit() || matches!(c, b'-' | b':' | b'.' | b'+' | b'T' | b't' | b'Z' | b' '))
}
