//! Pods: the rules that most manifests meet. Volumes, affinity, security contexts and resources are not judged yet in
//! all the detail upstream has.

mod container;

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, meta, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each, required_choice, same};

pub(crate) fn pod(v: &Value) -> ErrorList {
    let mut out = spec(v);
    let ephemeral = v.at(&["spec", "ephemeralContainers"]).items();
    if !ephemeral.is_empty() {
        out.push(FieldError::forbidden(
            &FieldPath::new("spec").child("ephemeralContainers"),
            "cannot be set on create",
        ));
    }
    let gates = v.at(&["spec", "schedulingGates"]).items();
    if !gates.is_empty() && !v.str_at(&["spec", "nodeName"]).is_empty() {
        out.push(FieldError::forbidden(
            &FieldPath::new("spec").child("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
    out
}

fn spec(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    let volumes = volumes(&mut out, spec, &path);
    container::containers(&mut out, spec, &volumes, &path);
    required_choice(
        &mut out,
        spec,
        "restartPolicy",
        &path,
        &["Always", "OnFailure", "Never"],
    );
    required_choice(
        &mut out,
        spec,
        "dnsPolicy",
        &path,
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    meta::validate_labels(spec.get("nodeSelector"), &path.child("nodeSelector"), &mut out);
    let mut seen: Vec<&str> = Vec::new();
    for (i, g) in spec.get("schedulingGates").items().iter().enumerate() {
        let at = path.child("schedulingGates").index(i);
        let name = g.str_at(&["name"]);
        invalid_each(&mut out, &at, name, qualified_name(name));
        if seen.contains(&name) {
            out.push(FieldError::duplicate(&at, name));
        }
        seen.push(name);
    }
    for (key, check) in [
        ("serviceAccountName", dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", dns1123_subdomain),
    ] {
        let text = spec.str_at(&[key]);
        if !text.is_empty() {
            invalid_each(&mut out, &path.child(key), text, check(text));
        }
    }
    if let Some(n) = spec.get("activeDeadlineSeconds").as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&n)
    {
        out.push(FieldError::invalid(
            &path.child("activeDeadlineSeconds"),
            n,
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    for key in ["hostname", "subdomain"] {
        let text = spec.str_at(&[key]);
        if !text.is_empty() {
            invalid_each(&mut out, &path.child(key), text, dns1123_label(text));
        }
    }
    for (i, t) in spec.get("tolerations").items().iter().enumerate() {
        toleration(&mut out, t, &path.child("tolerations").index(i));
    }
    let class = spec.str_at(&["priorityClassName"]);
    if !class.is_empty() {
        invalid_each(
            &mut out,
            &path.child("priorityClassName"),
            class,
            dns1123_subdomain(class),
        );
    }
    out
}

/// Checks volumes; the names of those that are right.
fn volumes<'a>(out: &mut ErrorList, spec: &'a Value, path: &FieldPath) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (i, v) in spec.get("volumes").items().iter().enumerate() {
        let at = path.child("volumes").index(i);
        let before = out.len();
        for (source, key) in [
            ("configMap", "name"),
            ("secret", "secretName"),
            ("persistentVolumeClaim", "claimName"),
            ("hostPath", "path"),
        ] {
            if !v.get(source).is_null() && v.str_at(&[source, key]).is_empty() {
                out.push(FieldError::required(&at.child(source).child(key), ""));
            }
        }
        let sources: Vec<&str> = v
            .as_object()
            .into_iter()
            .flat_map(|m| m.iter())
            .filter(|(k, x)| *k != "name" && !x.is_null())
            .map(|(k, _)| k)
            .collect();
        for extra in sources.iter().skip(1) {
            out.push(FieldError::forbidden(
                &at.child(extra),
                "may not specify more than 1 volume type",
            ));
        }
        let name = v.str_at(&["name"]);
        if name.is_empty() {
            out.push(FieldError::required(&at.child("name"), ""));
        } else {
            invalid_each(out, &at.child("name"), name, dns1123_label(name));
            if names.contains(&name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
        if out.len() == before {
            names.push(name);
        }
    }
    names
}

fn toleration(out: &mut ErrorList, t: &Value, at: &FieldPath) {
    let (key, operator, value, effect) = (
        t.str_at(&["key"]),
        t.str_at(&["operator"]),
        t.str_at(&["value"]),
        t.str_at(&["effect"]),
    );
    if !key.is_empty() {
        invalid_each(out, &at.child("key"), key, qualified_name(key));
    } else if operator != "Exists" {
        out.push(FieldError::invalid(
            &at.child("operator"),
            operator,
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    if !t.get("tolerationSeconds").is_null() && effect != "NoExecute" {
        out.push(FieldError::invalid(
            &at.child("effect"),
            effect,
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match operator {
        "" | "Equal" => {
            let messages = crate::apimachinery::validation::label_value(value);
            if !messages.is_empty() {
                // A bad value is reported at the operator, as upstream.
                out.push(FieldError::invalid(&at.child("operator"), value, messages.join(";")));
            }
        }
        "Exists" if !value.is_empty() => out.push(FieldError::invalid(
            &at.child("operator"),
            value,
            "value must be empty when `operator` is 'Exists'",
        )),
        "Exists" => {}
        other => out.push(FieldError::not_supported(
            &at.child("operator"),
            other,
            &["Equal", "Exists"],
        )),
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        out.push(FieldError::not_supported(&at.child("effect"), effect, &effects));
    }
}

pub(crate) fn pod_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = spec(new);
    let path = FieldPath::new("spec");
    for key in ["containers", "initContainers"] {
        if new.at(&["spec", key]).items().len() != old.at(&["spec", key]).items().len() {
            out.push(FieldError::forbidden(
                &path.child(key),
                "pod updates may not add or remove containers",
            ));
            return out;
        }
    }
    deadline(&mut out, new, old, &path);
    let had = old.at(&["spec", "tolerations"]).items();
    let bare = |t: &Value| {
        let mut t = t.clone();
        t.unset(&["tolerationSeconds"]);
        t
    };
    let now: Vec<Value> = new.at(&["spec", "tolerations"]).items().iter().map(bare).collect();
    if had.iter().any(|t| !now.contains(&bare(t))) {
        out.push(FieldError::forbidden(
            &path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    let gates: Vec<&str> = old
        .at(&["spec", "schedulingGates"])
        .items()
        .iter()
        .map(|g| g.str_at(&["name"]))
        .collect();
    for (i, g) in new.at(&["spec", "schedulingGates"]).items().iter().enumerate() {
        let name = g.str_at(&["name"]);
        if !gates.contains(&name) {
            out.push(FieldError::forbidden(
                &path.child("schedulingGates").index(i).child("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
    if !same(
        &immutable_part(new, !gates.is_empty()),
        &immutable_part(old, !gates.is_empty()),
    ) {
        out.push(FieldError::forbidden(
            &path,
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
    out
}

fn deadline(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    let of = |v: &Value| v.at(&["spec", "activeDeadlineSeconds"]).as_i64();
    let at = path.child("activeDeadlineSeconds");
    match (of(old), of(new)) {
        (Some(_), None) => out.push(FieldError::invalid(
            &at,
            Value::Null,
            "must not update from a positive integer to nil value",
        )),
        (Some(was), Some(now)) if now > was => {
            out.push(FieldError::invalid(
                &at,
                now,
                "must be less than or equal to previous value",
            ));
        }
        _ => {}
    }
}

/// The spec without what may change.
fn immutable_part(v: &Value, gated: bool) -> Value {
    let mut spec = v.get("spec").clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        spec.unset(&[key]);
    }
    if gated {
        spec.unset(&["nodeSelector"]);
        spec.unset(&["affinity", "nodeAffinity"]);
    }
    for list in ["containers", "initContainers"] {
        for c in crate::controlplane::fields::elements_mut(&mut spec, &[list]) {
            c.unset(&["image"]);
        }
    }
    spec
}

pub(crate) fn pod_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("status");
    for (i, c) in new.at(&["status", "conditions"]).items().iter().enumerate() {
        let kind = c.str_at(&["type"]);
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            invalid_each(
                &mut out,
                &path.child("conditions").index(i).child("Type"),
                kind,
                qualified_name(kind),
            );
        }
    }
    let was = old.str_at(&["status", "qosClass"]);
    if !was.is_empty() && new.str_at(&["status", "qosClass"]) != was {
        out.push(FieldError::invalid(
            &path.child("qosClass"),
            new.at(&["status", "qosClass"]).clone(),
            IMMUTABLE,
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn valid() -> Value {
        let mut v = json!({"spec": {"containers": [{"name": "main", "image": "a:1"}]}});
        crate::controlplane::defaults::pod::pod(&mut v);
        v
    }

    #[test]
    fn a_plain_pod_is_fine_and_an_empty_one_is_not() {
        assert_eq!(aggregate(&pod(&valid())), "[]");
        let mut v = valid();
        v.set(&["spec", "containers"], json!([]));
        assert_eq!(aggregate(&pod(&v)), "spec.containers: Required value");
        v.set(&["spec", "containers"], json!([{"name": "A"}]));
        let said = aggregate(&pod(&v));
        assert!(
            said.contains("spec.containers[0].name: Invalid value: \"A\"")
                && said.contains("spec.containers[0].image: Required value")
        );
    }

    #[test]
    fn an_image_may_change_and_a_command_may_not() {
        let old = valid();
        let mut new = old.clone();
        new.set(&["spec", "containers"], json!([{"name": "main", "image": "a:2", "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}]));
        assert_eq!(aggregate(&pod_update(&new, &old)), "[]");
        new.set(&["spec", "hostname"], "x");
        assert!(
            aggregate(&pod_update(&new, &old))
                .starts_with("spec: Forbidden: pod updates may not change fields other than")
        );
    }
}
