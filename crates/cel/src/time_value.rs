//! Durations and timestamps: Go's notation and the calendar.

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
    let Some((hours, minutes)) = name.split_once(':') else {
        let zone = jiff::tz::TimeZone::get(name).ok()?;
        let offset = zone.to_offset(jiff::Timestamp::from_second(at.seconds).ok()?);
        return UtcOffset::from_whole_seconds(offset.seconds()).ok();
    };
    let (negative, hours) = match hours.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, hours.strip_prefix('+').unwrap_or(hours)),
    };
    let number = |s: &str| s.parse::<i8>().ok().filter(|n| *n >= 0 && s.len() <= 2);
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let sign = if negative { -1 } else { 1 };
    UtcOffset::from_hms(sign * hours, sign * minutes, 0).ok()
}

/// A duration as Go writes it, in nanoseconds.
pub(crate) fn parse_duration(s: &str) -> Option<i64> {
    let (negative, mut rest) = match s.as_bytes().first()? {
        b'-' => (true, &s[1..]),
        b'+' => (false, &s[1..]),
        _ => (false, s),
    };
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
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total += whole * unit;
        let digits = &fraction[..fraction.len().min(18)];
        if !digits.is_empty() {
            total += digits.parse::<i128>().ok()? * unit / 10i128.pow(digits.len() as u32);
        }
        if total > 1 << 63 {
            return None;
        }
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Why Go refuses `s` as a duration.
pub(crate) fn duration_error(s: &str) -> String {
    format!("time: invalid duration {}", torana_apimachinery::field::quote(s))
}

/// Seconds, as the language prints durations.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0'))
}
