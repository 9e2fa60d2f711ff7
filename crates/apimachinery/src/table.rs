//! Cells of a Table that every kind shares: ages and durations, as `kubectl get` prints them.

/// Formats a duration as kubectl does (`duration.HumanDuration`): with two units while the first is small,
/// with one when it is large (`90s`, `5m12s`, `3h`, `2d4h`, `400d`).
pub fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        s => format!("{big}{big_unit}{s}{small_unit}"),
    };
    let (minutes, hours) = (seconds / MINUTE, seconds / HOUR);
    match seconds {
        // Like upstream, a clock skew of one second is tolerated.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if minutes < 10 => two(minutes, "m", s % MINUTE, "s"),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        s if hours < 8 * 24 => two(s / DAY, "d", hours % 24, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s / DAY % 365, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// The time since `timestamp` (RFC 3339) at `now` (Unix seconds); `<unknown>` if it does not parse.
pub fn age(timestamp: &str, now: i64) -> String {
    match super::time::parse(timestamp) {
        Ok(t) => human_duration(now - t.unix_timestamp()),
        Err(_) => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_lose_precision_as_they_grow() {
        const H: i64 = 3600;
        for (s, want) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (312, "5m12s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (3 * H, "3h"),
            (3 * H + 61, "3h1m"),
            (8 * H + 61, "8h"),
            (47 * H, "47h"),
            (48 * H, "2d"),
            (52 * H, "2d4h"),
            (8 * 24 * H, "8d"),
            (400 * 24 * H, "400d"),
            (730 * 24 * H, "2y"),
            (731 * 24 * H, "2y1d"),
            (830 * 24 * H, "2y100d"),
            (8 * 365 * 24 * H, "8y"),
        ] {
            assert_eq!(human_duration(s), want, "{s}");
        }
        assert_eq!(age("1970-01-01T00:00:00Z", 90), "90s");
        assert_eq!(age("", 90), "<unknown>");
    }
}
