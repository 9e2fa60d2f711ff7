//! [`plan`]: which EndpointSlices of a Service to create, update and delete (`endpointslice/reconciler.go`).
//!
//! Endpoints stay in the slice that has them. A slice has the endpoints of one address family with equal
//! ports, at most [`MAX`]; a Service without endpoints has one empty slice per family.

mod counts;
mod endpoints;

pub(crate) use counts::Counts;
pub(crate) use endpoints::{Endpoints, identity, same};

use super::trigger;
use super::workloads::{Pod, Port, Service};
use super::{HEADLESS, MANAGED_BY, MANAGER, SERVICE_NAME, controller_reference, name_prefix, without};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::json;
use ::time::OffsetDateTime;
use endpoints::{endpoint, set_hints};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Endpoints of a slice; upstream's default.
pub(crate) const MAX: usize = 100;

/// The slices to write.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) create: Vec<Value>,
    pub(crate) update: Vec<Value>,
    pub(crate) delete: Vec<Value>,
    pub(crate) counts: Counts,
    /// Why a Pod was left out. Its Service is looked at again later.
    pub(crate) missing: Option<String>,
}

pub(crate) type Ports = Vec<Port>;

impl Plan {
    /// Sets the time of the change that the slices follow.
    pub(crate) fn mark(&mut self, at: Option<OffsetDateTime>) {
        for slice in self.create.iter_mut().chain(&mut self.update) {
            trigger::mark(slice, at);
        }
    }

    /// Reuses slices that would be deleted for ones that would be created. The address family of a slice
    /// cannot change, and a slice of another owner is deleted with that owner.
    pub(crate) fn reuse(&mut self, is_owned: impl Fn(&Value) -> bool) {
        // By family, since an object may have thousands of slices of each.
        let mut new: BTreeMap<Str, Vec<Value>> = BTreeMap::new();
        for slice in std::mem::take(&mut self.create) {
            let family = slice.str_at(&["addressType"]).into();
            new.entry(family).or_default().push(slice);
        }
        for old in std::mem::take(&mut self.delete) {
            let of = new.get_mut(old.str_at(&["addressType"])).filter(|_| is_owned(&old));
            match of.and_then(Vec::pop) {
                Some(mut new) => {
                    new.set_meta("name", old.name());
                    self.update.push(new);
                }
                None => self.delete.push(old),
            }
        }
        self.create = new.into_values().flatten().collect();
    }
}

/// The ports of a slice, in an order of their own.
pub(crate) fn ports_of(slice: &Value) -> Ports {
    sorted(slice.get("ports").items().iter().map(Port::from_value).collect())
}

fn sorted(mut ports: Ports) -> Ports {
    ports.sort();
    ports
}

/// The ports as a slice has them.
pub(crate) fn ports_value(ports: &[Port]) -> Value {
    let all = ports.iter().map(|p| {
        let mut port = json!({"name": (p.name.as_str()), "port": (p.number), "protocol": (p.protocol.as_str())});
        if !p.application.is_empty() {
            port.set(&["appProtocol"], p.application.as_str());
        }
        port
    });
    Value::Array(all.collect())
}

pub(crate) fn family_name(ipv6: bool) -> &'static str {
    if ipv6 { "IPv6" } else { "IPv4" }
}

/// The slices of a Service. `zone` is the zone of a Node, `None` if there is no such Node.
pub(crate) fn plan(
    service: &Service,
    namespace: &str,
    pods: &[Arc<Pod>],
    zone: impl Fn(&str) -> Option<Str>,
    existing: Vec<Value>,
) -> Plan {
    let mut plan = Plan::default();
    let families = service.families();
    let mut by_family: BTreeMap<bool, Vec<Value>> = families.iter().map(|f| (*f, Vec::new())).collect();
    for slice in existing {
        let ipv6 = slice.str_at(&["addressType"]) == "IPv6";
        match by_family.get_mut(&ipv6) {
            Some(of) if slice.str_at(&["addressType"]) == family_name(ipv6) => of.push(slice),
            // A family that the Service lost, or the deprecated type FQDN.
            _ => plan.delete.push(slice),
        }
    }
    for (ipv6, existing) in by_family {
        let mut groups: BTreeMap<Ports, Endpoints> = BTreeMap::new();
        for pod in pods.iter().filter(|p| !p.unreachable) {
            let ports = sorted(service.ports_of(pod).unwrap_or_default());
            let group = groups.entry(ports).or_default();
            let zone = zone(&pod.node);
            // The Node may only not have been seen yet. Writing the endpoint without its zone would route across
            // zones until the next change.
            if zone.is_none() && !service.publishes_unready() {
                plan.missing = Some(format!(
                    "skipping Pod {} for Service {namespace}/{}: Node {} Not Found",
                    pod.name,
                    service.name(),
                    pod.node
                ));
                continue;
            }
            if let Some(endpoint) = endpoint(pod, service, namespace, zone.as_ref(), ipv6) {
                group.insert(identity(&endpoint), endpoint);
            }
        }
        let of_family = Family {
            service,
            namespace,
            ipv6,
        };
        let changes = of_family.plan(groups, existing);
        plan.create.extend(changes.create);
        plan.update.extend(changes.update);
        plan.delete.extend(changes.delete);
        plan.counts += changes.counts;
    }
    plan
}

/// The slices of one address family.
struct Family<'a> {
    service: &'a Service,
    namespace: &'a str,
    ipv6: bool,
}

impl Family<'_> {
    fn plan(&self, groups: BTreeMap<Ports, Endpoints>, existing: Vec<Value>) -> Plan {
        let mut plan = Plan::default();
        let mut unchanged = Vec::new();
        let mut slices: BTreeMap<Ports, Vec<Value>> = BTreeMap::new();
        for slice in existing {
            match self.owns(&slice) {
                true => slices.entry(ports_of(&slice)).or_default().push(slice),
                // It belongs to a deleted Service of this name: garbage collection would delete it anyway, but later.
                false => plan.delete.push(slice),
            }
        }
        for (ports, endpoints) in groups {
            let existing = slices.remove(&ports).unwrap_or_default();
            plan.counts.want(endpoints.len());
            self.plan_group(&ports, endpoints, existing, &mut plan, &mut unchanged);
        }
        plan.counts.slices = unchanged.len() + plan.update.len() + plan.create.len();
        plan.delete.extend(slices.into_values().flatten());
        // Upstream keeps a placeholder, by which clients can tell "no endpoints" from "not computed yet".
        if unchanged.is_empty() && plan.update.is_empty() && plan.create.is_empty() {
            let empty = self.empty(&[]);
            plan.counts.slices = 1;
            match plan.delete.as_slice() {
                [only] if is_placeholder(only, &empty) => plan.delete.clear(),
                _ => plan.create.push(empty),
            }
        }
        let prefers = self.service.prefers_node();
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            set_hints(slice, prefers);
        }
        // A changed `trafficDistribution` alone makes a slice change.
        for mut slice in unchanged {
            if set_hints(&mut slice, prefers) {
                plan.update.push(slice);
            }
        }
        plan.reuse(|slice| self.owns(slice));
        plan
    }

    /// Plans the slices with equal ports.
    fn plan_group(
        &self,
        ports: &[Port],
        mut desired: Endpoints,
        existing: Vec<Value>,
        plan: &mut Plan,
        unchanged: &mut Vec<Value>,
    ) {
        let mut updated = Vec::new();
        let mut kept = Vec::new();
        for mut slice in existing {
            let before = slice.get("endpoints").items();
            let mut changed = false;
            let mut endpoints = Vec::with_capacity(before.len());
            for endpoint in before {
                // Removed as they are found: what remains in `desired` has no slice yet.
                match desired.remove(&identity(endpoint)) {
                    Some(wanted) if same(&wanted, endpoint) => endpoints.push(endpoint.clone()),
                    Some(wanted) => {
                        changed = true;
                        endpoints.push(wanted);
                    }
                    None => changed = true,
                }
            }
            plan.counts.removed += before.len() - endpoints.len();
            let (labels, relabelled) = self.labels(&slice);
            // `reuse` may turn it into an update for other endpoints.
            if changed && endpoints.is_empty() {
                plan.delete.push(slice);
            } else if changed || relabelled {
                slice.set(&["endpoints"], endpoints);
                slice.set_meta("labels", labels);
                updated.push(slice);
            } else {
                kept.push(slice);
            }
        }
        plan.counts.added += desired.len();
        // The fullest first, so that few slices change again.
        updated.sort_by_key(|slice| std::cmp::Reverse(length(slice)));
        for slice in &mut updated {
            fill(slice, &mut desired);
        }
        while !desired.is_empty() {
            let room = |slice: &Value| MAX.checked_sub(length(slice) + desired.len());
            let fitting = kept.iter().enumerate().filter_map(|(i, s)| Some((room(s)?, i)));
            // The fullest slice that takes all of the rest; a full slice's worth gets a new one (upstream's
            // `getSliceToFill`).
            match fitting.min().filter(|_| desired.len() < MAX) {
                Some((_, i)) => {
                    let mut slice = kept.swap_remove(i);
                    fill(&mut slice, &mut desired);
                    updated.push(slice);
                }
                None => {
                    let mut slice = self.empty(ports);
                    fill(&mut slice, &mut desired);
                    plan.create.push(slice);
                }
            }
        }
        plan.update.append(&mut updated);
        unchanged.append(&mut kept);
    }

    fn owns(&self, slice: &Value) -> bool {
        let owners = slice.at(&["metadata", "ownerReferences"]).items();
        owners
            .iter()
            // By UID: a Service that was deleted and created anew does not own the old slices.
            .any(|o| o.str_at(&["uid"]) == self.service.uid() && o.kind() == "Service" && o.api_version() == "v1")
    }

    /// The labels that a slice should have, and whether they differ in others than our own.
    fn labels(&self, slice: &Value) -> (Value, bool) {
        let reserved = [SERVICE_NAME, MANAGED_BY, HEADLESS];
        let mut labels = without(self.service.labels(), &reserved);
        let differ = labels != without(slice.at(&["metadata", "labels"]), &reserved);
        if self.service.is_headless() {
            labels.insert(HEADLESS, "");
        }
        labels.insert(SERVICE_NAME, self.service.name());
        labels.insert(MANAGED_BY, MANAGER);
        (labels.into(), differ)
    }

    fn empty(&self, ports: &[Port]) -> Value {
        let service = self.service;
        let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": [],
            "addressType": (family_name(self.ipv6)), "metadata": {"namespace": (self.namespace)}});
        slice.set(&["ports"], ports_value(ports));
        slice.set_meta("generateName", name_prefix(service.name()));
        slice.set_meta("labels", self.labels(&Value::Null).0);
        let owner = controller_reference("Service", service.name(), service.uid());
        slice.set_meta("ownerReferences", owner);
        slice
    }
}

fn length(slice: &Value) -> usize {
    slice.get("endpoints").items().len()
}

/// Moves endpoints into a slice until it is full.
pub(crate) fn fill(slice: &mut Value, desired: &mut Endpoints) {
    let mut endpoints = slice.get("endpoints").items().to_vec();
    while endpoints.len() < MAX
        && let Some((_, endpoint)) = desired.pop_first()
    {
        endpoints.push(endpoint);
    }
    slice.set(&["endpoints"], endpoints);
}

/// Whether a slice already is the empty one of its family.
fn is_placeholder(slice: &Value, empty: &Value) -> bool {
    let labels = ["metadata", "labels"];
    length(slice) == 0
        && slice.get("ports").items().is_empty()
        && slice.get("addressType") == empty.get("addressType")
        && slice.at(&labels) == empty.at(&labels)
}

#[cfg(test)]
mod tests;
