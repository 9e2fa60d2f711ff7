//! [`Workloads`]: the Services and Pods, and which of them belong together. Shared by the loops that write
//! Endpoints and EndpointSlices.

mod pod;
mod service;

pub(crate) use pod::{Pod, address};
pub(crate) use service::{Port, Service};

use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::controllers::term::Term;
use crate::sync::Mutex;
use arc_swap::ArcSwap;
use imbl::OrdSet;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The key and the value of a label.
type Label = (Str, Str);
type Observer = Arc<dyn Fn(&str) + Send + Sync>;

/// Labels or a selector, sorted.
fn labels(map: &Value) -> Box<[Label]> {
    let pairs = map.as_object().into_iter().flat_map(|m| m.iter());
    let mut all: Box<[Label]> = pairs
        .map(|(k, v)| (k.into(), v.as_str().unwrap_or_default().into()))
        .collect();
    // Usually sorted already, which is checked in linear time.
    all.sort_unstable();
    all
}

/// Keys by namespace and label. The sets are persistent, so a reader clones one under the lock and walks it without.
#[derive(Default)]
struct ByLabel(HashMap<(Str, Label), OrdSet<Str>>);

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

    fn get(&self, namespace: &str, label: &Label) -> Option<&OrdSet<Str>> {
        self.0.get(&(namespace.into(), label.clone()))
    }
}

/// Pods by each of their labels, and Services by the first label of their selector. One label suffices to find a
/// Service from a Pod: the Pod must have all of them.
#[derive(Default)]
struct Index {
    pods: ByLabel,
    services: ByLabel,
}

/// The Services and Pods of all namespaces.
pub(crate) struct Workloads {
    services: Informer<Service>,
    pods: Informer<Pod>,
    index: Mutex<Index>,
    observers: ArcSwap<Vec<Observer>>,
}

impl Workloads {
    /// The workloads of a term. Calls `changed` with the key of each Service that was changed, or one of
    /// whose Pods was.
    pub(crate) fn follow(term: &Term, changed: impl Fn(&str) + Send + Sync + 'static) -> Option<Arc<Self>> {
        let shared = term.shared("workloads", || {
            Some(Arc::new(Self {
                services: term.inform(("", "services"), Service::from_entry, |_| {})?,
                pods: term.inform(("", "pods"), Pod::from_entry, |_| {})?,
                index: Mutex::default(),
                observers: ArcSwap::default(),
            }))
        })?;
        let own: Arc<Self> = (*shared).clone();
        // The first loop connects the shared workloads; loops start one after the other.
        if own.observers.load().is_empty() {
            // Weak, because the workloads refer to the informers.
            let of = Arc::downgrade(&own);
            own.services.subscribe(move |change: &Change<'_, Service>| {
                if let Some(workloads) = of.upgrade() {
                    workloads.service_changed(change);
                }
            });
            let of = Arc::downgrade(&own);
            own.pods.subscribe(move |change: &Change<'_, Pod>| {
                if let Some(workloads) = of.upgrade() {
                    workloads.pod_changed(change);
                }
            });
        }
        let mut observers = Vec::clone(&own.observers.load());
        observers.push(Arc::new(changed));
        own.observers.store(Arc::new(observers));
        Some(own)
    }

    /// Waits until everything is known.
    pub(crate) async fn ready(&self) {
        self.services.synced().wait().await;
        self.pods.synced().wait().await;
    }

    pub(crate) fn service(&self, key: &str) -> Option<Arc<Service>> {
        self.services.get(key)
    }

    /// The Pods that a Service selects, by name.
    pub(crate) fn pods_of(&self, key: &str, service: &Service) -> Vec<Arc<Pod>> {
        let candidates = self.candidates(key, service);
        let all = self.pods.snapshot();
        let pods = candidates.iter().filter_map(|key| all.get(&**key));
        pods.filter(|pod| service.selects(pod)).cloned().collect()
    }

    /// About what computing the endpoints of a Service costs, in bytes of an encoded object.
    pub(crate) fn size(&self, key: &str, service: &Service) -> usize {
        let pods = self.candidates(key, service).len();
        let (of_pod, own) = service.sizes();
        own.saturating_add(of_pod.saturating_mul(pods + 1))
    }

    /// The Pods with the rarest label of the selector.
    fn candidates(&self, key: &str, service: &Service) -> OrdSet<Str> {
        let namespace = namespace_of(key);
        let index = self.index.lock();
        let sets = service.selector.iter().map(|label| index.pods.get(namespace, label));
        // A label that no Pod has is the rarest one: no Pod matches.
        let rarest = sets.min_by_key(|keys| keys.map_or(0, OrdSet::len));
        rarest.flatten().cloned().unwrap_or_default()
    }

    fn service_changed(&self, change: &Change<'_, Service>) {
        if change.old == change.new {
            return;
        }
        {
            let mut index = self.index.lock();
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
        let candidates: Vec<OrdSet<Str>> = {
            let mut index = self.index.lock();
            for label in change.old.iter().flat_map(|pod| pod.labels.iter()) {
                index.pods.remove(namespace, label, change.key);
            }
            for label in change.new.iter().flat_map(|pod| pod.labels.iter()) {
                index.pods.add(namespace, label, change.key);
            }
            // Both sides: a Pod whose labels changed leaves one Service and joins another.
            let sides = [change.old, change.new].into_iter().flatten();
            let labels = sides.flat_map(|pod| pod.labels.iter());
            let services = labels.filter_map(|label| index.services.get(namespace, label));
            services.cloned().collect()
        };
        let candidates: BTreeSet<&Str> = candidates.iter().flatten().collect();
        let all = self.services.snapshot();
        // Without the lock: a Pod may have many labels and each of them many Services.
        for key in candidates {
            let selects = |pod: Option<&Arc<Pod>>| pod.is_some_and(|p| all.get(&**key).is_some_and(|s| s.selects(p)));
            if selects(change.old) || selects(change.new) {
                self.notify(key);
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
pub(crate) fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}
