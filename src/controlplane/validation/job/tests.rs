use super::*;
use crate::apimachinery::field::aggregate;
use crate::controlplane::strategies::workloads::JOB;
use crate::json;
use crate::registry::strategy::Strategy;

fn valid() -> Value {
    let mut v = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {
        "containers": [{"name": "main", "image": "a:1"}], "restartPolicy": "Never"}}}});
    JOB.default(&mut v);
    JOB.prepare_create(&mut v);
    v
}

#[test]
fn minimal_job_is_valid() {
    assert_eq!(aggregate(&create(&valid())), "[]");
}

#[test]
fn job_errors_match_the_recordings() {
    for (path, value, want) in [
        (
            &["spec", "template", "spec", "restartPolicy"][..],
            json!("Always"),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (&["spec", "completionMode"], json!("Indexed"), "[]"),
        (
            &["spec", "maxFailedIndexes"],
            json!(1),
            "[spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified, spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode]",
        ),
        (
            &["spec", "backoffLimit"],
            json!(-1),
            "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        let mut v = valid();
        v.set(path, value);
        assert_eq!(aggregate(&create(&v)), want);
    }
}

#[test]
fn completions_and_selector_are_immutable() {
    let old = valid();
    let mut new = old.clone();
    new.set(&["spec", "completions"], 5i64);
    assert_eq!(
        aggregate(&update(&new, &old)),
        "spec.completions: Invalid value: 5: field is immutable"
    );
    new.set(&["spec", "completions"], 1i64);
    new.set(&["spec", "parallelism"], 9i64);
    new.set(&["spec", "suspend"], true);
    assert_eq!(aggregate(&update(&new, &old)), "[]");
}

#[test]
fn prefixed_labels_may_be_missing_if_the_stored_job_has_none() {
    let without = |mut v: Value, key: &str| {
        v.unset(&["spec", "template", "metadata", "labels", key]);
        v
    };
    let legacy = ["spec", "selector", "matchLabels", "controller-uid"];
    let mut old = without(without(valid(), JOB_NAME), CONTROLLER_UID);
    old.unset(&["spec", "selector", "matchLabels"]);
    old.set(&legacy, "u");
    assert_eq!(aggregate(&update(&old, &old)), "[]");
    assert_eq!(
        aggregate(&create(&without(valid(), JOB_NAME))),
        "spec.template.metadata.labels[batch.kubernetes.io/job-name]: Required value: must be 'j'"
    );
}

#[test]
fn only_the_pod_spec_of_an_idle_job_is_compared() {
    let changed = |suspend: bool| {
        let mut old = valid();
        old.set(&["spec", "suspend"], suspend);
        let mut new = old.clone();
        new.set(&["spec", "template", "spec", "hostNetwork"], true);
        aggregate(&update(&new, &old))
    };
    assert!(changed(true).contains("spec.template.spec: Invalid value: {\"Volumes\":"));
    let running = changed(false);
    assert!(running.contains("spec.template: Invalid value: {"), "{running}");
}

#[test]
fn empty_completion_mode_is_not_non_indexed() {
    let mut v = valid();
    v.set(&["spec", "completionMode"], "");
    v.set(&["spec", "backoffLimitPerIndex"], 1i64);
    assert_eq!(
        aggregate(&create(&v)),
        "spec.completionMode: Unsupported value: \"\": supported values: \"NonIndexed\", \"Indexed\""
    );
}

#[test]
fn status_indexes_and_uncounted_pods_are_valid_and_unique() {
    let old = valid();
    let mut new = valid();
    new.set(
        &["status"],
        json!({"failedIndexes": "0", "completedIndexes": "9", "uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}}),
    );
    let errors = aggregate(&status(&new, &old));
    for part in [
        "status.completedIndexes: Invalid value: \"9\": error parsing completedIndexes: too large index: \"9\"",
        "status.failedIndexes: Invalid value: \"0\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        "status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty",
        "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
}
