//! What several plugins want to know about a pod.

use super::resources::{Account, Side, of_pod, quantity};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;

/// The annotation of pods that a kubelet made from a file.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The lists of containers, in the order upstream visits them.
pub const ALL_CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// True for the shadow of a pod that a node runs from a file.
pub fn is_mirror(pod: &Value) -> bool {
    pod.annotation(MIRROR).is_some()
}

/// All containers: init, regular, ephemeral.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let spec = pod.get("spec");
    ALL_CONTAINERS.into_iter().flat_map(move |list| spec.get(list).items())
}

/// The elements of a list in the pod's spec, to be changed.
pub fn elements_mut<'a>(pod: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    pod.at_mut(&["spec", list])
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Appends to a list in an object, which is made where it is missing.
pub fn push(object: &mut Value, list: &str, element: Value) {
    match object.get(list) {
        Value::Array(_) => {}
        _ => object.set(&[list], Vec::<Value>::new()),
    }
    let list = object.at_mut(&[list]).and_then(Value::as_array_mut);
    list.expect("the list was made above").push(element);
}

/// A stored quantity; what is absent is zero.
pub fn amount(value: &Value) -> Quantity {
    quantity(value).unwrap_or(Quantity::ZERO)
}

/// What the pod asks for of a resource, overhead included.
pub fn requests(pod: &Value, resource: &str) -> Quantity {
    let asked = of_pod(pod, Side::Requests, Account::Spec);
    let asked = asked.get(resource).copied().unwrap_or(Quantity::ZERO);
    asked.plus(amount(pod.at(&["spec", "overhead", resource])))
}

/// The elements of `list` in the pod's volumes' projections.
fn projections(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod.at(&["spec", "volumes"]).items().iter();
    volumes.flat_map(|v| v.at(&["projected", "sources"]).items())
}

/// True where a projected volume has a source of this kind (`serviceAccountToken`).
pub fn projects(pod: &Value, source: &str) -> bool {
    projections(pod).any(|s| !s.get(source).is_null())
}

/// Where volumes name secrets, beside `secret` and projections.
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

/// True where the pod names a secret anywhere.
pub fn references_secrets(pod: &Value) -> bool {
    !pod.at(&["spec", "imagePullSecrets"]).items().is_empty()
        || container_refers(pod, "secretRef", "secretKeyRef")
        || projects(pod, "secret")
        || pod.at(&["spec", "volumes"]).items().iter().any(|v| {
            let names = SECRET_REFERENCES.iter().any(|path| !v.at(path).is_null());
            names || !v.get("secret").is_null()
        })
}

/// True where the pod names a config map anywhere.
pub fn references_config_maps(pod: &Value) -> bool {
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
    fn secrets_are_found_in_environments_volumes_and_projections() {
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
    fn a_pod_asks_for_its_containers_or_for_its_hungriest_init_container() {
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
    fn a_list_is_made_where_it_is_missing() {
        let mut v = json!({});
        push(&mut v, "a", 1i64.into());
        push(&mut v, "a", 2i64.into());
        assert_eq!(v.get("a").items().len(), 2);
    }
}
