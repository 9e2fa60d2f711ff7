use super::*;
use crate::apimachinery::field::aggregate;
use crate::controlplane::defaults::workloads as defaults;
use crate::json;

const MISMATCH: &str =
    "spec.template.metadata.labels: Invalid value: {\"app\":\"demo\"}: `selector` does not match template `labels`";

/// A valid workload with `changes` made to its spec.
fn with(default: fn(&mut Value), changes: &[(&[&str], Value)]) -> Value {
    let mut v = json!({"metadata": {"name": "v"}, "spec": {"selector": {"matchLabels": {"app": "demo"}},
        "template": {"metadata": {"labels": {"app": "demo"}}, "spec": {"containers": [{"name": "main", "image": "a:1"}]}}}});
    for (path, value) in changes {
        let mut at = vec!["spec"];
        at.extend(*path);
        v.set(&at, value.clone());
    }
    default(&mut v);
    v
}

#[test]
fn deployment_errors_match_the_recordings() {
    let errors = |changes: &[(&[&str], Value)]| aggregate(&deployment(&with(defaults::deployment, changes)));
    let cases: Vec<(Vec<(&[&str], Value)>, String)> = vec![
        (vec![], "[]".into()),
        (vec![(&["selector", "matchLabels", "app"], json!("other"))], MISMATCH.into()),
        (vec![(&["selector"], Value::Null)], format!("[spec.selector: Required value, {MISMATCH}]")),
        (vec![(&["selector"], json!({}))], "spec.selector: Invalid value: {}: empty selector is invalid for deployment".into()),
        (vec![(&["template", "spec", "restartPolicy"], json!("Never"))],
         "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"".into()),
        (vec![(&["template", "spec", "activeDeadlineSeconds"], json!(5))],
         "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported".into()),
        (vec![(&["strategy", "type"], json!("X"))],
         "spec.strategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":null}: supported values: \"Recreate\", \"RollingUpdate\"".into()),
        (vec![(&["strategy", "rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 0}))],
         "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0".into()),
        // Text that is no percentage counts as zero.
        (vec![(&["strategy", "rollingUpdate"], json!({"maxSurge": "a", "maxUnavailable": 0}))],
         format!("[spec.strategy.rollingUpdate.maxSurge: Invalid value: \"a\": {}, \
                  spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0]",
                 crate::apimachinery::validation::net::percent("a")[0])),
        (vec![(&["minReadySeconds"], json!(700))],
         "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds".into()),
        (vec![(&["replicas"], json!(-1))], "spec.replicas: Invalid value: -1: must be greater than or equal to 0".into()),
    ];
    for (changes, want) in cases {
        assert_eq!(errors(&changes), want);
    }
}

#[test]
fn unparsable_selector_skips_template_validation() {
    let mut v = with(defaults::deployment, &[]);
    v.set(
        &["spec", "selector", "matchExpressions"],
        json!([{"key": "a", "operator": "Is"}]),
    );
    let errors = aggregate(&deployment(&v));
    assert!(errors.starts_with("[spec.selector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator, spec.selector: Invalid value: {"), "{errors}");
    assert!(errors.ends_with("invalid label selector]"), "{errors}");
}

#[test]
fn daemon_set_errors_match_the_recordings() {
    let errors = |changes: &[(&[&str], Value)]| aggregate(&daemon_set(&with(defaults::daemon_set, changes)));
    assert_eq!(errors(&[(&["selector"], Value::Null)]), MISMATCH);
    assert_eq!(
        errors(&[(
            &["updateStrategy", "rollingUpdate"],
            json!({"maxSurge": 1, "maxUnavailable": 1})
        )]),
        "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"
    );
    assert_eq!(
        errors(&[(
            &["updateStrategy", "rollingUpdate"],
            json!({"maxSurge": 0, "maxUnavailable": 0})
        )]),
        "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"
    );
}

#[test]
fn daemon_set_errors_have_upstreams_order() {
    let fields = |rolling: Value| -> Vec<String> {
        let changes: [(&[&str], Value); 2] = [
            (&["updateStrategy", "rollingUpdate"], rolling),
            (&["revisionHistoryLimit"], json!(-1)),
        ];
        let found = daemon_set(&with(defaults::daemon_set, &changes));
        found
            .iter()
            .map(|e| e.field.rsplit('.').next().unwrap_or("").to_owned())
            .collect()
    };
    // The strategy before the limit; the forms of both amounts before the limits of both; no surge in "http".
    assert_eq!(
        fields(json!({"maxUnavailable": "101%", "maxSurge": "http"})),
        ["maxSurge", "maxUnavailable", "revisionHistoryLimit"]
    );
    assert_eq!(
        fields(json!({"maxUnavailable": "1Gi", "maxSurge": "1Gi"})),
        ["maxUnavailable", "maxSurge", "maxUnavailable", "revisionHistoryLimit"]
    );
}

#[test]
fn a_rollback_revision_is_not_negative() {
    let mut v = with(defaults::deployment, &[(&["progressDeadlineSeconds"], json!(-1))]);
    v.set(&["metadata", "annotations", ROLLBACK_TO], "-2");
    let errors = aggregate(&deployment(&v));
    let want =
        "[spec.rollback.version: Invalid value: -2: must be greater than or equal to 0, spec.progressDeadlineSeconds: ";
    assert!(errors.starts_with(want), "{errors}");
}

#[test]
fn revision_data_is_an_immutable_object() {
    let v = json!({"revision": 1, "data": {"a": 1}});
    assert_eq!(aggregate(&controller_revision(&v)), "[]");
    assert_eq!(
        aggregate(&controller_revision(&json!({"revision": -1, "data": null}))),
        "[revision: Invalid value: -1: must be greater than or equal to 0, data: Required value: data is mandatory]"
    );
    assert_eq!(
        aggregate(&controller_revision_update(
            &json!({"revision": 2, "data": {"a": 2}}),
            &v
        )),
        "data: Invalid value: {\"a\":2}: field is immutable"
    );
}

#[test]
fn strategies_print_nested_go_names() {
    let rolling = json!({"type": "X", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}});
    let shown = "Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":{\"MaxUnavailable\":1,\"MaxSurge\":\"25%\"}}: supported values: ";
    let v = with(defaults::deployment, &[(&["strategy"], rolling.clone())]);
    assert_eq!(
        aggregate(&deployment(&v)),
        format!("spec.strategy: {shown}\"Recreate\", \"RollingUpdate\"")
    );
    let v = with(defaults::daemon_set, &[(&["updateStrategy"], rolling)]);
    assert_eq!(
        aggregate(&daemon_set(&v)),
        format!("spec.updateStrategy: {shown}\"RollingUpdate\", \"OnDelete\"")
    );
}
