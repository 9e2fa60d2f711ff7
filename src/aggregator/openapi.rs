//! OpenAPI of all servers. v3: one index; each document is served by its publisher, as the caller. v2: one
//! merged document.
//!
//! Indices of backends are downloaded in the background, and the last good one is kept, as is the document it
//! points to for the time its publisher is unavailable; a slow backend does not delay the others. The indices
//! of in-process servers are read on each request. Entry points: [`OpenApiHandler`] (v3), [`V2Handler`] (v2),
//! [`Downloader`].

mod convert;
mod download;
mod last_good;
mod merge;
#[cfg(test)]
mod tests;
mod v2;

pub use convert::v3_of;
pub(crate) use download::{Download, Downloader};
use last_good::LastGoodDocuments;
pub use merge::{filter, merge};
use v2::unavailable;
pub(crate) use v2::{PATH as V2_PATH, RemoteDocuments, V2Handler};

use super::apiservice::ApiService;
use super::disk_cache::DiskCache;
use super::documents::DocumentKind;
use super::documents::{self, CollectError, Rejected};
use super::own_requests::FetchedDocument;
use super::proxy::ProxyHandler;
use super::registration::Registration;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Map, Str, Value};
use crate::endpoints::discovery::aggregated::hash;
use crate::endpoints::openapi::cached::MEMORY;
use crate::endpoints::openapi::{OpenApiV3, content};
use crate::endpoints::options::Query;
use crate::request::{Authorized, Body, FromBackend, Request, Response, UnprotectedHandler};
use crate::sync::Mutex;
use crate::tasks::off_thread;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::header::IF_MODIFIED_SINCE;
use http::{HeaderMap, HeaderName, StatusCode};
use imbl::OrdMap;
use std::sync::Arc;

/// Path of the v3 index.
pub(crate) const ROOT: &str = "/openapi/v3";
const LOCAL_LIMIT: usize = 64 << 20;

/// Indices by APIService name.
type Indices = OrdMap<Str, Arc<Index>>;

/// The index of one backend.
struct Index {
    /// Hash of the document it was parsed from; empty if it was loaded from disk.
    source: String,
    paths: Map,
}

/// The last good indices of all backends.
#[derive(Default)]
pub(crate) struct RemoteIndices {
    all: ArcSwap<Indices>,
    /// Backends without a v3 index, whose v2 document is converted, with the key of the result.
    legacy: ArcSwap<OrdMap<Str, Str>>,
    writing: Mutex<()>,
    last_good: LastGoodDocuments,
    disk_cache: DiskCache,
}

/// The key in the index for the document of an APIService's own version.
fn key_of(s: &ApiService) -> Str {
    s.discovery_path().trim_start_matches('/').into()
}

impl RemoteIndices {
    /// Creates an empty set; indices on disk are loaded by [`Download::restore`].
    pub(crate) fn new(disk_cache: DiskCache) -> Self {
        Self {
            last_good: LastGoodDocuments::new(disk_cache.clone()),
            disk_cache,
            ..Self::default()
        }
    }

    fn set(&self, name: &Str, index: Option<Index>) {
        // Held from load to store, so that concurrent updates do not lose one. The map is persistent: its
        // clone is cheap.
        let _guard = self.writing.lock();
        let mut all = Indices::clone(&self.all.load());
        match index {
            Some(index) => all.insert(name.clone(), Arc::new(index)),
            None => all.remove(name),
        };
        self.all.store(Arc::new(all));
    }

    /// The APIService whose backend publishes this key.
    fn owner(&self, key: &str) -> Option<Str> {
        let all = self.all.load();
        let found = all.iter().find(|(_, index)| index.paths.contains_key(key))?;
        Some(found.0.clone())
    }
}

#[async_trait]
impl Download for RemoteIndices {
    fn path(&self) -> &'static str {
        ROOT
    }

    fn document(&self) -> DocumentKind {
        DocumentKind::OpenApiV3
    }

    fn headers(&self, _: &Str) -> Vec<(HeaderName, String)> {
        Vec::new()
    }

    async fn take(&self, of: &ApiService, response: FetchedDocument) -> Result<(), CollectError> {
        if response.status == 404 {
            let key = key_of(of);
            // Without a v3 index: `RemoteDocuments` converts the v2 document under this key. Upstream never
            // asks such a backend again; here the next poll does.
            self.legacy.rcu(|all| all.update(of.name.clone(), key.clone()));
            self.set(&of.name, None);
            return Ok(());
        }
        if response.status != 200 {
            return Err(CollectError::Status {
                status: response.status,
                path: ROOT.to_owned(),
            });
        }
        let before = self.all.load().get(&of.name).cloned();
        let (known, parser) = (before.clone(), self.disk_cache.documents().clone());
        let parsed = self.disk_cache.documents().run_blocking(move || {
            let source = hash(&response.body);
            if known.is_some_and(|k| k.source == source) {
                return Ok(None);
            }
            let mut document = parser.parse(documents::PublishedKind::OpenApiV3Index, &response.body)?;
            let mut paths = match document.unset(&["paths"]) {
                Some(Value::Object(paths)) => paths,
                _ => Map::new(),
            };
            // Clients follow the URLs, so entries without one are dropped.
            paths.retain(|_, v: &mut Value| v.get("serverRelativeURL").as_str().is_some());
            Ok::<_, Rejected>(Some((source, paths)))
        });
        let Some((source, paths)) = parsed.await.ok_or(CollectError::ShuttingDown)?? else {
            return Ok(());
        };
        // It may have had no index before the backend was upgraded.
        self.legacy.rcu(|all| all.without(&of.name));
        if before.is_none_or(|b| b.paths != paths) {
            let kept = Value::Object(paths.clone());
            self.disk_cache.save(DocumentKind::OpenApiV3, of, kept).await;
        }
        self.set(&of.name, Some(Index { source, paths }));
        Ok(())
    }

    fn next(&self, of: &ApiService) -> Option<String> {
        let all = self.all.load();
        let place = all.get(&of.name)?.paths.get(key_of(of).as_str())?;
        let url = place.str_at(&["serverRelativeURL"]);
        // Only documents below our own root: the URL comes from the backend, which must not choose arbitrary
        // paths.
        let is_document = url.starts_with("/openapi/v3/") && self.last_good.is_new(&of.name, url);
        is_document.then(|| url.to_owned())
    }

    async fn take_next(&self, of: &ApiService, path: String, response: FetchedDocument) -> Result<(), CollectError> {
        self.last_good.take(of, path, response).await
    }

    async fn restore(&self, of: &ApiService) -> bool {
        self.last_good.restore(of).await;
        let (disk_cache, s) = (self.disk_cache.clone(), of.clone());
        let kept = self
            .disk_cache
            .documents()
            .run_blocking(move || disk_cache.load(DocumentKind::OpenApiV3, &s));
        let Some(Some(Value::Object(paths))) = kept.await else {
            return false;
        };
        // Equals no hash, so the first download replaces this copy.
        let source = String::new();
        self.set(&of.name, Some(Index { source, paths }));
        true
    }

    fn remove(&self, name: &Str) {
        self.legacy.rcu(|all| all.without(name));
        self.last_good.remove(name);
        self.disk_cache.remove(DocumentKind::OpenApiV3, name);
        self.set(name, None);
    }
}

/// Serves `/openapi/v3` and everything below it.
pub(crate) struct OpenApiHandler {
    /// Handlers in this process with their own v3 index. The delegate comes first.
    pub local: Vec<Arc<dyn UnprotectedHandler>>,
    /// The indices of backends.
    pub remote: Arc<RemoteIndices>,
    /// Converted documents of backends without a v3 index.
    pub converted: Arc<OpenApiV3>,
    /// Finds the proxy handler of a backend.
    pub registration: Arc<Registration>,
}

impl OpenApiHandler {
    async fn local_paths(&self, handler: &Arc<dyn UnprotectedHandler>, authorized: &Authorized) -> Option<Value> {
        let request = http::Request::get(ROOT).body(Body::empty()).ok()?;
        let response = handler.clone().serve(request, authorized.clone()).await;
        if response.status() != StatusCode::OK {
            return None;
        }
        let bytes = response.into_body().collect(LOCAL_LIMIT).await.ok()?;
        Some(json::decode(&bytes).ok()?.get("paths").clone())
    }

    async fn index(&self, authorized: &Authorized, wants: &HeaderMap) -> Response {
        let remote = self.remote.all.load_full();
        let mut own = Vec::new();
        for key in self.remote.legacy.load_full().values() {
            if let Some(document) = self.converted.document(key).await {
                let mut place = Map::new();
                place.insert("serverRelativeURL", format!("{ROOT}/{key}?hash={}", document.hash));
                own.push((key.clone(), Value::Object(place)));
            }
        }
        // Local paths last, so that a backend cannot replace those of this server.
        for handler in &self.local {
            if let Some(Value::Object(local)) = self.local_paths(handler, authorized).await {
                own.extend(local);
            }
        }
        // Off the reactor: backends choose how long their indices are.
        let Some(body) = off_thread(MEMORY, move || joined(&remote, own)).await else {
            return unavailable();
        };
        // Upstream leaves the type to Go's content sniffing (kube-openapi/pkg/handler3), and makes the index
        // anew for every request.
        let now = time::OffsetDateTime::now_utc();
        // Not so the comparison of dates, which have whole seconds: a cache that asked for the index in the second in which
        // a definition came would be told that it has not changed, and `kubectl explain` would not find the kind.
        let mut wants = wants.clone();
        wants.remove(IF_MODIFIED_SINCE);
        content::serve(body, "text/plain; charset=utf-8", now, &wants)
    }

    async fn local_owner(&self, key: &str, authorized: &Authorized) -> Option<Arc<dyn UnprotectedHandler>> {
        for handler in &self.local {
            if let Some(paths) = self.local_paths(handler, authorized).await
                && !paths.get(key).is_null()
            {
                return Some(handler.clone());
            }
        }
        None
    }

    /// Forwards to the backend that publishes the document. If it is unavailable, responds
    /// with the last good document instead.
    async fn ask_publisher(&self, owner: &Publisher, key: &str, req: Request, authorized: Authorized) -> Response {
        let headers = req.headers().clone();
        let response = owner.handler.clone().serve(req, authorized).await;
        // A 503 sent by the backend itself is passed on; only the proxy's own 503 is replaced.
        if response.status() != StatusCode::SERVICE_UNAVAILABLE || FromBackend::of(&response).is_some() {
            return response;
        }
        let last_good = self.remote.last_good.respond(&owner.name, key, &headers).await;
        last_good.unwrap_or(response)
    }

    fn publisher(&self, key: &str) -> Option<Publisher> {
        let name = self.remote.owner(key)?;
        let handler = self.registration.handler(&name)?;
        Some(Publisher { name, handler })
    }
}

/// The publisher of a document.
struct Publisher {
    /// Name of the APIService.
    name: Str,
    handler: Arc<ProxyHandler>,
}

#[async_trait]
impl UnprotectedHandler for OpenApiHandler {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        let path = req.uri().path();
        if path == ROOT {
            return self.index(&authorized, req.headers()).await;
        }
        let Some(key) = path.strip_prefix("/openapi/v3/").filter(|k| !k.is_empty()) else {
            return not_found();
        };
        let key = key.to_owned();
        // Local first, for the same reason as in the index.
        if let Some(owner) = self.local_owner(&key, &authorized).await {
            return owner.serve(req, authorized).await;
        }
        if let Some(owner) = self.publisher(&key) {
            return self.ask_publisher(&owner, &key, req, authorized).await;
        }
        if self.remote.legacy.load().values().any(|k| *k == key.as_str()) {
            return self.converted.serve_key(&key, req.headers(), &Query::of(&req)).await;
        }
        not_found()
    }
}

/// The index of these parts, of which `own` replace those of backends.
fn joined(remote: &Indices, own: Vec<(Str, Value)>) -> Vec<u8> {
    let theirs = remote.values().flat_map(|index| index.paths.iter());
    let mut paths: Vec<(Str, Value)> = theirs.map(|(key, value)| (key.into(), value.clone())).collect();
    paths.extend(own);
    // In one step, of which the last pair with a key remains: one by one, each insertion would shift those after it.
    let mut document = Map::new();
    document.insert("paths", Map::from_pairs(paths));
    json::to_vec(&Value::Object(document))
}

fn not_found() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
