//! [`TriggerTimes`]: when the change happened that a write of endpoints reports, for the annotation
//! `endpoints.kubernetes.io/last-change-trigger-time` (`endpointslice/util/trigger_time_tracker.go`).

use super::TRIGGER_TIME;
use super::workloads::{Pod, Service};
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::sync::Mutex;
use ::time::OffsetDateTime;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The last known state of each Service: when it was created, and since when each Pod is ready or not.
// A tree: a hash table of all Services would now and then move them all at once, under the lock.
#[derive(Default)]
pub(crate) struct TriggerTimes(Mutex<BTreeMap<Str, Arc<LastSeen>>>);

#[derive(Default)]
struct LastSeen {
    created: Option<OffsetDateTime>,
    pods: HashMap<Str, OffsetDateTime>,
}

impl TriggerTimes {
    /// The earliest change since the last call; for a Service that was not known before, its creation.
    pub(crate) fn update(&self, key: &str, service: &Service, pods: &[Arc<Pod>]) -> Option<OffsetDateTime> {
        let now = LastSeen {
            created: service.created(),
            pods: pods.iter().filter_map(|p| Some((p.name.clone(), p.since?))).collect(),
        };
        let now = Arc::new(now);
        // Compared and dropped without the lock: a Service may have a hundred thousand Pods. The queue gives each
        // Service to one worker at a time.
        let before = {
            let mut all = self.0.lock();
            all.insert(key.into(), now.clone())
        };
        let Some(before) = before else { return now.created };
        let later = |(name, at): (&Str, &OffsetDateTime)| {
            let changed = before.pods.get(name).is_none_or(|seen| at > seen);
            changed.then_some(*at)
        };
        let recreated = now.created.filter(|at| Some(*at) > before.created);
        now.pods.iter().filter_map(later).chain(recreated).min()
    }

    /// The Service is gone.
    pub(crate) fn forget(&self, key: &str) {
        let gone = self.0.lock().remove(key);
        // Outside of the lock: it may be a map of a hundred thousand Pods.
        drop(gone);
    }
}

/// Sets the annotation, or removes it if the time is not known.
pub(crate) fn mark(object: &mut Value, at: Option<OffsetDateTime>) {
    match at {
        Some(at) => object.set(&["metadata", "annotations", TRIGGER_TIME], time::format(at)),
        None => drop(object.unset(&["metadata", "annotations", TRIGGER_TIME])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_earliest_change_since_the_last_call_counts() {
        let times = TriggerTimes::default();
        let service = Service::from_value(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}));
        let pod = |name: &str, at: &str| {
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
            Arc::new(Pod::from_value(
                &json!({"metadata": {"name": name}, "status": {"conditions": (ready)}}),
            ))
        };
        let update = |pods: &[Arc<Pod>]| times.update("a/s", &service, pods).map(time::format);
        let (one, two) = ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z");
        assert_eq!(
            update(&[pod("a", one)]).as_deref(),
            Some("2026-01-01T00:00:00Z"),
            "a new Service"
        );
        assert_eq!(update(&[pod("a", one)]), None);
        assert_eq!(update(&[pod("a", two), pod("b", one)]).as_deref(), Some(one));
        assert_eq!(
            update(&[pod("a", one), pod("b", two)]).as_deref(),
            Some(two),
            "times do not go back"
        );
    }
}
