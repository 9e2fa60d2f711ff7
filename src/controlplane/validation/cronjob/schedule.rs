//! Checks cron expressions, with the error texts of upstream's parser (`github.com/robfig/cron/v3`).
//! Entry point: [`check`]. Nothing is evaluated; the CronJob controller does that.

/// Bounds of a field, and the names of its values, the first standing for `least`.
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
        most: 6,
        names: DAYS,
    },
];

/// Checks a schedule: five fields or an `@` descriptor, after an optional time zone.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut text = text;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        let (zone, rest) = text.split_once(' ').unwrap_or((text, ""));
        let zone = zone.split_once('=').map_or("", |(_, z)| z);
        if zone != "Local" && !zone.is_empty() && !super::ZONES.lines().any(|z| z == zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        text = rest.trim();
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let n = fields.len();
        return Err(format!("expected exactly 5 fields, found {n}: [{}]", fields.join(" ")));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for part in text.split(',').filter(|p| !p.is_empty()) {
            range(part, field)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(d) if is_duration(d) => Ok(()),
            Some(d) => Err(format!("failed to parse duration {text}: time: invalid duration {d:?}")),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

/// True if `text` is a Go duration such as `1h30m` or `1.5s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        if number == 0 || rest[..number].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[number..];
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .iter()
            .find(|u| rest.starts_with(**u))
        else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    !text.is_empty()
}

fn number(text: &str, field: &Field) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    if let Some(i) = field.names.iter().position(|n| *n == lower) {
        return Ok(i as u64 + field.least);
    }
    plain(text)
}

fn plain(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(n) if n < 0 => Err(format!("negative number ({n}) not allowed: {text}")),
        Ok(n) => Ok(n.unsigned_abs()),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        )),
    }
}

/// Checks `*`, `5` or `1-5`, each with an optional step after a slash.
fn range(text: &str, field: &Field) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let single = ends.len() == 1;
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (field.least, field.most),
        [low] => {
            let n = number(low, field)?;
            (n, n)
        }
        [low, high] => (number(low, field)?, number(high, field)?),
        _ => return Err(format!("too many hyphens: {text}")),
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
        _ => return Err(format!("too many slashes: {text}")),
    };
    let (least, most) = (field.least, field.most);
    if start < least {
        Err(format!("beginning of range ({start}) below minimum ({least}): {text}"))
    } else if end > most {
        Err(format!("end of range ({end}) above maximum ({most}): {text}"))
    } else if start > end {
        Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ))
    } else if step == 0 {
        Err(format!("step of range should be a positive number: {text}"))
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
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()));
        }
    }
}
