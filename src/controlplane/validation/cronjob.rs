//! Validation of CronJobs (upstream's `pkg/apis/batch/validation`); `schedule` parses the cron expression.

mod schedule;

use super::common::not_negative;
use super::{go_form, job};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::required_choice;

/// Names of the IANA time zones, one per line. Embedded, so that validation does not depend on the host's zone
/// database.
const ZONES: &str = include_str!("zones.txt");

pub(crate) fn create(v: &Value) -> ErrorList {
    let mut out = check(v, None);
    // Leaves room for the 11-character suffix of the Jobs' names (63 is the limit of a label). Not checked on
    // update, so that a longer name that is already stored does not block changes.
    if v.name().len() > 52 {
        out.push(FieldError::invalid(
            &FieldPath::new("metadata").child("name"),
            v.name(),
            "must be no more than 52 characters",
        ));
    }
    out
}

pub(crate) fn update(new: &Value, old: &Value) -> ErrorList {
    check(new, Some(old))
}

fn check(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    let at = path.child("schedule");
    let text = spec.str_at(&["schedule"]);
    if text.is_empty() {
        out.push(FieldError::required(&at, ""));
    } else {
        if let Err(e) = schedule::check(text) {
            out.push(FieldError::invalid(&at, text, e.to_string()));
        }
        zone_in_schedule(&mut out, spec, old, &at);
    }
    not_negative(&mut out, spec, "startingDeadlineSeconds", &path);
    // An unchanged zone is not checked again: it may have been known to another version of the zone database.
    let zone = spec.get("timeZone");
    if !old.is_some_and(|o| o.at(&["spec", "timeZone"]) == zone) {
        time_zone(&mut out, zone, &path.child("timeZone"));
    }
    required_choice(
        &mut out,
        spec,
        "concurrencyPolicy",
        &path,
        &["Allow", "Forbid", "Replace"],
    );
    let (template, at) = (
        spec.at(&["jobTemplate", "spec"]),
        path.child("jobTemplate").child("spec"),
    );
    // Without the selector checks of Jobs: each created Job gets its own selector.
    let stored = old.map(|o| o.at(&["spec", "jobTemplate", "spec", "template"]));
    job::spec(&mut out, template, stored, &at);
    if !template.get("selector").is_null() {
        out.push(FieldError::invalid_raw(
            &at.child("selector"),
            go_form::selector(template.get("selector")),
            "`selector` will be auto-generated",
        ));
    }
    if template.get("manualSelector").as_bool() == Some(true) {
        // The odd list of supported values is upstream's.
        out.push(FieldError::not_supported(
            &at.child("manualSelector"),
            true,
            &["nil", "false"],
        ));
    }
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&mut out, spec, key, &path);
    }
    out
}

fn zone_in_schedule(out: &mut ErrorList, spec: &Value, old: Option<&Value>, at: &FieldPath) {
    let text = spec.str_at(&["schedule"]);
    // As upstream, anywhere in the schedule. `TZ=` was never documented, but the parser accepts it.
    if !text.contains("TZ") {
        return;
    }
    // Schedules stored before the rule keep working until `timeZone` is set too.
    if !old.is_some_and(|o| o.str_at(&["spec", "schedule"]).contains("TZ")) {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        out.push(FieldError::invalid(at, text, why));
    } else if !spec.get("timeZone").is_null() {
        let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        out.push(FieldError::invalid(at, text, why));
    }
}

fn time_zone(out: &mut ErrorList, zone: &Value, at: &FieldPath) {
    let Some(text) = zone.as_str() else { return };
    let mut refuse = |why: &str| out.push(FieldError::invalid_enum(at, text, why));
    if text.is_empty() {
        return refuse("timeZone must be nil or non-empty string");
    }
    let unknown = format!("unknown time zone {text}");
    if !text.split('/').all(is_zone_part) {
        return refuse(&unknown);
    }
    if text.eq_ignore_ascii_case("local") {
        refuse("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    // As Go's `time.LoadLocation`, which knows `Local` in this form only.
    if text.contains("..") {
        refuse("time: invalid location name");
    } else if text != "Local" && !ZONES.lines().any(|z| z == text) {
        refuse(&unknown);
    }
}

/// True for what IANA allows between the slashes of a zone's name, and digits and `+`, which old names have.
fn is_zone_part(part: &str) -> bool {
    let is_valid = |c: u8| c.is_ascii_alphanumeric() || b".-_+".contains(&c);
    (1..=14).contains(&part.len())
        && part.bytes().all(is_valid)
        && !part.starts_with('-')
        && !matches!(part, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn errors_match_the_recordings() {
        for (key, value, want) in [
            ("schedule", json!("*/5 * * * *"), "[]"),
            ("schedule", json!(""), "spec.schedule: Required value"),
            (
                "schedule",
                json!("61 * * * *"),
                "spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61",
            ),
            (
                "schedule",
                json!("TZ=UTC 0 * * * *"),
                "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ),
            ("timeZone", json!("Etc/UTC"), "[]"),
            (
                "timeZone",
                json!("Mars/Base"),
                "spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone Mars/Base",
            ),
            (
                "timeZone",
                json!("Local"),
                "spec.timeZone: Invalid value: \"Local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ),
            (
                "timeZone",
                json!("local"),
                "[spec.timeZone: Invalid value: \"local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones, spec.timeZone: Invalid value: \"local\": unknown time zone local]",
            ),
            (
                "timeZone",
                json!("a..b"),
                "spec.timeZone: Invalid value: \"a..b\": time: invalid location name",
            ),
            (
                "timeZone",
                json!("../a"),
                "spec.timeZone: Invalid value: \"../a\": unknown time zone ../a",
            ),
            (
                "timeZone",
                json!("a&b"),
                "spec.timeZone: Invalid value: \"a\\u0026b\": unknown time zone a&b",
            ),
            (
                "concurrencyPolicy",
                json!("X"),
                "spec.concurrencyPolicy: Unsupported value: \"X\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ),
        ] {
            let mut v = json!({"metadata": {"name": "c"}, "spec": {"schedule": "@hourly", "jobTemplate": {"spec": {"template": {"spec": {
                "containers": [{"name": "main", "image": "a:1"}], "restartPolicy": "Never"}}}}}});
            v.set(&["spec", key], value);
            crate::controlplane::defaults::workloads::cron_job(&mut v);
            assert_eq!(aggregate(&create(&v)), want);
        }
    }

    #[test]
    fn errors_have_upstreams_order() {
        let spec = json!({"timeZone": "", "startingDeadlineSeconds": -1, "concurrencyPolicy": "X"});
        let errors = create(&json!({"metadata": {"name": "c"}, "spec": (spec)}));
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).take(4).collect();
        let expected = ["schedule", "startingDeadlineSeconds", "timeZone", "concurrencyPolicy"];
        assert_eq!(fields, expected.map(|key| format!("spec.{key}")));
    }

    #[test]
    fn the_selector_prints_like_gos_struct() {
        let selector = json!({"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchLabels": {"a": "b"}});
        let mut v = json!({"metadata": {"name": "c"}, "spec": {"schedule": "@hourly"}});
        v.set(&["spec", "jobTemplate", "spec", "selector"], selector);
        let errors = aggregate(&create(&v));
        let want = "spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"},\
                    \"matchExpressions\":[{\"key\":\"k\",\"operator\":\"Exists\"}]}: `selector` will be auto-generated";
        assert!(errors.contains(want), "{errors}");
    }
}
