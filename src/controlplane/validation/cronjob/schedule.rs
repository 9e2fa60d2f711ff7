//! Checks cron expressions, with the messages of upstream's parser (`github.com/robfig/cron/v3`, `parser.go`).
//! Entry point: [`check`]. Evaluation is left to the CronJob controller.

use crate::apimachinery::time::{self, parse_go_duration};
use std::num::IntErrorKind;

/// Why a schedule is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSchedule {
    #[error("provided bad location {0}: unknown time zone {0}")]
    Zone(String),
    #[error("expected exactly 5 fields, found {count}: [{fields}]")]
    Fields { count: usize, fields: String },
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    #[error("failed to parse duration {descriptor}: {why}")]
    Duration { descriptor: String, why: time::Error },
    #[error("negative number ({number}) not allowed: {text}")]
    Negative { number: i64, text: String },
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    NotNumber(String),
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: value out of range")]
    OutOfRange(String),
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    #[error("too many slashes: {0}")]
    Slashes(String),
    #[error("beginning of range ({start}) below minimum ({least}): {text}")]
    BelowMinimum { start: u64, least: u64, text: String },
    #[error("end of range ({end}) above maximum ({most}): {text}")]
    AboveMaximum { end: u64, most: u64, text: String },
    #[error("beginning of range ({start}) beyond end of range ({end}): {text}")]
    Backwards { start: u64, end: u64, text: String },
    #[error("step of range should be a positive number: {0}")]
    NoStep(String),
}

/// Bounds of a field and the names of its values; the first name stands for `least`.
struct Field {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field {
        least: 0,
        most: 59,
        names: &[],
    },
    Field {
        least: 0,
        most: 23,
        names: &[],
    },
    Field {
        least: 1,
        most: 31,
        names: &[],
    },
    Field {
        least: 1,
        most: 12,
        names: MONTHS,
    },
    Field {
        least: 0,
        // Unlike in many crons, 7 is not Sunday.
        most: 6,
        names: DAYS,
    },
];

/// Checks a schedule: five fields or an `@` descriptor, after an optional time zone.
pub(super) fn check(text: &str) -> Result<(), InvalidSchedule> {
    let mut text = text;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        let (zone, rest) = text.split_once(' ').unwrap_or((text, ""));
        let zone = zone.split_once('=').map_or("", |(_, z)| z);
        // Go's `LoadLocation` reads an empty name as UTC.
        if zone != "Local" && !zone.is_empty() && !super::ZONES.lines().any(|z| z == zone) {
            return Err(InvalidSchedule::Zone(zone.to_owned()));
        }
        text = rest.trim();
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(InvalidSchedule::Fields {
            count: fields.len(),
            fields: fields.join(" "),
        });
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        // The parser splits with `FieldsFunc`, which drops empty parts: `1,,2` and even `,` are valid.
        for part in text.split(',').filter(|p| !p.is_empty()) {
            range(part, field)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), InvalidSchedule> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ").map(parse_go_duration) {
            // Zero and negative ones pass as well: the parser makes a second of them.
            Some(Ok(_)) => Ok(()),
            Some(Err(why)) => Err(InvalidSchedule::Duration {
                descriptor: text.to_owned(),
                why,
            }),
            None => Err(InvalidSchedule::Descriptor(text.to_owned())),
        },
    }
}

fn number(text: &str, field: &Field) -> Result<u64, InvalidSchedule> {
    // Names stand for single values, so `jan-mar` works like `1-3`.
    let lower = text.to_ascii_lowercase();
    if let Some(i) = field.names.iter().position(|n| *n == lower) {
        return Ok(i as u64 + field.least);
    }
    plain(text)
}

fn plain(text: &str) -> Result<u64, InvalidSchedule> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(InvalidSchedule::Negative {
            number,
            text: text.to_owned(),
        }),
        Ok(n) => Ok(n.unsigned_abs()),
        Err(e) if matches!(e.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            Err(InvalidSchedule::OutOfRange(text.to_owned()))
        }
        Err(_) => Err(InvalidSchedule::NotNumber(text.to_owned())),
    }
}

/// Checks `*`, `5` or `1-5`, each with an optional step after a slash.
fn range(text: &str, field: &Field) -> Result<(), InvalidSchedule> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let single = ends.len() == 1;
    let (start, mut end) = match ends.as_slice() {
        // As in upstream's parser, an end after a wildcard is ignored: `*-5` equals `*`.
        ["*" | "?", ..] => (field.least, field.most),
        [low] => {
            let n = number(low, field)?;
            (n, n)
        }
        [low, high] => (number(low, field)?, number(high, field)?),
        _ => return Err(InvalidSchedule::Hyphens(text.to_owned())),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            // `5/10` means from 5 to the maximum in steps of 10.
            if single {
                end = field.most;
            }
            plain(step)?
        }
        _ => return Err(InvalidSchedule::Slashes(text.to_owned())),
    };
    // Bounds come after the syntax of all parts, in the parser's order.
    let (least, most) = (field.least, field.most);
    let text = || text.to_owned();
    if start < least {
        Err(InvalidSchedule::BelowMinimum {
            start,
            least,
            text: text(),
        })
    } else if end > most {
        Err(InvalidSchedule::AboveMaximum {
            end,
            most,
            text: text(),
        })
    } else if start > end {
        Err(InvalidSchedule::Backwards {
            start,
            end,
            text: text(),
        })
    } else if step == 0 {
        Err(InvalidSchedule::NoStep(text()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_five_fields_or_a_descriptor() {
        for good in [
            "*/5 * * * *",
            "@hourly",
            "@every 1h30m",
            "@every -5s",
            // Both the micro sign and the Greek letter.
            "@every 5\u{b5}s",
            "@every 5\u{3bc}s",
            "0 0 1,15 jan-mar mon",
            "5/10 * ? * *",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@never", "unrecognized descriptor: @never"),
            (
                "@every -",
                "failed to parse duration @every -: time: invalid duration \"-\"",
            ),
            (
                "@every ++5s",
                "failed to parse duration @every ++5s: time: invalid duration \"++5s\"",
            ),
            (
                "@every 5",
                "failed to parse duration @every 5: time: missing unit in duration \"5\"",
            ),
            (
                "@every 5d",
                "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\"",
            ),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(check(bad).unwrap_err().to_string(), why);
        }
    }
}
