//! Quantities: numbers with a suffix (`100m`, `1.5Gi`, `12e6`), compatible with upstream's `resource.Quantity`
//! (`k8s.io/apimachinery/pkg/api/resource/quantity.go`).
//!
//! Start at [`Quantity::parse`] and [`canonicalize`]. A quantity is stored exactly, in units of 10⁻⁹; like upstream,
//! finer digits round away from zero.

use std::cmp::Ordering;
use std::fmt;

const NANO: i128 = 1_000_000_000;
/// Quantities with a binary suffix saturate at this many units (2⁶³ − 1).
const BINARY_MAX: i128 = i64::MAX as i128;

/// The suffix family a quantity is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `m`, `k`, `M`, `G` …
    DecimalSi,
    /// `Ki`, `Mi`, `Gi` …
    BinarySi,
    /// `e3`, `e6` …
    DecimalExponent,
}

/// A number and the format it was written in.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    amount: Option<Amount>,
}

/// What upstream calculates with while it can (`int64Amount` in `amount.go`): `value × 10^scale`. How a quantity was written
/// decides the scale: `1000m` is not reduced to `1`.
#[derive(Clone, Copy, Debug)]
struct Amount {
    value: i64,
    scale: i32,
}

/// The most digits upstream reads into an [`Amount`].
const AMOUNT_DIGITS: i32 = 18;

/// Upstream's messages for the three parse errors.
const BAD_FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const BAD_NUMBER: &str = "unable to parse numeric part of quantity";
const BAD_SUFFIX: &str = "unable to parse quantity's suffix";

const DECIMAL: [(&str, i32); 10] = [
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
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// A quantity's text, split into its lexical parts.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, suffix) = rest.split_at(number);
    // The suffix may be an exponent such as e-3.
    let digits_end = suffix.trim_end_matches(|c: char| c.is_ascii_digit());
    let letters = digits_end.strip_suffix(['-', '+']).unwrap_or(digits_end);
    if number.is_empty() || !letters.bytes().all(|b| b"eEinumkKMGTP".contains(&b)) {
        return Err(BAD_FORM);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(if whole.is_empty() && fraction.is_empty() {
            BAD_NUMBER
        } else {
            BAD_FORM
        });
    }
    Ok(Parts {
        negative,
        whole,
        fraction,
        suffix,
    })
}

/// Returns base (10 or 2), exponent and format of a suffix.
fn scale(suffix: &str) -> Option<(u8, i32, Format)> {
    if let Some((_, e)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((10, *e, Format::DecimalSi));
    }
    if let Some((_, e)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((2, i32::try_from(*e).ok()?, Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    exponent.parse().ok().map(|e| (10, e, Format::DecimalExponent))
}

/// Converts `mantissa × 10^exponent` to nanos, rounding away from zero; `None` if it overflows 128 bits.
fn decimal_nanos(mantissa: i128, exponent: i32) -> Option<i128> {
    let power = exponent.checked_add(9)?;
    if mantissa == 0 {
        return Some(0);
    }
    match u32::try_from(power) {
        Ok(up) => mantissa.checked_mul(10i128.checked_pow(up)?),
        Err(_) => Some(match 10i128.checked_pow(power.unsigned_abs()) {
            Some(divisor) => divide_up(mantissa, divisor),
            None => mantissa.signum(),
        }),
    }
}

fn divide_up(n: i128, divisor: i128) -> i128 {
    n / divisor + if n % divisor == 0 { 0 } else { n.signum() }
}

impl Amount {
    /// The amount of a quantity that upstream reads without arbitrary precision.
    fn of(parts: &Parts<'_>, exponent: i32, format: Format) -> Option<Self> {
        let whole = match parts.whole.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let (digits, places) = (whole.len() as i32, parts.fraction.len() as i32);
        let (precision, scale, factor) = match format {
            Format::BinarySi if places > 0 => return None,
            // As upstream estimates the digits of the factor.
            Format::BinarySi => (14 - digits - exponent * 3 / 10, 0, 1i64 << exponent),
            _ => (AMOUNT_DIGITS - digits - places, exponent.saturating_sub(places), 1),
        };
        if precision < 0 || scale < -9 {
            return None;
        }
        let value: i64 = format!("{whole}{}", parts.fraction).parse().ok()?;
        let value = value.checked_mul(factor)?;
        Some(Self {
            value: if parts.negative { -value } else { value },
            scale,
        })
    }

    fn raised(self, by: i32) -> Option<i64> {
        match self.value {
            0 => Some(0),
            value => value.checked_mul(10i64.checked_pow(by.try_into().ok()?)?),
        }
    }

    fn plus(self, other: Self) -> Option<Self> {
        if other.value == 0 || self.value == 0 {
            return Some(if other.value == 0 { self } else { other });
        }
        let scale = self.scale.min(other.scale);
        let (a, b) = (self.raised(self.scale - scale)?, other.raised(other.scale - scale)?);
        Some(Self {
            value: a.checked_add(b)?,
            scale,
        })
    }
}

impl Quantity {
    /// Zero, in decimal SI format.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
        amount: Some(Amount { value: 0, scale: 0 }),
    };

    /// Parses a quantity. Surrounding white space is ignored.
    ///
    /// # Errors
    /// Returns upstream's message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = split(text.trim())?;
        let (base, exponent, format) = scale(parts.suffix).ok_or(BAD_SUFFIX)?;
        let mut mantissa: i128 = 0;
        let mut dropped = false;
        let mut places = 0i32;
        for (i, digit) in parts.whole.bytes().chain(parts.fraction.bytes()).enumerate() {
            let fractional = i >= parts.whole.len();
            match mantissa
                .checked_mul(10)
                .and_then(|m| m.checked_add(i128::from(digit - b'0')))
            {
                // Beyond 36 digits every suffix puts the digit below one nano; further digits only affect rounding.
                Some(m) if !fractional || i < 36 => {
                    mantissa = m;
                    places += i32::from(fractional);
                }
                _ if fractional => dropped |= digit != b'0',
                _ => return Err(BAD_NUMBER),
            }
        }
        if dropped {
            mantissa += 1;
        }
        let nanos = if base == 10 {
            decimal_nanos(mantissa, exponent.saturating_sub(places))
        } else {
            let shifted = u32::try_from(exponent)
                .ok()
                .and_then(|bits| mantissa.checked_mul(1i128 << bits));
            shifted.and_then(|m| decimal_nanos(m, -places))
        };
        let cap = BINARY_MAX * NANO;
        let nanos = match (nanos, format) {
            (Some(n), Format::BinarySi) => n.min(cap),
            (None, Format::BinarySi) => cap,
            (Some(n), _) => n,
            (None, _) => return Err(BAD_NUMBER),
        };
        Ok(Self {
            nanos: if parts.negative { -nanos } else { nanos },
            format,
            amount: Amount::of(&parts, exponent, format),
        })
    }

    /// A whole number of units.
    pub const fn from_i64(value: i64) -> Self {
        Self {
            nanos: value as i128 * NANO,
            format: Format::DecimalSi,
            amount: Some(Amount { value, scale: 0 }),
        }
    }

    /// A number of thousandths (milli-units).
    pub const fn from_millis(millis: i64) -> Self {
        Self {
            nanos: millis as i128 * 1_000_000,
            format: Format::DecimalSi,
            amount: Some(Amount {
                value: millis,
                scale: -3,
            }),
        }
    }

    /// The value in units of 10⁻⁹.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The value rounded up to whole units, saturating at the bounds of `i64`.
    pub fn value(self) -> i64 {
        clamp(divide_up(self.nanos, NANO))
    }

    /// The value in thousandths, rounded up, saturating at the bounds of `i64`.
    pub fn milli_value(self) -> i64 {
        clamp(divide_up(self.nanos, 1_000_000))
    }

    /// True if the value has no fractional part.
    pub const fn is_integer(self) -> bool {
        self.nanos % NANO == 0
    }

    /// The value, if upstream's `AsInt64` has it: by how the operands were written, `1000m` and `1.0` are no integers.
    pub fn as_i64(self) -> Option<i64> {
        let amount = self.amount?;
        (amount.scale >= 0).then(|| amount.raised(amount.scale)).flatten()
    }

    /// The sign: -1, 0 or 1.
    pub const fn signum(self) -> i32 {
        self.nanos.signum() as i32
    }

    /// The saturating sum, in the format of the first non-zero operand.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format,
            amount: self.amount.zip(other.amount).and_then(|(a, b)| a.plus(b)),
        }
    }

    /// The saturating difference, in the format of the first non-zero operand.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
            format,
            amount: self.amount.zip(other.amount).and_then(|(a, b)| {
                let value = b.value.wrapping_neg();
                a.plus(Amount { value, ..b })
            }),
        }
    }

    /// The format the quantity was written in.
    pub const fn format(self) -> Format {
        self.format
    }
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// Returns the text the API serves for `text`: unchanged where upstream echoes its input, otherwise the canonical form.
///
/// # Errors
/// Returns upstream's message.
pub fn canonicalize(text: &str) -> Result<String, &'static str> {
    let trimmed = text.trim();
    let quantity = Quantity::parse(trimmed)?;
    Ok(if echoes(trimmed, quantity) {
        trimmed.to_owned()
    } else {
        quantity.to_string()
    })
}

/// True if upstream serves the text unchanged. Its fast path (small numbers already in normal form) caches the input
/// text.
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
        let digits = i32::try_from(whole.len()).unwrap_or(i32::MAX);
        let fast = parts.fraction.is_empty() && digits <= 14 - exponent / 10 * 3;
        return fast && whole.parse::<u64>().is_ok_and(|n| n % 8 != 0);
    }
    let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
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
    /// Writes the canonical form: no fraction, and the largest exponent divisible by 3 that keeps the mantissa an
    /// integer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let units = self.nanos / NANO;
        if self.format == Format::BinarySi && self.is_integer() && units.abs() >= 1024 {
            // Ei (2^60) is the largest binary suffix.
            let bits = (units.trailing_zeros() / 10 * 10).min(60);
            let suffix = BINARY.iter().find(|(_, b)| *b == bits).map_or("", |(s, _)| s);
            return write!(f, "{}{suffix}", units >> bits);
        }
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        // E (10^18) is the largest decimal suffix; exponents are not limited.
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

impl std::str::FromStr for Quantity {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

impl PartialEq for Quantity {
    /// Compares by value: `1` equals `1000m`.
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonicalize_matches_upstream() {
        for (text, want) in [
            ("+5", "+5"),
            ("0100m", "0100m"),
            ("1.500", "1.500"),
            ("1e3", "1e3"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1.0", "1"),
            ("10e2", "1e3"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("0.0", "0"),
            (" 2Gi ", "2Gi"),
            ("100m", "100m"),
            ("1000k", "1M"),
            ("0.0000000001", "1n"),
            ("12E", "12E"),
            ("100Ei", "9223372036854775807"),
        ] {
            assert_eq!(canonicalize(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn parse_errors_match_upstream() {
        assert_eq!(Quantity::parse(""), Err(BAD_FORM));
        assert_eq!(Quantity::parse("lots"), Err(BAD_FORM));
        assert_eq!(Quantity::parse("1mm"), Err(BAD_SUFFIX));
        assert_eq!(Quantity::parse("1e"), Err(BAD_SUFFIX));
        assert_eq!(Quantity::parse("."), Err(BAD_NUMBER));
    }

    #[test]
    fn sums_keep_the_format_and_values_round_up() {
        let sum = Quantity::parse("1Gi").and_then(|a| Quantity::parse("512Mi").map(|b| a.plus(b)));
        assert_eq!(sum.map(|q| q.to_string()), Ok("1536Mi".into()));
        assert_eq!(Quantity::from_millis(1001).value(), 2);
        assert_eq!(Quantity::from_millis(-1001).value(), -2);
    }

    proptest! {
        #[test]
        fn canonicalize_is_idempotent(text in "[+-]?[0-9]{1,12}(\\.[0-9]{0,6})?(n|u|m|k|M|G|T|Ki|Mi|Gi|e[0-9]|)") {
            let once = canonicalize(&text).expect("the text is a quantity");
            let twice = canonicalize(&once).expect("the canonical form is a quantity");
            prop_assert_eq!(&once, &twice);
            prop_assert_eq!(Quantity::parse(&text), Quantity::parse(&once));
        }

        #[test]
        fn display_round_trips(nanos in any::<i64>()) {
            let q = Quantity { nanos: i128::from(nanos), format: Format::DecimalSi, amount: None };
            prop_assert_eq!(Quantity::parse(&q.to_string()).map(|q| q.nanos), Ok(i128::from(nanos)));
        }

        #[test]
        fn suffixes_scale_and_plus_inverts_minus(n in -9999i64..9999, m in -9999i64..9999, which in 0usize..13) {
            let (suffix, units) = [
                ("m", 0), ("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000),
                ("e3", 1000), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("E2", 100), ("e0", 1),
            ][which];
            let parse = |n: i64| Quantity::parse(&format!("{n}{suffix}")).expect("the text is a quantity");
            let (a, b) = (parse(n), parse(m));
            match units {
                0 => prop_assert_eq!(a.milli_value(), n),
                units => prop_assert_eq!(a.value(), n * units),
            }
            prop_assert_eq!(a.plus(b).minus(b), a);
            prop_assert_eq!(a.cmp(&b), n.cmp(&m));
            prop_assert_eq!(Quantity::parse(&a.plus(b).to_string()), Ok(parse(n + m)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = canonicalize(&text);
        }
    }
}
