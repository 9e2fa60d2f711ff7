//! Validation of a Job's status: counters, conditions, times and index lists must be consistent with each
//! other and with the stored status. Entry point: [`status`].

use super::super::common::{go_struct, not_negative};
use super::policies::{first_overlap, parse_indexes};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, same, strings};

/// The members of the status that an update changed. Most rules apply only if a field that they concern changed: a
/// status that broke them before, or breaks them until the controller has followed a change of the spec, must not
/// prevent other updates.
struct Changes<'a> {
    new: &'a Value,
    old: &'a Value,
}

impl Changes<'_> {
    fn condition(&self, kind: &str) -> bool {
        holds(self.new, kind) != holds(self.old, kind)
    }

    fn finished(&self) -> bool {
        is_finished(self.new) != is_finished(self.old)
    }

    /// Absent and zero, or empty, are equal.
    fn plain(&self, key: &str) -> bool {
        !same(self.new.at(&["status", key]), self.old.at(&["status", key]))
    }

    /// Whether a field changed that is a pointer in Go: absent and zero differ.
    fn pointer(&self, key: &str) -> bool {
        self.new.at(&["status", key]) != self.old.at(&["status", key])
    }
}

fn has(v: &Value, kind: &str, status: &str) -> bool {
    let conditions = v.at(&["status", "conditions"]).items();
    conditions
        .iter()
        .any(|c| c.str_at(&["type"]) == kind && c.str_at(&["status"]) == status)
}

fn holds(v: &Value, kind: &str) -> bool {
    has(v, kind, "True")
}

fn is_finished(v: &Value) -> bool {
    holds(v, "Complete") || holds(v, "Failed")
}

fn count(v: &Value, key: &str) -> i64 {
    v.at(&["status", key]).as_i64().unwrap_or(0)
}

/// Reports the conditions as a whole, without their value (`field.OmitValueType` upstream).
fn refuse(out: &mut ErrorList, why: &str) {
    let at = FieldPath::new("status").child("conditions");
    let mut error = FieldError::invalid(&at, "", why);
    error.bad_value = None;
    out.push(error);
}

/// Validates an update of the status. The order is upstream's, which determines the order of causes.
pub(crate) fn status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(&mut out, status, key, &path);
    }
    let at = path.child("uncountedTerminatedPods");
    uncounted(&mut out, status.get("uncountedTerminatedPods"), &at);
    let changes = Changes { new, old };
    completion(&mut out, &changes, &path);
    finished(&mut out, &changes, &path);
    indexes(&mut out, &changes, &path);
    if changes.finished() || changes.pointer("terminating") {
        no_pods(&mut out, new, "terminating", &path);
    }
    // A pointer upstream: absent is not zero, which would be more than a negative number.
    let ready = status.get("ready").as_i64();
    if (changes.pointer("ready") || changes.plain("active"))
        && let Some(ready) = ready.filter(|n| *n > count(new, "active"))
    {
        let why = "cannot set more ready pods than active";
        out.push(FieldError::invalid(&path.child("ready"), ready, why));
    }
    if holds(new, "SuccessCriteriaMet") {
        if holds(new, "Failed") {
            refuse(
                &mut out,
                "cannot set SuccessCriteriaMet=True and Failed=true conditions",
            );
        }
        if holds(new, "FailureTarget") {
            let why = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
            refuse(&mut out, why);
        }
    } else if holds(new, "Complete") && !new.at(&["spec", "successPolicy"]).is_null() {
        let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        refuse(&mut out, why);
    }
    transition(&mut out, new, old, &path);
    out
}

/// Checks what the conditions `Complete` and `Failed` require of each other, of interim conditions and of the times.
fn completion(out: &mut ErrorList, changes: &Changes<'_>, path: &FieldPath) {
    let new = changes.new;
    let (complete, failed) = (holds(new, "Complete"), holds(new, "Failed"));
    let complete_changed = changes.condition("Complete");
    if (complete_changed || changes.condition("Failed")) && complete && failed {
        refuse(out, "cannot set Complete=True and Failed=true conditions");
    }
    if (complete_changed || changes.condition("FailureTarget")) && complete && holds(new, "FailureTarget") {
        refuse(out, "cannot set Complete=True and FailureTarget=true conditions");
    }
    let (start, end) = (new.at(&["status", "startTime"]), new.at(&["status", "completionTime"]));
    let at = path.child("completionTime");
    if complete_changed || changes.pointer("completionTime") {
        if !end.is_null() && !complete {
            let why = "cannot set completionTime when there is no Complete=True condition";
            out.push(FieldError::invalid(&at, end.clone(), why));
        }
        if end.is_null() && complete {
            let why = "completionTime is required for Complete jobs";
            out.push(FieldError::required(&at, why));
        }
    }
    if (changes.pointer("startTime") || changes.pointer("completionTime"))
        && let (Some(s), Some(e)) = (start.as_str(), end.as_str())
        // Compared as strings: decoding normalizes times to UTC with whole seconds.
        && e < s
    {
        out.push(FieldError::invalid(
            &at,
            end.clone(),
            "must be equal to or after `startTime`",
        ));
    }
    // The controller first sets an interim condition, and the final one only once all pods have ended. Upstream also
    // requires it when the failed indexes change.
    let failed_changed = changes.condition("Failed") || changes.pointer("failedIndexes");
    if failed_changed && failed && !holds(new, "FailureTarget") {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        refuse(out, why);
    }
    let complete_changed = complete_changed || changes.condition("SuccessCriteriaMet");
    if complete_changed && complete && !holds(new, "SuccessCriteriaMet") {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        refuse(out, why);
    }
}

/// Checks that a finished Job has been started, and that all of its pods have ended and are counted.
fn finished(out: &mut ErrorList, changes: &Changes<'_>, path: &FieldPath) {
    let (new, changed) = (changes.new, changes.finished());
    if changed || changes.plain("active") {
        no_pods(out, new, "active", path);
    }
    // Such a Job completes without ever having been started.
    let idle =
        new.at(&["spec", "suspend"]).as_bool() == Some(true) && new.at(&["spec", "completions"]).as_i64() == Some(0);
    if (changed || changes.pointer("startTime"))
        && !idle
        && is_finished(new)
        && new.at(&["status", "startTime"]).is_null()
    {
        let why = "startTime is required for finished job";
        out.push(FieldError::required(&path.child("startTime"), why));
    }
    let pods = new.at(&["status", "uncountedTerminatedPods"]);
    let any = ["succeeded", "failed"].iter().any(|k| !pods.get(k).items().is_empty());
    if (changed || changes.plain("uncountedTerminatedPods")) && is_finished(new) && any {
        // Printed like upstream's internal struct.
        let fields = [("Succeeded", "succeeded", "null"), ("Failed", "failed", "null")];
        let at = path.child("uncountedTerminatedPods");
        let why = "must be empty for finished job";
        out.push(FieldError::invalid_raw(&at, go_struct(pods, &fields), why));
    }
}

fn no_pods(out: &mut ErrorList, new: &Value, key: &str, path: &FieldPath) {
    let n = count(new, key);
    if n > 0 && is_finished(new) {
        let why = format!("{key}>0 is invalid for finished job");
        out.push(FieldError::invalid(&path.child(key), n, why));
    }
}

/// Checks changed lists of completed and failed indexes.
fn indexes(out: &mut ErrorList, changes: &Changes<'_>, path: &FieldPath) {
    let (spec, status) = (changes.new.get("spec"), changes.new.get("status"));
    let (completed, failed) = (
        status.str_at(&["completedIndexes"]),
        status.get("failedIndexes").as_str(),
    );
    // Without completions there is no bound to compare with, and the lists are not parsed.
    let completions = spec.get("completions").as_i64();
    let limited = !spec.get("backoffLimitPerIndex").is_null();
    let (at_completed, at_failed) = (path.child("completedIndexes"), path.child("failedIndexes"));
    let (completed_changed, failed_changed) = (changes.plain("completedIndexes"), changes.pointer("failedIndexes"));
    if completed_changed
        && let Some(n) = completions
        && let Err(why) = parse_indexes(completed, n)
    {
        let why = format!("error parsing completedIndexes: {why}");
        out.push(FieldError::invalid(&at_completed, completed, why));
    }
    if failed_changed
        && limited
        && let (Some(text), Some(n)) = (failed, completions)
        && let Err(why) = parse_indexes(text, n)
    {
        let why = format!("error parsing failedIndexes: {why}");
        // A pointer upstream, only here.
        out.push(FieldError::invalid_enum(&at_failed, text, why));
    }
    if completed_changed && !completed.is_empty() && spec.str_at(&["completionMode"]) != "Indexed" {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        out.push(FieldError::invalid(&at_completed, completed, why));
    }
    let Some(failed) = failed else { return };
    if failed_changed && !limited {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        out.push(FieldError::invalid(&at_failed, failed, why));
    }
    if (failed_changed || completed_changed)
        && let Some(n) = completions
        && let Some(index) = first_overlap(completed, failed, n)
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        out.push(FieldError::invalid(&at_failed, failed, why));
    }
}

/// Checks the uids of terminated pods that are not counted yet: no empty ones, no duplicates across both
/// lists.
fn uncounted(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let mut seen: Seen<&str> = Seen::new();
    // One set for both lists: a pod ended in one way only.
    for key in ["succeeded", "failed"] {
        for (i, uid) in strings(v.get(key)).into_iter().enumerate() {
            let at = path.child(key).index(i);
            if uid.is_empty() {
                out.push(FieldError::invalid(&at, uid, "must not be empty"));
            } else if seen.contains(&uid) {
                let mut error = FieldError::duplicate(&at, uid);
                error.bad_value = Some(show_json(&Value::from(uid)));
                out.push(error);
            }
            seen.insert(uid);
        }
    }
}

/// Checks what no update may change, whatever the status was: clients act on a finished Job.
fn transition(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(old, kind) && !holds(new, kind) {
            refuse(out, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    // Scaling down an elastic indexed Job legitimately removes succeeded indexes.
    let elastic = new.str_at(&["spec", "completionMode"]) == "Indexed"
        && new.at(&["spec", "completions"]) == new.at(&["spec", "parallelism"]);
    for (key, free) in [("failed", false), ("succeeded", elastic)] {
        if count(new, key) < count(old, key) && !free {
            let why = format!("cannot decrease the {key} counter");
            out.push(FieldError::invalid(&path.child(key), count(new, key), why));
        }
    }
    let of = |v: &Value, key: &str| v.at(&["status", key]).clone();
    let (was, end) = (of(old, "completionTime"), of(new, "completionTime"));
    if !was.is_null() && !end.is_null() && was != end {
        out.push(FieldError::invalid(
            &path.child("completionTime"),
            end,
            "field is immutable",
        ));
    }
    let (was, start) = (of(old, "startTime"), of(new, "startTime"));
    // Resuming a Job sets a new start time. The controller may do so after the user has reset `spec.suspend`, so the
    // condition counts as well.
    let suspended = new.at(&["spec", "suspend"]).as_bool() == Some(true);
    let resuming = holds(old, "Suspended") && has(new, "Suspended", "False");
    if !was.is_null() && was != start && !suspended && !resuming {
        let why = "field is immutable for unsuspended job once set";
        out.push(FieldError::invalid(&path.child("startTime"), start, why));
    }
    let met = (holds(old, "SuccessCriteriaMet"), holds(new, "SuccessCriteriaMet"));
    if met == (true, false) {
        refuse(out, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if met == (false, true) && holds(old, "Complete") {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        refuse(out, why);
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

    #[test]
    fn absent_ready_pods_are_not_compared_with_active_ones() {
        assert_eq!(
            aggregate(&status(&json!({"status": {"active": -1}}), &json!({}))),
            "status.active: Invalid value: -1: must be greater than or equal to 0"
        );
    }

    #[test]
    fn unchanged_parts_of_an_inconsistent_status_are_not_checked() {
        let conditions = json!([{"type": "Complete", "status": "True"}, {"type": "Failed", "status": "True"}]);
        let mut old = json!({"spec": {"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1},
            "status": {"active": 1, "ready": 2, "terminating": 1, "completedIndexes": "5", "failedIndexes": "5",
                "uncountedTerminatedPods": {"failed": ["a"]}}});
        old.set(&["status", "conditions"], conditions);
        let mut new = old.clone();
        new.set(&["status", "succeeded"], 1i64);
        assert_eq!(aggregate(&status(&new, &old)), "[]");
        new.set(&["status", "ready"], 3i64);
        assert_eq!(
            aggregate(&status(&new, &old)),
            "status.ready: Invalid value: 3: cannot set more ready pods than active"
        );
    }

    #[test]
    fn changed_conditions_are_reported_without_their_value() {
        let old = json!({"spec": {"successPolicy": {}}, "status": {"startTime": "2024-01-01T00:00:00Z"}});
        let mut new = old.clone();
        new.set(&["status", "completionTime"], "2024-01-01T00:00:01Z");
        new.set(
            &["status", "conditions"],
            json!([{"type": "Complete", "status": "True"}]),
        );
        new.set(&["status", "uncountedTerminatedPods", "failed"], json!(["a"]));
        assert_eq!(
            aggregate(&status(&new, &old)),
            "[status.conditions: Invalid value: cannot set Complete=True condition without the \
             SuccessCriteriaMet=true condition, status.uncountedTerminatedPods: Invalid value: \
             {\"Succeeded\":null,\"Failed\":[\"a\"]}: must be empty for finished job, status.conditions: Invalid value: \
             cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True]"
        );
    }

    #[test]
    fn values_of_named_types_and_pointers_print_as_json() {
        let old = json!({"spec": {"completions": 9, "completionMode": "Indexed", "backoffLimitPerIndex": 1}});
        let mut new = old.clone();
        new.set(
            &["status"],
            json!({"completedIndexes": "<", "failedIndexes": "<", "uncountedTerminatedPods": {"succeeded": ["<", "<"]}}),
        );
        let errors = aggregate(&status(&new, &old));
        for part in [
            "status.uncountedTerminatedPods.succeeded[1]: Duplicate value: \"\\u003c\"",
            "status.completedIndexes: Invalid value: \"<\": error parsing",
            "status.failedIndexes: Invalid value: \"\\u003c\": error parsing",
        ] {
            assert!(errors.contains(part), "{errors}");
        }
    }

    #[test]
    fn an_index_cannot_be_both_completed_and_failed() {
        let old = json!({"spec": {"completions": 9, "completionMode": "Indexed", "backoffLimitPerIndex": 1}});
        let mut new = old.clone();
        new.set(
            &["status"],
            json!({"completedIndexes": "0,4-6", "failedIndexes": "2,5"}),
        );
        assert_eq!(
            aggregate(&status(&new, &old)),
            "status.failedIndexes: Invalid value: \"2,5\": failedIndexes and completedIndexes overlap at index: 5"
        );
        // Without completions the lists have no bound and are not parsed.
        new.unset(&["spec", "completions"]);
        assert_eq!(aggregate(&status(&new, &old)), "[]");
    }
}
