//! [`Workloads`]: the Services and Pods, and which of them belong together. Shared by the loops that write Endpoints and
//! EndpointSlices.

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::controllers::term::Term;
use crate::storage::Entry;
use ::time::OffsetDateTime;
use arc_swap::ArcSwap;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex};

/// The value of a label.
type Label = (Str, Str);
type Observer = Arc<dyn Fn(&str) + Send + Sync>;

/// The parts of a Pod that its endpoints show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: Str,
    pub uid: Str,
    pub labels: Box<[Label]>,
    /// Empty until the Pod is scheduled.
    pub node: Str,
    pub hostname: Str,
    pub subdomain: Str,
    pub ips: Box<[IpAddr]>,
    /// Has ended, or has no address yet.
    pub unreachable: bool,
    pub deleting: bool,
    pub ready: bool,
    /// Since when it is ready or not.
    pub since: Option<OffsetDateTime>,
    /// Named ports of containers: name, protocol, number.
    pub ports: Box<[(Str, Str, i64)]>,
}

static POD: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.{name,uid,labels,deletionTimestamp}",
        "spec.{nodeName,hostname,subdomain}",
        "spec.containers.ports",
        "spec.initContainers.{ports,restartPolicy}",
        "status.{phase,conditions,podIP,podIPs}",
    ])
});

impl Pod {
    fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode_parts(&POD))
    }

    pub fn from_value(pod: &Value) -> Self {
        let spec = |key| Str::from(pod.str_at(&["spec", key]));
        let status = pod.get("status");
        let ips = status.get("podIPs").items();
        let ended = matches!(status.str_at(&["phase"]), "Succeeded" | "Failed");
        let ready = conditions::find(pod, "Ready");
        let sidecars = pod.at(&["spec", "initContainers"]).items().iter();
        let sidecars = sidecars.filter(|c| c.str_at(&["restartPolicy"]) == "Always");
        let containers = pod.at(&["spec", "containers"]).items().iter().chain(sidecars);
        let ports = containers.flat_map(|c| c.get("ports").items());
        let ports = ports.filter(|p| !p.str_at(&["name"]).is_empty()).map(|p| {
            let number = p.get("containerPort").as_i64().unwrap_or_default();
            (p.str_at(&["name"]).into(), protocol(p), number)
        });
        Self {
            name: pod.name().into(),
            uid: pod.uid().into(),
            labels: labels(pod.at(&["metadata", "labels"])),
            node: spec("nodeName"),
            hostname: spec("hostname"),
            subdomain: spec("subdomain"),
            ips: ips.iter().filter_map(|ip| address(ip.str_at(&["ip"]))).collect(),
            unreachable: ended || status.str_at(&["podIP"]).is_empty() && ips.is_empty(),
            deleting: pod.is_being_deleted(),
            ready: conditions::holds(pod, "Ready"),
            since: ready.and_then(|c| time::parse(c.str_at(&["lastTransitionTime"])).ok()),
            ports: ports.collect(),
        }
    }

    /// The number of a port that a Service names.
    fn port(&self, name: &str, protocol: &str) -> Option<i64> {
        let found = self.ports.iter().find(|(n, p, _)| n == name && p == protocol);
        found.map(|(_, _, number)| *number)
    }
}

/// Reads an address as upstream does, which takes an IPv4 address that is written as an IPv6 one for what it is.
pub fn address(text: &str) -> Option<IpAddr> {
    parse_ip(text).map(|ip| ip.to_canonical())
}

/// The protocol of a port.
pub fn protocol(port: &Value) -> Str {
    match port.str_at(&["protocol"]) {
        "" => "TCP".into(),
        other => other.into(),
    }
}

fn labels(map: &Value) -> Box<[Label]> {
    let pairs = map.as_object().into_iter().flat_map(|m| m.iter());
    pairs
        .map(|(k, v)| (k.into(), v.as_str().unwrap_or_default().into()))
        .collect()
}

/// A port of endpoints: name, number, protocol, application protocol (empty if unset). Sorts by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    pub name: Str,
    pub number: i64,
    pub protocol: Str,
    pub application: Str,
}

impl Port {
    /// A port of an Endpoints object or of an EndpointSlice.
    pub fn from_value(port: &Value) -> Self {
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
pub struct Service {
    /// Sorted; empty if it selects nothing.
    selector: Box<[Label]>,
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
    fn from_entry(entry: &Entry) -> Self {
        Self::from_value(entry.decode_parts(&SERVICE))
    }

    pub fn from_value(parts: Value) -> Self {
        Self {
            selector: labels(parts.at(&["spec", "selector"])),
            parts,
        }
    }

    pub fn name(&self) -> &str {
        self.parts.name()
    }

    pub fn uid(&self) -> &str {
        self.parts.uid()
    }

    pub fn labels(&self) -> &Value {
        self.parts.at(&["metadata", "labels"])
    }

    pub fn is_being_deleted(&self) -> bool {
        self.parts.is_being_deleted()
    }

    pub fn created(&self) -> Option<OffsetDateTime> {
        time::parse(self.parts.meta("creationTimestamp")).ok()
    }

    fn spec(&self, key: &str) -> &str {
        self.parts.str_at(&["spec", key])
    }

    pub fn has_selector(&self) -> bool {
        !self.selector.is_empty()
    }

    /// Whether the loops write its endpoints; those of other Services come from elsewhere.
    pub fn has_endpoints(&self) -> bool {
        self.has_selector() && self.spec("type") != "ExternalName"
    }

    /// Without an address of its own.
    pub fn is_headless(&self) -> bool {
        matches!(self.spec("clusterIP"), "" | "None")
    }

    pub fn publishes_unready(&self) -> bool {
        self.parts.at(&["spec", "publishNotReadyAddresses"]).as_bool() == Some(true)
    }

    /// The preference for close endpoints, whether it goes down to the Node; `None` without one.
    pub fn prefers_node(&self) -> Option<bool> {
        let mut annotations = TOPOLOGY.iter().filter_map(|key| self.parts.annotation(key));
        if matches!(annotations.next(), Some("Auto" | "auto")) {
            return None;
        }
        match self.spec("trafficDistribution") {
            "PreferClose" | "PreferSameZone" => Some(false),
            "PreferSameNode" => Some(true),
            _ => None,
        }
    }

    /// Whether its addresses of a family are IPv6, the first family first.
    pub fn families(&self) -> Vec<bool> {
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
            (true, None) => vec![false, true],
        }
    }

    /// The ports of a Pod's endpoints. A port that the Pod does not have is left out. `None` for a Service that has no ports
    /// and is not headless.
    pub fn ports_of(&self, pod: &Pod) -> Option<Vec<Port>> {
        let ports = self.parts.at(&["spec", "ports"]).items();
        if ports.is_empty() && self.spec("clusterIP") != "None" {
            return None;
        }
        let of = |port: &Value| {
            let protocol = protocol(port);
            let number = match port.get("targetPort") {
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

    pub fn has_ports(&self) -> bool {
        !self.parts.at(&["spec", "ports"]).items().is_empty()
    }

    /// The host name of a Pod's endpoint.
    pub fn hostname_of<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        (!pod.hostname.is_empty() && pod.subdomain == self.name()).then_some(&*pod.hostname)
    }

    fn selects(&self, pod: &Pod) -> bool {
        let has = |pair: &Label| pod.labels.contains(pair);
        !self.selector.is_empty() && self.selector.iter().all(has)
    }
}

/// Keys by namespace and label.
#[derive(Default)]
struct ByLabel(HashMap<(Str, Label), BTreeSet<Str>>);

impl ByLabel {
    fn add(&mut self, namespace: &str, label: &Label, key: &str) {
        let keys = self.0.entry((namespace.into(), label.clone())).or_default();
        keys.insert(key.into());
    }

    fn remove(&mut self, namespace: &str, label: &Label, key: &str) {
        let at = (Str::from(namespace), label.clone());
        if let Some(keys) = self.0.get_mut(&at) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(&at);
            }
        }
    }

    fn get(&self, namespace: &str, label: &Label) -> Option<&BTreeSet<Str>> {
        self.0.get(&(namespace.into(), label.clone()))
    }
}

/// Pods by each of their labels, and Services by the first of their selector.
#[derive(Default)]
struct Index {
    pods: ByLabel,
    services: ByLabel,
}

/// The Services and Pods of all namespaces.
pub struct Workloads {
    services: Informer<Service>,
    pods: Informer<Pod>,
    index: Mutex<Index>,
    observers: ArcSwap<Vec<Observer>>,
}

impl Workloads {
    /// The workloads of a term. Calls `changed` with the key of each Service that was changed, or one of whose Pods was.
    pub fn follow(term: &Term, changed: impl Fn(&str) + Send + Sync + 'static) -> Option<Arc<Self>> {
        let shared = term.shared("workloads", || {
            Some(Arc::new(Self {
                services: term.inform(("", "services"), Service::from_entry, |_| {})?,
                pods: term.inform(("", "pods"), Pod::from_entry, |_| {})?,
                index: Mutex::default(),
                observers: ArcSwap::default(),
            }))
        })?;
        let own: Arc<Self> = (*shared).clone();
        if own.observers.load().is_empty() {
            let of = own.clone();
            own.services
                .subscribe(move |change: &Change<'_, Service>| of.service_changed(change));
            let of = own.clone();
            own.pods
                .subscribe(move |change: &Change<'_, Pod>| of.pod_changed(change));
        }
        let mut observers = Vec::clone(&own.observers.load());
        observers.push(Arc::new(changed));
        own.observers.store(Arc::new(observers));
        Some(own)
    }

    /// Waits until everything is known.
    pub async fn ready(&self) {
        self.services.synced().wait().await;
        self.pods.synced().wait().await;
    }

    pub fn service(&self, key: &str) -> Option<Arc<Service>> {
        self.services.get(key)
    }

    /// The Pods that a Service selects, by name.
    pub fn pods_of(&self, key: &str, service: &Service) -> Vec<Arc<Pod>> {
        let candidates: Vec<Str> = self.candidates(key, service, |keys| keys.iter().cloned().collect());
        let all = self.pods.snapshot();
        let pods = candidates.iter().filter_map(|key| all.get(&**key));
        pods.filter(|pod| service.selects(pod)).cloned().collect()
    }

    /// About how many Pods a Service selects.
    pub fn count(&self, key: &str, service: &Service) -> usize {
        self.candidates(key, service, BTreeSet::len)
    }

    /// `f` of the Pods with the rarest label of the selector.
    fn candidates<T: Default>(&self, key: &str, service: &Service, f: impl FnOnce(&BTreeSet<Str>) -> T) -> T {
        let namespace = namespace_of(key);
        let index = self.index.lock().expect("no code panics while holding this lock");
        let sets = service.selector.iter().map(|label| index.pods.get(namespace, label));
        let rarest = sets.min_by_key(|keys| keys.map_or(0, BTreeSet::len));
        rarest.flatten().map(f).unwrap_or_default()
    }

    fn service_changed(&self, change: &Change<'_, Service>) {
        if change.old == change.new {
            return;
        }
        {
            let mut index = self.index.lock().expect("no code panics while holding this lock");
            let first = |s: &Arc<Service>| s.selector.first().cloned();
            if let Some(label) = change.old.and_then(first) {
                index.services.remove(namespace_of(change.key), &label, change.key);
            }
            if let Some(label) = change.new.and_then(first) {
                index.services.add(namespace_of(change.key), &label, change.key);
            }
        }
        self.notify(change.key);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        if change.old == change.new {
            return;
        }
        let namespace = namespace_of(change.key);
        let candidates: BTreeSet<Str> = {
            let mut index = self.index.lock().expect("no code panics while holding this lock");
            for label in change.old.iter().flat_map(|pod| pod.labels.iter()) {
                index.pods.remove(namespace, label, change.key);
            }
            for label in change.new.iter().flat_map(|pod| pod.labels.iter()) {
                index.pods.add(namespace, label, change.key);
            }
            let sides = [change.old, change.new].into_iter().flatten();
            let labels = sides.flat_map(|pod| pod.labels.iter());
            let services = labels.filter_map(|label| index.services.get(namespace, label));
            services.flatten().cloned().collect()
        };
        let all = self.services.snapshot();
        for key in candidates {
            let selects = |pod: Option<&Arc<Pod>>| pod.is_some_and(|p| all.get(&*key).is_some_and(|s| s.selects(p)));
            if selects(change.old) || selects(change.new) {
                self.notify(&key);
            }
        }
    }

    fn notify(&self, service: &str) {
        for observer in self.observers.load().iter() {
            observer(service);
        }
    }
}

/// The namespace of a key.
pub fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
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
}
