//! Where the Pods of Services can be reached: Endpoints (`pkg/controller/endpoint`) and EndpointSlices
//! (`k8s.io/endpointslice`), and the EndpointSlices of Endpoints that users wrote
//! (`pkg/controller/endpointslicemirroring`).
//!
//! `workloads` follows Services and Pods and determines the Services that a change affects. `slices`,
//! `subsets` and `mirror` each compute one kind of object from them; the loops here compare with the stored
//! objects and write the difference.

mod legacy;
mod metrics;
mod mirror;
mod slices;
mod subsets;
mod trigger;
mod workloads;
mod writes;

use super::events::{Recorder, Reference};
use super::loopback::{Failure, Loopback, Path, found};
use super::sized;
use super::term::Term;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::validation::{NameForm, name_is_dns_subdomain};
use crate::apimachinery::value::{Map, Str, Value};
use crate::client::{Change, Informer};
use crate::json;
use crate::storage::{Entry, MinRevision, Storage};
use crate::sync::Mutex;
use crate::tasks::WorkQueue;
use imbl::OrdSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use trigger::TriggerTimes;
use workloads::{Workloads, namespace_of};
use writes::Writes;

pub(crate) use legacy::start as start_endpoints;
pub(crate) use metrics::SliceMetrics;
pub(crate) use mirror::start as start_mirroring;

const QUEUE: &str = "endpoint_slice";
const GROUP: &str = "discovery.k8s.io";
const MANAGER: &str = "endpointslice-controller.k8s.io";
// Upstream's default for each of the three loops.
const WORKERS: usize = 5;
/// Slices of a Service that are read before the task yields.
const BATCH: usize = 64;
/// Delay after a change of a slice that another client made; upstream's.
const OTHERS: Duration = Duration::from_secs(1);

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The informers' record of an EndpointSlice: cached for all slices of the cluster, while the endpoints are read
/// from the store when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SliceLabels {
    service: Str,
    manager: Str,
}

impl SliceLabels {
    fn from_entry(entry: &Entry) -> Self {
        let label = |key| entry.label(key).unwrap_or_default().into();
        Self {
            service: label(SERVICE_NAME),
            manager: label(MANAGED_BY),
        }
    }
}

/// The EndpointSlices that one loop manages, by the key of their Service.
struct OwnSlices {
    manager: &'static str,
    /// A tree, which never moves all Services at once, as a hash table that grows does.
    keys: Mutex<BTreeMap<Str, OrdSet<Str>>>,
    informer: Informer<SliceLabels>,
    storage: Arc<dyn Storage>,
}

impl OwnSlices {
    /// Follows the slices that are labelled with `manager`. Calls `changed` with the Services whose slices
    /// changed.
    fn follow(term: &Term, manager: &'static str, changed: impl Fn(Str) + Send + Sync + 'static) -> Option<Arc<Self>> {
        let storage = term.storage(GROUP, "endpointslices")?;
        let informer = term.inform((GROUP, "endpointslices"), SliceLabels::from_entry, |_| {})?;
        let own = Arc::new(Self {
            manager,
            keys: Mutex::default(),
            informer: informer.clone(),
            storage,
        });
        let index = own.clone();
        informer.subscribe(move |change: &Change<'_, SliceLabels>| {
            let Some((namespace, _)) = change.key.split_once('/') else {
                return;
            };
            let service = |s: &SliceLabels| Str::from(format!("{namespace}/{}", s.service));
            let ours = |s: &&Arc<SliceLabels>| s.manager == index.manager && !s.service.is_empty();
            let (old, new) = (change.old.filter(ours), change.new.filter(ours));
            let (old, new) = (old.map(|s| service(s)), new.map(|s| service(s)));
            // Before the Service is queued, so that its worker finds the slice.
            index.moved(change.key, old.as_ref(), new.as_ref());
            [old, new].into_iter().flatten().for_each(&changed);
        });
        Some(own)
    }

    fn moved(&self, key: &str, old: Option<&Str>, new: Option<&Str>) {
        let mut keys = self.keys.lock();
        if let Some(of) = old.and_then(|s| keys.get_mut(s)) {
            of.remove(key);
        }
        // Empty sets are removed, since Services come and go.
        if let Some(service) = old.filter(|s| keys.get(*s).is_some_and(OrdSet::is_empty)) {
            keys.remove(service);
        }
        if let Some(service) = new {
            keys.entry(service.clone()).or_default().insert(key.into());
        }
    }

    /// The slices of a Service. Includes everything that was written before.
    async fn of(&self, service: &str) -> Result<Vec<Arc<Entry>>, Failure> {
        // A plan that does not see our own last write would create the same slices again.
        self.informer.catch_up(&*self.storage).await;
        // A shared set, so that the lock is not held for thousands of keys.
        let keys = self.keys.lock().get(service).cloned().unwrap_or_default();
        let mut slices = Vec::with_capacity(keys.len());
        for key in &keys {
            slices.extend(self.storage.get(key, MinRevision::Any).await?);
            // Reads of the cache are ready at once.
            if slices.len().is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
        }
        Ok(slices)
    }
}

/// The size of these objects in bytes.
fn size_of(entries: &[Arc<Entry>]) -> usize {
    entries.iter().map(|entry| sized::size(entry)).sum()
}

/// Decodes slices, without those that are being deleted.
fn decoded(slices: &[Arc<Entry>]) -> Vec<Value> {
    let all = slices.iter().map(|entry| entry.decode());
    all.filter(|slice| !slice.is_being_deleted()).collect()
}

/// The zone of a Node; empty if it has none.
struct Zone(Str);

impl Zone {
    fn from_entry(entry: &Entry) -> Self {
        Self(entry.label("topology.kubernetes.io/zone").unwrap_or_default().into())
    }
}

/// Labels or annotations without those under `keys`.
fn without(map: &Value, keys: &[&str]) -> Map {
    let all = map.as_object().into_iter().flat_map(Map::iter);
    all.filter(|(key, _)| !keys.contains(key))
        .map(|(key, value)| (key, value.clone()))
        .collect()
}

/// A reference by which an object is controlled by this owner.
fn controller_reference(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true}])
}

/// `generateName` of the slices of a Service.
fn name_prefix(service: &str) -> String {
    let prefix = format!("{service}-");
    match name_is_dns_subdomain(&prefix, NameForm::Prefix).is_empty() {
        // Upstream checks the prefix as a name: with the dash it may be one character too long.
        true => prefix,
        false => service.to_owned(),
    }
}

/// Writes the changes to the slices of a Service.
async fn carry_out(
    api: &Loopback,
    namespace: &str,
    writes: Writes,
    deleting: bool,
    metrics: Option<&SliceMetrics>,
) -> Result<(), Failure> {
    let count = |operation| metrics.iter().for_each(|m| m.changed(operation));
    let path = Path::of(GROUP, "v1", namespace, "endpointslices");
    // Creates first: a slice whose endpoints move elsewhere is deleted only once they are in their new one.
    for slice in writes.create.into_iter().filter(|_| !deleting) {
        match api.create(path, slice).await {
            Err(e) if e.has_reason("NamespaceTerminating") => return Ok(()),
            other => other?,
        };
        count("create");
    }
    for (name, slice) in writes.update {
        api.replace(path.name(&name), slice).await?;
        count("update");
    }
    for name in &writes.delete {
        found(api.delete(path.name(name), &Value::object()).await)?;
        count("delete");
    }
    Ok(())
}

/// Keeps the EndpointSlices of Services with selectors.
struct Slices {
    workloads: Arc<Workloads>,
    nodes: Informer<Zone>,
    own: Arc<OwnSlices>,
    times: TriggerTimes,
    metrics: Arc<SliceMetrics>,
    api: Loopback,
    events: Recorder,
}

/// Follows the inputs of [`Slices`].
pub(crate) fn start_slices(term: &Term) {
    let queue: WorkQueue<Str> = term.queue(QUEUE);
    let changed = queue.clone();
    let Some(own) = OwnSlices::follow(term, MANAGER, move |service| changed.add_after(service, OTHERS)) else {
        return;
    };
    let Some(nodes) = term.inform(("", "nodes"), Zone::from_entry, |_| {}) else {
        return;
    };
    let changed = queue.clone();
    let Some(workloads) = Workloads::follow(term, move |service| changed.add(service.into())) else {
        return;
    };
    // The gauges still have what an earlier term counted.
    term.slice_metrics.reset();
    let api = term.client("endpointslice-controller");
    let slices = Arc::new(Slices {
        workloads,
        nodes,
        own,
        times: TriggerTimes::default(),
        metrics: term.slice_metrics.clone(),
        events: Recorder::new(&api, "endpoint-slice-controller"),
        api,
    });
    term.process(QUEUE, &queue, WORKERS, move |service: Str| {
        let slices = slices.clone();
        async move {
            // Cloned first, because `sync` consumes the workers' reference.
            let metrics = slices.metrics.clone();
            let done = slices.sync(service).await;
            metrics.synced(done.is_err());
            done
        }
    });
}

impl Slices {
    async fn sync(self: Arc<Self>, key: Str) -> Result<(), Failure> {
        self.workloads.ready().await;
        self.nodes.synced().wait().await;
        let Some(service) = self.workloads.service(&key) else {
            self.times.forget(&key);
            self.metrics.forget(&key);
            return Ok(());
        };
        if !service.has_endpoints() {
            self.metrics.forget(&key);
            return Ok(());
        }
        let namespace = namespace_of(&key);
        let existing = self.own.of(&key).await?;
        let size = self.workloads.size(&key, &service) + size_of(&existing);
        let (own, of, at) = (self.clone(), service.clone(), key.clone());
        let mut writes = sized::compute(size, move || {
            let pods = own.workloads.pods_of(&at, &of);
            let nodes = own.nodes.snapshot();
            let zone = |node: &str| nodes.get(node).map(|z| z.0.clone());
            let mut plan = slices::plan(&of, namespace_of(&at), &pods, zone, decoded(&existing));
            plan.mark(own.times.update(&at, &of, &pods));
            Writes::from(plan)
        })
        .await?;
        // Reported after the writes, as an error: the Service is retried until the Node is known.
        let missing = writes.missing.take();
        self.metrics.planned(&key, &service, &writes);
        let metrics = Some(&*self.metrics);
        let done = carry_out(&self.api, namespace, writes, service.is_being_deleted(), metrics).await;
        let Some(failed) = done.err().or_else(|| missing.map(Failure::unreadable)) else {
            return Ok(());
        };
        let service = Reference::new("v1", "Service", &key, service.uid());
        let message = format!("Error updating Endpoint Slices for Service {key}: {failed}");
        self.events
            .warn(&service, "FailedToUpdateEndpointSlices", &message)
            .await;
        Err(failed)
    }
}
