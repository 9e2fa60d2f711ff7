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

use super::events::{Recorder, Reference};
use super::loopback::{Failure, Loopback, Path, found};
use super::term::Term;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Map, Str, Value};
use crate::client::{Change, Informer};
use crate::json;
use crate::storage::{Entry, MinRevision, Storage};
use crate::sync::Mutex;
use crate::tasks::{WorkQueue, off_thread};
use slices::Plan;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use trigger::TriggerTimes;
use workloads::{Workloads, namespace_of};

pub(crate) use legacy::start as start_endpoints;
pub(crate) use metrics::SliceMetrics;
pub(crate) use mirror::start as start_mirroring;

const QUEUE: &str = "endpoint_slice";
const GROUP: &str = "discovery.k8s.io";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const WORKERS: usize = 5;
/// Endpoints from this number on are computed off the reactor.
const MANY: usize = 32;
/// Delay after a change of a slice that another client made; upstream's.
const OTHERS: Duration = Duration::from_secs(1);

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The parts of an EndpointSlice that the loops keep.
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
    keys: Mutex<HashMap<Str, BTreeSet<Str>>>,
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
        if let Some(service) = old.filter(|s| keys.get(*s).is_some_and(BTreeSet::is_empty)) {
            keys.remove(service);
        }
        if let Some(service) = new {
            keys.entry(service.clone()).or_default().insert(key.into());
        }
    }

    /// The slices of a Service, without those that are being deleted. Includes everything that was written
    /// before.
    async fn of(&self, service: &str) -> Result<Vec<Value>, Failure> {
        self.informer.catch_up(&*self.storage).await;
        let keys: Vec<Str> = {
            let keys = self.keys.lock();
            keys.get(service).into_iter().flatten().cloned().collect()
        };
        let mut slices = Vec::with_capacity(keys.len());
        for key in &keys {
            slices.extend(read(&*self.storage, key).await?);
        }
        slices.retain(|s| !s.is_being_deleted());
        Ok(slices)
    }
}

/// The stored object.
async fn read(storage: &dyn Storage, key: &str) -> Result<Option<Value>, Failure> {
    let Some(entry) = storage.get(key, MinRevision::Any).await? else {
        return Ok(None);
    };
    // An endpoint takes about this many bytes.
    let endpoints = entry.json.len() / 256;
    compute(endpoints, move || entry.decode()).await.map(Some)
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
    match crate::apimachinery::validation::name_is_dns_subdomain(&prefix, true).is_empty() {
        true => prefix,
        false => service.to_owned(),
    }
}

/// Writes the changes to the slices of a Service.
async fn carry_out(
    api: &Loopback,
    namespace: &str,
    plan: Plan,
    deleting: bool,
    metrics: Option<&SliceMetrics>,
) -> Result<(), Failure> {
    let count = |operation| metrics.iter().for_each(|m| m.changed(operation));
    let path = Path::of(GROUP, "v1", namespace, "endpointslices");
    for slice in plan.create.iter().filter(|_| !deleting) {
        match api.create(path, slice).await {
            Err(e) if e.has_reason("NamespaceTerminating") => return Ok(()),
            other => other?,
        };
        count("create");
    }
    for slice in &plan.update {
        api.replace(path.name(slice.name()), slice).await?;
        count("update");
    }
    for slice in &plan.delete {
        let deleted = api.delete(path.name(slice.name()), &Value::object()).await;
        found(deleted.map(|()| Value::Null))?;
        count("delete");
    }
    Ok(())
}

/// Runs `work` about this many endpoints, off the reactor if they are many.
async fn compute<T: Send + 'static>(count: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    match count < MANY {
        true => Ok(work()),
        false => off_thread(0, work)
            .await
            .ok_or_else(|| Failure::unreadable("the gateway is shutting down")),
    }
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
        let count = self.workloads.count(&key, &service);
        let (own, of, at) = (self.clone(), service.clone(), key.clone());
        let mut plan = compute(count, move || {
            let pods = own.workloads.pods_of(&at, &of);
            let nodes = own.nodes.snapshot();
            let zone = |node: &str| nodes.get(node).map(|z| z.0.clone());
            let mut plan = slices::plan(&of, namespace_of(&at), &pods, zone, existing);
            plan.mark(own.times.update(&at, &of, &pods));
            plan
        })
        .await?;
        let missing = std::mem::take(&mut plan.missing);
        self.metrics.planned(&key, &service, &plan);
        let metrics = Some(&*self.metrics);
        let done = carry_out(&self.api, namespace, plan, service.is_being_deleted(), metrics).await;
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
