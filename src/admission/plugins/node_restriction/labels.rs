//! The labels that a node may set on its own Node object. Schedulers and policies trust labels, so a node must not
//! be able to attract Pods by them.

use crate::apimachinery::value::Value;

const OWN: &str = "node-restriction.kubernetes.io";
/// Labels in Kubernetes namespaces that a kubelet may set.
const KUBELET: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// True for the domain itself and its subdomains.
fn within(namespace: &str, domain: &str) -> bool {
    namespace
        .strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_refused(label: &str) -> bool {
    let namespace = label.split_once('/').map_or("", |(namespace, _)| namespace);
    let kubernetes = within(namespace, "kubernetes.io") || within(namespace, "k8s.io");
    let kubelet = KUBELET.contains(&label)
        || within(namespace, "kubelet.kubernetes.io")
        || within(namespace, "node.kubernetes.io");
    // The restricted domain lies within `kubernetes.io`, where the kubelet's exceptions must not reach it.
    within(namespace, OWN) || kubernetes && !kubelet
}

/// The changed labels that a node may not change, sorted.
pub(super) fn refused(new: &Value, old: &Value) -> Vec<String> {
    let at = ["metadata", "labels"];
    let keys = |v: &Value| -> Vec<String> {
        let all = v.at(&at).as_object();
        all.map(|m| m.keys().map(str::to_owned).collect()).unwrap_or_default()
    };
    let mut changed = keys(new);
    changed.extend(keys(old));
    // Removals count as changes: removing a label can attract Pods as well as setting one.
    changed.retain(|key| new.at(&at).get(key) != old.at(&at).get(key) && is_refused(key));
    changed.sort();
    changed.dedup();
    changed
}
