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

mod error;
mod parse;

pub use error::Error;
pub use parse::{parse, parse_micro};

use std::time::Duration;
use time::OffsetDateTime;

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
    fn go_is_lenient_with_hours_fractions_and_offsets() {
        for (text, want) in [
            ("2024-01-01T1:02:03Z", "2024-01-01T01:02:03.000000Z"),
            ("2024-01-01T01:02:03,5Z", "2024-01-01T01:02:03.500000Z"),
            ("2024-01-01T1:02:03.1234567899+00:30", "2024-01-01T00:32:03.123456Z"),
            ("2024-01-01T00:00:00-24:60", "2024-01-02T01:00:00.000000Z"),
        ] {
            assert_eq!(parse(text).map(format_micro).as_deref(), Ok(want), "{text}");
        }
        assert_eq!(
            parse_micro("2024-01-01T1:02:03,000001Z").map(format_micro).as_deref(),
            Ok("2024-01-01T01:02:03.000001Z")
        );
        // In UTC, that is the year 10000.
        assert_eq!(
            parse("9999-12-31T23:59:59-01:00").unwrap_err().to_string(),
            r#"parsing time "9999-12-31T23:59:59-01:00": value out of range"#
        );
    }
}
