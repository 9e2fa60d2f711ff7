//! [`ReferenceUsers`]: finds the APIServices that refer to a changed Secret or ConfigMap, and renews them.
//!
//! A change costs in proportion to the APIServices that refer to the object, however many others exist, and all of
//! the work is done off the reactors: the object may hold a megabyte of certificates.

use super::apiservice::ApiService;
use super::dependent_index::DependentIndex;
use super::references::References;
use crate::apimachinery::value::Str;
use crate::client::Informer;
use crate::proxy::target::Source;
use crate::tasks::{Backoff, WorkQueue, off_thread};
use crate::telemetry::QueueMetrics;
use std::sync::Arc;

/// A Secret or ConfigMap: its kind and its storage key.
type Referenced = (Source, Arc<str>);

/// An index of APIServices by the objects that they refer to, and the queue of changed objects.
pub(crate) struct ReferenceUsers {
    users: DependentIndex<Referenced>,
    changed: WorkQueue<Referenced>,
}

impl ReferenceUsers {
    /// Subscribes to both informers, which must not run yet. Changes are queued until [`run`](Self::run) is driven.
    pub(crate) fn new(api_services: &Informer<ApiService>, references: &References, queue: QueueMetrics) -> Arc<Self> {
        let users = Arc::new(Self {
            users: DependentIndex::default(),
            changed: WorkQueue::new(Backoff::CONTROLLER, queue),
        });
        let index = users.clone();
        api_services.subscribe(move |change| {
            let referenced =
                |s: Option<&Arc<ApiService>>| s.into_iter().flat_map(|s| referenced_by(s)).collect::<Vec<_>>();
            index
                .users
                .update(change.key, referenced(change.old), referenced(change.new));
        });
        let index = users.clone();
        references.subscribe(move |source, key| {
            // Nearly all Secrets and ConfigMaps are of no interest: they cost a lookup, and no place in the
            // queue.
            let referenced = (source, key.into());
            if index.users.contains(&referenced) {
                index.changed.add(referenced);
            }
        });
        users
    }

    /// Calls `renew` with the name of each APIService that refers to a changed object, off the reactor
    /// threads.
    ///
    /// # Cancel safety
    /// When dropped, the APIServices of the object that is being processed are still renewed.
    pub(crate) async fn run(&self, renew: impl Fn(&Str) + Clone + Send + 'static) {
        while let Some(referenced) = self.changed.next().await {
            let names = self.users.dependents(&referenced);
            let renew = renew.clone();
            // Thousands of APIServices may refer to the same object.
            off_thread(0, move || names.iter().for_each(renew)).await;
            // Only now: a change that came meanwhile is queued again, so the newest one is always seen.
            self.changed.done(&referenced);
        }
    }
}

impl ApiService {
    /// Whether its backend's certificates are read from other objects, which may be large.
    pub(super) fn refers_to_objects(&self) -> bool {
        referenced_by(self).next().is_some()
    }
}

/// The objects that an APIService refers to.
fn referenced_by(s: &ApiService) -> impl Iterator<Item = Referenced> + '_ {
    let references = [&s.backend.ca_from, &s.backend.certificate_from];
    references
        .into_iter()
        .flatten()
        .map(|r| (r.source, Arc::from(&*r.object)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::{MemoryStorage, apiservice, provider, running};
    use crate::json;
    use crate::proxy::target::CA_FROM;
    use crate::telemetry::Telemetry;

    #[tokio::test]
    async fn only_apiservices_that_refer_to_a_changed_object_are_renewed() {
        let (objects, maps) = (MemoryStorage::new(), MemoryStorage::new());
        let (api_services, feed) = Informer::new(objects.clone(), ApiService::from_entry);
        let (references, handles) = References::new(MemoryStorage::new(), maps.clone(), provider());
        let users = ReferenceUsers::new(&api_services, &references, Telemetry::new().queue("q"));
        let refers = |group: &str, map: &str| {
            let mut object = apiservice(group, "", 443);
            object.set(
                &["metadata", "annotations", CA_FROM],
                format!("configmap/n/{map}/ca.crt"),
            );
            objects.set(&format!("v1.{group}"), &object);
        };
        refers("first", "shared");
        refers("second", "shared");
        refers("third", "other");
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let following = users.clone();
        let worker = async move {
            following
                .run(move |name| {
                    let _ = sender.send((name.to_string(), std::thread::current().id()));
                })
                .await;
        };
        let _running = running([feed.run()]);
        api_services.synced().wait().await;
        let _references = running([handles.run()]);
        let _worker = running([worker]);
        maps.set(
            "n/shared",
            &json!({"metadata": {"namespace": "n", "name": "shared"}, "data": {}}),
        );
        let mut renewed = [receiver.recv().await.unwrap(), receiver.recv().await.unwrap()];
        renewed.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(
            renewed.each_ref().map(|(name, _)| name.as_str()),
            ["v1.first", "v1.second"]
        );
        assert!(renewed.iter().all(|(_, thread)| *thread != std::thread::current().id()));

        // The second no longer refers to it: the next name is that of the first, and then the third's.
        refers("second", "other");
        while users.users.dependents(&(Source::ConfigMap, "n/shared".into())).len() > 1 {
            tokio::task::yield_now().await;
        }
        maps.set(
            "n/shared",
            &json!({"metadata": {"namespace": "n", "name": "shared"}, "data": {"a": "b"}}),
        );
        assert_eq!(receiver.recv().await.unwrap().0, "v1.first");
    }
}
