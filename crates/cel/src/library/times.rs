//! Calendar fields of timestamps and parts of durations.

use super::{Body::Strict, Declaration};
use crate::time_value::zone;
use crate::value::{Out, Val, error, no_overload};
use time::OffsetDateTime;

const CALENDAR: &[&str] = &["timestamp.() int", "timestamp.(string) int"];
const CLOCK: &[&str] = &["timestamp.() int", "timestamp.(string) int", "duration.() int"];

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("getFullYear", Strict(|a| part(a, |t| t.year().into(), None)), CALENDAR),
    (
        "getMonth",
        Strict(|a| part(a, |t| i64::from(u8::from(t.month())) - 1, None)),
        CALENDAR,
    ),
    ("getDate", Strict(|a| part(a, |t| t.day().into(), None)), CALENDAR),
    (
        "getDayOfMonth",
        Strict(|a| part(a, |t| i64::from(t.day()) - 1, None)),
        CALENDAR,
    ),
    (
        "getDayOfWeek",
        Strict(|a| part(a, |t| t.weekday().number_days_from_sunday().into(), None)),
        CALENDAR,
    ),
    (
        "getDayOfYear",
        Strict(|a| part(a, |t| i64::from(t.ordinal()) - 1, None)),
        CALENDAR,
    ),
    (
        "getHours",
        Strict(|a| part(a, |t| t.hour().into(), Some(3_600_000_000_000))),
        CLOCK,
    ),
    (
        "getMinutes",
        Strict(|a| part(a, |t| t.minute().into(), Some(60_000_000_000))),
        CLOCK,
    ),
    (
        "getSeconds",
        Strict(|a| part(a, |t| t.second().into(), Some(1_000_000_000))),
        CLOCK,
    ),
    (
        "getMilliseconds",
        Strict(|a| part(a, |t| t.millisecond().into(), Some(1_000_000))),
        CLOCK,
    ),
];

fn part<'a>(args: &[Val<'a>], of: fn(OffsetDateTime) -> i64, unit: Option<i64>) -> Out<'a> {
    let (stamp, name) = match (args, unit) {
        ([Val::Duration(d)], Some(unit)) => return Ok(Val::Int(d / unit)),
        ([Val::Timestamp(t)], _) => (t, "UTC"),
        ([Val::Timestamp(t), Val::String(zone)], _) => (t, &**zone),
        _ => return no_overload(),
    };
    // The offset of a zone depends on the time.
    match zone(name, *stamp).and_then(|offset| stamp.at(offset)) {
        Some(t) => Ok(Val::Int(of(t))),
        None => error(format!("unknown time zone {name}")),
    }
}
