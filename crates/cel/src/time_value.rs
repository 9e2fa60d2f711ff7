//! Durations and timestamps. [`Stamp`] is a timestamp: parsing, printing and arithmetic within the years 1 to 9999,
//! and its calendar fields. Durations are nanoseconds, in Go's notation.

use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime, UtcOffset};

/// A point in time between the years 1 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    seconds: i64,
    nanos: u32,
}

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

impl Stamp {
    pub(crate) fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS)
            .contains(&seconds)
            .then_some(Self { seconds, nanos })
    }

    pub(crate) fn parse(s: &str) -> Option<Self> {
        // The `time` crate accepts lower-case letters, a leap second, and a space, which Go does not.
        let shaped = s.len() >= 20 && s.as_bytes()[10] == b'T' && !s.ends_with('z') && s.get(17..19) != Some("60");
        let t = OffsetDateTime::parse(s, &Rfc3339).ok().filter(|_| shaped)?;
        Self::new(t.unix_timestamp(), t.nanosecond())
    }

    /// A timestamp as JSON schemas have it: with a space or a lower-case letter between date and time, too.
    pub(crate) fn parse_lenient(s: &str) -> Option<Self> {
        let mut bytes = s.as_bytes().to_vec();
        if let Some(between) = bytes.get_mut(10).filter(|b| matches!(b, b' ' | b't')) {
            *between = b'T';
        }
        if let Some(zone) = bytes.last_mut().filter(|b| **b == b'z') {
            *zone = b'Z';
        }
        Self::parse(std::str::from_utf8(&bytes).ok()?)
    }

    pub(crate) fn parse_date(s: &str) -> Option<Self> {
        // `parse` would accept a sign, but `shaped` allows dashes in two places only, and no plus.
        let digits = |range: std::ops::Range<usize>| s.get(range)?.parse::<u16>().ok();
        let shaped = s.len() == 10 && s.bytes().enumerate().all(|(i, b)| matches!(i, 4 | 7) == (b == b'-'));
        let month = Month::try_from(u8::try_from(digits(5..7)?).ok()?).ok()?;
        let date = Date::from_calendar_date(digits(0..4)?.into(), month, u8::try_from(digits(8..10)?).ok()?);
        let date = date.ok().filter(|_| shaped)?;
        Self::new(date.midnight().assume_utc().unix_timestamp(), 0)
    }

    /// Seconds since the epoch.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds beyond the seconds.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// The stamp `nanos` later.
    pub(crate) fn plus(self, nanos: i64) -> Option<Self> {
        let total = self.total().checked_add(nanos.into())?;
        // Euclidean, so that nanoseconds stay positive before 1970.
        let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
        Self::new(seconds, total.rem_euclid(1_000_000_000) as u32)
    }

    fn total(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// The duration since `other`.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        i64::try_from(self.total() - other.total()).ok()
    }

    pub(crate) fn at(self, offset: UtcOffset) -> Option<OffsetDateTime> {
        let t = OffsetDateTime::from_unix_timestamp(self.seconds).ok()?;
        t.replace_nanosecond(self.nanos).ok()?.checked_to_offset(offset)
    }

    /// RFC 3339 in UTC, with as many fractional digits as there are.
    pub(crate) fn text(self) -> String {
        self.at(UtcOffset::UTC)
            .and_then(|t| t.format(&Rfc3339).ok())
            .unwrap_or_default()
    }
}

/// The offset at a time of a zone: a fixed one such as `+02:00`, or that of a named zone.
pub(crate) fn zone(name: &str, at: Stamp) -> Option<UtcOffset> {
    if matches!(name, "" | "UTC") {
        return Some(UtcOffset::UTC);
    }
    // A name without a colon is looked up in the time zone database.
    let Some((hours, minutes)) = name.split_once(':') else {
        let zone = jiff::tz::TimeZone::get(name).ok()?;
        let offset = zone.to_offset(jiff::Timestamp::from_second(at.seconds).ok()?);
        return UtcOffset::from_whole_seconds(offset.seconds()).ok();
    };
    // Whole numbers, each with at most one sign, as cel-go reads them: minutes may have a sign of their own.
    let negative = hours.starts_with('-');
    let (hours, minutes) = (hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
    // By the sign and not by the number: the hours of `-00:30` are zero.
    let minutes = if negative { minutes.checked_neg()? } else { minutes };
    let seconds = hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?;
    UtcOffset::from_whole_seconds(i32::try_from(seconds).ok()?).ok()
}

/// A duration as Go writes it, in nanoseconds.
pub(crate) fn parse_duration(s: &str) -> Option<i64> {
    let (negative, mut rest) = match s.as_bytes().first()? {
        b'-' => (true, &s[1..]),
        b'+' => (false, &s[1..]),
        _ => (false, s),
    };
    // A bare zero needs no unit, as in Go.
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // More digits cannot fit 64 bits, and would overflow the product below.
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total += whole * unit;
        // Further digits are below a nanosecond for every unit.
        let digits = &fraction[..fraction.len().min(18)];
        if !digits.is_empty() {
            total += digits.parse::<i128>().ok()? * unit / 10i128.pow(digits.len() as u32);
        }
        // Checked per part, so that many parts cannot overflow; 2^63 itself is valid if it is negative.
        if total > 1 << 63 {
            return None;
        }
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Go's message for an invalid duration.
pub(crate) fn duration_error(s: &str) -> String {
    format!("time: invalid duration {}", torana_apimachinery::field::quote(s))
}

/// Seconds, as the language prints durations.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    // `unsigned_abs`, because the smallest duration has no positive counterpart.
    let nanos = nanos.unsigned_abs();
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_cel_go_reads_them() {
        let minutes = |name| zone(name, Stamp::new(0, 0)?).map(UtcOffset::whole_minutes);
        for (name, wanted) in [
            ("+02:00", Some(120)),
            ("5:30", Some(330)),
            ("-05:30", Some(-330)),
            ("-00:30", Some(-30)),
            ("+005:+30", Some(330)),
            ("-05:-30", Some(-270)),
            ("+01:90", Some(150)),
            ("++5:30", None),
            ("-+5:30", None),
            ("+-5:30", None),
            ("+05:++30", None),
            (":30", None),
            ("5:", None),
            ("9223372036854775807:0", None),
        ] {
            assert_eq!(minutes(name), wanted, "{name}");
        }
    }
}
