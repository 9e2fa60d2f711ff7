//! Validation of a Job's status: counters, conditions, times and index lists must be consistent with each
//! other and with the stored status. Entry point: [`status`].

use super::super::common::not_negative;
use super::policies::parse_indexes;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, strings};

fn holds(v: &Value, kind: &str) -> bool {
    v.at(&["status", "conditions"])
        .items()
        .iter()
        .any(|c| c.str_at(&["type"]) == kind && c.str_at(&["status"]) == "True")
}

/// Mutually exclusive conditions, each with the error text.
const EXCLUSIVE: &[(&str, &str, &str)] = &[
    (
        "Complete",
        "Failed",
        "cannot set Complete=True and Failed=true conditions",
    ),
    (
        "Complete",
        "FailureTarget",
        "cannot set Complete=True and FailureTarget=true conditions",
    ),
    (
        "SuccessCriteriaMet",
        "Failed",
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    ),
    (
        "SuccessCriteriaMet",
        "FailureTarget",
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    ),
];

/// Conditions that require another one when they are added.
const NEEDS: &[(&str, &str, &str)] = &[
    (
        "Failed",
        "FailureTarget",
        "cannot set Failed=True condition without the FailureTarget=true condition",
    ),
    (
        "Complete",
        "SuccessCriteriaMet",
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    ),
];

/// Conditions that cannot be removed, nor set to anything but true.
const TERMINAL: &[(&str, &str)] = &[
    ("Failed", "cannot disable the terminal Failed=True condition"),
    ("Complete", "cannot disable the terminal Complete=True condition"),
    (
        "FailureTarget",
        "cannot disable the terminal FailureTarget=True condition",
    ),
    (
        "SuccessCriteriaMet",
        "cannot disable the SuccessCriteriaMet=True condition",
    ),
];

pub(crate) fn status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(&mut out, status, key, &path);
    }
    let count = |v: &Value, key: &str| v.at(&["status", key]).as_i64().unwrap_or(0);
    if count(new, "ready") > count(new, "active") {
        let why = "cannot set more ready pods than active";
        out.push(FieldError::invalid(&path.child("ready"), count(new, "ready"), why));
    }
    conditions(&mut out, new, old, &path.child("conditions"));
    times(&mut out, new, old, &path);
    if holds(new, "Complete") || holds(new, "Failed") {
        for (key, why) in [
            ("active", "active>0 is invalid for finished job"),
            ("terminating", "terminating>0 is invalid for finished job"),
        ] {
            if count(new, key) > 0 {
                out.push(FieldError::invalid(&path.child(key), count(new, key), why));
            }
        }
    }
    let indexed = new.str_at(&["spec", "completionMode"]) == "Indexed";
    // Scaling down an elastic indexed Job legitimately removes succeeded indexes.
    let elastic = indexed && new.at(&["spec", "completions"]) == new.at(&["spec", "parallelism"]);
    for (key, free) in [("failed", false), ("succeeded", elastic)] {
        if count(new, key) < count(old, key) && !free {
            let why = format!("cannot decrease the {key} counter");
            out.push(FieldError::invalid(&path.child(key), count(new, key), why));
        }
    }
    if !indexed && !status.str_at(&["completedIndexes"]).is_empty() {
        out.push(FieldError::invalid(
            &path.child("completedIndexes"),
            status.get("completedIndexes").clone(),
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        ));
    }
    indexes(&mut out, new, old, &path);
    uncounted(
        &mut out,
        status.get("uncountedTerminatedPods"),
        &path.child("uncountedTerminatedPods"),
    );
    out
}

/// Checks changed lists of completed and failed indexes.
fn indexes(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let indexes = |key: &str| {
        let text = status.get(key).as_str();
        text.filter(|_| old.at(&["status", key]) != status.get(key))
    };
    let completions = spec.get("completions").as_i64().unwrap_or(0);
    let mut refuse = |key: &str, text: &str, why: String| out.push(FieldError::invalid(&path.child(key), text, why));
    if let Some(text) = indexes("completedIndexes")
        && let Err(why) = parse_indexes(text, completions)
    {
        refuse(
            "completedIndexes",
            text,
            format!("error parsing completedIndexes: {why}"),
        );
    }
    if let Some(text) = indexes("failedIndexes") {
        if spec.get("backoffLimitPerIndex").is_null() {
            let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            refuse("failedIndexes", text, why.to_owned());
        } else if let Err(why) = parse_indexes(text, completions) {
            refuse("failedIndexes", text, format!("error parsing failedIndexes: {why}"));
        }
    }
}

/// Checks the uids of terminated pods that are not counted yet: no empty ones, no duplicates across both
/// lists.
fn uncounted(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let mut seen: Seen<&str> = Seen::new();
    for key in ["succeeded", "failed"] {
        for (i, uid) in strings(v.get(key)).into_iter().enumerate() {
            let at = path.child(key).index(i);
            if uid.is_empty() {
                out.push(FieldError::invalid(&at, uid, "must not be empty"));
            } else if seen.contains(&uid) {
                out.push(FieldError::duplicate(&at, uid));
            }
            seen.insert(uid);
        }
    }
}

fn conditions(out: &mut ErrorList, new: &Value, old: &Value, at: &FieldPath) {
    let mut refuse = |why: &str| out.push(FieldError::invalid(at, new.at(&["status", "conditions"]).clone(), why));
    for (a, b, why) in EXCLUSIVE {
        if holds(new, a) && holds(new, b) {
            refuse(why);
        }
    }
    for (has, needs, why) in NEEDS {
        if holds(new, has) && !holds(old, has) && !holds(new, needs) {
            refuse(why);
        }
    }
    for (kind, why) in TERMINAL {
        if holds(old, kind) && !holds(new, kind) {
            refuse(why);
        }
    }
    if holds(new, "SuccessCriteriaMet") && !holds(old, "SuccessCriteriaMet") && holds(old, "Complete") {
        refuse("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

fn times(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    let of = |v: &Value, key: &str| v.at(&["status", key]).clone();
    let (start, end) = (of(new, "startTime"), of(new, "completionTime"));
    let at = path.child("completionTime");
    let complete = holds(new, "Complete");
    if !end.is_null() && !complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        out.push(FieldError::invalid(&at, end.clone(), why));
    }
    if end.is_null() && complete {
        out.push(FieldError::required(
            &at,
            "completionTime is required for Complete jobs",
        ));
    }
    if let (Some(s), Some(e)) = (start.as_str(), end.as_str())
        && e < s
    {
        out.push(FieldError::invalid(
            &at,
            end.clone(),
            "must be equal to or after `startTime`",
        ));
    }
    let was = of(old, "completionTime");
    if !was.is_null() && !end.is_null() && was != end {
        out.push(FieldError::invalid(&at, end.clone(), "field is immutable"));
    }
    let idle =
        new.at(&["spec", "suspend"]).as_bool() == Some(true) && new.at(&["spec", "completions"]).as_i64() == Some(0);
    if (complete || holds(new, "Failed")) && start.is_null() && !idle {
        out.push(FieldError::required(
            &path.child("startTime"),
            "startTime is required for finished job",
        ));
    }
    let was = of(old, "startTime");
    let suspended = old.at(&["spec", "suspend"]).as_bool() == Some(true) || holds(old, "Suspended");
    if !was.is_null() && was != start && !suspended {
        let why = "field is immutable for unsuspended job once set";
        out.push(FieldError::invalid(&path.child("startTime"), start, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn finished_job_has_no_active_pods() {
        let old = json!({"status": {"startTime": "2024-01-01T00:00:00Z"}});
        let done = json!([{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]);
        let mut new = old.clone();
        new.set(&["status", "conditions"], done);
        assert_eq!(
            aggregate(&status(&new, &old)),
            "status.completionTime: Required value: completionTime is required for Complete jobs"
        );
        new.set(&["status", "completionTime"], "2024-01-01T00:00:01Z");
        assert_eq!(aggregate(&status(&new, &old)), "[]");
        new.set(&["status", "active"], 1i64);
        assert!(aggregate(&status(&new, &old)).contains("active>0 is invalid for finished job"));
    }

    #[test]
    fn counters_cannot_decrease() {
        let old = json!({"status": {"failed": 2}});
        let new = json!({"status": {"failed": 1}});
        assert_eq!(
            aggregate(&status(&new, &old)),
            "status.failed: Invalid value: 1: cannot decrease the failed counter"
        );
    }
}
