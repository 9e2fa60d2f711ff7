//! Counts the open watches by scope, to estimate the cost of delivering the event of a write (upstream's
//! `k8s.io/apiserver/pkg/util/flowcontrol/watch_tracker.go`).

use crate::apimachinery::FieldSelector;
use crate::request::RequestInfo;
use crate::request::info::first_value;
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Bytes of a field selector that is parsed, at some 100 ns each. A kubelet's has one short term.
const MAX_SELECTOR: usize = 2 << 10;

/// The open watches. Clones refer to the same ones.
#[derive(Clone, Default)]
pub(crate) struct WatchTracker(Arc<Inner>);

#[derive(Default)]
struct Inner {
    keys: RandomState,
    /// Watches by the hash of group, resource, namespace and name. A collision would only distort an
    /// estimate.
    ///
    /// A tree, which never moves all entries at once, as a hash table that grows does: with a watch for each of a
    /// hundred thousand objects, that would take milliseconds under the lock.
    counts: Mutex<BTreeMap<u64, u32>>,
}

/// A counted watch; dropping it removes it.
pub struct Registered {
    tracker: Arc<Inner>,
    key: u64,
}

impl WatchTracker {
    /// Counts a watch. `None` for those that receive few events because an index selects them.
    pub(crate) fn register(&self, info: &RequestInfo, query: &str) -> Option<Registered> {
        if info.resource == "pods" && watches_one_node(query) {
            return None;
        }
        // The name is set for a watch with a field selector on `metadata.name`.
        let key = self.0.key(info, &info.namespace, &info.name);
        *self.0.counts().entry(key).or_default() += 1;
        Some(Registered {
            tracker: self.0.clone(),
            key,
        })
    }

    /// The watches that receive the event of a write: those of all objects, of the namespace, and of the
    /// object.
    pub(crate) fn interested(&self, info: &RequestInfo) -> u32 {
        let counts = self.0.counts();
        // Saves three hashes for each write of a server without watches.
        if counts.is_empty() {
            return 0;
        }
        let of = |namespace: &str, name: &str| counts.get(&self.0.key(info, namespace, name)).copied();
        let mut sum = of("", "").unwrap_or(0);
        if !info.namespace.is_empty() {
            sum += of(&info.namespace, "").unwrap_or(0);
        }
        if !info.name.is_empty() {
            sum += of(&info.namespace, &info.name).unwrap_or(0);
        }
        sum
    }
}

impl Inner {
    fn key(&self, info: &RequestInfo, namespace: &str, name: &str) -> u64 {
        let (group, resource): (&str, &str) = (&info.api_group, &info.resource);
        // Keyed at random, so clients cannot construct collisions.
        self.keys.hash_one((group, resource, namespace, name))
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u64, u32>> {
        self.counts.lock()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut counts = self.tracker.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                // Watches of single objects would leave an entry for every object that was ever watched.
                counts.remove(&self.key);
            }
        }
    }
}

/// The kubelets' watches: the cache selects them by node, so an event reaches one of thousands.
fn watches_one_node(query: &str) -> bool {
    let Some(selector) = first_value(query, "fieldSelector") else {
        return false;
    };
    // A longer one costs its comparisons with each event, so counting the watch is right, too.
    if selector.len() > MAX_SELECTOR {
        return false;
    }
    let selector = FieldSelector::parse(&selector).ok();
    let node = selector.as_ref().and_then(|s| s.requires_exact("spec.nodeName"));
    node.is_some_and(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn info(method: Method, uri: &str) -> RequestInfo {
        RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn watches_of_all_of_the_namespace_and_of_the_object_are_interested() {
        let tracker = WatchTracker::default();
        let watch = |path: &str, query: &str| {
            let uri = format!("{path}?watch=1&{query}");
            tracker.register(&info(Method::GET, &uri), query)
        };
        let open = [
            watch("/api/v1/pods", ""),
            watch("/api/v1/namespaces/a/pods", ""),
            watch("/api/v1/namespaces/a/pods", "fieldSelector=metadata.name%3Dx"),
            watch("/api/v1/namespaces/b/pods", ""),
            watch("/api/v1/configmaps", ""),
        ];
        assert!(open.iter().all(Option::is_some));
        assert!(watch("/api/v1/pods", "fieldSelector=spec.nodeName%3Dn1").is_none());
        let long = format!("fieldSelector=spec.nodeName%3Dn1{}", ",a%3Db".repeat(1_000));
        assert!(watch("/api/v1/pods", &long).is_some(), "a long selector is not parsed");
        let count = |method, uri| tracker.interested(&info(method, uri));
        assert_eq!(count(Method::PUT, "/api/v1/namespaces/a/pods/x"), 3);
        assert_eq!(count(Method::PUT, "/api/v1/namespaces/a/pods/y"), 2);
        assert_eq!(count(Method::POST, "/api/v1/namespaces/a/pods"), 2);
        assert_eq!(count(Method::POST, "/apis/apps/v1/namespaces/a/pods"), 0);
        drop(open);
        assert_eq!(count(Method::PUT, "/api/v1/namespaces/a/pods/x"), 0);
        assert!(tracker.0.counts().is_empty());
    }
}
