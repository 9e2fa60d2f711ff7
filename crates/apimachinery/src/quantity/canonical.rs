//! The text that the API serves for a quantity. Entry point: [`canonicalize`]. Upstream keeps some texts as they
//! were written and rewrites the others; which ones is decided here.

use super::parse::{BINARY, DECIMAL, ParseError, decimal_digits, scale, small, split, trim};
use super::{Amount, Format, NANO, Quantity, divide_up};
use std::fmt;

/// Returns the text the API serves for `text`: unchanged where upstream echoes its input, otherwise the
/// canonical form.
///
/// # Errors
/// The text is not a quantity.
pub fn canonicalize(text: &str) -> Result<String, ParseError> {
    canonical(text, -9)
}

/// Like [`canonicalize`], for an amount in a list of resources (requests, limits, capacities), which upstream
/// rounds up to thousandths in defaulting.
///
/// # Errors
/// The text is not a quantity.
pub fn canonicalize_amount(text: &str) -> Result<String, ParseError> {
    canonical(text, -3)
}

fn canonical(text: &str, finest: i32) -> Result<String, ParseError> {
    let trimmed = trim(text);
    let quantity = Quantity::parse(trimmed)?;
    let parts = split(trimmed)?;
    let (base, exponent, format) = scale(parts.suffix).ok_or(ParseError::Suffix)?;
    let small = small(&parts, base, exponent);
    // Upstream caches the text on its fast path only, and a rounded value loses it.
    if echoes(trimmed, quantity) && small.is_none_or(|amount| amount.scale >= finest) {
        return Ok(trimmed.to_owned());
    }
    // `nanos` saturated, so the digits are formatted from the text.
    if base == 10 && quantity.is_saturated() {
        let (digits, unit) = match small {
            Some(amount) => amount.digits(),
            None => (decimal_digits(&parts, exponent, finest)?, finest),
        };
        return Ok(wide_text(&digits, unit, format, parts.negative));
    }
    // `finest` is -9 or -3, so the exponent is 0 or 6.
    let unit = 10i128.pow((finest + 9).unsigned_abs());
    let rounded = divide_up(quantity.nanos, unit).saturating_mul(unit);
    Ok(Quantity::of(rounded, quantity.format, None).to_string())
}

impl Amount {
    /// Its magnitude as digits in units of a power of ten, and the exponent of that power, a multiple of three.
    fn digits(self) -> (Vec<u8>, i32) {
        let zeros = self.scale.rem_euclid(3);
        let padding = &"00"[..zeros.unsigned_abs() as usize];
        let digits = format!("{}{padding}", self.value.unsigned_abs());
        (digits.into_bytes(), self.scale - zeros)
    }
}

/// The canonical form of a number of more than 128 bits, given in units of 10^`finest`.
fn wide_text(digits: &[u8], finest: i32, format: Format, negative: bool) -> String {
    let (mut digits, mut exponent) = (digits, finest);
    // E (10^18) is the largest decimal suffix; exponents are not limited.
    while let Some(less) = digits.strip_suffix(b"000")
        && (exponent < 18 || format == Format::DecimalExponent)
    {
        digits = less;
        exponent += 3;
    }
    let sign = if negative { "-" } else { "" };
    let digits = String::from_utf8_lossy(digits);
    match format {
        Format::DecimalExponent if exponent != 0 => format!("{sign}{digits}e{exponent}"),
        _ => {
            let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
            format!("{sign}{digits}{suffix}")
        }
    }
}

/// True if upstream serves the text unchanged. Its fast path (small numbers already in normal form) caches
/// the input text.
fn echoes(text: &str, quantity: Quantity) -> bool {
    let Ok(parts) = split(text) else { return false };
    let Some((base, exponent, _)) = scale(parts.suffix) else {
        return false;
    };
    let whole = parts.whole.trim_start_matches('0');
    if quantity.nanos == 0 || whole.len() + parts.fraction.len() > 18 {
        return false;
    }
    if base == 2 {
        // Upstream's fast path budgets three decimal digits for every ten bits of the suffix.
        // Saturating a length is safe: more than 18 digits were excluded above.
        let digits = i32::try_from(whole.len()).unwrap_or(i32::MAX);
        let fast = parts.fraction.is_empty() && digits <= 14 - exponent / 10 * 3;
        return fast && whole.parse::<u64>().is_ok_and(|n| n % 8 != 0);
    }
    let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    // Upstream serves exponents that are multiples of three unchanged.
    let total = exponent.saturating_sub(places);
    if total < -9 || total % 3 != 0 {
        return false;
    }
    let digits_end = if parts.fraction.is_empty() {
        whole.ends_with("000")
    } else {
        let tail = format!("{whole}{}", parts.fraction);
        tail.ends_with("000") || tail.starts_with('0')
    };
    !digits_end
}

impl fmt::Display for Quantity {
    /// Writes the canonical form: no fraction, and the largest exponent divisible by 3 that keeps the
    /// mantissa an integer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // If the value is saturated, only the amount still has the digits.
        if let Some(amount) = self.amount.filter(|_| self.is_saturated()) {
            let (digits, unit) = amount.digits();
            return f.write_str(&wide_text(&digits, unit, self.format, self.nanos < 0));
        }
        let units = self.nanos / NANO;
        if self.format == Format::BinarySi && self.is_integer() && units.abs() >= 1024 {
            // Ei (2^60) is the largest binary suffix.
            // Only whole multiples of 1024 take the next suffix.
            let bits = (units.trailing_zeros() / 10 * 10).min(60);
            let suffix = BINARY.iter().find(|(_, b)| *b == bits).map_or("", |(s, _)| s);
            return write!(f, "{}{suffix}", units >> bits);
        }
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        // E (10^18) is the largest decimal suffix; exponents are not limited.
        // The value is not zero, or this would not end for exponents.
        while mantissa % 1000 == 0 && (exponent < 18 || self.format == Format::DecimalExponent) {
            mantissa /= 1000;
            exponent += 3;
        }
        match self.format {
            Format::DecimalExponent if exponent == 0 => write!(f, "{mantissa}"),
            Format::DecimalExponent => write!(f, "{mantissa}e{exponent}"),
            _ => {
                let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
                write!(f, "{mantissa}{suffix}")
            }
        }
    }
}
