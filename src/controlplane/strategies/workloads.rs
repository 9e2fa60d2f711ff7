//! Strategies of pod templates and the workload kinds of core, apps and batch, as [`DeclarativeStrategy`]
//! constants.

use super::declarative::{BASE, DeclarativeStrategy, WITH_SPEC_AND_STATUS};
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::validation::label_value;
use crate::apimachinery::value::Value;
use crate::controlplane::defaults::workloads::{self as defaults, TEMPLATE_GENERATION};
use crate::controlplane::fields::same;
use crate::controlplane::validation;
use crate::controlplane::validation::workloads as check;
use crate::json;
use crate::registry::strategy::{GarbageCollection, NameRule, Rules};

fn replicas() -> Value {
    // Always encoded: the count has no `omitempty` upstream.
    json!({"replicas": 0})
}

fn generation(v: &Value) -> Option<i64> {
    v.at(&["metadata", "generation"]).as_i64()
}

/// Warnings about a pod template on create, or when the generation changed.
fn template_warnings(new: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    // The template is unchanged, so its warnings were given when it was written.
    if old.is_some_and(|old| generation(old) == generation(new)) {
        return Vec::new();
    }
    validation::pod::template_warnings(new.at(path), &path.join("."))
}

/// Warnings about the spec of a Job and its template on create, or when the generation changed.
fn job_warnings(new: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    if old.is_some_and(|old| generation(old) == generation(new)) {
        return Vec::new();
    }
    let mut out = validation::job::warnings(new.at(path), &path.join("."));
    out.extend(template_warnings(new, old, &[path, &["template"]].concat()));
    out
}

/// Warns on create if the name is not a DNS label, because pod hostnames derive from it.
fn name_warning(new: &Value, old: Option<&Value>) -> Vec<String> {
    let messages = crate::apimachinery::validation::dns1123_label(new.name());
    if old.is_some() || messages.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
        messages.join(" ")
    )]
}

pub(crate) const POD_TEMPLATE: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::pod_template,
    validate: check::pod_template,
    validate_update: Some(check::pod_template_update),
    warn: |new, old| template_warnings(new, old, &["template"]),
    generation: &["template"],
    pod_spec: &["template", "spec"],
    ..BASE
};

pub(crate) const REPLICATION_CONTROLLER: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::replication_controller,
    validate: check::replication_controller,
    validate_update: Some(check::replication_controller_update),
    rules: Rules {
        // Older than garbage collection: clients of that time expect the pods to survive their controller.
        garbage_collection: GarbageCollection::Orphan,
        ..Rules::named(NameRule::Declared)
    },
    // As for Jobs.
    prepare_status_update: |new, _| defaults::replication_controller(new),
    validate_status: check::replicas_status,
    warn: |new, old| {
        // An upstream quirk: on update, warnings are about the old template.
        let warned = old.filter(|o| generation(o) != generation(new));
        let mut out = name_warning(new, old);
        match (old, warned) {
            (None, _) => out.extend(template_warnings(new, None, &["spec", "template"])),
            (_, Some(was)) => out.extend(template_warnings(was, None, &["spec", "template"])),
            _ => {}
        }
        out
    },
    status: Some(replicas),
    pod_spec: &["spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const DEPLOYMENT: DeclarativeStrategy = DeclarativeStrategy {
    rules: Rules {
        wire_annotations: &[check::ROLLBACK_TO],
        ..Rules::DEFAULT
    },
    default: defaults::deployment,
    prepare_update: |new, old| {
        // Annotations count too, since the controller copies them to ReplicaSets.
        let annotations = |v: &Value| v.at(&["metadata", "annotations"]).clone();
        // A changed spec increments the generation in `DeclarativeStrategy`; both changes together must not
        // add two.
        if same(new.get("spec"), old.get("spec")) && !same(&annotations(new), &annotations(old)) {
            let was = old.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
            new.set_meta("generation", was + 1);
        }
    },
    validate: check::deployment,
    validate_update: Some(check::deployment_update),
    validate_status: check::deployment_status,
    warn: |new, old| {
        let mut out = name_warning(new, old);
        out.extend(template_warnings(new, old, &["spec", "template"]));
        out
    },
    // Upstream's `deploymentStatusStrategy` restores the labels and nothing else of the metadata.
    status_preserved_metadata: &["labels"],
    status_reset_fields: &["spec", "metadata.labels"],
    pod_spec: &["spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const REPLICA_SET: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::replica_set,
    validate: check::replica_set,
    validate_update: Some(check::replica_set_update),
    validate_status: check::replicas_status,
    warn: |new, old| {
        let mut out = name_warning(new, old);
        out.extend(template_warnings(new, old, &["spec", "template"]));
        out
    },
    status: Some(replicas),
    pod_spec: &["spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

/// StatefulSets. `rollingUpdate.maxUnavailable` is dropped unless already stored, because its feature gate is
/// off.
pub(crate) const STATEFUL_SET: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::stateful_set,
    prepare_create: |v| {
        v.unset(MAX_UNAVAILABLE);
    },
    prepare_update: |new, old| {
        if old.at(MAX_UNAVAILABLE).is_null() {
            new.unset(MAX_UNAVAILABLE);
        }
    },
    validate: validation::statefulset::create,
    validate_update: Some(validation::statefulset::update),
    validate_status: validation::statefulset::status,
    warn: |new, old| {
        let limit = new.at(&["spec", "revisionHistoryLimit"]).as_i64().unwrap_or(0);
        let text =
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
        let mut out = template_warnings(new, old, &["spec", "template"]);
        // On update, upstream's path ends with the Go field name `Spec`.
        let spec = if old.is_some() { ".Spec" } else { "" };
        for (i, claim) in new.at(&["spec", "volumeClaimTemplates"]).items().iter().enumerate() {
            let path = format!("spec.volumeClaimTemplates[{i}]{spec}");
            out.extend(validation::claims::claim_spec_warnings(claim.get("spec"), &path));
        }
        out.extend((limit < 0).then(|| text.to_owned()));
        out
    },
    status: Some(|| json!({"replicas": 0, "availableReplicas": 0})),
    rules: Rules::named(NameRule::Label),
    pod_spec: &["spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

const MAX_UNAVAILABLE: &[&str] = &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];

/// DaemonSets. The template has its own generation, kept in a deprecated annotation.
pub(crate) const DAEMON_SET: DeclarativeStrategy = DeclarativeStrategy {
    rules: Rules {
        wire_annotations: &[TEMPLATE_GENERATION],
        ..Rules::DEFAULT
    },
    default: defaults::daemon_set,
    prepare_create: |v| {
        // As upstream, a client may choose a positive start value.
        let generation = template_generation(v).max(1);
        v.set(
            &["metadata", "annotations", TEMPLATE_GENERATION],
            generation.to_string(),
        );
    },
    prepare_update: |new, old| {
        let changed = !same(new.at(&["spec", "template"]), old.at(&["spec", "template"]));
        // Counted from the stored object: the annotation that the client sends is ignored.
        let now = template_generation(old) + i64::from(changed);
        new.set(&["metadata", "annotations", TEMPLATE_GENERATION], now.to_string());
    },
    // The annotation is a spec field of the internal type, so a status update cannot change it.
    prepare_status_update: |new, old| restore(new, old, &["metadata", "annotations", TEMPLATE_GENERATION]),
    validate: check::daemon_set,
    validate_update: Some(check::daemon_set_update),
    validate_status: check::daemon_set_status,
    warn: |new, old| match old {
        Some(old) if template_generation(old) == template_generation(new) => Vec::new(),
        _ => template_warnings(new, old, &["spec", "template"]),
    },
    status: Some(
        || json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}),
    ),
    pod_spec: &["spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

fn template_generation(v: &Value) -> i64 {
    let text = v.str_at(&["metadata", "annotations", TEMPLATE_GENERATION]);
    text.parse().unwrap_or(0)
}

pub(crate) const CONTROLLER_REVISION: DeclarativeStrategy = DeclarativeStrategy {
    validate: check::controller_revision,
    validate_update: Some(check::controller_revision_update),
    ..BASE
};

/// Jobs. Deleting one orphans its pods unless the caller sets a propagation policy.
pub(crate) const JOB: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::job,
    prepare_create: generate_selector,
    // The template is not taken from the body, so that the labels which the body leaves out are defaulted only when the
    // object is read.
    prepare_status_update: |new, _| defaults::job_labels(new),
    validate: validation::job::create,
    validate_update: Some(validation::job::update),
    validate_status: validation::job::status,
    warn: |new, old| {
        let mut out = name_warning(new, old);
        out.extend(job_warnings(new, old, &["spec"]));
        out
    },
    rules: Rules {
        // As for ReplicationControllers; the warning below tells callers who do not expect it.
        garbage_collection: GarbageCollection::Orphan,
        labels_from: Some(&["spec", "template", "metadata", "labels"]),
        // The labels of the generated selector, if the object has none of its own.
        completed_by_reads: Some(|job| {
            job.label("batch.kubernetes.io/controller-uid")
                .is_some_and(|uid| uid == job.uid())
        }),
        missing_propagation_warning: Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        ),
        ..Rules::DEFAULT
    },
    pod_spec: &["spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const CRON_JOB: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::cron_job,
    validate: validation::cronjob::create,
    validate_update: Some(validation::cronjob::update),
    warn: |new, old| {
        let mut out = name_warning(new, old);
        out.extend(job_warnings(new, old, &["spec", "jobTemplate", "spec"]));
        // The doubled `spec` in the message is upstream's.
        if old.is_some() && new.str_at(&["spec", "schedule"]).contains("TZ") {
            out.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
        }
        out
    },
    pod_spec: &["spec", "jobTemplate", "spec", "template", "spec"],
    ..WITH_SPEC_AND_STATUS
};

/// Adds the generated labels and a selector by the Job's uid, unless `manualSelector` is set.
fn generate_selector(v: &mut Value) {
    if v.at(&["spec", "manualSelector"]).as_bool() == Some(true) {
        return;
    }
    let (name, uid) = (v.name().to_owned(), v.uid().to_owned());
    for (key, value) in validation::job::generated_labels(&name, &uid) {
        // A value of the user's own is kept for validation to reject (`ValidateGeneratedSelector`).
        if v.at(&["spec", "template", "metadata", "labels", key]).is_null() {
            v.set(&["spec", "template", "metadata", "labels", key], value);
        }
    }
    let by = ["spec", "selector", "matchLabels", validation::job::CONTROLLER_UID];
    if v.at(&by).is_null() {
        v.set(&by, uid);
    }
    // For a Job and a template without any labels. Upstream's Job gets them when it is read, after validation, which
    // refuses a name that is no label for the template alone.
    if label_value(&name).is_empty() {
        defaults::job_labels(v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::strategy::Strategy;

    #[test]
    fn job_selects_its_pods_by_uid() {
        let mut v = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}});
        JOB.prepare_create(&mut v);
        assert_eq!(
            v.at(&["spec", "selector"]),
            &json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );
        assert_eq!(v.label("job-name"), Some("j"));
    }

    #[test]
    fn a_job_of_an_unlabelled_template_gets_no_invalid_labels() {
        let mut v = json!({"metadata": {"name": "a:b", "uid": "u"}, "spec": {"template": {}}});
        JOB.default(&mut v);
        JOB.prepare_create(&mut v);
        assert_eq!(v.label("job-name"), None);
    }

    #[test]
    fn the_labels_of_a_template_are_those_of_its_job_before_others_are_generated() {
        let mut v = json!({"metadata": {"name": "a"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}});
        JOB.default(&mut v);
        assert_eq!(v.at(&["metadata", "labels"]), &json!({"a": "b"}));
    }

    #[test]
    fn a_status_without_labels_leaves_those_of_the_template() {
        for strategy in [JOB, REPLICATION_CONTROLLER] {
            let template = json!({"metadata": {"labels": {"a": "b"}}});
            let mut old = json!({"metadata": {"name": "a"}, "spec": {"template": (template)}});
            strategy.default(&mut old);
            let mut new = json!({"metadata": {"name": "a"}, "status": {}});
            strategy.default(&mut new);
            strategy.prepare_status_update(&mut new, &old);
            assert_eq!(new.at(&["metadata", "labels"]), &json!({"a": "b"}));
        }
    }

    #[test]
    fn job_warnings_follow_the_generation() {
        let old = json!({"metadata": {"name": "j", "generation": 1}, "spec": {"completionMode": "Indexed",
            "completions": 100001, "parallelism": 10001, "template": {}}});
        let mut new = old.clone();
        new.set(&["metadata", "labels", "a"], "b");
        let indexed = |w: &String| w.contains("In Indexed Jobs");
        let warned = |old: Option<&Value>| JOB.warnings(&new, old).into_iter().filter(indexed).count();
        assert_eq!((warned(None), warned(Some(&old))), (1, 0));
    }

    #[test]
    fn deployment_annotation_change_increments_generation() {
        let old = json!({"metadata": {"generation": 1}, "spec": {"replicas": 1}});
        let mut new = old.clone();
        new.set(&["metadata", "annotations", "a"], "b");
        DEPLOYMENT.prepare_update(&mut new, &old);
        assert_eq!(new.at(&["metadata", "generation"]), &2i64.into());
    }

    #[test]
    fn disabled_fields_of_templates_are_dropped_and_do_not_count_as_changes() {
        let pods = json!({"hostname": "h"});
        let group = json!({"hostname": "h", "schedulingGroup": {"podGroupName": "g"}});
        let deployment = |pods: &Value| {
            let template = json!({"spec": (pods.clone())});
            json!({"metadata": {"generation": 1}, "spec": {"template": (template)}, "status": {}})
        };
        let (mut created, mut updated) = (deployment(&group), deployment(&group));
        DEPLOYMENT.prepare_create(&mut created);
        DEPLOYMENT.prepare_update(&mut updated, &deployment(&pods));
        assert_eq!((&created, &updated), (&deployment(&pods), &deployment(&pods)));
        let mut job = json!({"metadata": {}});
        let at = ["spec", "jobTemplate", "spec", "template", "spec"];
        job.set(&at, group);
        CRON_JOB.prepare_create(&mut job);
        assert_eq!(job.at(&at), &pods);
    }

    #[test]
    fn daemon_set_template_has_its_own_generation() {
        let mut old = json!({"metadata": {}, "spec": {"template": {"spec": {}}}});
        DAEMON_SET.default(&mut old);
        DAEMON_SET.prepare_create(&mut old);
        assert_eq!(old.annotation(TEMPLATE_GENERATION), Some("1"));
        let mut new = old.clone();
        new.set(&["spec", "template", "spec", "hostname"], "x");
        new.unset(&["metadata", "annotations"]);
        DAEMON_SET.prepare_update(&mut new, &old);
        assert_eq!(new.annotation(TEMPLATE_GENERATION), Some("2"));
        assert_eq!(new.at(&["metadata", "generation"]), &2i64.into());
    }

    fn old_label_template(value: &str) -> Value {
        json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": value}}})
    }

    #[test]
    fn daemon_set_warns_when_its_template_changes() {
        let old = json!({"metadata": {"generation": 1, "annotations": {"deprecated.daemonset.template.generation": "1"}},
             "spec": {"template": old_label_template("a")}});
        let mut new = old.clone();
        new.set(&["metadata", "generation"], 2i64);
        assert!(DAEMON_SET.warnings(&new, Some(&old)).is_empty());
        new.set(&["metadata", "annotations", TEMPLATE_GENERATION], "2");
        assert_eq!(DAEMON_SET.warnings(&new, Some(&old)).len(), 1);
        assert!(DAEMON_SET.subresource_warnings("status", &new, &old).is_empty());
    }

    #[test]
    fn replication_controller_warns_about_the_old_template() {
        let old = json!({"metadata": {"generation": 1}, "spec": {"template": old_label_template("a")}});
        let mut new = json!({"metadata": {"generation": 2}, "spec": {"template": {"spec": {}}}});
        assert_eq!(REPLICATION_CONTROLLER.warnings(&new, Some(&old)).len(), 1);
        new.set(&["metadata", "generation"], 1i64);
        assert!(REPLICATION_CONTROLLER.warnings(&new, Some(&old)).is_empty());
    }

    #[test]
    fn stateful_set_claims_warn_about_fractional_bytes() {
        let v = json!({"metadata": {}, "spec": {"volumeClaimTemplates": [
            {"spec": {"resources": {"requests": {"storage": "100m"}}}}]}});
        let rest = "resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer";
        assert_eq!(
            STATEFUL_SET.warnings(&v, None),
            [format!("spec.volumeClaimTemplates[0].{rest}")]
        );
        assert_eq!(
            STATEFUL_SET.warnings(&v, Some(&v)),
            [format!("spec.volumeClaimTemplates[0].Spec.{rest}")]
        );
    }
}
