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
use imbl::{OrdMap, OrdSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Labels that are entered while the lock of the index is held, for which reactors wait: some 50 µs.
const MANY_LABELS: usize = 64;
/// Services with the same first label that a change of a Pod is compared with on a reactor.
const MANY_SERVICES: usize = 64;
/// Labels of a selector of which the rarest one is searched for. Any label would do: the Pods that have it are compared
/// with the whole selector.
const COMPARED_LABELS: usize = 32;

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
/// The map is, too, and grows without moving all of its entries at once.
#[derive(Clone, Default)]
struct ByLabel(OrdMap<(Str, Label), OrdSet<Str>>);

impl ByLabel {
    /// Returns the number of keys that have the label then.
    fn add(&mut self, namespace: &str, label: &Label, key: &str) -> usize {
        let at = (Str::from(namespace), label.clone());
        if let Some(keys) = self.0.get_mut(&at) {
            keys.insert(key.into());
            return keys.len();
        }
        self.0.insert(at, OrdSet::unit(key.into()));
        1
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
        self.0.get(&(Str::from(namespace), label.clone()))
    }
}

/// Pods by each of their labels, and Services by the first label of their selector. One label suffices to find a
/// Service from a Pod: the Pod must have all of them.
#[derive(Default)]
struct Index {
    pods: ByLabel,
    services: ByLabel,
}

impl Index {
    /// Applies `edit`, which takes time in the number of `labels`, to the Pods of a shared index. That of many labels
    /// works on a copy: a Pod may have a hundred thousand, and reactors wait for the lock. Only the informer of Pods
    /// calls this, for one change at a time, so no edit is lost.
    fn edit_pods(index: &Mutex<Self>, labels: usize, edit: impl FnOnce(&mut ByLabel)) {
        if labels <= MANY_LABELS {
            return edit(&mut index.lock().pods);
        }
        let mut pods = index.lock().pods.clone();
        edit(&mut pods);
        let before = std::mem::replace(&mut index.lock().pods, pods);
        // Without the lock: the parts that the edit has replaced are freed here.
        drop(before);
    }
}

/// The keys that `find` has for the rarest of the first labels of a selector.
fn rarest<'a>(selector: &[Label], find: impl FnMut(&Label) -> Option<&'a OrdSet<Str>>) -> OrdSet<Str> {
    let sets = selector.iter().take(COMPARED_LABELS).map(find);
    // A label that no Pod has is the rarest one: no Pod matches.
    let rarest = sets.min_by_key(|keys| keys.map_or(0, OrdSet::len));
    rarest.flatten().cloned().unwrap_or_default()
}

/// The Services and Pods of all namespaces.
pub(crate) struct Workloads {
    services: Informer<Service>,
    pods: Informer<Pod>,
    index: Mutex<Index>,
    observers: ArcSwap<Vec<Observer>>,
    /// Whether there ever were [`MANY_SERVICES`]. Changes of Pods are then followed on a blocking thread: a Pod that all
    /// of them select may change hundreds of times a second.
    crowded: Arc<AtomicBool>,
}

impl Workloads {
    /// The workloads of a term. Calls `changed` with the key of each Service that was changed, or one of
    /// whose Pods was.
    pub(crate) fn follow(term: &Term, changed: impl Fn(&str) + Send + Sync + 'static) -> Option<Arc<Self>> {
        let shared = term.shared("workloads", || {
            let crowded = Arc::new(AtomicBool::new(false));
            let is_busy = crowded.clone();
            // Relaxed: a hint, of which nothing else depends.
            let is_busy = move || is_busy.load(Ordering::Relaxed);
            Some(Arc::new(Self {
                services: term.inform(("", "services"), Service::from_entry, |_| {})?,
                pods: term.inform_blocking_while(("", "pods"), Pod::from_entry, is_busy)?,
                index: Mutex::default(),
                observers: ArcSwap::default(),
                crowded,
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

    /// The Pods with a rare label of the selector.
    fn candidates(&self, key: &str, service: &Service) -> OrdSet<Str> {
        let namespace = namespace_of(key);
        let index = self.index.lock();
        rarest(&service.selector, |label| index.pods.get(namespace, label))
    }

    fn service_changed(&self, change: &Change<'_, Service>) {
        if change.old == change.new {
            return;
        }
        {
            // Released before the observers are called.
            let mut index = self.index.lock();
            let first = |s: &Arc<Service>| s.selector.first().cloned();
            if let Some(label) = change.old.and_then(first) {
                index.services.remove(namespace_of(change.key), &label, change.key);
            }
            if let Some(label) = change.new.and_then(first)
                && index.services.add(namespace_of(change.key), &label, change.key) > MANY_SERVICES
            {
                self.crowded.store(true, Ordering::Relaxed);
            }
        }
        self.notify(change.key);
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        // Most updates of a Pod change nothing that is kept of it.
        if change.old == change.new {
            return;
        }
        let namespace = namespace_of(change.key);
        let [old, new] = [change.old, change.new].map(|pod| pod.map_or(&[] as &[Label], |p| &*p.labels));
        if old != new {
            Index::edit_pods(&self.index, old.len() + new.len(), |pods| {
                old.iter().for_each(|label| pods.remove(namespace, label, change.key));
                for label in new {
                    pods.add(namespace, label, change.key);
                }
            });
        }
        // After the Pod is entered, so that either this finds a Service that is added meanwhile, or its loop the Pod.
        let services = self.index.lock().services.clone();
        // Both sides: a Pod whose labels changed leaves one Service and joins another.
        let labels = old.iter().chain(new);
        let candidates = labels.filter_map(|label| services.get(namespace, label));
        let candidates: Vec<OrdSet<Str>> = candidates.cloned().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn label(n: usize) -> Label {
        (format!("l{n:06}").into(), Str::default())
    }

    #[test]
    fn the_index_is_unlocked_while_a_pod_with_many_labels_is_added() {
        let index = Mutex::new(Index::default());
        Index::edit_pods(&index, MANY_LABELS + 1, |pods| {
            assert!(index.try_lock().is_some());
            pods.add("x", &label(1), "x/a");
        });
        Index::edit_pods(&index, 1, |pods| {
            assert!(index.try_lock().is_none(), "the copy would cost more");
            pods.add("x", &label(1), "x/b");
        });
        let keys = || index.lock().pods.get("x", &label(1)).map_or(0, OrdSet::len);
        assert_eq!(keys(), 2);
        Index::edit_pods(&index, MANY_LABELS + 1, |pods| {
            pods.remove("x", &label(1), "x/a");
            pods.remove("x", &label(1), "x/b");
        });
        assert_eq!((keys(), index.lock().pods.0.len()), (0, 0));
    }

    #[test]
    fn the_services_with_a_label_are_counted() {
        let mut services = ByLabel::default();
        for n in 1..=MANY_SERVICES + 1 {
            assert_eq!(services.add("x", &label(0), &n.to_string()), n);
        }
        assert_eq!(services.add("x", &label(0), "1"), MANY_SERVICES + 1, "again");
        assert_eq!(services.add("y", &label(0), "1"), 1);
    }

    #[test]
    fn lookups_of_a_selector_are_bounded_at_any_length() {
        let selector: Vec<Label> = (0..10_000).map(label).collect();
        let (common, rare): (OrdSet<Str>, OrdSet<Str>) =
            (["a", "b"].into_iter().collect(), ["a"].into_iter().collect());
        let mut lookups = 0;
        let found = rarest(&selector, |of| {
            lookups += 1;
            Some(if *of == label(7) { &rare } else { &common })
        });
        assert_eq!((found, lookups), (rare.clone(), COMPARED_LABELS));
        let absent = rarest(&selector, |of| (*of != label(7)).then_some(&common));
        assert!(absent.is_empty());
    }
}
