//! Strategies of Endpoints (upstream's `pkg/registry/core/endpoint/strategy.go`) and EndpointSlices
//! (`pkg/registry/discovery/endpointslice/strategy.go`).

use super::common::first_generation;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, elements_mut, same, set_default, set_default_str};
use crate::controlplane::validation;
use crate::registry::strategy::{Rules, Strategy};

/// Strategy of the deprecated Endpoints.
pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in elements_mut(object, &["subsets"]) {
            for port in elements_mut(subset, &["ports"]) {
                set_default_str(port, &["protocol"], "TCP");
            }
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::endpoints::endpoints(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        // Stored objects may violate rules added later; unchanged subsets are not validated again.
        if same(new.get("subsets"), old.get("subsets")) {
            return ErrorList::new();
        }
        validation::endpoints::endpoints(new)
    }

    fn rules(&self) -> Rules {
        Rules {
            deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            ..Rules::DEFAULT
        }
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        // The controller writes them for old clients, and nobody reads its warnings.
        if new.label("endpoints.kubernetes.io/managed-by") == Some("endpoint-controller") {
            return Vec::new();
        }
        validation::endpoints::endpoints_warnings(new)
    }
}

pub(crate) struct EndpointSlice;

/// Drops the topology, a leftover of v1beta1, unless an update leaves the endpoints alone. The node that it names
/// becomes the endpoint's node if the stored object names that node in the same way: a client that does not know
/// `nodeName` must not lose it.
fn drop_topology(new: &mut Value, old: Option<&Value>) {
    const NODE: [&str; 2] = ["deprecatedTopology", "kubernetes.io/hostname"];
    let stored = old.map_or(&Value::Null, |o| o.get("endpoints"));
    if old.is_some() && same(stored, new.get("endpoints")) {
        return;
    }
    let known: Seen<&str> = stored.items().iter().map(|e| e.str_at(&NODE)).collect();
    for e in elements_mut(new, &["endpoints"]) {
        let node = e.str_at(&NODE);
        if e.get("nodeName").is_null() && known.contains(&node) && dns1123_subdomain(node).is_empty() {
            let node = node.to_owned();
            e.set(&["nodeName"], node);
        }
        e.unset(&["deprecatedTopology"]);
    }
}

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Value) {
        for port in elements_mut(object, &["ports"]) {
            if port.get("name").is_null() {
                // Explicit, because the field is a pointer upstream.
                port.set(&["name"], "");
            }
            set_default(port, &["protocol"], "TCP");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        first_generation(object);
        drop_topology(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // Unlike for other kinds, a change of labels increments the generation too.
        let labels = |v: &Value| v.at(&["metadata", "labels"]).clone();
        let body = |v: &Value| {
            let mut v = v.clone();
            v.unset(&["metadata"]);
            v
        };
        if body(new) != body(old) || !same(&labels(new), &labels(old)) {
            let was = old.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
            new.set_meta("generation", was + 1);
        }
        // Last: what a client sends in the topology counts as a change, even if it is dropped.
        drop_topology(new, Some(old));
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::endpoints::slice(object, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::endpoints::slice(new, Some(old))
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut out = Vec::new();
        if old.is_none() && new.str_at(&["addressType"]) == "FQDN" {
            out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let managed = matches!(
            new.label("endpointslice.kubernetes.io/managed-by"),
            Some("endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io")
        );
        // Controllers take what the pods report, and nobody reads their warnings.
        if !managed {
            out.extend(validation::endpoints::slice_warnings(new));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn label_change_increments_slice_generation() {
        let old = json!({"metadata": {"generation": 1}, "addressType": "IPv4", "endpoints": []});
        let mut new = old.clone();
        new.set(&["metadata", "annotations", "a"], "b");
        EndpointSlice.prepare_update(&mut new, &old);
        assert_eq!(new.at(&["metadata", "generation"]), &1i64.into());
        new.set(&["metadata", "labels", "a"], "b");
        EndpointSlice.prepare_update(&mut new, &old);
        assert_eq!(new.at(&["metadata", "generation"]), &2i64.into());
    }

    #[test]
    fn topology_is_dropped_after_the_generation_and_keeps_its_node() {
        let mut old = json!({"metadata": {"generation": 1}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": "n"}}]});
        let mut new = old.clone();
        let sent = json!([
            {"addresses": ["10.0.0.2"], "deprecatedTopology": {"kubernetes.io/hostname": "n"}},
            {"addresses": ["10.0.0.3"], "deprecatedTopology": {"kubernetes.io/hostname": "other"}}]);
        new.set(&["endpoints"], sent);
        EndpointSlice.prepare_update(&mut new, &old);
        let expected = json!([{"addresses": ["10.0.0.2"], "nodeName": "n"}, {"addresses": ["10.0.0.3"]}]);
        assert_eq!(new.get("endpoints"), &expected);
        old = new.clone();
        let sent = json!([
            {"addresses": ["10.0.0.2"], "nodeName": "n", "deprecatedTopology": {"a": "b"}}, {"addresses": ["10.0.0.3"]}]);
        new.set(&["endpoints"], sent);
        EndpointSlice.prepare_update(&mut new, &old);
        assert_eq!(new.get("endpoints"), &expected);
        assert_eq!(new.at(&["metadata", "generation"]), &3i64.into());
    }

    #[test]
    fn slice_ports_default_name_and_protocol() {
        let mut v = json!({"ports": [{"port": 80}]});
        EndpointSlice.default(&mut v);
        assert_eq!(v, json!({"ports": [{"name": "", "port": 80, "protocol": "TCP"}]}));
    }
}
