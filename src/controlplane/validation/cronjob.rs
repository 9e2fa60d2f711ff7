//! Validation of CronJobs (upstream's `pkg/apis/batch/validation`); `schedule` parses the cron expression.

mod schedule;

use super::common::not_negative;
use super::job;
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
    // An unchanged zone is not checked again: it may have been known to another version of the zone database.
    let zone = spec.get("timeZone");
    if !old.is_some_and(|o| o.at(&["spec", "timeZone"]) == zone) {
        time_zone(&mut out, zone, &path.child("timeZone"));
    }
    not_negative(&mut out, spec, "startingDeadlineSeconds", &path);
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
        out.push(FieldError::invalid(
            &at.child("selector"),
            template.get("selector").clone(),
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
    let why = if text.is_empty() {
        "timeZone must be nil or non-empty string".to_owned()
    // Go's `time.LoadLocation` accepts `Local`, which would mean the controller's own zone.
    } else if text.eq_ignore_ascii_case("local") {
        "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()
    } else if ZONES.lines().any(|z| z == text) {
        return;
    } else {
        format!("unknown time zone {text}")
    };
    out.push(FieldError::invalid(at, text, why));
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
}
