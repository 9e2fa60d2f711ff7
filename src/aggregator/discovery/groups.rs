//! The plain discovery documents `/apis` and `/apis/<group>`, built from APIService objects whether available
//! or not, as in upstream (`kube-aggregator/pkg/apiserver/handler_apis.go`).

use crate::aggregator::apiservice::{ApiService, OWN_GROUP, sorted_by_group_and_version};
use crate::apimachinery::value::{Str, Value};
use crate::client::Informer;
use crate::endpoints::discovery::{api_group, api_group_list, group_entry, plain};
use crate::endpoints::options::Query;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use imbl::OrdMap;
use std::sync::{Arc, Weak};

type Snapshot = OrdMap<Arc<str>, Arc<ApiService>>;

/// A document and the snapshot it was derived from. The reference is weak, so that the cache does not keep
/// deleted APIServices alive while there are no requests.
type Derived<T> = (Weak<Snapshot>, T);

/// The document that was derived last.
struct Cached<T>(ArcSwapOption<Derived<T>>);

impl<T> Cached<T> {
    const fn empty() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// The document of the informer's present snapshot. It is rebuilt after a change of any APIService.
    fn of(&self, informer: &Informer<ApiService>, make: impl FnOnce(&Snapshot) -> T) -> Arc<Derived<T>> {
        let now = informer.snapshot();
        if let Some(made) = self.0.load_full()
            // A `Weak` keeps the allocation, if not the content: the address cannot belong to a newer
            // snapshot.
            && Weak::ptr_eq(&made.0, &Arc::downgrade(&now))
        {
            return made;
        }
        // Requests at the same time may build it twice; the last one is kept, and all are equal.
        let made = Arc::new((Arc::downgrade(&now), make(&now)));
        self.0.store(Some(made.clone()));
        made
    }

    fn forget(&self) {
        self.0.store(None);
    }
}

/// Serves the list of all groups. The document is rebuilt after a change of any APIService.
pub(crate) struct GroupListHandler {
    informer: Informer<ApiService>,
    made: Cached<Value>,
}

impl GroupListHandler {
    /// Serves the groups of these APIServices. Subscribes to `informer`, which must not run yet.
    pub(crate) fn new(informer: Informer<ApiService>) -> Arc<Self> {
        let handler = Arc::new(Self {
            informer,
            made: Cached::empty(),
        });
        let me = handler.clone();
        // Only forgets: the list is rebuilt by the next request, not by each of a burst of changes.
        handler.informer.subscribe(move |_| me.made.forget());
        handler
    }

    fn document(&self) -> Arc<Derived<Value>> {
        self.made.of(&self.informer, list)
    }
}

fn list(snapshot: &Snapshot) -> Value {
    let groups = sorted_by_group_and_version(snapshot.values().cloned().collect());
    // This group has no APIService itself, so it is added by hand, and first.
    let mut entries = vec![group_entry(OWN_GROUP, &["v1"])];
    for group in groups.iter().filter(|g| !g[0].group.is_empty()) {
        entries.push(group_entry(&group[0].group, &versions(group)));
    }
    api_group_list(entries)
}

fn versions(group: &[Arc<ApiService>]) -> Vec<&str> {
    group.iter().map(|s| s.version.as_str()).collect()
}

#[async_trait]
impl UnprotectedHandler for GroupListHandler {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        let query = Query::parse(req.uri().query().unwrap_or(""));
        plain(&self.document().1, req.headers(), &query)
    }
}

/// Serves the document of one group. If the group has no APIService, the delegate answers.
pub(crate) struct GroupHandler {
    group: Str,
    informer: Informer<ApiService>,
    delegate: Arc<dyn UnprotectedHandler>,
    made: Cached<Option<Value>>,
}

impl GroupHandler {
    /// Serves the document of this group.
    pub(crate) fn new(group: Str, informer: Informer<ApiService>, delegate: Arc<dyn UnprotectedHandler>) -> Self {
        Self {
            group,
            informer,
            delegate,
            made: Cached::empty(),
        }
    }

    /// `None` if the group has no APIService.
    fn document(&self) -> Arc<Derived<Option<Value>>> {
        self.made.of(&self.informer, |all| {
            let mine = all.values().filter(|s| s.group == self.group).cloned().collect();
            let groups = sorted_by_group_and_version(mine);
            groups.first().map(|g| api_group(&self.group, &versions(g)))
        })
    }
}

#[async_trait]
impl UnprotectedHandler for GroupHandler {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        match &self.document().1 {
            Some(document) => {
                let query = Query::parse(req.uri().query().unwrap_or(""));
                plain(document, req.headers(), &query)
            }
            // As upstream: without an APIService, the group may be one of the servers below.
            None => self.delegate.clone().serve(req, authorized).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::{MemoryStorage, apiservice, running};

    #[tokio::test]
    async fn a_cached_document_does_not_keep_deleted_apiservices() {
        let storage = MemoryStorage::new();
        storage.set("v1.g", &apiservice("g", "", 1));
        let (informer, feed) = Informer::new(storage.clone() as _, ApiService::from_entry);
        let list = GroupListHandler::new(informer.clone());
        let group = GroupHandler::new("g".into(), informer.clone(), list.clone());
        let _running = running([feed.run()]);
        informer.synced().wait().await;
        assert!(list.document().1 != Value::Null && group.document().1.is_some());
        let deleted = Arc::downgrade(&informer.get("v1.g").unwrap());
        storage.remove("v1.g");
        while informer.get("v1.g").is_some() {
            tokio::task::yield_now().await;
        }
        assert!(deleted.upgrade().is_none());
        assert!(list.made.0.load().is_none(), "the next request rebuilds the list");
    }
}
