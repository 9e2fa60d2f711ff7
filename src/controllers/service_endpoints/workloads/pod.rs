//! [`Pod`]: the informer's record of a Pod, with the fields that its endpoints depend on.

use super::{Label, labels};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use ::time::OffsetDateTime;
use std::net::IpAddr;
use std::sync::LazyLock;

/// The fields of a Pod that its endpoints depend on. A change of other fields must not compare as different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: Str,
    pub(crate) uid: Str,
    pub(crate) labels: Box<[Label]>,
    /// Empty until the Pod is scheduled.
    pub(crate) node: Str,
    pub(crate) hostname: Str,
    pub(crate) subdomain: Str,
    pub(crate) ips: Box<[IpAddr]>,
    /// Has ended, or has no address yet.
    pub(crate) unreachable: bool,
    pub(crate) deleting: bool,
    pub(crate) ready: bool,
    /// Since when it is ready or not.
    pub(crate) since: Option<OffsetDateTime>,
    /// Named ports of containers: name, protocol, number. Sorted; of several with a name, the first one counts.
    pub(crate) ports: Box<[(Str, Str, i64)]>,
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
    pub(super) fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode_parts(&POD))
    }

    pub(crate) fn from_value(pod: &Value) -> Self {
        let spec = |key| Str::from(pod.str_at(&["spec", key]));
        let status = pod.get("status");
        let ips = status.get("podIPs").items();
        let ended = matches!(status.str_at(&["phase"]), "Succeeded" | "Failed");
        let ready = conditions::find(pod, "Ready");
        let sidecars = pod.at(&["spec", "initContainers"]).items().iter();
        // Restartable init containers run as long as the Pod, so their ports count (upstream's `FindPort`).
        let sidecars = sidecars.filter(|c| c.str_at(&["restartPolicy"]) == "Always");
        let containers = pod.at(&["spec", "containers"]).items().iter().chain(sidecars);
        let ports = containers.flat_map(|c| c.get("ports").items());
        let ports = ports.filter(|p| !p.str_at(&["name"]).is_empty()).map(|p| {
            let number = p.get("containerPort").as_i64().unwrap_or_default();
            (p.str_at(&["name"]).into(), protocol(p), number)
        });
        let mut ports: Vec<(Str, Str, i64)> = ports.collect();
        // A stable sort, so `dedup` keeps the first container's port.
        ports.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        ports.dedup_by(|later, first| (&later.0, &later.1) == (&first.0, &first.1));
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
            // The condition includes readiness gates, unlike the readiness of containers.
            ready: conditions::holds(pod, "Ready"),
            since: ready.and_then(|c| time::parse(c.str_at(&["lastTransitionTime"])).ok()),
            ports: ports.into(),
        }
    }

    /// The number of a port that a Service names.
    pub(super) fn port(&self, name: &str, protocol: &str) -> Option<i64> {
        // A Pod and a Service may both have thousands of ports.
        let found = self
            .ports
            .binary_search_by(|(n, p, _)| (n.as_str(), p.as_str()).cmp(&(name, protocol)));
        found.ok().map(|at| self.ports[at].2)
    }
}

/// Parses an address as upstream does: an IPv4 address in IPv6 notation counts as IPv4.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    parse_ip(text).map(|ip| ip.to_canonical())
}

/// The protocol of a port.
pub(crate) fn protocol(port: &Value) -> Str {
    match port.str_at(&["protocol"]) {
        "" => "TCP".into(),
        other => other.into(),
    }
}
