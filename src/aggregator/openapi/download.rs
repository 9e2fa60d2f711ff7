//! Downloads backends' OpenAPI documents and indices: after registration and every change, one minute after
//! each success, and with growing delays after failures. The last good document stays in use. Entry points:
//! [`Downloader::new`], [`Downloader::start`].
//!
//! Upstream waits a second before the first download. A client that applies an object as soon as the
//! APIService is Available could then validate it against a document without its kind, so our first download
//! starts together with the first probe.

use crate::aggregator::apiservice::ApiService;
use crate::aggregator::documents::DocumentKind;
use crate::aggregator::documents::{CollectError, Documents};
use crate::aggregator::own_requests::{self, FetchedDocument, OPENAPI, ResponseLimits};
use crate::aggregator::resolver::ServiceResolver;
use crate::aggregator::sync_status::SyncStatus;
use crate::aggregator::transports::Transports;
use crate::apimachinery::value::Str;
use crate::client::Informer;
use crate::sync::Mutex;
use crate::tasks::{Backoff, TaskGroup, WorkQueue};
use crate::telemetry::QueueMetrics;
use async_trait::async_trait;
use http::HeaderName;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Enough that one slow backend does not delay the downloads of others.
const WORKERS: usize = 16;
const PERIOD: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(60), Duration::from_secs(3600));

/// A kind of document: how to download and store it.
#[async_trait]
pub(crate) trait Download: Send + Sync {
    /// Its path at every backend.
    fn path(&self) -> &'static str;

    /// Its kind, for limits and the disk cache.
    fn document(&self) -> DocumentKind;

    /// Additional request headers for an APIService's backend.
    fn headers(&self, name: &Str) -> Vec<(HeaderName, String)>;

    /// Stores a response.
    ///
    /// # Errors
    /// The response contains nothing usable.
    async fn take(&self, of: &ApiService, response: FetchedDocument) -> Result<(), CollectError>;

    /// A second path to download after [`Download::take`], if any. Offered again next time if its response
    /// was unusable.
    fn next(&self, _of: &ApiService) -> Option<String> {
        None
    }

    /// Stores the response for that path.
    ///
    /// # Errors
    /// The response contains nothing usable.
    async fn take_next(&self, _of: &ApiService, _path: String, _response: FetchedDocument) -> Result<(), CollectError> {
        Ok(())
    }

    /// Loads an APIService's document from the disk cache. Returns whether there was one.
    async fn restore(&self, of: &ApiService) -> bool;

    /// Removes an APIService's document, also from disk.
    fn remove(&self, name: &Str);
}

/// The controller that downloads one kind of document.
pub(crate) struct Downloader {
    informer: Informer<ApiService>,
    resolver: Arc<dyn ServiceResolver>,
    transports: Arc<Transports>,
    what: Arc<dyn Download>,
    sync_status: SyncStatus,
    documents: Documents,
    queue: WorkQueue<Str>,
    /// APIServices for which the disk cache was read.
    restored: Mutex<HashSet<Str>>,
}

impl Downloader {
    /// Creates a downloader. It does not download yet, but queues changes.
    pub(crate) fn new(
        informer: Informer<ApiService>,
        resolver: Arc<dyn ServiceResolver>,
        transports: Arc<Transports>,
        what: Arc<dyn Download>,
        sync_status: SyncStatus,
        documents: Documents,
        queue: QueueMetrics,
    ) -> Arc<Self> {
        let d = Arc::new(Self {
            informer: informer.clone(),
            resolver,
            transports,
            what,
            sync_status,
            documents,
            queue: WorkQueue::new(BACKOFF, queue),
            restored: Mutex::default(),
        });
        let me = d.clone();
        informer.subscribe(move |change| match change.new {
            Some(new) if new.service.is_some() => {
                let name: Str = change.key.into();
                // A change may have repaired the backend, so an earlier back-off no longer applies.
                me.queue.forget(&name);
                me.queue.add(name);
            }
            // Deleted, or now served in this process.
            _ => {
                let name: Str = change.key.into();
                me.queue.remove(&name);
                me.forget(&name);
            }
        });
        d
    }

    /// Starts the workers in `tasks`.
    pub(crate) fn start(self: &Arc<Self>, tasks: &TaskGroup) {
        for _ in 0..WORKERS {
            let me = self.clone();
            tasks.spawn("openapi worker", async move {
                while let Some(name) = me.queue.next().await {
                    me.process(&name).await;
                    me.queue.done(&name);
                }
            });
        }
        let (queue, stop) = (self.queue.clone(), tasks.stop_signal().clone());
        tasks.spawn("openapi queue", async move {
            stop.wait().await;
            queue.shut_down();
        });
    }

    async fn process(&self, name: &Str) {
        let outcome = self.sync(name).await;
        let is_remote = || self.informer.get(name).is_some_and(|now| now.service.is_some());
        if is_remote() {
            self.schedule(name, outcome);
        }
        // Deleted, or moved into this process, since the download began: undo what was stored meanwhile.
        if !is_remote() {
            self.queue.remove(name);
            self.forget(name);
        }
    }

    /// Notes the outcome of a download and queues the next one.
    fn schedule(&self, name: &Str, outcome: Result<(), CollectError>) {
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let status = failure.as_deref().map_or(Ok(()), Err);
        self.sync_status.note(name, self.what.document(), status);
        match outcome {
            Ok(()) => {
                self.queue.forget(name);
                // From now and not from the start, so that a slow backend gets a pause, too.
                self.queue.add_after(name.clone(), PERIOD);
            }
            Err(why) => {
                tracing::debug!(%name, "downloading OpenAPI failed: {why}");
                self.queue.add_rate_limited(name.clone());
            }
        }
    }

    fn forget(&self, name: &Str) {
        self.restored.lock().remove(name);
        self.sync_status.remove(name);
        self.what.remove(name);
    }

    /// Downloads the document of an APIService, unless that has no backend.
    async fn sync(&self, name: &Str) -> Result<(), CollectError> {
        let Some(s) = self.informer.get(name) else {
            return Ok(());
        };
        let Some(service) = &s.service else {
            return Ok(());
        };
        // Once per APIService, and before the availability check: an unavailable backend is when the copy is
        // needed.
        if self.restored.lock().insert(name.clone()) && self.what.restore(&s).await {
            self.sync_status.restored(name, self.what.document());
        }
        // If the APIService was not probed yet, the download itself shows whether the backend is up.
        if s.available.is_some() && !s.is_available() {
            return Err(CollectError::Unavailable);
        }
        let transport = self.transports.of(&s)?;
        let (path, headers) = (self.what.path(), self.what.headers(name));
        let headers: Vec<_> = headers.iter().map(|(k, v)| (k.clone(), v.as_str())).collect();
        let within = |what| ResponseLimits::new(LIMIT, self.documents.max_bytes(what), self.documents.large());
        let first = within(self.what.document());
        let response = own_requests::get(&transport, &*self.resolver, service, path, OPENAPI, &headers, first).await?;
        self.what.take(&s, response).await?;
        if let Some(path) = self.what.next(&s) {
            let next = within(DocumentKind::OpenApiV3Last);
            let response = own_requests::get(&transport, &*self.resolver, service, &path, OPENAPI, &[], next).await;
            let taken = match response {
                Ok(response) => self.what.take_next(&s, path, response).await,
                Err(why) => Err(why.into()),
            };
            // Not an error of the download: the index is already stored, and the document is only the copy
            // for bad times.
            if let Err(why) = taken {
                tracing::debug!(%name, "an OpenAPI v3 document cannot be stored: {why}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::sync_status::DocumentStatus;
    use crate::aggregator::testing::*;
    use crate::json;
    use crate::telemetry::Telemetry;

    /// Makes its APIService local by the time the backend's document has arrived.
    struct Moving {
        api_services: Arc<MemoryStorage>,
        done: Mutex<Vec<&'static str>>,
    }

    #[async_trait]
    impl Download for Moving {
        fn path(&self) -> &'static str {
            "/openapi/v3"
        }

        fn document(&self) -> DocumentKind {
            DocumentKind::OpenApiV3
        }

        fn headers(&self, _: &Str) -> Vec<(HeaderName, String)> {
            Vec::new()
        }

        async fn take(&self, _: &ApiService, _: FetchedDocument) -> Result<(), CollectError> {
            let local = json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1"}});
            self.api_services.set("v1.g", &local);
            while self.done.lock().is_empty() {
                tokio::task::yield_now().await;
            }
            self.done.lock().push("taken");
            Ok(())
        }

        async fn restore(&self, _: &ApiService) -> bool {
            false
        }

        fn remove(&self, _: &Str) {
            self.done.lock().push("removed");
        }
    }

    #[tokio::test]
    async fn a_document_that_arrives_after_its_group_became_local_is_removed() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let backend = Backend::http(&pki, 100, |_| async { response(200, "{}") }).await;
        let (api_services, telemetry) = (MemoryStorage::new(), Telemetry::new());
        api_services.set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
        let (informer, feed) = Informer::new(api_services.clone() as _, ApiService::from_entry);
        let moving = Arc::new(Moving {
            api_services,
            done: Mutex::default(),
        });
        let downloader = Downloader::new(
            informer.clone(),
            Arc::new(Always(backend.authority.clone())),
            Arc::new(transports(&telemetry)),
            moving.clone(),
            SyncStatus::new(),
            Documents::default(),
            telemetry.queue("q"),
        );
        let _running = running([feed.run()]);
        informer.synced().wait().await;
        downloader.process(&"v1.g".into()).await;
        assert_eq!(*moving.done.lock(), ["removed", "taken", "removed"]);
        let status = downloader.sync_status.of("v1.g", DocumentKind::OpenApiV3);
        assert_eq!(status, DocumentStatus::default());
    }
}
