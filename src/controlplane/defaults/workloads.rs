//! Defaults of workload kinds (`pkg/apis/{core,apps,batch}/v1/defaults.go`).

use super::pod::template;
use super::storage::claim;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};

fn spec_template(v: &mut Value) {
    if let Some(t) = v.at_mut(&["spec", "template"]) {
        template(t);
    }
}

pub(crate) fn pod_template(v: &mut Value) {
    if let Some(t) = v.at_mut(&["template"]) {
        template(t);
    }
}

pub(crate) fn replication_controller(v: &mut Value) {
    let labels = v.at(&["spec", "template", "metadata", "labels"]).clone();
    if !labels.is_empty_value() {
        // An omitted selector selects the template's own pods; the kinds of apps/v1 have no such default.
        for path in [&["spec", "selector"][..], &["metadata", "labels"]] {
            if v.at(path).is_empty_value() {
                v.set(path, labels.clone());
            }
        }
    }
    set_default(v, &["spec", "replicas"], 1i64);
    if !v.at(&["spec", "template"]).is_null() {
        spec_template(v);
    }
}

pub(crate) fn deployment(v: &mut Value) {
    spec_template(v);
    set_default(v, &["spec", "replicas"], 1i64);
    set_default_str(v, &["spec", "strategy", "type"], "RollingUpdate");
    if v.str_at(&["spec", "strategy", "type"]) == "RollingUpdate" {
        set_default(v, &["spec", "strategy", "rollingUpdate", "maxUnavailable"], "25%");
        set_default(v, &["spec", "strategy", "rollingUpdate", "maxSurge"], "25%");
    }
    set_default(v, &["spec", "revisionHistoryLimit"], 10i64);
    set_default(v, &["spec", "progressDeadlineSeconds"], 600i64);
}

pub(crate) fn replica_set(v: &mut Value) {
    spec_template(v);
    set_default(v, &["spec", "replicas"], 1i64);
}

pub(crate) fn stateful_set(v: &mut Value) {
    spec_template(v);
    set_default_str(v, &["spec", "podManagementPolicy"], "OrderedReady");
    if v.str_at(&["spec", "updateStrategy", "type"]).is_empty() {
        v.set(&["spec", "updateStrategy", "type"], "RollingUpdate");
        // Upstream defaults the parameters only along with the type: an explicit `RollingUpdate` gets none.
        set_default(v, &["spec", "updateStrategy", "rollingUpdate"], Value::object());
    }
    let rolling = v.str_at(&["spec", "updateStrategy", "type"]) == "RollingUpdate";
    if rolling && !v.at(&["spec", "updateStrategy", "rollingUpdate"]).is_null() {
        set_default(v, &["spec", "updateStrategy", "rollingUpdate", "partition"], 0i64);
    }
    for key in ["whenDeleted", "whenScaled"] {
        set_default_str(v, &["spec", "persistentVolumeClaimRetentionPolicy", key], "Retain");
    }
    set_default(v, &["spec", "replicas"], 1i64);
    set_default(v, &["spec", "revisionHistoryLimit"], 10i64);
    for c in elements_mut(v, &["spec", "volumeClaimTemplates"]) {
        claim(c);
        // Upstream fills in the type, which clients usually omit here.
        c.set(&["apiVersion"], "v1");
        c.set(&["kind"], "PersistentVolumeClaim");
    }
}

/// Annotation with a DaemonSet's template generation; it holds a field of the internal type that v1 dropped.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) fn daemon_set(v: &mut Value) {
    spec_template(v);
    set_default_str(v, &["spec", "updateStrategy", "type"], "RollingUpdate");
    if v.str_at(&["spec", "updateStrategy", "type"]) == "RollingUpdate" {
        set_default(v, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"], 1i64);
        set_default(v, &["spec", "updateStrategy", "rollingUpdate", "maxSurge"], 0i64);
    } else if !v.at(&["spec", "updateStrategy", "rollingUpdate"]).is_null() {
        // Not pointers in upstream's internal type: what has no default becomes zero.
        for key in ["maxUnavailable", "maxSurge"] {
            set_default(v, &["spec", "updateStrategy", "rollingUpdate", key], 0i64);
        }
    }
    set_default(v, &["spec", "revisionHistoryLimit"], 10i64);
    // Upstream's conversion writes the annotation on every encoding, even for 0.
    let generation: i64 = v
        .str_at(&["metadata", "annotations", TEMPLATE_GENERATION])
        .parse()
        .unwrap_or(0);
    v.set(
        &["metadata", "annotations", TEMPLATE_GENERATION],
        generation.to_string(),
    );
}

pub(crate) fn job(v: &mut Value) {
    spec_template(v);
    let absent = |v: &Value, key: &str| v.at(&["spec", key]).is_null();
    // Neither set: one pod. Only `parallelism` set: a work queue, which has no completion count.
    if absent(v, "parallelism") {
        if absent(v, "completions") {
            v.set(&["spec", "completions"], 1i64);
        }
        v.set(&["spec", "parallelism"], 1i64);
    }
    // With a limit per index, the global one must never be reached.
    let retries = if absent(v, "backoffLimitPerIndex") {
        6
    } else {
        i64::from(i32::MAX)
    };
    set_default(v, &["spec", "backoffLimit"], retries);
    // The labels that a generated selector adds to the template are the strategy's to copy; as they come after the
    // managed fields are recorded, no client owns them.
    job_labels(v);
    set_default(v, &["spec", "completionMode"], "NonIndexed");
    set_default(v, &["spec", "suspend"], false);
    let replacement = if absent(v, "podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    set_default(v, &["spec", "podReplacementPolicy"], replacement);
    set_default(v, &["spec", "manualSelector"], false);
    pod_conditions(v, &["spec"]);
}

/// Copies the template's labels to a Job that has none.
pub(crate) fn job_labels(v: &mut Value) {
    let labels = v.at(&["spec", "template", "metadata", "labels"]);
    if !labels.is_empty_value() && v.at(&["metadata", "labels"]).is_empty_value() {
        let labels = labels.clone();
        v.set(&["metadata", "labels"], labels);
    }
}

fn pod_conditions(v: &mut Value, spec: &[&str]) {
    let Some(spec) = v.at_mut(spec) else { return };
    for rule in elements_mut(spec, &["podFailurePolicy", "rules"]) {
        for c in elements_mut(rule, &["onPodConditions"]) {
            set_default_str(c, &["status"], "True");
        }
    }
}

pub(crate) fn cron_job(v: &mut Value) {
    if let Some(t) = v.at_mut(&["spec", "jobTemplate", "spec", "template"]) {
        template(t);
    }
    pod_conditions(v, &["spec", "jobTemplate", "spec"]);
    set_default_str(v, &["spec", "concurrencyPolicy"], "Allow");
    set_default(v, &["spec", "suspend"], false);
    set_default(v, &["spec", "successfulJobsHistoryLimit"], 3i64);
    set_default(v, &["spec", "failedJobsHistoryLimit"], 1i64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn spec_of(default: fn(&mut Value), mut v: Value) -> Value {
        default(&mut v);
        let mut spec = v.get("spec").clone();
        spec.unset(&["template"]);
        spec
    }

    #[test]
    fn each_kind_is_defaulted_as_upstream() {
        let cases: [(fn(&mut Value), Value, Value); 7] = [
            (
                deployment,
                json!({"spec": {"template": {}}}),
                json!({"progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}),
            ),
            (
                deployment,
                json!({"spec": {"template": {}, "strategy": {"type": "Recreate"}}}),
                json!({"progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10, "strategy": {"type": "Recreate"}}),
            ),
            (
                daemon_set,
                json!({"spec": {"template": {}, "updateStrategy": {"type": "OnDelete"}}}),
                json!({"revisionHistoryLimit": 10, "updateStrategy": {"type": "OnDelete"}}),
            ),
            (
                daemon_set,
                json!({"spec": {"template": {}, "updateStrategy": {"type": "OnDelete", "rollingUpdate": {"maxSurge": 2}}}}),
                json!({"revisionHistoryLimit": 10,
                    "updateStrategy": {"type": "OnDelete", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}),
            ),
            (
                stateful_set,
                json!({"spec": {"template": {}, "updateStrategy": {"type": "RollingUpdate"}}}),
                json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}, "podManagementPolicy": "OrderedReady",
                       "replicas": 1, "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"}}),
            ),
            (
                job,
                json!({"spec": {"template": {}, "completions": 3, "podFailurePolicy": {}}}),
                json!({"backoffLimit": 6, "completionMode": "NonIndexed", "completions": 3, "manualSelector": false, "parallelism": 1,
                       "podFailurePolicy": {}, "podReplacementPolicy": "Failed", "suspend": false}),
            ),
            (
                cron_job,
                json!({"spec": {"jobTemplate": {}}}),
                json!({"jobTemplate": {}, "concurrencyPolicy": "Allow", "failedJobsHistoryLimit": 1, "successfulJobsHistoryLimit": 3, "suspend": false}),
            ),
        ];
        for (default, given, want) in cases {
            assert_eq!(spec_of(default, given), want);
        }
    }

    #[test]
    fn a_replication_controller_inherits_the_template_labels() {
        let mut v = json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}});
        replication_controller(&mut v);
        assert_eq!(v.at(&["spec", "selector"]), &json!({"a": "b"}));
        assert_eq!(v.at(&["metadata", "labels"]), &json!({"a": "b"}));
    }
}
