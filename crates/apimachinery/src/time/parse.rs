//! Times as Go's `time.Parse` reads them: [`parse`] and [`parse_micro`].

use super::error::Error;
use std::ops::RangeInclusive;
use time::{Date, Month, OffsetDateTime};

/// Parses a `metav1.Time`: RFC 3339 with any offset and any fraction. As in Go, the hour may have one digit, a comma may
/// separate the fraction, and offsets go up to 24 hours and 60 minutes.
///
/// # Errors
/// The text has another form, or a component is out of range.
pub fn parse(s: &str) -> Result<OffsetDateTime, Error> {
    Reader::of(s, "2006-01-02T15:04:05Z07:00").time(|reader| Ok(reader.fraction()))
}

/// Parses a `metav1.MicroTime`, which must have exactly six fraction digits.
///
/// # Errors
/// The text has another form.
pub fn parse_micro(s: &str) -> Result<OffsetDateTime, Error> {
    Reader::of(s, "2006-01-02T15:04:05.000000Z07:00").time(Reader::six_digits)
}

/// The unread rest of a time, which is read element by element of Go's layout. Errors name the first element that does
/// not match, and the text from there on.
struct Reader<'s> {
    text: &'s str,
    rest: &'s str,
    layout: &'static str,
}

impl<'s> Reader<'s> {
    fn of(text: &'s str, layout: &'static str) -> Self {
        Self {
            text,
            rest: text,
            layout,
        }
    }

    /// The whole time, with the nanoseconds that `fraction` reads behind the seconds.
    fn time(mut self, fraction: impl FnOnce(&mut Self) -> Result<u32, Error>) -> Result<OffsetDateTime, Error> {
        let year = self.number("2006", 4..=4)?;
        self.skip("-")?;
        let month = self.within("01", 2..=2, 1..=12, "month")?;
        self.skip("-")?;
        // Checked last, with the month.
        let day = self.number("02", 2..=2)?;
        self.skip("T")?;
        let hour = self.within("15", 1..=2, 0..=23, "hour")?;
        self.skip(":")?;
        let minute = self.within("04", 2..=2, 0..=59, "minute")?;
        self.skip(":")?;
        let second = self.within("05", 2..=2, 0..=59, "second")?;
        let nanos = fraction(&mut self)?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(Error::Extra {
                text: self.text.to_owned(),
                rest: self.rest.to_owned(),
            });
        }
        let month = Month::try_from(month as u8).map_err(|_| self.out_of_range("month"))?;
        let date = Date::from_calendar_date(i32::from(year), month, day as u8).map_err(|_| self.out_of_range("day"))?;
        date.with_hms_nano(hour as u8, minute as u8, second as u8, nanos)
            .ok()
            // The offset may lead beyond the year 9999, which only Go has a form for.
            .and_then(|local| local.assume_utc().checked_sub(time::Duration::seconds(offset)))
            .ok_or_else(|| self.out_of_range("value"))
    }

    fn mismatch(&self, element: &'static str) -> Error {
        Error::Layout {
            text: self.text.to_owned(),
            layout: self.layout,
            rest: self.rest.to_owned(),
            element,
        }
    }

    fn out_of_range(&self, what: &'static str) -> Error {
        Error::OutOfRange {
            text: self.text.to_owned(),
            what,
        }
    }

    fn skip(&mut self, separator: &'static str) -> Result<(), Error> {
        let rest = self.rest.strip_prefix(separator);
        self.rest = rest.ok_or_else(|| self.mismatch(separator))?;
        Ok(())
    }

    /// A number of so many digits, four at most.
    fn number(&mut self, element: &'static str, digits: RangeInclusive<usize>) -> Result<u16, Error> {
        let most = self.rest.bytes().take(*digits.end());
        let count = most.take_while(u8::is_ascii_digit).count();
        if count < *digits.start() {
            return Err(self.mismatch(element));
        }
        let (number, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(number.bytes().fold(0, |n, digit| n * 10 + u16::from(digit - b'0')))
    }

    /// A number that is in range; `name` is what Go calls it.
    fn within(
        &mut self,
        element: &'static str,
        digits: RangeInclusive<usize>,
        range: RangeInclusive<u16>,
        name: &'static str,
    ) -> Result<u16, Error> {
        let number = self.number(element, digits)?;
        match range.contains(&number) {
            true => Ok(number),
            false => Err(self.out_of_range(name)),
        }
    }

    /// The nanoseconds of a fraction, which Go accepts even if the layout has none.
    fn fraction(&mut self) -> u32 {
        let Some(digits) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        // A separator alone belongs to the next element, which does not match it.
        if count == 0 {
            return 0;
        }
        let (digits, rest) = digits.split_at(count);
        self.rest = rest;
        nanoseconds(digits)
    }

    /// The nanoseconds of a fraction of exactly six digits. Further ones are left for the next element.
    fn six_digits(&mut self) -> Result<u32, Error> {
        let digits = self.rest.strip_prefix(['.', ',']).and_then(|d| d.split_at_checked(6));
        let digits = digits.filter(|(digits, _)| digits.bytes().all(|c| c.is_ascii_digit()));
        let (digits, rest) = digits.ok_or_else(|| self.mismatch(".000000"))?;
        self.rest = rest;
        Ok(nanoseconds(digits))
    }

    /// The offset from UTC in seconds.
    fn offset(&mut self) -> Result<i64, Error> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let pair = |a: u8, b: u8| {
            (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
        };
        let zone = self.rest.split_at_checked(6);
        let (zone, rest) = zone.ok_or_else(|| self.mismatch(ELEMENT))?;
        let &[sign, h, hh, b':', m, mm] = zone.as_bytes() else {
            return Err(self.mismatch(ELEMENT));
        };
        let (Some(hours), Some(minutes)) = (pair(h, hh), pair(m, mm)) else {
            return Err(self.mismatch(ELEMENT));
        };
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        let seconds = (hours * 60 + minutes) * 60;
        let seconds = match sign {
            b'+' => seconds,
            b'-' => -seconds,
            _ => return Err(self.mismatch(ELEMENT)),
        };
        self.rest = rest;
        Ok(seconds)
    }
}

/// The digits of a fraction of a second as nanoseconds; further digits are dropped.
fn nanoseconds(digits: &str) -> u32 {
    let nine = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    nine.fold(0, |n, digit| n * 10 + u32::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_errors_name_the_element_that_does_not_match() {
        for (text, rest, element) in [
            ("2024-1-01T00:00:00Z", "1-01T00:00:00Z", "01"),
            ("2024-01-01t00:00:00Z", "t00:00:00Z", "T"),
            ("2024-01-01T:00:00Z", ":00:00Z", "15"),
            ("2024-01-01T00:0:00Z", "0:00Z", "04"),
            ("2024-01-01T00:00:00", "", "Z07:00"),
            ("2024-01-01T00:00:00.Z", ".Z", "Z07:00"),
            ("2024-01-01T00:00:00z", "z", "Z07:00"),
            ("2024-01-01T00:00:00+1:00", "+1:00", "Z07:00"),
        ] {
            let want = format!(": cannot parse {rest:?} as {element:?}");
            let error = parse(text).unwrap_err().to_string();
            assert!(error.ends_with(&want), "{error}");
        }
        let extra = parse("2024-01-01T00:00:00Zulu").unwrap_err().to_string();
        assert_eq!(extra, r#"parsing time "2024-01-01T00:00:00Zulu": extra text: "ulu""#);
        // Go quotes the bytes of what is not printable ASCII.
        let bytes = parse("2024-01-01T00:00:00é\"1:00").unwrap_err().to_string();
        assert!(
            bytes.ends_with(r#"cannot parse "\xc3\xa9\"1:00" as "Z07:00""#),
            "{bytes}"
        );
        let far = parse("2024-01-01T00:00:00+25:00").unwrap_err().to_string();
        assert!(far.ends_with(": time zone offset hour out of range"), "{far}");
        let nanos = parse_micro("2024-01-01T00:00:00.123456789Z").unwrap_err().to_string();
        assert!(nanos.ends_with(r#"cannot parse "789Z" as "Z07:00""#), "{nanos}");
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
            // RFC 3339 has leap seconds, Go has not.
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
