//! Routes requests below `/apis/` to custom resources. Other requests fall through to the next server, which
//! answers 404 as plain text (upstream: `customresource_handler.go`).

use super::Definition;
use super::catalog::{Catalog, Defined};
use super::discovery;
use super::version::Unavailable;
use crate::apimachinery::status::Status;
use crate::client::{CATCH_UP_TIMEOUT, Informer};
use crate::endpoints::negotiate::Codecs;
use crate::endpoints::options::Query;
use crate::endpoints::{discovery as documents, respond};
use crate::request::{Authorized, Request, RequestContext, RequestInfo, Response, UnprotectedHandler};
use crate::server::mux::DynHandler;
use crate::storage::{MinRevision, Storage};
use async_trait::async_trait;
use std::sync::Arc;

/// Serves custom resources, and the discovery documents of their groups and versions.
pub(super) struct CustomResourceHandler {
    definitions: Informer<Definition>,
    storage: Arc<dyn Storage>,
    catalog: Arc<Catalog>,
    /// Serves everything else.
    next: DynHandler,
}

impl CustomResourceHandler {
    pub(crate) fn new(
        definitions: Informer<Definition>,
        storage: Arc<dyn Storage>,
        catalog: Arc<Catalog>,
        next: DynHandler,
    ) -> Self {
        Self {
            definitions,
            storage,
            catalog,
            next,
        }
    }

    /// The response to a request for discovery; `None` for any other path.
    fn document(&self, req: &Request, info: &RequestInfo) -> Option<Response> {
        let path: Vec<&str> = info.path.trim_matches('/').split('/').collect();
        let found = match path[..] {
            ["apis", group] => discovery::group(group, &self.catalog.group(group)),
            ["apis", group, version] => discovery::version(group, version, &self.catalog.group(group)),
            _ => None,
        };
        Some(documents::plain(&found?, req.headers(), &Query::of(req)))
    }

    /// As [`addressed`](Self::addressed). If there is none, asks the store, because another gateway may just
    /// have written the definition.
    async fn find(&self, info: &RequestInfo) -> Option<Arc<Defined>> {
        if let Some(found) = self.addressed(info) {
            return Some(found);
        }
        // The definition in the store is only worth waiting for if it is newer than the one we have.
        let known = self.catalog.get(&info.api_group, &info.resource);
        let known = known.map_or(0, |found| found.definition.revision);
        let key = format!("{}.{}", info.resource, info.api_group);
        // Read at the latest revision: the other gateway's write may not have reached this one's cache.
        let stored = self.storage.get(&key, MinRevision::Latest).await.ok()??;
        if stored.revision.0 <= known {
            return None;
        }
        // Waits for the informer rather than decoding the stored definition here, so that all requests see one
        // catalog.
        let reached = self.definitions.reach(stored.revision);
        tokio::time::timeout(CATCH_UP_TIMEOUT, reached).await.ok()?;
        self.addressed(info)
    }

    /// The definition that a request addresses, if it answers such requests.
    fn addressed(&self, info: &RequestInfo) -> Option<Arc<Defined>> {
        let found = self.catalog.get(&info.api_group, &info.resource)?;
        let definition = &found.definition;
        let fits = match (definition.namespaced, info.namespace.is_empty()) {
            (false, no_namespace) => no_namespace,
            // Only reads span namespaces.
            (true, true) => matches!(info.verb.as_str(), "list" | "watch"),
            (true, false) => true,
        };
        (fits && definition.served(&info.api_version).is_some() && definition.answers()).then_some(found)
    }
}

/// Waits until a definition whose `Established` condition a client may have seen is in the catalog.
async fn catch_up<T: Send + Sync + 'static>(definitions: &Informer<T>, storage: &dyn Storage) {
    // The check costs one comparison; waiting is only needed shortly after a definition was written.
    if !definitions.is_current(storage) {
        // If the informer lags, the request is served from its current state.
        let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, definitions.catch_up(storage)).await;
    }
}

#[async_trait]
impl UnprotectedHandler for CustomResourceHandler {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        catch_up(&self.definitions, &*self.storage).await;
        // Requests without info were not parsed as API requests.
        let Some(info) = RequestContext::of(&req).info.clone() else {
            return self.next.clone().serve(req, authorized).await;
        };
        if !info.is_resource {
            return match self.document(&req, &info) {
                Some(response) => response,
                None => self.next.clone().serve(req, authorized).await,
            };
        }
        // Unknown resources get the next server's 404, which is plain text as in upstream.
        let Some(found) = self.find(&info).await else {
            return self.next.clone().serve(req, authorized).await;
        };
        let Some(version) = found.definition.served(&info.api_version) else {
            return self.next.clone().serve(req, authorized).await;
        };
        match found.version(version, self.catalog.builder()).await {
            Ok(served) => served.serve(req, &authorized).await,
            Err(why) => {
                let status = match why {
                    // Details are logged where the version is built; clients get upstream's message.
                    Unavailable::Broken(_) => Status::internal("error resolving resource"),
                    Unavailable::Busy => Status::too_many_requests(why.to_string(), 1),
                };
                respond::status_with(Codecs::default(), &status, req.headers(), &Query::of(&req))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::MemoryStorage;
    use crate::json;
    use crate::storage::Entry;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_definition_that_takes_seconds_to_read() {
        let storage = MemoryStorage::new();
        storage.set("as.x.io", &json!({"metadata": {"name": "as.x.io"}}));
        let (definitions, feed) = Informer::new(storage.clone() as _, |_: &Entry| 0u8);
        let reading = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            feed.run().await;
        };
        tokio::select! {
            () = catch_up(&definitions, &*storage) => assert!(definitions.is_current(&*storage)),
            () = reading => unreachable!("an informer never ends"),
        }
    }
}
