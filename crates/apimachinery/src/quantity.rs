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
    /// Saturates at the bounds of `i128`.
    nanos: i128,
    format: Format,
    /// What [`Quantity::value`] and [`Quantity::milli_value`] return.
    units: i64,
    millis: i64,
    amount: Option<Amount>,
}

/// Most digits of a decimal quantity in units of 10⁻⁹. Upstream has no limit, and a few bytes of exponent keep it busy
/// for minutes (docs/wire/differences.md).
const MAX_DIGITS: usize = 4096;
/// Most digits before and after the point for which upstream uses 64-bit arithmetic.
const SMALL_DIGITS: usize = 18;

/// What upstream calculates with while it can (`int64Amount` in `amount.go`): `value × 10^scale`. How a quantity was written
/// decides the scale: `1000m` is not reduced to `1`.
#[derive(Clone, Copy, Debug)]
struct Amount {
    value: i64,
    scale: i32,
}

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
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is any digit. Upstream reads a number without one as zero, except in its slow path.
    has_digits: bool,
}

/// Splits a text as upstream's `parseQuantityString`: sign, digits, a point and digits, letters, sign, digits. Each part may
/// be missing.
fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    if text.is_empty() {
        return Err(BAD_FORM);
    }
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = rest
        .strip_prefix('.')
        .map_or(("", rest), |after| after.split_at(digits(after)));
    let after = suffix.trim_start_matches(|c: char| c.is_ascii() && b"eEinumkKMGTP".contains(&(c as u8)));
    let exponent = after.strip_prefix(['-', '+']).unwrap_or(after);
    if digits(exponent) != exponent.len() {
        return Err(BAD_FORM);
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
fn scale(suffix: &str) -> Option<(u8, i32, Format)> {
    if let Some((_, e)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((10, *e, Format::DecimalSi));
    }
    if let Some((_, e)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((2, i32::try_from(*e).ok()?, Format::BinarySi));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Upstream truncates too.
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
    digits.insert(0, b'1');
}

/// The digits of a decimal number in units of 10^`finest`, without leading zeros.
fn decimal_digits(parts: &Parts<'_>, exponent: i32, finest: i32) -> Result<Vec<u8>, &'static str> {
    let mut digits = [parts.whole.as_bytes(), parts.fraction.as_bytes()].concat();
    let zeros = digits.iter().take_while(|d| **d == b'0').count();
    digits.drain(..zeros);
    if digits.is_empty() {
        return Ok(digits);
    }
    let places = i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    let shift = i64::from(exponent) - i64::from(finest) - places;
    match usize::try_from(shift) {
        Ok(up) if digits.len().saturating_add(up) > MAX_DIGITS => return Err(BAD_NUMBER),
        Ok(up) => digits.resize(digits.len() + up, b'0'),
        Err(_) => drop_digits(&mut digits, usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX)),
    }
    match digits.len() <= MAX_DIGITS {
        true => Ok(digits),
        false => Err(BAD_NUMBER),
    }
}

/// The low 64 bits of a number, which is what upstream's big integers convert to.
fn low_bits(digits: &[u8], negative: bool) -> i64 {
    let digit = |n: u64, d: &u8| n.wrapping_mul(10).wrapping_add(u64::from(d - b'0'));
    let n = digits.iter().fold(0, digit).cast_signed();
    if negative { n.wrapping_neg() } else { n }
}

const fn divide_up(n: i128, divisor: i128) -> i128 {
    n / divisor + if n % divisor == 0 { 0 } else { n.signum() }
}

impl Amount {
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
    pub const ZERO: Self = Self::from_i64(0);

    /// Parses a quantity. Surrounding spaces are ignored.
    ///
    /// # Errors
    /// Returns upstream's message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = split(trim(text))?;
        let (base, exponent, format) = scale(parts.suffix).ok_or(BAD_SUFFIX)?;
        if let Some(amount @ Amount { value, scale }) = small(&parts, base, exponent) {
            let at = |unit: i32| scaled(value, scale.saturating_sub(unit));
            let power = 10i128.checked_pow(scale.saturating_add(9).unsigned_abs());
            let nanos = power.and_then(|power| i128::from(value).checked_mul(power));
            let beyond = i128::from(value.signum()).saturating_mul(i128::MAX);
            return Ok(Self {
                nanos: nanos.unwrap_or(beyond),
                format,
                units: at(0),
                millis: at(-3),
                amount: Some(amount),
            });
        }
        if !parts.has_digits {
            return Err(BAD_NUMBER);
        }
        let digits = match base {
            10 => decimal_digits(&parts, exponent, -9)?,
            _ => binary_nanos(&parts, exponent).to_string().into_bytes(),
        };
        let nanos = std::str::from_utf8(&digits).ok().filter(|d| !d.is_empty());
        let nanos = nanos.map_or(0, |digits| digits.parse().unwrap_or(i128::MAX));
        // Upstream cuts the rest off and adds one, whatever the sign.
        let rounded = |dropped: usize| {
            let (kept, rest) = digits.split_at(digits.len().saturating_sub(dropped));
            let more = rest.iter().any(|d| *d != b'0');
            low_bits(kept, parts.negative).wrapping_add(more.into())
        };
        Ok(Self {
            nanos: if parts.negative { -nanos } else { nanos },
            format,
            units: rounded(9),
            millis: rounded(6),
            amount: None,
        })
    }

    const fn of(nanos: i128, format: Format, amount: Option<Amount>) -> Self {
        Self {
            nanos,
            format,
            units: narrow(divide_up(nanos, NANO)),
            millis: narrow(divide_up(nanos, 1_000_000)),
            amount,
        }
    }

    /// A whole number of units.
    pub const fn from_i64(value: i64) -> Self {
        Self::of(
            value as i128 * NANO,
            Format::DecimalSi,
            Some(Amount { value, scale: 0 }),
        )
    }

    /// A number of thousandths (milli-units).
    pub const fn from_millis(millis: i64) -> Self {
        let amount = Amount {
            value: millis,
            scale: -3,
        };
        Self::of(millis as i128 * 1_000_000, Format::DecimalSi, Some(amount))
    }

    /// The value in units of 10⁻⁹.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The value rounded up to whole units. Beyond `i64` it is upstream's: 0 for a short number with a large suffix
    /// (`10E`), the low 64 bits of others.
    pub const fn value(self) -> i64 {
        self.units
    }

    /// The value in thousandths, rounded up; beyond `i64` as [`Quantity::value`].
    pub const fn milli_value(self) -> i64 {
        self.millis
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
        let amount = self.amount.zip(other.amount).and_then(|(a, b)| a.plus(b));
        Self::of(self.nanos.saturating_add(other.nanos), format, amount)
    }

    /// The saturating difference, in the format of the first non-zero operand.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        let amount = self.amount.zip(other.amount).and_then(|(a, b)| {
            let value = b.value.wrapping_neg();
            a.plus(Amount { value, ..b })
        });
        Self::of(self.nanos.saturating_sub(other.nanos), format, amount)
    }

    /// The format the quantity was written in.
    pub const fn format(self) -> Format {
        self.format
    }
}

/// A number that upstream keeps in 64 bits if it fits, and otherwise as a big integer, of which it takes the low bits.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
const fn narrow(n: i128) -> i64 {
    n as i64
}

/// `value × 10^scale`, rounded away from zero. Beyond `i64` it is upstream's: for some factors the low bits, else 0.
fn scaled(value: i64, scale: i32) -> i64 {
    if matches!(scale, 1 | 2 | 3 | 6 | 9) {
        return value.wrapping_mul(10i64.pow(scale.unsigned_abs()));
    }
    let power = 10i128.checked_pow(scale.unsigned_abs());
    let result = match (power, scale < 0) {
        (Some(power), true) => Some(divide_up(value.into(), power)),
        (None, true) => Some(value.signum().into()),
        (power, false) => power.and_then(|power| i128::from(value).checked_mul(power)),
    };
    result.and_then(|n| i64::try_from(n).ok()).unwrap_or(0)
}

/// The amount of a quantity that upstream reads without arbitrary precision.
fn small(parts: &Parts<'_>, base: u8, exponent: i32) -> Option<Amount> {
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
fn binary_nanos(parts: &Parts<'_>, exponent: i32) -> i128 {
    /// As many digits of a fraction as 128 bits hold with the largest suffix; further ones only affect rounding.
    const PLACES: usize = 20;
    let factor = 1i128 << exponent.clamp(0, 60);
    let digits = |text: &str| {
        text.bytes()
            .try_fold(0i128, |n, d| n.checked_mul(10)?.checked_add((d - b'0').into()))
    };
    let units = digits(parts.whole).and_then(|n| n.checked_mul(factor));
    let Some(units) = units.filter(|n| *n < BINARY_MAX) else {
        return BINARY_MAX * NANO;
    };
    let (kept, rest) = parts.fraction.split_at(parts.fraction.len().min(PLACES));
    let fraction = digits(kept).unwrap_or(0) * factor;
    let (part, exact) = match kept.len() {
        places @ 0..=9 => (fraction * 10i128.pow(9 - places as u32), true),
        places => {
            let divisor = 10i128.pow(places as u32 - 9);
            (divide_up(fraction, divisor), fraction % divisor == 0)
        }
    };
    let inexact = exact && rest.bytes().any(|d| d != b'0');
    (units * NANO + part + i128::from(inexact)).min(BINARY_MAX * NANO)
}

/// Returns the text the API serves for `text`: unchanged where upstream echoes its input, otherwise the canonical form.
///
/// # Errors
/// Returns upstream's message.
pub fn canonicalize(text: &str) -> Result<String, &'static str> {
    canonical(text, -9)
}

/// Like [`canonicalize`], for an amount in a list of resources (requests, limits, capacities), which upstream rounds up to
/// thousandths in defaulting.
///
/// # Errors
/// Returns upstream's message.
pub fn canonicalize_amount(text: &str) -> Result<String, &'static str> {
    canonical(text, -3)
}

/// Upstream trims the JSON text, in which other white space is escaped.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c == ' ' || (!c.is_ascii() && c.is_whitespace()))
}

fn canonical(text: &str, finest: i32) -> Result<String, &'static str> {
    let trimmed = trim(text);
    let quantity = Quantity::parse(trimmed)?;
    let parts = split(trimmed)?;
    let (base, exponent, format) = scale(parts.suffix).ok_or(BAD_SUFFIX)?;
    let small = small(&parts, base, exponent);
    if echoes(trimmed, quantity) && small.is_none_or(|amount| amount.scale >= finest) {
        return Ok(trimmed.to_owned());
    }
    if base == 10 && quantity.nanos.unsigned_abs() >= i128::MAX.unsigned_abs() {
        let (digits, unit) = match small {
            Some(Amount { value, scale }) => {
                let zeros = scale.rem_euclid(3);
                let digits = format!("{}{}", value.unsigned_abs(), &"00"[..zeros.unsigned_abs() as usize]);
                (digits.into_bytes(), scale - zeros)
            }
            None => (decimal_digits(&parts, exponent, finest)?, finest),
        };
        return Ok(wide_text(&digits, unit, format, parts.negative));
    }
    let unit = 10i128.pow((finest + 9).unsigned_abs());
    let rounded = divide_up(quantity.nanos, unit).saturating_mul(unit);
    Ok(Quantity::of(rounded, quantity.format, None).to_string())
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
    fn only_spaces_are_trimmed() {
        assert!(Quantity::parse(" 5 ").is_ok());
        for escaped in ["5\n", "\t5", "5\u{c}"] {
            assert!(Quantity::parse(escaped).is_err(), "{escaped:?}");
        }
    }

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
        assert_eq!(Quantity::parse("--1"), Err(BAD_SUFFIX));
        assert_eq!(Quantity::parse("1.2.3"), Err(BAD_FORM));
        assert_eq!(Quantity::parse("e-12"), Err(BAD_NUMBER));
        assert_eq!(Quantity::parse("1000000000000000000e99999"), Err(BAD_NUMBER));
        for zero in [".", "+", "-", "m", "Ki", "-.E"] {
            assert_eq!(canonicalize(zero).as_deref(), Ok("0"), "{zero}");
        }
    }

    #[test]
    fn amounts_round_up_to_thousandths() {
        for (text, want) in [
            ("0.5m", "1m"),
            ("1500u", "2m"),
            ("00344019n", "1m"),
            ("999999u", "1"),
            ("100.000001", "100001m"),
            ("0032e-9", "1e-3"),
            ("-0.0000001", "-1m"),
            ("1.5", "1500m"),
            ("+5", "+5"),
            ("100m", "100m"),
            ("1.5Gi", "1536Mi"),
            ("0.3Ki", "307200m"),
            ("-6975455333261853388.11e-9", "-6975455333262e-3"),
            ("+3748644310195500996.167556e-3", "3748644310195500997e-3"),
            ("82469279653493517131.851337e20", "8246927965349351713185133700e12"),
            ("083351736861269666306.410E", "83351736861269666306410P"),
            ("8018232997676602346T", "8018232997676602346T"),
            (
                "82469279653493517131851337.851337E",
                "82469279653493517131851337851337T",
            ),
            ("1e40", "10e39"),
            ("1e100000", "10e99999"),
        ] {
            assert_eq!(canonicalize_amount(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn numbers_beyond_64_bits_have_the_values_of_upstream() {
        let values = |text| Quantity::parse(text).map(|q| (q.value(), q.milli_value() % 1000 == 0));
        assert_eq!(values("10E"), Ok((0, true)));
        assert_eq!(values("1e18"), Ok((1_000_000_000_000_000_000, true)));
        assert_eq!(values("9223372036854775807"), Ok((i64::MAX, true)));
        assert_eq!(
            values("015954193463251144964M").map(|(n, _)| n),
            Ok(-8_104_474_698_328_094_464)
        );
        assert_eq!(values("10692538643998220695E").map(|(_, whole)| whole), Ok(false));
        assert_eq!(values("-2493600332312697k").map(|(_, whole)| whole), Ok(false));
        assert_eq!(values("-0061.9400879219Ti").map(|(n, _)| n), Ok(-68_103_846_895_595));
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
            let q = Quantity::of(nanos.into(), Format::DecimalSi, None);
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
