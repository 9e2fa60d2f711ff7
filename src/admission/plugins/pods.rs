//! Accessors for pods that several plugins share.

use super::resources::{CountingMode, ResourceKind, of_pod, quantity};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;

/// Annotation on mirror pods, the API representation of a kubelet's static pods.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The container lists, in upstream's order of visits.
pub(crate) const ALL_CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// True for a mirror pod.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    pod.annotation(MIRROR).is_some()
}

/// All containers: init, regular, ephemeral.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let spec = pod.get("spec");
    ALL_CONTAINERS.into_iter().flat_map(move |list| spec.get(list).items())
}

/// Mutable access to the elements of a list in the pod's spec.
pub(crate) fn elements_mut<'a>(pod: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    pod.at_mut(&["spec", list])
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Appends to a list field, which is created if it is missing.
pub(crate) fn push(object: &mut Value, list: &str, element: Value) {
    match object.get(list) {
        Value::Array(_) => {}
        _ => object.set(&[list], Vec::<Value>::new()),
    }
    let list = object.at_mut(&[list]).and_then(Value::as_array_mut);
    // `match` above replaces anything that is not a list.
    list.expect("the list was made above").push(element);
}

/// Parses a quantity; zero if it is absent or invalid.
pub(crate) fn amount(value: &Value) -> Quantity {
    quantity(value).unwrap_or(Quantity::ZERO)
}

/// The pod's request for a resource, including overhead.
pub(crate) fn requests(pod: &Value, resource: &str) -> Quantity {
    let asked = of_pod(pod, ResourceKind::Requests, CountingMode::SpecOnly);
    let asked = asked.get(resource).copied().unwrap_or(Quantity::ZERO);
    // `SpecOnly` leaves the overhead out.
    asked.plus(amount(pod.at(&["spec", "overhead", resource])))
}

/// The sources of the pod's projected volumes.
fn projections(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod.at(&["spec", "volumes"]).items().iter();
    volumes.flat_map(|v| v.at(&["projected", "sources"]).items())
}

/// True if a projected volume has a source of this type, such as `serviceAccountToken`.
pub(crate) fn projects(pod: &Value, source: &str) -> bool {
    projections(pod).any(|s| !s.get(source).is_null())
}

/// The fields by which volumes refer to secrets, besides projected sources.
const SECRET_REFERENCES: [&[&str]; 11] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["secret", "secretName"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["secret", "name"],
];

fn container_refers(pod: &Value, env_from: &str, key_ref: &str) -> bool {
    containers(pod).any(|c| {
        let all = c.get("envFrom").items().iter();
        all.clone().any(|e| !e.get(env_from).is_null())
            || c.get("env")
                .items()
                .iter()
                .any(|e| !e.at(&["valueFrom", key_ref]).is_null())
    })
}

/// True if the pod refers to any secret.
pub(crate) fn references_secrets(pod: &Value) -> bool {
    !pod.at(&["spec", "imagePullSecrets"]).items().is_empty()
        || container_refers(pod, "secretRef", "secretKeyRef")
        || projects(pod, "secret")
        || pod.at(&["spec", "volumes"]).items().iter().any(|v| {
            let names = SECRET_REFERENCES.iter().any(|path| !v.at(path).is_null());
            names || !v.get("secret").is_null()
        })
}

/// True if the pod refers to any config map.
pub(crate) fn references_config_maps(pod: &Value) -> bool {
    let volumes = pod.at(&["spec", "volumes"]).items();
    container_refers(pod, "configMapRef", "configMapKeyRef")
        || projects(pod, "configMap")
        || volumes.iter().any(|v| !v.get("configMap").is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::pod;
    use crate::json;

    #[test]
    fn references_in_env_volumes_and_projections_are_found() {
        let by_env = json!({"ephemeralContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}]});
        let by_volume = json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "s"}}}]});
        let by_projection = json!({"volumes": [{"projected": {"sources": [{"secret": {"name": "s"}}]}}]});
        for spec in [by_env, by_volume, by_projection] {
            assert!(references_secrets(&pod(spec)));
        }
        let other = json!({"volumes": [{"configMap": {"name": "c"}}]});
        assert!(!references_secrets(&pod(other.clone())));
        assert!(references_config_maps(&pod(other)));
    }

    #[test]
    fn requests_are_the_larger_of_containers_and_init_containers() {
        let asking = |cpu: &str| json!({"resources": {"requests": {"cpu": (cpu)}}});
        let mut sidecar = asking("100m");
        sidecar.set(&["restartPolicy"], "Always");
        let mut v = pod(json!({}));
        v.set(&["spec", "containers"], vec![asking("1"), asking("200m")]);
        v.set(&["spec", "initContainers"], vec![sidecar, asking("1100m")]);
        assert_eq!(requests(&v, "cpu").milli_value(), 1300);
        v.set(&["spec", "initContainers"], vec![asking("2")]);
        assert_eq!(requests(&v, "cpu").milli_value(), 2000);
        v.set(&["spec", "resources", "requests", "cpu"], "3");
        v.set(&["spec", "overhead", "cpu"], "500m");
        assert_eq!(requests(&v, "cpu").milli_value(), 3500);
    }

    #[test]
    fn push_creates_a_missing_list() {
        let mut v = json!({});
        push(&mut v, "a", 1i64.into());
        push(&mut v, "a", 2i64.into());
        assert_eq!(v.get("a").items().len(), 2);
    }
}
