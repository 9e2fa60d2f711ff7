//! Dates, times and durations.

/// `YYYY-MM-DD`
pub(super) fn date(s: &str) -> bool {
    // All digits are checked first, since `parse` would accept a sign.
    let number = |s: &str| -> Option<u32> { s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok())? };
    let part = |range: std::ops::Range<usize>| s.get(range).and_then(number);
    // Bytes are enough: positions are only compared with ASCII.
    if s.len() != 10 || s.get(4..5) != Some("-") || s.get(7..8) != Some("-") {
        return false;
    }
    let (Some(year), Some(month), Some(day)) = (part(0..4), part(5..7), part(8..10)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// A date, `T`, and a time with a zone. As upstream, the text is read in lower case and split at each `t`, so
/// that what follows a second one is of no importance, and the fraction may follow any character.
pub(super) fn date_time(s: &str) -> bool {
    let lower = s.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(clock)) = (parts.next(), parts.next()) else {
        return false;
    };
    date(day) && time(clock).unwrap_or(false)
}

fn time(s: &str) -> Option<bool> {
    let two = |s: &str| s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit());
    let hms: Vec<&str> = s.get(..8)?.split(':').collect();
    let [h, m, sec] = hms.as_slice() else { return None };
    // Compared as strings, which works for two digits each; a leap second is rejected.
    let valid = two(h) && two(m) && two(sec) && *h <= "23" && *m <= "59" && *sec <= "59";
    let zone = |z: &str| {
        let offset = z.strip_prefix(['+', '-']).and_then(|z| z.split_once(':'));
        z == "z" || offset.is_some_and(|(h, m)| two(h) && two(m))
    };
    // Eight bytes are there and end at a character: `get` has checked that.
    let rest = &s[8..];
    if valid && zone(rest) {
        return Some(true);
    }
    // Upstream's pattern has an unescaped dot, so that any character may start the fraction.
    let mut fraction = rest.chars();
    let separator = fraction.next()?;
    let digits = fraction.as_str();
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    Some(valid && separator != '\n' && end > 0 && zone(&digits[end..]))
}

/// A Go duration (`1h30m`), or any text in which a number is followed by a unit (`3 days 2h`).
pub(super) fn duration(s: &str) -> bool {
    go_duration(s) || spelled_out(s)
}

fn go_duration(s: &str) -> bool {
    // Both signs are allowed, unlike in selectors of timeouts.
    let mut rest = s.strip_prefix(['+', '-']).unwrap_or(s);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        // At least one digit and at most one point, as Go's parser.
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        // More than 290 years overflow; the first digits decide.
        if !units.contains(&unit) || number.len() > 19 {
            return false;
        }
        rest = after;
        any = true;
    }
    any
}

fn spelled_out(s: &str) -> bool {
    /// The abbreviations of each unit; of the last one any continuation counts (`days`).
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let known = |unit: &str| {
        UNITS.iter().any(|variants| {
            let last = variants.last().is_some_and(|long| unit.starts_with(long));
            last || variants.contains(&unit)
        })
    };
    // Every number followed by a unit is taken; other text between them is ignored.
    let mut found = false;
    let mut rest = s;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let unit = after.trim_start_matches([' ', '\t', '\n', '\u{c}', '\r']);
        let end = unit
            .find(|c: char| !c.is_ascii_alphabetic() && c != 'µ')
            .unwrap_or(unit.len());
        // Goes on behind the number, so that the unit is searched for further numbers as well.
        rest = after;
        if end == 0 {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        found |= known(&unit[..end].to_lowercase());
    }
    found
}
