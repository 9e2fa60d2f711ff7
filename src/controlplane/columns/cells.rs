//! Cell formatting shared by the printers of several kinds: ages, label maps, shortened lists.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;

/// The time elapsed since `timestamp` in kubectl's format: `<unknown>` if absent, `<invalid>` if in the future.
pub(crate) fn since(timestamp: &Value) -> String {
    match timestamp.as_str().and_then(|s| time::parse(s).ok()) {
        None => "<unknown>".to_owned(),
        Some(t) => human_duration((::time::OffsetDateTime::now_utc() - t).whole_seconds()),
    }
}

/// The `Age` cell: the time elapsed since `metadata.creationTimestamp`.
pub(crate) fn age(object: &Value) -> Value {
    since(object.at(&["metadata", "creationTimestamp"])).into()
}

/// The `Name` cell.
pub(crate) fn name(object: &Value) -> Value {
    object.name().into()
}

/// Formats seconds like `HumanDuration` in `k8s.io/apimachinery/pkg/util/duration`: two units while the larger one
/// is small, such as `10s`, `5m30s`, `15m`, `3h5m`, `36h`, `3d5h`, `12d`, `2y100d`, `9y`.
pub(crate) fn human_duration(seconds: i64) -> String {
    // Up to one second of clock skew prints as zero.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let s = seconds.max(0);
    let pair = |big: i64, unit: &str, small: i64, sub: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{sub}")
        }
    };
    let (m, h, d) = (s / 60, s / 3600, s / 86400);
    match s {
        _ if s < 120 => format!("{s}s"),
        _ if m < 10 => pair(m, "m", s % 60, "s"),
        _ if m < 180 => format!("{m}m"),
        _ if h < 8 => pair(h, "h", m % 60, "m"),
        _ if h < 48 => format!("{h}h"),
        _ if h < 192 => pair(d, "d", h % 24, "h"),
        _ if d < 730 => format!("{d}d"),
        _ if d < 2920 => pair(d / 365, "y", d % 365, "d"),
        _ => format!("{}y", d / 365),
    }
}

/// A string map as `a=b,c=d`, or `<none>` if empty.
pub(crate) fn labels(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flat_map(|m| m.iter())
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or("")))
        .collect();
    none_if_empty(pairs.join(","))
}

/// `s`, or `<none>` if it is empty.
pub(crate) fn none_if_empty(s: String) -> String {
    if s.is_empty() { "<none>".to_owned() } else { s }
}

/// Joins at most three entries and counts the others (`a,b,c + 2 more...`); `none` if there are no entries.
pub(crate) fn first_three(all: &[String], none: &str) -> String {
    if all.is_empty() {
        return none.to_owned();
    }
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// The status condition of this type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object
        .at(&["status", "conditions"])
        .items()
        .iter()
        .find(|c| c.str_at(&["type"]) == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_durations_have_two_units() {
        for (s, want) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10799, "179m"),
            (10800, "3h"),
            (11100, "3h5m"),
            (28800, "8h"),
            (172_800, "2d"),
            (183_600, "2d3h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (71_712_000, "2y100d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human_duration(s), want, "{s}");
        }
    }
}
