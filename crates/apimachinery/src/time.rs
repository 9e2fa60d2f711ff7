//! Timestamps and durations in the formats of the API (`metav1.Time`, `metav1.MicroTime`) and of Go's `time`
//! package.
//!
//! All functions but [`now`] take the time as an argument, so tests need no clock.
//!
//! ```
//! use torana_apimachinery::time::{self, go_duration, parse_duration};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let at = time::parse("2024-02-29T23:30:00.123456789+01:00")?;
//! assert_eq!(time::format(at), "2024-02-29T22:30:00Z");
//! assert_eq!(time::format_micro(at), "2024-02-29T22:30:00.123456Z");
//! assert_eq!(go_duration(parse_duration("90s")?), "1m30s");
//! # Ok(())
//! # }
//! ```

use std::ops::RangeInclusive;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The current time in whole seconds, as `metav1.Now()`.
pub fn now() -> String {
    format(OffsetDateTime::now_utc())
}

/// Formats as RFC 3339 in UTC with whole seconds and `Z`.
pub fn format(t: OffsetDateTime) -> String {
    // The `time` crate would write the offset; Kubernetes stores UTC.
    let t = t.to_offset(time::UtcOffset::UTC);
    let (date, clock) = (t.date(), t.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second()
    )
}

/// Formats like the `date` command, in UTC: Go's `time.UnixDate`.
pub fn format_unix_date(t: OffsetDateTime) -> String {
    let t = t.to_offset(time::UtcOffset::UTC);
    let (weekday, month) = (t.weekday().to_string(), t.month().to_string());
    let (hour, minute, second) = t.to_hms();
    format!(
        "{weekday:.3} {month:.3} {:2} {hour:02}:{minute:02}:{second:02} UTC {}",
        t.day(),
        t.year()
    )
}

/// Formats as RFC 3339 in UTC with six fraction digits.
pub fn format_micro(t: OffsetDateTime) -> String {
    let mut s = format(t);
    // Inserts the fraction before the `Z`.
    s.pop();
    s.push_str(&format!(".{:06}Z", t.microsecond()));
    s
}

/// Formats Unix seconds as `metav1.Time`; `None` if out of range.
pub fn format_unix(seconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(seconds).ok().map(format)
}

/// Why a text is not a time or a duration. Except for [`Error::Hint`], messages as Go words them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text does not have the layout.
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Layout {
        /// The time as it was given.
        text: String,
        /// Go's layout.
        layout: &'static str,
        /// The rest of the text from where it differs.
        rest: String,
        /// The element of the layout that was expected there.
        element: &'static str,
    },
    /// A month, day, hour, minute or second that does not exist.
    #[error("parsing time {text:?}: {what} out of range")]
    OutOfRange {
        /// The time as it was given.
        text: String,
        /// What is out of range, in Go's words.
        what: &'static str,
    },
    /// A component lacks its number, or the duration exceeds Go's range.
    #[error("time: invalid duration {0:?}")]
    Duration(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    NoUnit(String),
    /// A unit that Go does not define.
    #[error("time: unknown unit {unit:?} in duration {duration:?}")]
    Unit {
        /// Everything between the number and the next one.
        unit: String,
        /// The duration as it was given.
        duration: String,
    },
    /// For our own flags and files: the expected syntax.
    #[error("{0}")]
    Hint(&'static str),
}

/// Parses RFC 3339 with any offset and any fraction.
///
/// # Errors
/// The text has another form, or a component is out of range.
pub fn parse(s: &str) -> Result<OffsetDateTime, Error> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    // Go requires an upper-case `T` and `Z`; RFC 3339 and the `time` crate also accept lower case.
    // Twenty bytes is the shortest form, with `Z` and no fraction; it also makes the index safe. They also have leap
    // seconds, which Go refuses.
    let shaped = s.len() >= 20 && s.as_bytes()[10] == b'T' && !s.ends_with('z') && s.get(17..19) != Some("60");
    let parsed = if shaped {
        OffsetDateTime::parse(s, &Rfc3339).ok()
    } else {
        None
    };
    parsed.ok_or_else(|| cannot_parse(s, LAYOUT))
}

/// Parses a `metav1.MicroTime`, which must have exactly six fraction digits.
///
/// # Errors
/// The text has another form.
pub fn parse_micro(s: &str) -> Result<OffsetDateTime, Error> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let Some(rest) = s.get(19..) else {
        return Err(cannot_parse(s, LAYOUT));
    };
    let t = parse(s).map_err(|_| cannot_parse(s, LAYOUT))?;
    let digits = rest
        .strip_prefix('.')
        .map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
    // Go's layout `.000000` wants exactly six digits.
    if digits != 6 {
        return Err(Error::Layout {
            text: s.to_owned(),
            layout: LAYOUT,
            rest: rest.to_owned(),
            element: ".000000",
        });
    }
    Ok(t)
}

/// Go's error: the first layout element that does not match, and the input left at that point.
fn cannot_parse(s: &str, layout: &'static str) -> Error {
    // (offset of the element, its layout text, its name in errors, its range); Go checks the day last, with the month.
    const ELEMENTS: [(usize, &str, &str, RangeInclusive<u16>); 6] = [
        (0, "2006", "year", 0..=9999),
        (5, "01", "month", 1..=12),
        (8, "02", "day", 0..=99),
        (11, "15", "hour", 0..=23),
        (14, "04", "minute", 0..=59),
        (17, "05", "second", 0..=59),
    ];
    const SEPARATORS: [&str; 6] = ["", "-", "-", "T", ":", ":"];
    let fail = |rest: &str, element| Error::Layout {
        text: s.to_owned(),
        layout,
        rest: rest.to_owned(),
        element,
    };
    let out_of_range = |what| Error::OutOfRange {
        text: s.to_owned(),
        what,
    };
    for ((at, element, name, range), separator) in ELEMENTS.iter().zip(SEPARATORS) {
        // The separator belongs to the element in Go's layout, so the error may name it instead.
        let before = at - separator.len();
        let rest = s.get(before..).unwrap_or("");
        if !rest.starts_with(separator) {
            return fail(rest, separator);
        }
        let rest = &rest[separator.len()..];
        let digits = rest.get(..element.len());
        let digits = digits.filter(|t| t.bytes().all(|c| c.is_ascii_digit()));
        let Some(number) = digits.and_then(|t| t.parse::<u16>().ok()) else {
            return fail(rest, element);
        };
        if !range.contains(&number) {
            return out_of_range(name);
        }
    }
    let rest = s.get(19..).unwrap_or("");
    // Go accepts a fraction of a second even if the layout has none.
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if !(zone.starts_with('Z') || zone.starts_with('+') || zone.starts_with('-')) {
        return fail(rest, "Z07:00");
    }
    // As the first of the month it is a time, so the day is at fault; otherwise the offset or the fraction.
    let first = format!("{}01{}", s.get(..8).unwrap_or(""), s.get(10..).unwrap_or(""));
    match OffsetDateTime::parse(&first, &Rfc3339) {
        Ok(_) => out_of_range("day"),
        Err(_) => out_of_range("value"),
    }
}

/// Parses Go's duration syntax without a sign: `1h2m`, `1.5s`, `300ms`, `0`.
///
/// # Errors
/// A hint at the expected syntax, for our own flags and files, not for API responses.
pub fn parse_duration(value: &str) -> Result<Duration, Error> {
    let nanos = go_nanos(value).map_err(|_| Error::Hint("expected a duration such as 90s, 1m30s or 300ms"))?;
    if nanos > MAX_NANOS {
        return Err(Error::Hint("too long"));
    }
    // Rounded, because fractions such as 0.1s are not exact in binary.
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Parses a duration like Go's `time.ParseDuration`. `None`: zero or negative.
///
/// # Errors
/// The text is not a duration.
pub fn parse_go_duration(text: &str) -> Result<Option<Duration>, Error> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let nanos = go_nanos(unsigned).map_err(|odd| match odd {
        DurationError::Invalid => Error::Duration(text.to_owned()),
        DurationError::NoUnit => Error::NoUnit(text.to_owned()),
        DurationError::Unit(unit) => Error::Unit {
            unit: unit.to_owned(),
            duration: text.to_owned(),
        },
    })?;
    if nanos > MAX_NANOS {
        return Err(Error::Duration(text.to_owned()));
    }
    // Truncated, as Go does with fractions below a nanosecond.
    let nanos = nanos as u64;
    // Callers treat zero and negative timeouts alike: no limit was given.
    Ok((!negative && nanos > 0).then(|| Duration::from_nanos(nanos)))
}

/// A Go duration is a signed 64-bit count of nanoseconds.
const MAX_NANOS: f64 = i64::MAX as f64;

/// The reason a text is not a duration.
enum DurationError<'a> {
    Invalid,
    NoUnit,
    Unit(&'a str),
}

/// Parses numbers with units into nanoseconds, which may exceed the range of a Go duration.
fn go_nanos(text: &str) -> Result<f64, DurationError<'_>> {
    // Go allows a bare zero as the only number without a unit.
    if text == "0" {
        return Ok(0.0);
    }
    if text.is_empty() {
        return Err(DurationError::Invalid);
    }
    let (mut rest, mut nanos) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, tail) = rest.split_at(digits.unwrap_or(rest.len()));
        // Fails for an empty number and for two points, which Go calls invalid as well.
        let number: f64 = number.parse().map_err(|_| DurationError::Invalid)?;
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, tail) = tail.split_at(unit.unwrap_or(tail.len()));
        let factor = match unit {
            "" => return Err(DurationError::NoUnit),
            "ns" => 1.0,
            // Micro sign and Greek mu: Go accepts both.
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            unit => return Err(DurationError::Unit(unit)),
        };
        nanos += number * factor;
        rest = tail;
    }
    Ok(nanos)
}

/// Formats a duration like Go's `Duration.String`: `1m2.5s`, `512.25ms`, `0s`.
pub fn go_duration(d: Duration) -> String {
    fn trimmed(whole: u128, part: u128, digits: usize, unit: &str) -> String {
        let part = format!("{part:0digits$}");
        match part.trim_end_matches('0') {
            "" => format!("{whole}{unit}"),
            part => format!("{whole}.{part}{unit}"),
        }
    }
    let nanos = d.as_nanos();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => trimmed(nanos / 1_000, nanos % 1_000, 3, "µs"),
        1_000_000..1_000_000_000 => trimmed(nanos / 1_000_000, nanos % 1_000_000, 6, "ms"),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = trimmed(rest / 1_000_000_000, rest % 1_000_000_000, 9, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, m) => format!("{m}m{seconds}"),
                // Go prints inner zeros: `1h0m0s`.
                (h, m) => format!("{h}h{m}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_dates_pad_the_day_with_a_space() {
        let date = |text| format_unix_date(parse(text).unwrap());
        assert_eq!(date("2026-11-28T04:35:44Z"), "Sat Nov 28 04:35:44 UTC 2026");
        assert_eq!(date("2024-02-01T00:00:09+01:00"), "Wed Jan 31 23:00:09 UTC 2024");
        assert_eq!(date("2024-02-01T00:00:09Z"), "Thu Feb  1 00:00:09 UTC 2024");
    }

    #[test]
    fn durations_parse_like_go() {
        let s = Duration::from_secs;
        for (text, want) in [
            ("5s", Ok(Some(s(5)))),
            ("1h30m", Ok(Some(s(5400)))),
            ("1.5s", Ok(Some(Duration::from_millis(1500)))),
            ("100ms", Ok(Some(Duration::from_millis(100)))),
            ("0", Ok(None)),
            ("0s", Ok(None)),
            ("-3s", Ok(None)),
            ("zz", Err("time: invalid duration \"zz\"")),
            ("abc", Err("time: invalid duration \"abc\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"")),
            ("", Err("time: invalid duration \"\"")),
            ("1.2.3s", Err("time: invalid duration \"1.2.3s\"")),
            ("9999999999h", Err("time: invalid duration \"9999999999h\"")),
        ] {
            assert_eq!(
                parse_go_duration(text).map_err(String::from),
                want.map_err(str::to_owned),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_format_like_go() {
        for (nanos, want) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (512_250_000, "512.25ms"),
            (1_000_000_000, "1s"),
            (62_500_000_000, "1m2.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), want);
        }
    }

    #[test]
    fn any_offset_parses_and_utc_is_written() {
        let t = parse("2024-02-29T23:30:00.123456789+01:00").unwrap();
        assert_eq!(format(t), "2024-02-29T22:30:00Z");
        assert_eq!(format_micro(t), "2024-02-29T22:30:00.123456Z");
        assert_eq!(format_unix(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(
            parse_micro("2024-01-01T00:00:00.000001Z").map(format_micro),
            Ok("2024-01-01T00:00:00.000001Z".to_owned())
        );
    }

    #[test]
    fn parse_errors_match_go() {
        let e = |s| parse(s).unwrap_err().to_string();
        assert_eq!(
            e("x"),
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
        );
        assert_eq!(
            e(""),
            r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#
        );
        assert_eq!(
            e("2024-01-01"),
            r#"parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#
        );
        assert_eq!(
            parse_micro("2024-01-01T00:00:00Z").unwrap_err().to_string(),
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
        for (text, what) in [
            // The `time` crate reads it as a leap second.
            ("2016-12-31T23:59:60Z", "second"),
            ("2016-12-31T23:60:00Z", "minute"),
            ("2016-12-31T24:00:00Z", "hour"),
            ("2016-13-31T00:00:00Z", "month"),
            ("2023-02-29T00:00:00Z", "day"),
            ("2023-02-00T00:00:00+01:00", "day"),
        ] {
            assert_eq!(e(text), format!("parsing time {text:?}: {what} out of range"));
        }
        let leap = "2016-12-31T23:59:60.000000Z";
        assert_eq!(
            parse_micro(leap).unwrap_err().to_string(),
            format!("parsing time {leap:?}: second out of range")
        );
    }
}
