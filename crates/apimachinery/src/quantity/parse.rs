//! Takes the text of a quantity apart ([`split`]): sign, digits, suffix; and turns the digits into units, rounded up
//! where upstream does. The public type is in the parent module.

use super::{Amount, BINARY_MAX, Format, NANO, divide_up};

/// Most digits of a decimal quantity in units of 10⁻⁹. Upstream has no limit, and a few bytes of exponent
/// keep it busy for minutes (docs/wire/differences.md).
const MAX_DIGITS: usize = 4096;
/// Most digits before and after the point for which upstream uses 64-bit arithmetic.
const SMALL_DIGITS: usize = 18;

/// A text is not a quantity. The messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It has not the form of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    /// Its number has no digits or too many.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// Its suffix is none of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

pub(super) const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
pub(super) const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// A quantity's text, split into its lexical parts.
pub(super) struct Parts<'a> {
    pub negative: bool,
    /// Without leading zeros.
    pub whole: &'a str,
    pub fraction: &'a str,
    pub suffix: &'a str,
    /// Whether there is any digit. Upstream reads a number without one as zero, except in its slow path.
    pub has_digits: bool,
}

/// The text without what surrounds it. Upstream trims the JSON text, in which white space other than spaces
/// is escaped.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c == ' ' || (!c.is_ascii() && c.is_whitespace()))
}

/// Splits a text as upstream's `parseQuantityString`: sign, digits, a point and digits, letters, sign,
/// digits. Each part may be missing.
pub(super) fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    if text.is_empty() {
        return Err(ParseError::Form);
    }
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    // A second point is left in the suffix and fails there.
    let (fraction, suffix) = rest
        .strip_prefix('.')
        .map_or(("", rest), |after| after.split_at(digits(after)));
    let after = suffix.trim_start_matches(|c: char| c.is_ascii() && b"eEinumkKMGTP".contains(&(c as u8)));
    let exponent = after.strip_prefix(['-', '+']).unwrap_or(after);
    // Anything behind letters, sign and digits.
    if digits(exponent) != exponent.len() {
        return Err(ParseError::Form);
    }
    Ok(Parts {
        negative,
        has_digits: !whole.is_empty() || !fraction.is_empty(),
        whole: whole.trim_start_matches('0'),
        fraction,
        suffix,
    })
}

/// Returns base (10 or 2), exponent and format of a suffix.
pub(super) fn scale(suffix: &str) -> Option<(u8, i32, Format)> {
    if let Some((_, e)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((10, *e, Format::DecimalSi));
    }
    if let Some((_, e)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((2, i32::try_from(*e).ok()?, Format::BinarySi));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "as upstream")]
    let exponent = exponent as i32;
    Some((10, exponent, Format::DecimalExponent))
}

/// Rounds a decimal number away from zero by dropping its last `n` digits.
fn drop_digits(digits: &mut Vec<u8>, n: usize) {
    let kept = digits.len().saturating_sub(n);
    let inexact = digits[kept..].iter().any(|d| *d != b'0');
    digits.truncate(kept);
    if !inexact {
        // Exact: nothing to round.
        return;
    }
    for digit in digits.iter_mut().rev() {
        match digit {
            b'9' => *digit = b'0',
            other => {
                *other += 1;
                return;
            }
        }
    }
    // All digits were nines and have become zeros: a carry is left.
    digits.insert(0, b'1');
}

/// The digits of a decimal number in units of 10^`finest`, without leading zeros.
pub(super) fn decimal_digits(parts: &Parts<'_>, exponent: i32, finest: i32) -> Result<Vec<u8>, ParseError> {
    let mut digits = [parts.whole.as_bytes(), parts.fraction.as_bytes()].concat();
    let zeros = digits.iter().take_while(|d| **d == b'0').count();
    // Leading zeros would count towards `MAX_DIGITS`.
    digits.drain(..zeros);
    if digits.is_empty() {
        return Ok(digits);
    }
    let places = i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    let shift = i64::from(exponent) - i64::from(finest) - places;
    match usize::try_from(shift) {
        // Checked before the zeros are appended: an exponent of a few digits can ask for gigabytes.
        Ok(up) if digits.len().saturating_add(up) > MAX_DIGITS => return Err(ParseError::Number),
        Ok(up) => digits.resize(digits.len() + up, b'0'),
        Err(_) => drop_digits(&mut digits, usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX)),
    }
    match digits.len() <= MAX_DIGITS {
        true => Ok(digits),
        false => Err(ParseError::Number),
    }
}

/// The low 64 bits of a number, which is what upstream's big integers convert to.
pub(super) fn low_bits(digits: &[u8], negative: bool) -> i64 {
    // Wrapping by intention: Go's `big.Int.Int64` takes the low bits.
    let digit = |n: u64, d: &u8| n.wrapping_mul(10).wrapping_add(u64::from(d - b'0'));
    let n = digits.iter().fold(0, digit).cast_signed();
    if negative { n.wrapping_neg() } else { n }
}

/// The amount of a quantity that upstream reads without arbitrary precision.
pub(super) fn small(parts: &Parts<'_>, base: u8, exponent: i32) -> Option<Amount> {
    let whole = match parts.whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let places = i32::try_from(parts.fraction.len()).ok()?;
    let length = whole.len() + parts.fraction.len();
    let number = || format!("{whole}{}", parts.fraction).parse::<i64>().ok();
    let (value, scale) = match base {
        10 => {
            let scale = exponent.checked_sub(places)?;
            (length <= SMALL_DIGITS && scale >= -9)
                .then(number)?
                .map(|n| (n, scale))?
        }
        _ => {
            // Three decimal digits for every ten bits of the suffix.
            let digits = i32::try_from(length).ok()?;
            let fits = places == 0 && digits <= 14 - exponent / 10 * 3;
            let value = fits
                .then(number)??
                // Beyond 64 bits upstream falls back to big integers.
                .checked_mul(1i64.checked_shl(exponent.unsigned_abs())?)?;
            (value, 0)
        }
    };
    Some(Amount {
        value: if parts.negative { -value } else { value },
        scale,
    })
}

/// A number with a binary suffix in units of 10⁻⁹, rounded up and capped.
pub(super) fn binary_nanos(parts: &Parts<'_>, exponent: i32) -> i128 {
    /// As many digits of a fraction as 128 bits hold with the largest suffix; further ones only affect
    /// rounding.
    const PLACES: usize = 20;
    // Ei is the largest suffix, so the clamp only guards the shift.
    let factor = 1i128 << exponent.clamp(0, 60);
    let digits = |text: &str| {
        text.bytes()
            .try_fold(0i128, |n, d| n.checked_mul(10)?.checked_add((d - b'0').into()))
    };
    let units = digits(parts.whole).and_then(|n| n.checked_mul(factor));
    // Upstream caps binary quantities at the largest `int64`.
    let Some(units) = units.filter(|n| *n < BINARY_MAX) else {
        return BINARY_MAX * NANO;
    };
    let (kept, rest) = parts.fraction.split_at(parts.fraction.len().min(PLACES));
    // Cannot overflow: 10^20 times 2^60 is below 2^127.
    let fraction = digits(kept).unwrap_or(0) * factor;
    let (part, exact) = match kept.len() {
        places @ 0..=9 => (fraction * 10i128.pow(9 - places as u32), true),
        places => {
            let divisor = 10i128.pow(places as u32 - 9);
            (divide_up(fraction, divisor), fraction % divisor == 0)
        }
    };
    // Digits beyond `PLACES` only matter if everything before them was exact; otherwise it is rounded up already.
    let inexact = exact && rest.bytes().any(|d| d != b'0');
    (units * NANO + part + i128::from(inexact)).min(BINARY_MAX * NANO)
}
