//! Validation of updates through `pods/ephemeralcontainers` and `pods/resize`.

use super::checked_spec;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::restore;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::same;
use crate::controlplane::quality_of_service::quality_of_service;
use crate::controlplane::validation::go_form;
use std::collections::HashMap;

const MIRROR: &str = "kubernetes.io/config.mirror";

fn is_mirror(pod: &Value) -> bool {
    !pod.at(&["metadata", "annotations", MIRROR]).is_null()
}

/// A single error at the empty path, which Go prints as `[]`.
fn only(why: &str) -> ErrorList {
    ErrorList::from(vec![FieldError::forbidden(&FieldPath::new("[]"), why)])
}

/// Validates an update of ephemeral containers: they may be added, but not changed or removed.
pub(crate) fn ephemeral_containers_update(new: &Value, old: &Value) -> ErrorList {
    if is_mirror(new) {
        return only("static pods do not support ephemeral containers");
    }
    let path = FieldPath::new("spec").child("ephemeralContainers");
    let at = path.as_str().to_owned();
    // The strategy has restored the rest of the spec, so its errors are none of this request's.
    let mut out: ErrorList = checked_spec(new, Some(old))
        .into_iter()
        // The count of omitted errors is kept: it may include relevant ones.
        .filter(|e| e.is_more() || e.field.starts_with(&at))
        .collect();
    // As upstream, the last of several containers with one name wins.
    let now = new.at(&["spec", "ephemeralContainers"]).items().iter();
    let now: HashMap<&str, &Value> = now.map(|c| (c.str_at(&["name"]), c)).collect();
    for was in old.at(&["spec", "ephemeralContainers"]).items() {
        let name = was.str_at(&["name"]);
        let shown = crate::apimachinery::field::quote(name);
        match now.get(name) {
            None => out.push(FieldError::forbidden(
                &path,
                // The newline is upstream's: it appends a diff, which is empty here.
                format!("existing ephemeral containers {shown} may not be removed\n"),
            )),
            Some(is) if !same(is, was) => {
                let difference = go_form::difference(was, is, &go_form::EPHEMERAL_CONTAINER);
                let why = format!("existing ephemeral containers {shown} may not be changed{difference}");
                out.push(FieldError::forbidden(&path, why));
            }
            Some(_) => {}
        }
    }
    out
}

/// False if the first running container lacks `status.resources`: its kubelet does not support resizing. Without any
/// running container the node is assumed to support it.
fn node_can_resize(pod: &Value) -> bool {
    let mut statuses = pod.at(&["status", "containerStatuses"]).items().iter();
    let running = statuses.find(|c| !c.at(&["state", "running"]).is_null());
    running.is_none_or(|c| !c.get("resources").is_null())
}

fn order(out: &mut ErrorList, new: &Value, old: &Value, spec: &FieldPath) -> bool {
    // Success is read off the number of errors, since `out` may hold earlier ones.
    let before = out.len();
    for key in ["containers", "initContainers"] {
        let (now, was) = (new.at(&["spec", key]).items(), old.at(&["spec", key]).items());
        let path = spec.child(key);
        if now.len() != was.len() {
            let why = format!("{key} may not be added or removed on resize");
            out.push(FieldError::forbidden(&path, why));
            // Positions cannot be compared if the lengths differ.
            continue;
        }
        for (i, _) in now
            .iter()
            .zip(was)
            .enumerate()
            .filter(|(_, (a, b))| a.get("name") != b.get("name"))
        {
            let why = format!("{key} may not be renamed or reordered on resize");
            out.push(FieldError::forbidden(&path.index(i).child("name"), why));
        }
    }
    out.len() == before
}

fn lost(now: &Value, was: &Value) -> bool {
    // A resize changes amounts: entries may be added, but not dropped.
    let mut had = was.as_object().into_iter().flat_map(|m| m.keys());
    had.any(|k| now.get(k).is_null())
}

fn removed(out: &mut ErrorList, now: &Value, was: &Value, path: &FieldPath, what: &str) {
    for side in ["requests", "limits"] {
        if lost(now.get(side), was.get(side)) {
            let why = format!("{what} {side} cannot be removed");
            out.push(FieldError::forbidden(&path.child(side), why));
        }
    }
}

/// Resets cpu and memory to the old values, so that only forbidden changes remain.
fn forget_cpu_and_memory(now: &mut Value, was: &Value) {
    for side in ["requests", "limits"] {
        for resource in ["cpu", "memory"] {
            restore(now, was, &["resources", side, resource]);
        }
        // Absent, null and empty maps must compare equal after the reset.
        if now.at(&["resources", side]).is_empty_value() {
            restore(now, was, &["resources", side]);
        }
    }
    if now.get("resources").is_empty_value() {
        restore(now, was, &["resources"]);
    }
}

/// Validates a resize: only requests and limits of cpu and memory may change (`ValidatePodResize` upstream).
pub(crate) fn resize(new: &Value, old: &Value) -> ErrorList {
    if is_mirror(old) {
        return only("static pods cannot be resized");
    }
    if old.str_at(&["spec", "os", "name"]) == "windows" {
        return only("windows pods cannot be resized");
    }
    let mut out = checked_spec(new, Some(old));
    let spec = FieldPath::new("spec");
    // The class decides about cgroups and eviction when the pod starts; it cannot change later.
    let was = match old.str_at(&["status", "qosClass"]) {
        "" => quality_of_service(old),
        class => class,
    };
    if was != quality_of_service(new) {
        let why = "Pod QOS Class may not change as a result of resizing";
        // Upstream's bad value is the class in the status, not the computed one.
        out.push(FieldError::invalid_enum(
            &spec,
            new.str_at(&["status", "qosClass"]),
            why,
        ));
    }
    // By the stored status: the client's is ignored on this subresource.
    if !node_can_resize(old) {
        let why = "Pod running on node without support for resize";
        out.push(FieldError::forbidden(&spec, why));
    }
    // Before the order of the containers, on which it does not depend.
    pod_level(&mut out, new, old, &spec);
    // The rest pairs containers by position.
    if !order(&mut out, new, old, &spec) {
        return out;
    }
    let both = |key: &str| {
        let (now, was) = (new.at(&["spec", key]).items(), old.at(&["spec", key]).items());
        now.iter().zip(was).enumerate()
    };
    // Init containers first, as upstream, which visits them in this order.
    for key in ["initContainers", "containers"] {
        for (i, (now, was)) in both(key) {
            let at = spec.child(key).index(i).child("resources");
            removed(&mut out, now.get("resources"), was.get("resources"), &at, "resource");
        }
    }
    let why = "only cpu and memory resources are mutable";
    for (_, (now, was)) in both("containers") {
        if !same(&with_cpu_and_memory_of(now, was), was) {
            // As upstream, once per container, without its path.
            out.push(FieldError::forbidden(&spec, why));
        }
    }
    for (i, (now, was)) in both("initContainers") {
        init_container(&mut out, now, was, &spec.child("initContainers").index(i));
    }
    if !out.is_empty() {
        return out;
    }
    // Everything that may change has been checked above; any other difference is forbidden.
    let mut rest = new.get("spec").clone();
    for key in ["resources", "containers", "initContainers"] {
        restore(&mut rest, old.get("spec"), &[key]);
    }
    if !same(&rest, old.get("spec")) {
        out.push(FieldError::forbidden(&spec, why));
    }
    out
}

/// A container with the stored cpu and memory, so that only forbidden changes remain. As upstream, without resource
/// claims: a container that has any cannot be resized.
fn with_cpu_and_memory_of(now: &Value, was: &Value) -> Value {
    const CLAIMS: [&str; 2] = ["resources", "claims"];
    let mut rest = now.clone();
    rest.unset(&CLAIMS);
    forget_cpu_and_memory(&mut rest, was);
    // Again, since empty resources were replaced by the stored ones.
    rest.unset(&CLAIMS);
    rest
}

fn init_container(out: &mut ErrorList, now: &Value, was: &Value, at: &FieldPath) {
    if !same(&with_cpu_and_memory_of(now, was), was) {
        let why = "only cpu and memory resources for init or sidecar containers are mutable";
        out.push(FieldError::forbidden(at, why));
    }
    let sidecar = now.str_at(&["restartPolicy"]) == "Always";
    if sidecar || same(now, was) {
        return;
    }
    // Such a container would have to run again, after the pod has started.
    let policies = now.get("resizePolicy").items().iter();
    let restarts = policies.filter(|p| p.str_at(&["restartPolicy"]) == "RestartContainer");
    out.push_times(restarts.count(), || {
        let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        FieldError::forbidden(at, why)
    });
}

fn pod_level(out: &mut ErrorList, new: &Value, old: &Value, spec: &FieldPath) {
    let (now, was) = (new.at(&["spec", "resources"]), old.at(&["spec", "resources"]));
    let has_any = |v: &Value| ["requests", "limits"].iter().any(|side| !v.get(side).is_empty_value());
    if !has_any(now) && !has_any(was) {
        return;
    }
    let path = spec.child("resources");
    if now.is_null() {
        out.push(FieldError::forbidden(&path, "pod-level resources cannot be removed"));
        return;
    }
    if !was.is_null() {
        removed(out, now, was, &path, "pod-level resource");
    }
    let mut rest = new.get("spec").clone();
    forget_cpu_and_memory(&mut rest, old.get("spec"));
    if !same(rest.get("resources"), was) {
        // As upstream, reported at the spec.
        let why = "only cpu and memory resources are mutable at pod-level";
        out.push(FieldError::forbidden(spec, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::controlplane::fields::elements_mut;
    use crate::json;

    fn pod(resources: Value) -> Value {
        let mut v = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "a:1"}]}});
        for c in elements_mut(&mut v, &["spec", "containers"]) {
            c.set(&["resources"], resources.clone());
        }
        crate::controlplane::defaults::pod::pod(&mut v);
        v
    }

    #[test]
    fn only_cpu_and_memory_are_resizable() {
        let old = pod(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}));
        let errors = |resources: Value| aggregate(&resize(&pod(resources), &old));
        assert_eq!(
            errors(json!({"requests": {"cpu": "150m"}, "limits": {"cpu": "200m"}})),
            "[]"
        );
        assert_eq!(
            errors(json!({"requests": {"cpu": "100m"}})),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"
        );
        assert_eq!(
            errors(json!({"requests": {"cpu": "100m", "a.b/x": "1"}, "limits": {"cpu": "200m", "a.b/x": "1"}})),
            "spec: Forbidden: only cpu and memory resources are mutable"
        );
        assert_eq!(
            errors(json!({})),
            "[spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing, \
             spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed, \
             spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed]"
        );
    }

    #[test]
    fn containers_cannot_be_renamed_or_removed_on_resize() {
        let old = pod(json!({}));
        let mut new = old.clone();
        for c in elements_mut(&mut new, &["spec", "containers"]) {
            c.set(&["name"], "other");
        }
        assert_eq!(
            aggregate(&resize(&new, &old)),
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
        );
    }

    #[test]
    fn a_container_with_claims_cannot_be_resized() {
        let with = |cpu: &str| {
            let mut v = pod(json!({"requests": {"cpu": (cpu)}, "claims": [{"name": "c"}]}));
            v.set(
                &["spec", "resourceClaims"],
                json!([{"name": "c", "resourceClaimName": "c"}]),
            );
            v
        };
        assert_eq!(
            aggregate(&resize(&with("2"), &with("1"))),
            "spec: Forbidden: only cpu and memory resources are mutable"
        );
    }

    #[test]
    fn errors_of_init_containers_name_them() {
        let with = |name: &str, cpu: &str, policies: Value| {
            let mut v = pod(json!({}));
            let resources = json!({"requests": {"cpu": (cpu)}});
            let mut container = json!({"name": (name), "image": "a"});
            container.set(&["resources"], resources);
            container.set(&["resizePolicy"], policies);
            v.set(&["spec", "initContainers"], vec![container]);
            crate::controlplane::defaults::pod::pod(&mut v);
            v
        };
        let none = || json!([]);
        let old = with("i", "1", none());
        assert_eq!(aggregate(&resize(&with("i", "2", none()), &old)), "[]");
        let renamed =
            "spec.initContainers[0].name: Forbidden: initContainers may not be renamed or reordered on resize";
        assert_eq!(aggregate(&resize(&with("j", "1", none()), &old)), renamed);
        let policies = || json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
        let restarting = aggregate(&resize(&with("i", "2", policies()), &with("i", "1", policies())));
        let why = "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer \
                   cannot be resized";
        assert_eq!(restarting, why);
    }

    #[test]
    fn other_pod_level_resources_are_refused_at_the_spec() {
        let with = |pages: &str| {
            let mut v = pod(json!({"requests": {"cpu": "1"}}));
            v.set(
                &["spec", "resources"],
                json!({"requests": {"cpu": "1", "hugepages-2Mi": (pages)}, "limits": {"hugepages-2Mi": (pages)}}),
            );
            v
        };
        assert_eq!(
            aggregate(&resize(&with("4Mi"), &with("2Mi"))),
            "spec: Forbidden: only cpu and memory resources are mutable at pod-level"
        );
    }

    #[test]
    fn pod_level_resources_are_checked_even_if_containers_are_renamed() {
        let mut old = pod(json!({}));
        old.set(&["spec", "resources"], json!({"requests": {"cpu": "1"}}));
        let mut new = old.clone();
        new.set(&["spec", "resources"], json!({"requests": {"memory": "1Gi"}}));
        for c in elements_mut(&mut new, &["spec", "containers"]) {
            c.set(&["name"], "other");
        }
        let errors = aggregate(&resize(&new, &old));
        for want in [
            "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed",
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
        ] {
            assert!(errors.contains(want), "{errors}");
        }
    }

    #[test]
    fn the_first_running_container_tells_whether_the_node_can_resize() {
        let can = |statuses: Value| {
            let mut v = json!({});
            v.set(&["status", "containerStatuses"], statuses);
            node_can_resize(&v)
        };
        let (with, without) = (
            json!({"state": {"running": {}}, "resources": {}}),
            json!({"state": {"running": {}}}),
        );
        let waiting = json!({"state": {"waiting": {}}});
        assert!(can(json!([])) && can(Value::from(vec![waiting.clone()])));
        assert!(can(Value::from(vec![waiting.clone(), with.clone(), without.clone()])));
        assert!(!can(Value::from(vec![waiting, without, with])));
    }

    #[test]
    fn ephemeral_containers_cannot_be_removed() {
        let mut old = pod(json!({}));
        old.set(&["spec", "ephemeralContainers"], json!([{"name": "d", "image": "b"}]));
        crate::controlplane::defaults::pod::pod(&mut old);
        let new = pod(json!({}));
        assert_eq!(
            aggregate(&ephemeral_containers_update(&new, &old)),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n"
        );
        assert_eq!(aggregate(&ephemeral_containers_update(&old, &new)), "[]");
    }
}
