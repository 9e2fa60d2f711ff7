//! The Endpoints objects of Services with selectors (upstream's `endpoints_controller.go`). They have the addresses
//! of the Service's first family only. `subsets` brings them into their canonical form.

use super::subsets::{Subset, repack, truncate};
use super::trigger::{self, TriggerTimes};
use super::workloads::{Pod, Service, Workloads, namespace_of};
use super::{HEADLESS, WORKERS, without};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::controllers::events::{Recorder, Reference};
use crate::controllers::loopback::{Failure, Loopback, Path, encode, found};
use crate::controllers::sized;
use crate::controllers::term::Term;
use crate::json;
use crate::storage::{Entry, MinRevision, Storage};
use std::sync::{Arc, LazyLock};

const QUEUE: &str = "endpoint";
const MANAGER: &str = "endpoint-controller";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The informers' record of an Endpoints object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointsFlags {
    /// It is the lock of a leader election; it has no Service and must not be deleted for that.
    pub(crate) leader: bool,
    /// Its label disables mirroring to EndpointSlices.
    pub(crate) skipped: bool,
}

impl EndpointsFlags {
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        static PARTS: LazyLock<Mask> = LazyLock::new(|| {
            let mut mask = Mask::default();
            mask.include(&["metadata".into(), "annotations".into(), LEADER.into()]);
            mask
        });
        Self {
            leader: entry.decode_parts(&PARTS).annotation(LEADER).is_some(),
            skipped: entry.label(SKIP_MIRROR) == Some("true"),
        }
    }
}

/// State that the workers share.
struct Endpoints {
    workloads: Arc<Workloads>,
    known: Informer<EndpointsFlags>,
    storage: Arc<dyn Storage>,
    times: TriggerTimes,
    api: Loopback,
    events: Recorder,
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let known = term.inform(("", "endpoints"), EndpointsFlags::from_entry, |known| {
        known.subscribe(move |change: &Change<'_, EndpointsFlags>| {
            // Those that exist at the start may have lost their Service before.
            let added = change.old.is_none() && change.new.is_some_and(|e| !e.leader);
            if added || change.new.is_none() {
                changed.add(change.key.into());
            }
        });
    });
    let (Some(known), Some(storage)) = (known, term.storage("", "endpoints")) else {
        return;
    };
    let changed = queue.clone();
    let Some(workloads) = Workloads::follow(term, move |service| changed.add(service.into())) else {
        return;
    };
    let api = term.client("endpoint-controller");
    let endpoints = Arc::new(Endpoints {
        workloads,
        known,
        storage,
        times: TriggerTimes::default(),
        events: Recorder::new(&api, MANAGER),
        api,
    });
    term.process(QUEUE, &queue, WORKERS, move |service: Str| {
        endpoints.clone().sync(service)
    });
}

impl Endpoints {
    async fn sync(self: Arc<Self>, key: Str) -> Result<(), Failure> {
        self.workloads.ready().await;
        // Otherwise the object that the last pass created would be created again.
        self.known.catch_up(&*self.storage).await;
        let Some((namespace, name)) = key.split_once('/') else {
            return Ok(());
        };
        let path = Path::core(namespace, "endpoints");
        let Some(service) = self.workloads.service(&key) else {
            self.times.forget(&key);
            if self.known.get(&key).is_some() {
                found(self.api.delete(path.name(name), &Value::object()).await)?;
            }
            return Ok(());
        };
        if !service.has_endpoints() {
            return Ok(());
        }
        let live = self.storage.get(&key, MinRevision::Any).await?;
        let exists = live.is_some();
        let size = self.workloads.size(&key, &service) + live.as_ref().map_or(0, |entry| sized::size(entry));
        let (own, of, at) = (self.clone(), service.clone(), key.clone());
        let wanted = sized::compute(size, move || {
            let live = live.map(|entry| entry.decode());
            let pods = own.workloads.pods_of(&at, &of);
            let changed_at = own.times.update(&at, &of, &pods);
            let mut wanted = corrected(&of, namespace_of(&at), &pods, live.as_ref())?;
            trigger::mark(&mut wanted, changed_at);
            (live.as_ref() != Some(&wanted)).then(|| (Str::from(wanted.uid()), encode(&wanted)))
        })
        .await?;
        let Some((uid, wanted)) = wanted else { return Ok(()) };
        let (written, reason, verb) = match exists {
            false => (
                self.api.create(path, wanted).await,
                "FailedToCreateEndpoint",
                "create endpoint for service",
            ),
            true => {
                let written = self.api.replace(path.name(name), wanted).await;
                (written, "FailedToUpdateEndpoint", "update endpoint")
            }
        };
        let Err(failed) = written else { return Ok(()) };
        if failed.has_reason("NamespaceTerminating") {
            return Ok(());
        }
        let message = format!("Failed to {verb} {key}: {failed}");
        let object = Reference::new("v1", "Endpoints", &key, &uid);
        self.events.warn(&object, reason, &message).await;
        Err(failed)
    }
}

/// The subsets of a Service.
fn subsets(service: &Service, namespace: &str, pods: &[Arc<Pod>]) -> Vec<Subset> {
    // `families` is never empty.
    let ipv6 = service.families()[0];
    let mut all = Vec::new();
    for pod in pods.iter().filter(|p| !p.unreachable) {
        if pod.deleting && !service.publishes_unready() {
            continue;
        }
        let Some(ip) = pod.ips.iter().find(|ip| ip.is_ipv6() == ipv6) else {
            continue;
        };
        // A Service without ports that is not headless: nothing can be reached.
        let Some(ports) = service.ports_of(pod) else { continue };
        let mut address = json!({"ip": (ip.to_string()), "targetRef": {"kind": "Pod", "namespace": namespace,
            "name": (pod.name.as_str()), "uid": (pod.uid.as_str())}});
        for (key, value) in [
            ("nodeName", pod.node.as_str()),
            ("hostname", service.hostname_of(pod).unwrap_or_default()),
        ] {
            if !value.is_empty() {
                address.set(&[key], value);
            }
        }
        let (ready, unready) = match service.publishes_unready() || pod.ready {
            true => (vec![address], Vec::new()),
            false => (Vec::new(), vec![address]),
        };
        // A Pod that has none of the ports is left out.
        if !(ports.is_empty() && service.has_ports()) {
            all.push(Subset { ready, unready, ports });
        }
    }
    // Truncation leaves fewer addresses than fit.
    repack(&all).subsets
}

/// The object as it should be; `None` if it is.
fn corrected(service: &Service, namespace: &str, pods: &[Arc<Pod>], live: Option<&Value>) -> Option<Value> {
    let mut wanted = subsets(service, namespace, pods);
    if let Some(live) = live {
        let current: Vec<Subset> = live.get("subsets").items().iter().map(Subset::from_value).collect();
        let count: usize = current.iter().map(|s| s.ready.len() + s.unready.len()).sum();
        let marked = live.annotation(OVER_CAPACITY).is_some();
        // Lazy, because repacking costs more than the other checks.
        let same = || versionless(repack(&current).subsets) == wanted;
        if count <= super::subsets::MAX
            && !marked
            && same()
            && are_correct(live.at(&["metadata", "labels"]), service.labels())
        {
            return None;
        }
    }
    let mut object = live.cloned().unwrap_or_else(|| {
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": (service.name()), "namespace": namespace}})
    });
    match truncate(&mut wanted) {
        true => object.set(&["metadata", "annotations", OVER_CAPACITY], "truncated"),
        false => drop(object.unset(&["metadata", "annotations", OVER_CAPACITY])),
    }
    let subsets: Vec<Value> = wanted.iter().map(Subset::to_value).collect();
    match subsets.is_empty() {
        true => drop(object.unset(&["subsets"])),
        false => object.set(&["subsets"], subsets),
    }
    let mut labels = service.labels().as_object().cloned().unwrap_or_default();
    match service.is_headless() {
        true => labels.insert(HEADLESS, ""),
        // It may be one of the Service's own labels.
        false => labels.remove(HEADLESS),
    };
    // Tells EndpointSlice mirroring and users that the object is generated.
    labels.insert(MANAGED_BY, MANAGER);
    object.set_meta("labels", labels);
    Some(object)
}

/// Without the versions of the Pods that addresses were made from.
fn versionless(mut subsets: Vec<Subset>) -> Vec<Subset> {
    for subset in &mut subsets {
        for address in subset.ready.iter_mut().chain(&mut subset.unready) {
            address.unset(&["targetRef", "resourceVersion"]);
        }
    }
    subsets
}

/// Whether the labels are the Service's and this loop's. The one of headless Services may be missing.
fn are_correct(labels: &Value, service: &Value) -> bool {
    const OWN: [&str; 2] = [HEADLESS, MANAGED_BY];
    labels.str_at(&[MANAGED_BY]) == MANAGER && without(labels, &OWN) == without(service, &OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(extra: &Value) -> Service {
        let mut service = json!({"metadata": {"name": "s", "labels": {"a": "b"}},
            "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "s"}, "ports": [{"port": 80, "targetPort": 8080}]}});
        for (key, value) in extra.as_object().expect("it is one").iter() {
            service.set(&["spec", key], value.clone());
        }
        Service::from_value(service)
    }

    fn pod(name: &str, ip: &str, ready: &str, deleting: bool) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"name": name, "uid": name}, "spec": {"nodeName": "n"},
            "status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": ready}]}});
        if deleting {
            pod.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        }
        Arc::new(Pod::from_value(&pod))
    }

    #[test]
    fn ready_pods_are_addresses_and_ended_ones_are_left_out() {
        let pods = [
            pod("a", "10.1.0.1", "True", false),
            pod("b", "10.1.0.2", "False", false),
            pod("c", "10.1.0.3", "True", true),
            pod("d", "fd00::1", "True", false),
        ];
        let lengths = |service: &Service| -> Vec<(usize, usize)> {
            let all = subsets(service, "x", &pods);
            all.iter().map(|s| (s.ready.len(), s.unready.len())).collect()
        };
        assert_eq!(lengths(&service(&json!({}))), [(1, 1)]);
        assert_eq!(lengths(&service(&json!({"publishNotReadyAddresses": true}))), [(3, 0)]);
        assert_eq!(lengths(&service(&json!({"ports": []}))), []);
        assert_eq!(lengths(&service(&json!({"ports": [], "clusterIP": "None"}))), [(1, 1)]);
        assert_eq!(
            lengths(&service(&json!({"ports": [{"port": 1, "targetPort": "no"}]}))),
            []
        );
    }

    #[test]
    fn nothing_is_written_when_nothing_changed() {
        let pods = [pod("a", "10.1.0.1", "True", false)];
        let made = corrected(&service(&json!({})), "x", &pods, None).expect("there is none");
        assert_eq!(made.label(MANAGED_BY), Some(MANAGER));
        assert_eq!(corrected(&service(&json!({})), "x", &pods, Some(&made)), None);
        let mut other = made.clone();
        other.set(&["metadata", "labels", "mine"], "x");
        let back = corrected(&service(&json!({})), "x", &pods, Some(&other));
        assert_eq!(back.as_ref(), Some(&made), "labels are the Service's");
        let none = corrected(&service(&json!({})), "x", &[], Some(&made)).expect("the Pod is gone");
        assert!(none.get("subsets").is_null());
    }

    #[test]
    fn too_many_addresses_are_marked() {
        let pods: Vec<Arc<Pod>> = (0..1001)
            .map(|n| pod(&n.to_string(), &format!("10.1.{}.{}", n / 256, n % 256), "True", false))
            .collect();
        let made = corrected(&service(&json!({})), "x", &pods, None).expect("there is none");
        assert_eq!(made.annotation(OVER_CAPACITY), Some("truncated"));
        assert_eq!(made.at(&["subsets"]).items()[0].get("addresses").items().len(), 1000);
        assert_eq!(
            corrected(&service(&json!({})), "x", &pods, Some(&made)).as_ref(),
            Some(&made)
        );
    }
}
