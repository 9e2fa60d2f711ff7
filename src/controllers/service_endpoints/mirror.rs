//! The EndpointSlices of Endpoints objects that users or other controllers write, for Services without
//! selectors (`pkg/controller/endpointslicemirroring`).
//!
//! A subset has one slice per address family; see `subsets` for the canonical subsets.

use super::legacy::EndpointsFlags;
use super::slices::{Endpoints, Plan, Ports, family_name, identity, ports_of, ports_value, same};
use super::subsets::{Subset, repack};
use super::workloads::{Workloads, address, namespace_of};
use super::{
    MANAGED_BY, OwnSlices, SERVICE_NAME, TRIGGER_TIME, WORKERS, Writes, carry_out, controller_reference, decoded,
    name_prefix, size_of, without,
};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::controllers::events::{Recorder, Reference};
use crate::controllers::loopback::{Failure, Loopback};
use crate::controllers::sized;
use crate::controllers::term::Term;
use crate::json;
use crate::storage::{Entry, MinRevision, Storage};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUE: &str = "endpoint_slice_mirroring";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Addresses of a subset that are mirrored; upstream's default.
const MAX: usize = 1000;
/// Upper bound of the cost of computing the slices per byte of the objects: canonical subsets are longer.
const EXPANSION: usize = 8;

/// State that the workers share.
struct Mirror {
    workloads: Arc<Workloads>,
    known: Informer<EndpointsFlags>,
    storage: Arc<dyn Storage>,
    own: Arc<OwnSlices>,
    api: Loopback,
    events: Recorder,
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let Some(own) = OwnSlices::follow(term, MANAGER, move |service| changed.add(service)) else {
        return;
    };
    let changed = queue.clone();
    let followed = term.inform(("", "endpoints"), EndpointsFlags::from_entry, |known| {
        known.subscribe(move |change: &Change<'_, EndpointsFlags>| {
            // Both sides: an object that is no longer mirrored loses its slices.
            let sides = [change.old, change.new].into_iter().flatten();
            if sides.into_iter().any(|e| is_mirrored(e)) {
                changed.add(change.key.into());
            }
        });
    });
    let (Some(known), Some(storage)) = (followed, term.storage("", "endpoints")) else {
        return;
    };
    let changed = queue.clone();
    let Some(workloads) = Workloads::follow(term, move |service| changed.add(service.into())) else {
        return;
    };
    let api = term.client("endpointslicemirroring-controller");
    let mirror = Arc::new(Mirror {
        workloads,
        known,
        storage,
        own,
        events: Recorder::new(&api, "endpoint-slice-mirroring-controller"),
        api,
    });
    term.process(QUEUE, &queue, WORKERS, move |service: Str| mirror.clone().sync(service));
}

fn is_mirrored(endpoints: &EndpointsFlags) -> bool {
    !endpoints.leader && !endpoints.skipped
}

impl Mirror {
    async fn sync(self: Arc<Self>, key: Str) -> Result<(), Failure> {
        self.workloads.ready().await;
        self.known.catch_up(&*self.storage).await;
        let namespace = namespace_of(&key);
        // Services with selectors have slices of their own; mirroring them, too, would double every endpoint.
        let wanted = self.known.get(&key).is_some_and(|e| is_mirrored(&e))
            && self.workloads.service(&key).is_some_and(|s| !s.has_selector());
        let existing = self.own.of(&key).await?;
        let endpoints = match wanted {
            true => self.storage.get(&key, MinRevision::Any).await?,
            false => None,
        };
        let (size, work) = work(endpoints, existing);
        let mirrored = sized::compute(size, work).await?;
        let uid = mirrored.uid;
        let object = Reference::new("v1", "Endpoints", &key, &uid);
        if mirrored.invalid > 0 {
            let message = format!(
                "Skipped {} invalid IP addresses when mirroring to EndpointSlices",
                mirrored.invalid
            );
            self.events.warn(&object, "InvalidIPAddress", &message).await;
        }
        // Invalid addresses alone have an event of their own, as upstream.
        if mirrored.skipped > mirrored.invalid {
            let message = format!(
                "A max of {MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                mirrored.skipped
            );
            self.events.warn(&object, "TooManyAddressesToMirror", &message).await;
        }
        carry_out(&self.api, namespace, mirrored.writes, mirrored.deleting, None).await
    }
}

/// The slices to write for an Endpoints object.
#[derive(Debug)]
struct Outcome {
    uid: Str,
    deleting: bool,
    writes: Writes,
    /// Addresses of the Endpoints that are not valid IP addresses.
    invalid: usize,
    /// Addresses without an endpoint: the invalid ones and those beyond the limit.
    skipped: usize,
}

/// The computation for an Endpoints object, and its approximate cost in bytes. Without the object, its slices are
/// deleted.
fn work(
    endpoints: Option<Arc<Entry>>,
    existing: Vec<Arc<Entry>>,
) -> (usize, impl FnOnce() -> Outcome + Send + 'static) {
    let size = endpoints.as_ref().map_or(0, |entry| sized::size(entry)) + size_of(&existing);
    let work = move || {
        let existing = decoded(&existing);
        let Some(endpoints) = endpoints.map(|entry| entry.decode()) else {
            let plan = Plan {
                delete: existing,
                ..Plan::default()
            };
            return Outcome {
                uid: Str::default(),
                deleting: true,
                writes: plan.into(),
                invalid: 0,
                skipped: 0,
            };
        };
        let mirrored = mirrored(&endpoints, existing);
        Outcome {
            uid: endpoints.uid().into(),
            deleting: endpoints.is_being_deleted(),
            writes: mirrored.plan.into(),
            invalid: mirrored.invalid,
            skipped: mirrored.skipped,
        }
    };
    (size.saturating_mul(EXPANSION), work)
}

/// The slices of an Endpoints object.
#[derive(Debug, Default)]
struct Mirrored {
    plan: Plan,
    /// Addresses that are not valid IP addresses.
    invalid: usize,
    /// Addresses that have no endpoint, invalid ones among them.
    skipped: usize,
}

fn mirrored(endpoints: &Value, existing: Vec<Value>) -> Mirrored {
    let mut out = Mirrored::default();
    let mut wanted: BTreeMap<(bool, Ports), Endpoints> = BTreeMap::new();
    let subsets: Vec<Subset> = endpoints
        .get("subsets")
        .items()
        .iter()
        .map(Subset::from_value)
        .collect();
    let packed = repack(&subsets);
    out.skipped += packed.left_out;
    for subset in packed.subsets {
        let ready = subset.ready.iter().map(|a| (a, true));
        let all = ready.chain(subset.unready.iter().map(|a| (a, false)));
        let (mut added, mut total) = (0, 0);
        let mut families = [Endpoints::new(), Endpoints::new()];
        for (address, ready) in all {
            total += 1;
            // Counted on, for the message of the event.
            if added >= MAX {
                continue;
            }
            match endpoint(address, ready) {
                Some((ipv6, endpoint)) => {
                    families[usize::from(ipv6)].insert(identity(&endpoint), endpoint);
                    added += 1;
                }
                None => out.invalid += 1,
            }
        }
        out.skipped += total - added;
        for (ipv6, mut group) in [false, true].into_iter().zip(families) {
            // Subsets with equal ports share a slice, so they are merged by ports.
            if !group.is_empty() {
                let known = wanted.entry((ipv6, subset.ports.clone())).or_default();
                known.append(&mut group);
            }
        }
    }
    let mut current: BTreeMap<(bool, Ports), Vec<Value>> = BTreeMap::new();
    for slice in existing {
        let ipv6 = slice.str_at(&["addressType"]) == "IPv6";
        current.entry((ipv6, ports_of(&slice))).or_default().push(slice);
    }
    for ((ipv6, ports), desired) in wanted {
        let mut old = current.remove(&(ipv6, ports.clone())).unwrap_or_default().into_iter();
        let first = old.next();
        // A group has one slice.
        out.plan.delete.extend(old);
        let wanted = slice(endpoints, &ports, ipv6, first.as_ref(), desired);
        match first {
            None => out.plan.create.push(wanted),
            Some(first) if is_current(&first, &wanted) => {}
            Some(_) => out.plan.update.push(wanted),
        }
    }
    // Slices of ports or families that the object no longer has.
    out.plan.delete.extend(current.into_values().flatten());
    // Any slice: `own` selects them by label and Service already.
    out.plan.reuse(|_| true);
    out
}

/// The endpoint of an address, and whether it is an IPv6 one; `None` if it is not an IP address.
fn endpoint(from: &Value, ready: bool) -> Option<(bool, Value)> {
    let ip = address(from.str_at(&["ip"]))?;
    let mut endpoint = json!({"addresses": [(ip.to_string())], "conditions": {"ready": ready}});
    for key in ["targetRef", "nodeName", "hostname"] {
        if !from.get(key).is_null() {
            endpoint.set(&[key], from.get(key).clone());
        }
    }
    Some((ip.is_ipv6(), endpoint))
}

/// The slice of a group. It replaces `old`.
fn slice(endpoints: &Value, ports: &Ports, ipv6: bool, old: Option<&Value>, desired: Endpoints) -> Value {
    let all: Vec<Value> = desired.into_values().collect();
    let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": (all),
        "addressType": (family_name(ipv6)), "metadata": {"namespace": (endpoints.namespace())}});
    slice.set(&["ports"], ports_value(ports));
    let mut labels = endpoints
        .at(&["metadata", "labels"])
        .as_object()
        .cloned()
        .unwrap_or_default();
    labels.insert(SERVICE_NAME, endpoints.name());
    labels.insert(MANAGED_BY, MANAGER);
    slice.set_meta("labels", labels);
    // As upstream: these two describe the Endpoints object itself.
    let annotations = without(endpoints.at(&["metadata", "annotations"]), &[TRIGGER_TIME, APPLIED]);
    if !annotations.is_empty() {
        slice.set_meta("annotations", annotations);
    }
    let owner = controller_reference("Endpoints", endpoints.name(), endpoints.uid());
    slice.set_meta("ownerReferences", owner);
    match old {
        Some(old) => slice.set_meta("name", old.name()),
        None => slice.set_meta("generateName", name_prefix(endpoints.name())),
    }
    slice
}

/// Whether a slice has the content that it should have.
fn is_current(slice: &Value, wanted: &Value) -> bool {
    // The order of the endpoints in a slice has no meaning.
    let by_identity = |slice: &Value| -> Endpoints {
        let all = slice.get("endpoints").items().iter();
        all.map(|e| (identity(e), e.clone())).collect()
    };
    let (current, desired) = (by_identity(slice), by_identity(wanted));
    // Not the ports and the family, by which the slice was found.
    let equal = ["labels", "annotations", "ownerReferences"]
        .iter()
        .all(|key| slice.at(&["metadata", key]) == wanted.at(&["metadata", key]));
    equal
        && current.len() == desired.len()
        && desired
            .iter()
            .all(|(id, e)| current.get(id).is_some_and(|c| same(c, e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(ips: &[&str]) -> Value {
        let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": (*ip)})).collect();
        json!({"metadata": {"name": "s", "namespace": "x", "uid": "u", "labels": {"a": "b"},
            "annotations": {(APPLIED): "all", "mine": "y"}},
            "subsets": [{"addresses": (addresses), "ports": [{"name": "p", "port": 80, "protocol": "TCP"}]}]})
    }

    fn stored(mut plan: Plan) -> Vec<Value> {
        for (i, slice) in plan.create.iter_mut().enumerate() {
            slice.set_meta("name", format!("s-{i}"));
        }
        plan.create
    }

    #[test]
    fn each_address_family_has_a_slice_with_the_endpoints_of_the_object() {
        let made = mirrored(&endpoints(&["10.0.0.1", "fd00::1", "010.0.0.2"]), Vec::new());
        let families: Vec<(&str, usize)> = made
            .plan
            .create
            .iter()
            .map(|s| (s.str_at(&["addressType"]), s.get("endpoints").items().len()))
            .collect();
        assert_eq!(families, [("IPv4", 2), ("IPv6", 1)]);
        let first = &made.plan.create[0];
        assert_eq!((first.label("a"), first.label(SERVICE_NAME)), (Some("b"), Some("s")));
        assert_eq!((first.annotation("mine"), first.annotation(APPLIED)), (Some("y"), None));
        assert_eq!(
            first.at(&["endpoints"]).items()[1].get("addresses"),
            &json!(["10.0.0.2"])
        );
        assert_eq!(first.meta("generateName"), "s-");
    }

    #[test]
    fn unchanged_slices_stay_and_others_are_updated_or_deleted() {
        let slices = stored(mirrored(&endpoints(&["10.0.0.1", "fd00::1"]), Vec::new()).plan);
        let same = mirrored(&endpoints(&["10.0.0.1", "fd00::1"]), slices.clone()).plan;
        assert!(same.create.is_empty() && same.update.is_empty() && same.delete.is_empty());
        let other = mirrored(&endpoints(&["10.0.0.2"]), slices.clone()).plan;
        assert_eq!((other.update.len(), other.delete.len()), (1, 1));
        assert_eq!(other.update[0].name(), "s-0");
        let mut new = endpoints(&["10.0.0.1", "fd00::1"]);
        new.set_meta("uid", "another");
        assert_eq!(
            mirrored(&new, slices).plan.update.len(),
            2,
            "the owner is another object"
        );
    }

    #[test]
    fn addresses_that_cannot_be_mirrored_are_counted() {
        let many: Vec<String> = (0..1005).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        let mut ips: Vec<&str> = many.iter().map(String::as_str).collect();
        ips.push("host");
        let made = mirrored(&endpoints(&ips), Vec::new());
        // Addresses sort as text, so the host name comes after the limit.
        assert_eq!((made.invalid, made.skipped), (0, 6));
        assert_eq!(made.plan.create[0].get("endpoints").items().len(), MAX);
        let made = mirrored(&endpoints(&["host"]), Vec::new());
        assert_eq!((made.invalid, made.skipped, made.plan.create.len()), (1, 1, 0));
    }

    #[test]
    fn a_subset_with_many_addresses_is_mirrored_off_the_reactor() {
        use crate::storage::{Draft, Revision};
        let entry = |count: usize| {
            let ips: Vec<String> = (0..count).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            Arc::new(Draft::new(&endpoints(&ips), Vec::new()).into_entry("x/s", Revision(1)))
        };
        let (few, _) = work(Some(entry(3)), Vec::new());
        let (many, made) = work(Some(entry(1000)), Vec::new());
        assert!(few < sized::LARGE && many >= sized::LARGE);
        assert_eq!(made().writes.create.len(), 1);
    }
}
