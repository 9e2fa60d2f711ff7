//! [`Service`]: the parts of a Service that its endpoints depend on, and its [`Port`]s.

use super::pod::{Pod, address, protocol};
use super::{Label, labels};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Str, Value};
use crate::storage::Entry;
use ::time::OffsetDateTime;
use std::sync::LazyLock;

/// A port of endpoints: name, number, protocol, application protocol (empty if unset). Sorts by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Port {
    pub(crate) name: Str,
    pub(crate) number: i64,
    pub(crate) protocol: Str,
    pub(crate) application: Str,
}

impl Port {
    /// A port of an Endpoints object or of an EndpointSlice.
    pub(crate) fn from_value(port: &Value) -> Self {
        Self {
            name: port.str_at(&["name"]).into(),
            number: port.get("port").as_i64().unwrap_or_default(),
            protocol: protocol(port),
            application: port.str_at(&["appProtocol"]).into(),
        }
    }
}

/// The parts of a Service that its endpoints depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Sorted; empty if it selects nothing.
    pub(super) selector: Box<[Label]>,
    parts: Value,
}

const TOPOLOGY: [&str; 2] = [
    "service.kubernetes.io/topology-aware-hints",
    "service.kubernetes.io/topology-mode",
];

static SERVICE: LazyLock<Mask> = LazyLock::new(|| {
    let mut mask = Mask::of(&[
        "metadata.{name,uid,labels,creationTimestamp,deletionTimestamp}",
        "spec.{type,selector,ports,clusterIP,ipFamilies,publishNotReadyAddresses,trafficDistribution}",
    ]);
    for key in TOPOLOGY {
        mask.include(&["metadata".into(), "annotations".into(), key.into()]);
    }
    mask
});

impl Service {
    pub(super) fn from_entry(entry: &Entry) -> Self {
        Self::from_value(entry.decode_parts(&SERVICE))
    }

    pub(crate) fn from_value(parts: Value) -> Self {
        Self {
            selector: labels(parts.at(&["spec", "selector"])),
            parts,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.parts.name()
    }

    pub(crate) fn uid(&self) -> &str {
        self.parts.uid()
    }

    pub(crate) fn labels(&self) -> &Value {
        self.parts.at(&["metadata", "labels"])
    }

    pub(crate) fn is_being_deleted(&self) -> bool {
        self.parts.is_being_deleted()
    }

    pub(crate) fn created(&self) -> Option<OffsetDateTime> {
        time::parse(self.parts.meta("creationTimestamp")).ok()
    }

    fn spec(&self, key: &str) -> &str {
        self.parts.str_at(&["spec", key])
    }

    pub(crate) fn has_selector(&self) -> bool {
        !self.selector.is_empty()
    }

    /// Whether the loops write its endpoints; those of other Services come from elsewhere.
    pub(crate) fn has_endpoints(&self) -> bool {
        self.has_selector() && self.spec("type") != "ExternalName"
    }

    /// Without an address of its own.
    pub(crate) fn is_headless(&self) -> bool {
        // An empty address occurs on ExternalName Services only.
        matches!(self.spec("clusterIP"), "" | "None")
    }

    pub(crate) fn publishes_unready(&self) -> bool {
        self.parts.at(&["spec", "publishNotReadyAddresses"]).as_bool() == Some(true)
    }

    /// Whether an annotation requests hints by the size of zones, which takes precedence over
    /// `trafficDistribution`.
    pub(crate) fn has_topology_mode(&self) -> bool {
        // In order: the older annotation wins if both are set, as upstream.
        let mut annotations = TOPOLOGY.iter().filter_map(|key| self.parts.annotation(key));
        // Any other value disables hints.
        matches!(annotations.next(), Some("Auto" | "auto"))
    }

    /// `trafficDistribution`; empty if it is unset.
    pub(crate) fn traffic_distribution(&self) -> &str {
        self.spec("trafficDistribution")
    }

    /// The preference for close endpoints, whether it goes down to the Node; `None` without one.
    pub(crate) fn prefers_node(&self) -> Option<bool> {
        match self.traffic_distribution() {
            // Upstream's topology cache would compute these hints from the CPUs of zones; here there are none then.
            _ if self.has_topology_mode() => None,
            "PreferClose" | "PreferSameZone" => Some(false),
            "PreferSameNode" => Some(true),
            _ => None,
        }
    }

    /// Whether its addresses of a family are IPv6, the first family first.
    pub(crate) fn families(&self) -> Vec<bool> {
        let given = self.parts.at(&["spec", "ipFamilies"]).items().iter();
        let given: Vec<bool> = given
            .filter_map(|f| match f.as_str() {
                Some("IPv4") => Some(false),
                Some("IPv6") => Some(true),
                _ => None,
            })
            .collect();
        match (given.is_empty(), address(self.spec("clusterIP"))) {
            (false, _) => given,
            (true, Some(ip)) => vec![ip.is_ipv6()],
            // Headless without families, which only objects of before dual-stack have: both.
            (true, None) => vec![false, true],
        }
    }

    /// The ports of a Pod's endpoints. A port that the Pod does not have is left out. `None` for a Service
    /// that has no ports and is not headless.
    pub(crate) fn ports_of(&self, pod: &Pod) -> Option<Vec<Port>> {
        let ports = self.parts.at(&["spec", "ports"]).items();
        if ports.is_empty() && self.spec("clusterIP") != "None" {
            return None;
        }
        let of = |port: &Value| {
            let protocol = protocol(port);
            let number = match port.get("targetPort") {
                // Each Pod may define the name with another number, so endpoints are grouped by ports.
                Value::String(name) => pod.port(name, &protocol)?,
                number => number.as_i64().unwrap_or_default(),
            };
            Some(Port {
                name: port.str_at(&["name"]).into(),
                number,
                protocol,
                application: port.str_at(&["appProtocol"]).into(),
            })
        };
        Some(ports.iter().filter_map(of).collect())
    }

    /// Estimated size of its endpoints, in bytes of an encoded object: per Pod, and independent of the Pods.
    pub(super) fn sizes(&self) -> (usize, usize) {
        const POD: usize = 512;
        const MEMBER: usize = 64;
        let ports = self.parts.at(&["spec", "ports"]).items().len();
        let labels = self.labels().as_object().map_or(0, Map::len);
        (POD + ports * MEMBER, (labels + self.selector.len()) * MEMBER)
    }

    pub(crate) fn has_ports(&self) -> bool {
        !self.parts.at(&["spec", "ports"]).items().is_empty()
    }

    /// The host name of a Pod's endpoint.
    pub(crate) fn hostname_of<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        // DNS names of Pods exist only under the Service that is their subdomain.
        (!pod.hostname.is_empty() && pod.subdomain == self.name()).then_some(&*pod.hostname)
    }

    pub(super) fn selects(&self, pod: &Pod) -> bool {
        // Both are sorted, so thousands of labels cost their number times its logarithm.
        let has = |pair: &Label| pod.labels.binary_search(pair).is_ok();
        !self.selector.is_empty() && self.selector.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn named_ports_are_those_of_containers_and_sidecars() {
        let port = |name: &str, n: i64| json!([{"name": name, "containerPort": n, "protocol": "TCP"}]);
        let pod = Pod::from_value(&json!({"spec": {
            "containers": [{"ports": (port("web", 80))}],
            "initContainers": [{"ports": (port("side", 81)), "restartPolicy": "Always"}, {"ports": (port("setup", 82))}]}}));
        let service = Service::from_value(
            json!({"spec": {"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [
            {"name": "w", "port": 1, "targetPort": "web", "protocol": "TCP"},
            {"name": "u", "port": 1, "targetPort": "web", "protocol": "UDP"},
            {"name": "s", "port": 2, "targetPort": "side"},
            {"name": "i", "port": 3, "targetPort": "setup"},
            {"name": "n", "port": 4, "targetPort": 84}]}}),
        );
        let ports = service.ports_of(&pod).expect("it has ports");
        let found: Vec<(&str, i64)> = ports.iter().map(|p| (p.name.as_str(), p.number)).collect();
        assert_eq!(found, [("w", 80), ("s", 81), ("n", 84)]);
    }

    #[test]
    fn only_a_headless_service_may_be_without_ports() {
        let pod = Pod::from_value(&Value::object());
        let service = |ip: &str| Service::from_value(json!({"spec": {"clusterIP": ip}}));
        assert_eq!(service("None").ports_of(&pod), Some(Vec::new()));
        assert_eq!(service("10.0.0.1").ports_of(&pod), None);
    }

    #[test]
    fn families_default_to_that_of_the_address() {
        let families = |spec: Value| Service::from_value(json!({"spec": (spec)})).families();
        assert_eq!(families(json!({"ipFamilies": ["IPv6", "IPv4"]})), [true, false]);
        assert_eq!(families(json!({"clusterIP": "fd00::1"})), [true]);
        assert_eq!(families(json!({"clusterIP": "None"})), [false, true]);
    }

    /// With a comparison of each with each other one, this takes minutes.
    #[test]
    fn many_ports_and_labels_are_found_without_comparing_all() {
        const MANY: usize = 50_000;
        let labels: Map = (0..MANY).map(|n| (format!("l{n}"), Value::from("v"))).collect();
        let labels = Value::Object(labels);
        let named = |n: usize| json!({"name": (format!("p{n}")), "containerPort": 1, "protocol": "TCP"});
        let asked = |n: usize| json!({"name": (n.to_string()), "port": 1, "targetPort": (format!("p{n}"))});
        let (ports, wanted): (Vec<Value>, Vec<Value>) = (0..MANY).map(|n| (named(n), asked(n))).unzip();
        let pod = json!({"metadata": {"labels": (labels.clone())}, "spec": {"containers": [{"ports": (ports)}]}});
        let pod = Pod::from_value(&pod);
        let service = json!({"spec": {"clusterIP": "10.0.0.1", "selector": (labels), "ports": (wanted)}});
        let service = Service::from_value(service);
        assert!(service.selects(&pod));
        assert_eq!(service.ports_of(&pod).map(|all| all.len()), Some(MANY));
        assert!(
            service.sizes().0 > crate::controllers::sized::LARGE,
            "one Pod is already large"
        );
    }
}
