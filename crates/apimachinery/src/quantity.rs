//! Quantities: numbers with a suffix (`100m`, `1.5Gi`, `12e6`), compatible with upstream's
//! `resource.Quantity` (`k8s.io/apimachinery/pkg/api/resource/quantity.go`).
//!
//! Start at [`Quantity::parse`] and [`canonicalize`]. A quantity is stored exactly, in units of 10⁻⁹; like
//! upstream, finer digits round away from zero.

mod canonical;
mod parse;

pub use canonical::{canonicalize, canonicalize_amount};
pub use parse::ParseError;

use parse::{binary_nanos, decimal_digits, low_bits, scale, small, split, trim};
use std::cmp::Ordering;

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
///
/// ```
/// use torana_apimachinery::quantity::{Quantity, canonicalize};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Quantity::parse("1.5Gi")?;
/// assert_eq!((memory.value(), memory.to_string()), (1_610_612_736, "1536Mi".to_owned()));
///
/// let cpu: Quantity = "250m".parse()?;
/// assert!(cpu < Quantity::from_i64(1));
/// assert_eq!(cpu.plus(Quantity::parse("1750m")?).to_string(), "2");
/// assert_eq!(canonicalize("1024Mi")?, "1Gi");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Saturates at the bounds of `i128`.
    nanos: i128,
    format: Format,
    /// The result of [`Quantity::value`] and [`Quantity::milli_value`].
    units: i64,
    millis: i64,
    amount: Option<Amount>,
}

/// The number that upstream uses as long as it fits (`int64Amount` in `amount.go`): `value × 10^scale`. The
/// notation of a quantity decides the scale: `1000m` is not reduced to `1`.
#[derive(Clone, Copy, Debug)]
struct Amount {
    value: i64,
    scale: i32,
}

const fn divide_up(n: i128, divisor: i128) -> i128 {
    // Away from zero, as upstream's `ScaledValue` rounds up in magnitude.
    n / divisor + if n % divisor == 0 { 0 } else { n.signum() }
}

impl Amount {
    fn raised(self, by: i32) -> Option<i64> {
        match self.value {
            // Zero fits at any scale; the power might not.
            0 => Some(0),
            value => value.checked_mul(10i64.checked_pow(by.try_into().ok()?)?),
        }
    }

    fn plus(self, other: Self) -> Option<Self> {
        // Upstream returns the other operand with its own scale.
        if other.value == 0 || self.value == 0 {
            return Some(if other.value == 0 { self } else { other });
        }
        let scale = self.scale.min(other.scale);
        // Not representable in 64 bits: upstream then goes on with big integers, which `nanos` stands for.
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
    /// The text is not a quantity.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let parts = split(trim(text))?;
        let (base, exponent, format) = scale(parts.suffix).ok_or(ParseError::Suffix)?;
        if let Some(amount @ Amount { value, scale }) = small(&parts, base, exponent) {
            let at = |unit: i32| scaled(value, scale.saturating_sub(unit));
            // `small` guarantees a scale of at least -9, so the exponent is not negative.
            let power = 10i128.checked_pow(scale.saturating_add(9).unsigned_abs());
            let nanos = power.and_then(|power| i128::from(value).checked_mul(power));
            // Saturates with the sign; only comparisons see it, since values beyond `i64` have rules of their own.
            let beyond = i128::from(value.signum()).saturating_mul(i128::MAX);
            return Ok(Self {
                nanos: nanos.unwrap_or(beyond),
                format,
                units: at(0),
                millis: at(-3),
                amount: Some(amount),
            });
        }
        // Upstream's fast path reads `m` or `.` as zero; its slow path fails to parse an empty number.
        if !parts.has_digits {
            return Err(ParseError::Number);
        }
        let digits = match base {
            10 => decimal_digits(&parts, exponent, -9)?,
            _ => binary_nanos(&parts, exponent).to_string().into_bytes(),
        };
        let nanos = std::str::from_utf8(&digits).ok().filter(|d| !d.is_empty());
        // Digits only, so the single failure is overflow.
        let nanos = nanos.map_or(0, |digits| digits.parse().unwrap_or(i128::MAX));
        // Upstream truncates and adds one, whatever the sign.
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

    /// The value rounded up to whole units. Beyond `i64` it is upstream's: 0 for a short number with a large
    /// suffix (`10E`), the low 64 bits of others.
    pub const fn value(self) -> i64 {
        self.units
    }

    /// The value in thousandths, rounded up; beyond `i64` as [`Quantity::value`].
    pub const fn milli_value(self) -> i64 {
        self.millis
    }

    /// True if the value is beyond what [`Quantity::nanos`] can hold.
    const fn is_saturated(self) -> bool {
        self.nanos.unsigned_abs() >= i128::MAX.unsigned_abs()
    }

    /// True if the value has no fractional part.
    pub const fn is_integer(self) -> bool {
        self.nanos % NANO == 0
    }

    /// The value as upstream's `AsInt64` returns it. That depends on how the operands were written: `1000m` and `1.0`
    /// are not integers.
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
        // Upstream's `Add` takes the format of the operand if the receiver is zero.
        let format = if self.nanos == 0 { other.format } else { self.format };
        let amount = self.amount.zip(other.amount).and_then(|(a, b)| a.plus(b));
        Self::of(self.nanos.saturating_add(other.nanos), format, amount)
    }

    /// The saturating difference, in the format of the first non-zero operand.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        let amount = self.amount.zip(other.amount).and_then(|(a, b)| {
            // Negating `i64::MIN` wraps in Go as well.
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

/// A number that upstream keeps in 64 bits if it fits, and otherwise as a big integer, of which it takes the
/// low bits.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
const fn narrow(n: i128) -> i64 {
    n as i64
}

/// `value × 10^scale`, rounded away from zero. Beyond `i64` it is upstream's: for some factors the low bits,
/// else 0.
fn scaled(value: i64, scale: i32) -> i64 {
    // Upstream has fast paths for these factors, which multiply without an overflow check.
    if matches!(scale, 1 | 2 | 3 | 6 | 9) {
        return value.wrapping_mul(10i64.pow(scale.unsigned_abs()));
    }
    let power = 10i128.checked_pow(scale.unsigned_abs());
    let result = match (power, scale < 0) {
        (Some(power), true) => Some(divide_up(value.into(), power)),
        // The power is larger than any value, so a non-zero value rounds away from zero to one unit.
        (None, true) => Some(value.signum().into()),
        (power, false) => power.and_then(|power| i128::from(value).checked_mul(power)),
    };
    result.and_then(|n| i64::try_from(n).ok()).unwrap_or(0)
}

impl std::str::FromStr for Quantity {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

impl PartialEq for Quantity {
    /// Compares by value: `1` equals `1000m`.
    fn eq(&self, other: &Self) -> bool {
        // Nanos are exact for everything that upstream distinguishes; how the number was written does not matter.
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
        let words = |text: &str| Quantity::parse(text).map_err(|e| e.to_string());
        assert_eq!(
            words("lots"),
            Err("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into())
        );
        assert_eq!(words("e-12"), Err("unable to parse numeric part of quantity".into()));
        assert_eq!(words("1mm"), Err("unable to parse quantity's suffix".into()));
        assert_eq!(Quantity::parse(""), Err(ParseError::Form));
        assert_eq!(Quantity::parse("lots"), Err(ParseError::Form));
        assert_eq!(Quantity::parse("1mm"), Err(ParseError::Suffix));
        assert_eq!(Quantity::parse("1e"), Err(ParseError::Suffix));
        assert_eq!(Quantity::parse("--1"), Err(ParseError::Suffix));
        assert_eq!(Quantity::parse("1.2.3"), Err(ParseError::Form));
        assert_eq!(Quantity::parse("e-12"), Err(ParseError::Number));
        assert_eq!(Quantity::parse("1000000000000000000e99999"), Err(ParseError::Number));
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
    fn numbers_beyond_128_bits_are_shown_with_their_digits() {
        for (text, want) in [
            ("1e30", "1e30"),
            ("1e100", "10e99"),
            ("123456789012345678E", "123456789012345678E"),
            ("-123456789012345678E", "-123456789012345678E"),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Ok(want.into()), "{text}");
        }
        let twice = Quantity::parse("1e30").map(|q| q.plus(q).to_string());
        assert_eq!(twice, Ok("2e30".into()));
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
        fn fractions_below_one_nano_round_up(
            digits in 1u64..1_000_000_000_000, places in 0usize..16, unit in 0u32..4, negative in any::<bool>(),
        ) {
            let all = format!("{digits:0>16}");
            let (whole, fraction) = all.split_at(16 - places);
            let sign = if negative { "-" } else { "" };
            let text = format!("{sign}{whole}.{fraction}{}", ["n", "u", "m", ""][unit as usize]);
            // Exactly: digits × 10^(3 × unit - places) nanos.
            let (times, by) = (i128::from(digits) * 10i128.pow(3 * unit), 10i128.pow(places as u32));
            let nanos = (times + by - 1) / by;
            let want = if negative { -nanos } else { nanos };
            prop_assert_eq!(Quantity::parse(&text).map(Quantity::nanos), Ok(want));
            let shown = canonicalize(&text).expect("the text is a quantity");
            prop_assert_eq!(Quantity::parse(&shown).map(Quantity::nanos), Ok(want));
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
