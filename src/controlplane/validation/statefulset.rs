//! Validation of StatefulSets (`ValidateStatefulSet*` in upstream's `pkg/apis/apps/validation`). That a new name is
//! a DNS label is left to the strategy.

use super::common::{int_or_percent, is_zero_or_absent, not_negative, percentage_at_most_100};
use super::workloads::{always, collisions, finds, mismatch, parts_of_replicas, required_selector, stored_template};
use super::{claims, go_form, pod};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta_update};
use crate::apimachinery::validation::{dns1123_label, name_is_dns_label};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, same};

pub(crate) fn create(v: &Value) -> ErrorList {
    spec(v, None, true)
}

/// Checks the spec; of the template, unless `checks_pods`, only what concerns the set and the metadata. Immutable
/// members are checked on create only: stored sets may break later rules.
fn spec(v: &Value, old: Option<&Value>, checks_pods: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    match spec.str_at(&["podManagementPolicy"]) {
        "" => out.push(FieldError::required(&path.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => out.push(FieldError::invalid_enum(
            &path.child("podManagementPolicy"),
            other,
            "must be 'OrderedReady' or 'Parallel'",
        )),
    }
    strategy(&mut out, spec.get("updateStrategy"), &path.child("updateStrategy"));
    let retention = path.child("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        let policy = spec.str_at(&["persistentVolumeClaimRetentionPolicy", key]);
        if !matches!(policy, "" | "Retain" | "Delete") {
            out.push(FieldError::not_supported(
                &retention.child(key),
                policy,
                &["Retain", "Delete"],
            ));
        }
    }
    if old.is_none() {
        for (i, c) in spec.get("volumeClaimTemplates").items().iter().enumerate() {
            let at = path.child("volumeClaimTemplates").index(i).child("spec");
            claims::claim_spec(&mut out, c.get("spec"), &at, &Value::Null);
        }
    }
    for key in ["replicas", "minReadySeconds"] {
        not_negative(&mut out, spec, key, &path);
    }
    not_negative(&mut out, spec.get("ordinals"), "start", &path.child("ordinals"));
    let service = spec.str_at(&["serviceName"]);
    if old.is_none() && !service.is_empty() {
        invalid_each(&mut out, &path.child("serviceName"), service, dns1123_label(service));
    }
    // An empty message for an unparsable selector, as upstream. The template is not checked then.
    if let Some(selector) = required_selector(&mut out, spec, &path, "statefulset", "") {
        let (template, at) = (spec.get("template"), path.child("template"));
        if !finds(&selector, spec.get("selector"), template) {
            mismatch(&mut out, template, &at);
        }
        if checks_pods {
            pod::template(&mut out, &with_claims(spec), stored_template(old), &at);
        }
        // As upstream, the template's labels and annotations are checked a second time.
        pod::template_metadata(&mut out, template, &at);
    }
    // Outside of the condition above: checked even if the selector is unparsable.
    always(&mut out, spec.get("template"), &path.child("template"), "StatefulSet");
    out
}

/// The template with a volume added for each claim template, since volume mounts may refer to either.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec.get("template").clone();
    // The controller sets both fields per pod; the template's values are ignored, so they are not validated.
    for key in ["hostname", "subdomain"] {
        template.unset(&["spec", key]);
    }
    let claims = spec.get("volumeClaimTemplates").items();
    if claims.is_empty() {
        return template;
    }
    let mut names = Seen::new();
    let mut all = Vec::new();
    for name in claims.iter().map(|c| c.str_at(&["metadata", "name"])) {
        // A repeated template would otherwise be reported as a duplicate volume.
        if names.insert(name) {
            all.push(crate::json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    let own = template.at(&["spec", "volumes"]).items().iter();
    // Claims replace volumes of the same name, as the controller does.
    all.extend(own.filter(|v| !names.contains(&v.str_at(&["name"]))).cloned());
    template.set(&["spec", "volumes"], all);
    template
}

fn strategy(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let (rolling, at) = (v.get("rollingUpdate"), path.child("rollingUpdate"));
    match v.str_at(&["type"]) {
        "" => out.push(FieldError::required(path, "")),
        "OnDelete" => {
            if !rolling.is_null() {
                let shown = go_form::compact(rolling, go_form::SET_ROLLING);
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                out.push(FieldError::invalid_raw(&at, shown, why));
            }
        }
        // Without `rollingUpdate` there is nothing to check: it is optional here, unlike for Deployments.
        "RollingUpdate" => {
            not_negative(out, rolling, "partition", &at);
            // Only of stored sets: the field is dropped from others.
            let (unavailable, at) = (rolling.get("maxUnavailable"), at.child("maxUnavailable"));
            int_or_percent(out, unavailable, &at);
            if !unavailable.is_null() && is_zero_or_absent(unavailable) {
                out.push(FieldError::invalid_enum(&at, unavailable.clone(), "cannot be 0"));
            }
            percentage_at_most_100(out, unavailable, &at);
        }
        _ => out.push(FieldError::invalid_raw(
            path,
            go_form::compact(v, go_form::SET_STRATEGY),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
}

/// Members of the spec that an update may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(crate) fn update(new: &Value, old: &Value) -> ErrorList {
    // Older releases of upstream did not validate the pods of the template, so stored ones may be invalid. As
    // upstream, any error in the stored spec disables the check.
    let was_valid = spec(old, Some(old), true).is_empty();
    let mut out = spec(new, Some(old), was_valid);
    let rest = |v: &Value| {
        let mut spec = v.get("spec").clone();
        for key in MUTABLE {
            spec.unset(&[key]);
        }
        spec
    };
    // Mutable members are removed before the comparison, so a field that the API gains later is immutable at first.
    if !same(&rest(new), &rest(old)) {
        out.push(FieldError::forbidden(
            &FieldPath::new("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
    out
}

/// The errors of a changed status and of the metadata, which upstream checks between the status itself and its
/// comparison with the stored one.
pub(crate) fn status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    let parts = [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ];
    not_negative(&mut out, status, "replicas", &path);
    for key in parts.iter().chain(&["observedGeneration", "collisionCount"]) {
        not_negative(&mut out, status, key, &path);
    }
    parts_of_replicas(&mut out, status, &parts, "cannot be greater than status.readyReplicas");
    let (metadata, was) = (new.get("metadata"), old.get("metadata"));
    out.extend(validate_object_meta_update(
        metadata,
        was,
        METADATA,
        &FieldPath::new("metadata"),
    ));
    collisions(&mut out, new, old);
    out
}

const METADATA: MetaRules = MetaRules {
    namespaced: true,
    name: name_is_dns_label,
    strict_finalizers: true,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn valid() -> Value {
        let mut v = json!({"metadata": {"name": "v"}, "spec": {"selector": {"matchLabels": {"app": "demo"}}, "serviceName": "db",
            "template": {"metadata": {"labels": {"app": "demo"}}, "spec": {"containers": [
                {"name": "main", "image": "a:1", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}});
        crate::controlplane::defaults::workloads::stateful_set(&mut v);
        v
    }

    #[test]
    fn mount_may_refer_to_a_claim_template() {
        assert_eq!(aggregate(&create(&valid())), "[]");
    }

    #[test]
    fn stateful_set_errors_match_the_recordings() {
        for (path, value, want) in [
            (
                &["spec", "updateStrategy"][..],
                json!({"type": "X"}),
                "spec.updateStrategy: Invalid value: {\"Type\":\"X\",\"RollingUpdate\":null}: must be 'RollingUpdate' or 'OnDelete'",
            ),
            (
                &["spec", "updateStrategy"],
                json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
                "spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for updateStrategy 'RollingUpdate'",
            ),
            (
                &["spec", "podManagementPolicy"],
                json!("X"),
                "spec.podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
            ),
            (
                &["spec", "ordinals", "start"],
                json!(-1),
                "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"],
                json!("0%"),
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": cannot be 0",
            ),
            (
                &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"],
                json!("101%"),
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
        ] {
            let mut v = valid();
            v.set(path, value);
            assert_eq!(aggregate(&create(&v)), want);
        }
    }

    #[test]
    fn immutable_members_are_checked_on_create_in_upstreams_order() {
        let mut v = valid();
        v.set(
            &["spec", "volumeClaimTemplates"],
            json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]),
        );
        v.set(&["spec", "minReadySeconds"], -1i64);
        v.set(&["spec", "serviceName"], "X");
        v.set(&["spec", "selector", "matchLabels", "app"], "other");
        let fields = |errors: ErrorList| errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>();
        let expected = [
            "spec.volumeClaimTemplates[0].spec.resources[storage]",
            "spec.minReadySeconds",
            "spec.serviceName",
            "spec.template.metadata.labels",
        ];
        assert_eq!(fields(create(&v)), expected);
        assert_eq!(fields(update(&v, &v)), [expected[1], expected[3]]);
    }

    #[test]
    fn pods_are_not_checked_if_the_stored_set_is_invalid() {
        let dns = ["spec", "template", "spec", "dnsPolicy"];
        let mut new = valid();
        new.set(&dns, "X");
        let want = "spec.template.spec.dnsPolicy: Unsupported value: \"X\"";
        assert!(aggregate(&update(&new, &valid())).starts_with(want));
        let mut old = valid();
        old.set(&dns, "Y");
        assert_eq!(aggregate(&update(&new, &old)), "[]");
    }

    #[test]
    fn only_listed_fields_are_mutable() {
        let old = valid();
        let mut new = old.clone();
        new.set(&["spec", "replicas"], 3i64);
        assert_eq!(aggregate(&update(&new, &old)), "[]");
        new.set(&["spec", "serviceName"], "x");
        assert!(aggregate(&update(&new, &old)).starts_with("spec: Forbidden: updates to statefulset spec"));
    }

    #[test]
    fn metadata_is_checked_between_a_status_and_its_comparison_with_the_stored_one() {
        let set = |ready: i64, collisions: i64, label: &str| {
            json!({"metadata": {"name": "v", "resourceVersion": "1", "labels": {"a": (label)}},
                "status": {"replicas": 1, "readyReplicas": (ready), "collisionCount": (collisions)}})
        };
        let errors = status(&set(2, 1, "not valid"), &set(1, 2, "x"));
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            fields,
            ["status.readyReplicas", "metadata.labels", "status.collisionCount"]
        );
    }
}
