//! `/openapi/v2`: the document of the in-process servers merged with those of backends.
//!
//! ```text
//! Downloader ─→ RemoteDocuments (last good, filtered, compressed) ─┐
//! local `/openapi/v2`, queried on each request (mostly 304) ───────┴─→ merged on the blocking pool on change
//! ```
//!
//! Entry point: [`V2Handler`].

use super::convert::v3_of;
use super::download::Download;
use super::merge::{filter, merge};
use crate::aggregator::apiservice::ApiService;
use crate::aggregator::disk_cache::DiskCache;
use crate::aggregator::documents::DocumentKind;
use crate::aggregator::documents::{CollectError, PublishedKind, Rejected};
use crate::aggregator::own_requests::FetchedDocument;
use crate::api::openapi::Dialect;
use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::pieces::Pieces;
use crate::apimachinery::value::{Str, Value};
use crate::client::Informer;
use crate::endpoints::discovery::aggregated::hash;
use crate::endpoints::openapi::OpenApiV3;
use crate::endpoints::openapi::cached::{CachedDocument, MEMORY};
use crate::request::{Authorized, Body, Request, Response, UnprotectedHandler};
use crate::sync::Mutex;
use crate::tasks::off_thread;
use crate::telemetry::backends::BackendMetrics;
use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use http::{HeaderName, StatusCode, header};
use imbl::OrdMap;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Path of the v2 document.
pub(crate) const PATH: &str = "/openapi/v2";
const LOCAL_LIMIT: usize = 64 << 20;

/// The last good document of one backend.
struct Part {
    /// Sent to the backend in `If-None-Match`.
    etag: Option<String>,
    /// Hash of the document it was parsed from; empty if it was loaded from disk.
    source: String,
    document: CachedDocument,
}

/// The last good documents of backends by APIService name, each reduced to the paths of its own group
/// version.
#[derive(Default)]
pub(crate) struct RemoteDocuments {
    all: ArcSwap<OrdMap<Str, Arc<Part>>>,
    /// The same documents converted to v3 on demand, for backends that publish no v3.
    converted: Arc<OpenApiV3>,
    disk_cache: DiskCache,
}

/// Serves the merged document.
pub(crate) struct V2Handler {
    /// In-process handler for [`PATH`].
    local: Arc<dyn UnprotectedHandler>,
    remote: Arc<RemoteDocuments>,
    informer: Informer<ApiService>,
    merged: Arc<Merged>,
    metrics: Arc<BackendMetrics>,
}

#[derive(Default)]
struct Merged {
    current: ArcSwapOption<Current>,
    /// Held while merging on the blocking pool, so that concurrent requests do not merge the same parts.
    merging: Mutex<()>,
}

struct Current {
    local: String,
    /// The remote parts, in order.
    remote: Vec<Named>,
    document: CachedDocument,
}

/// An APIService and the hash of its document.
type Named = (Str, String);

/// Why the document was merged again, for the metrics.
#[derive(Debug, PartialEq, Eq)]
struct Cause {
    apiservice: Str,
    reason: &'static str,
}

/// The differences from the previous merge.
fn causes(before: Option<&Current>, local: &str, remote: &[Named]) -> Vec<Cause> {
    let cause = |apiservice: &Str, reason| Cause {
        apiservice: apiservice.clone(),
        reason,
    };
    let old = before.map_or(&[][..], |c| &c.remote);
    // Searched through maps: the number of APIServices, and so of parts, is not bounded.
    let by_name = |all: &[Named]| -> HashMap<Str, String> { all.iter().cloned().collect() };
    let (known, current) = (by_name(old), by_name(remote));
    let mut found: Vec<Cause> = Vec::new();
    if before.is_none_or(|c| c.local != local) {
        found.push(cause(&"local".into(), if before.is_none() { "add" } else { "update" }));
    }
    for (name, hash) in remote {
        match known.get(name) {
            None => found.push(cause(name, "add")),
            Some(known) if known != hash => found.push(cause(name, "update")),
            Some(_) => {}
        }
    }
    let gone = old.iter().filter(|(name, _)| !current.contains_key(name));
    found.extend(gone.map(|(name, _)| cause(name, "delete")));
    found
}

// === impl RemoteDocuments ===

impl RemoteDocuments {
    /// Creates an empty set; documents on disk are loaded by [`Download::restore`].
    pub(crate) fn new(disk_cache: DiskCache) -> Self {
        Self {
            disk_cache,
            ..Self::default()
        }
    }

    fn store(&self, of: &ApiService, part: Part) {
        // Shares the compressed bytes. They are converted when a client first asks for the v3 form.
        let older = part.document.clone();
        let name = of.name.clone();
        let convert = move |to: &mut Pieces<'_>| {
            let document = json::decode(&older.json()).unwrap_or_default();
            let converted = v3_of(&document).unwrap_or_else(|| {
                tracing::warn!(%name, "an OpenAPI v2 document of a backend is not converted: its v3 form would be many times as large");
                Value::object()
            });
            to.value(&converted);
        };
        let key = of.discovery_path();
        self.converted.set(key.trim_start_matches('/'), Arc::new(convert));
        let part = Arc::new(part);
        self.all.rcu(|all| all.update(of.name.clone(), part.clone()));
    }

    /// The converted documents, by key.
    pub(crate) fn converted(&self) -> Arc<OpenApiV3> {
        self.converted.clone()
    }
}

#[async_trait]
impl Download for RemoteDocuments {
    fn path(&self) -> &'static str {
        PATH
    }

    fn document(&self) -> DocumentKind {
        DocumentKind::OpenApiV2
    }

    fn headers(&self, name: &Str) -> Vec<(HeaderName, String)> {
        let known = self.all.load().get(name).and_then(|p| p.etag.clone());
        let accept = (header::ACCEPT, "application/json".to_owned());
        let known = known.map(|etag| (header::IF_NONE_MATCH, etag));
        [accept].into_iter().chain(known).collect()
    }

    async fn take(&self, of: &ApiService, response: FetchedDocument) -> Result<(), CollectError> {
        if response.status == 304 {
            return Ok(());
        }
        if response.status != 200 {
            return Err(CollectError::Status {
                status: response.status,
                path: PATH.to_owned(),
            });
        }
        let etag = response.headers.get(header::ETAG).and_then(|v| v.to_str().ok());
        let etag = etag.map(str::to_owned);
        let prefix = format!("{}/", of.discovery_path());
        let before = self.all.load().get(&of.name).cloned();
        let known = before.clone();
        let parser = self.disk_cache.documents().clone();
        let parsed = self.disk_cache.documents().run_blocking(move || {
            let source = hash(&response.body);
            if known.is_some_and(|k| k.source == source && k.etag == etag) {
                return Ok(None);
            }
            let mut document = parser.parse(PublishedKind::OpenApiV2, &response.body)?;
            // A backend must not describe paths that lead to others.
            filter(&mut document, |path| path.starts_with(&prefix));
            let part = Part {
                etag,
                source,
                document: CachedDocument::new(&document, Dialect::V2),
            };
            Ok::<_, Rejected>(Some((part, document)))
        });
        let Some((part, tree)) = parsed.await.ok_or(CollectError::ShuttingDown)?? else {
            return Ok(());
        };
        // Compared after filtering: a change in paths that are not this APIService's is not written.
        if before.is_none_or(|b| b.document.hash != part.document.hash) {
            self.disk_cache.save(DocumentKind::OpenApiV2, of, tree).await;
        }
        self.store(of, part);
        Ok(())
    }

    async fn restore(&self, of: &ApiService) -> bool {
        let (disk_cache, s) = (self.disk_cache.clone(), of.clone());
        let kept = self.disk_cache.documents().run_blocking(move || {
            Some(CachedDocument::new(
                &disk_cache.load(DocumentKind::OpenApiV2, &s)?,
                Dialect::V2,
            ))
        });
        let Some(document) = kept.await.flatten() else {
            return false;
        };
        let part = Part {
            // Without an ETag, so that the first download is not answered with a 304 against a restored copy.
            etag: None,
            source: String::new(),
            document,
        };
        self.store(of, part);
        true
    }

    fn remove(&self, name: &Str) {
        self.disk_cache.remove(DocumentKind::OpenApiV2, name);
        self.all.rcu(|all| all.without(name));
        if let Some((version, group)) = name.split_once('.') {
            // As `ApiService::discovery_path`, by which it was stored.
            self.converted.remove(&match group {
                "" => format!("api/{version}"),
                group => format!("apis/{group}/{version}"),
            });
        }
    }
}

// === impl V2Handler ===

impl V2Handler {
    /// Merges backends' documents into that of `local`.
    pub(crate) fn new(
        local: Arc<dyn UnprotectedHandler>,
        remote: Arc<RemoteDocuments>,
        informer: Informer<ApiService>,
        metrics: Arc<BackendMetrics>,
    ) -> Self {
        Self {
            local,
            remote,
            informer,
            metrics,
            merged: Arc::default(),
        }
    }

    /// The remote documents in merge order: by group priority, highest first, then by APIService name.
    fn parts(&self) -> Vec<(Str, Arc<Part>)> {
        let services = self.informer.snapshot();
        let mut priorities: HashMap<&str, i64> = HashMap::new();
        for s in services.values() {
            let highest = priorities.entry(&s.group).or_insert(s.group_priority);
            *highest = s.group_priority.max(*highest);
        }
        let all = self.remote.all.load();
        let mut parts: Vec<(i64, Str, Arc<Part>)> = all
            .iter()
            .filter_map(|(name, part)| {
                let group = &services.get(name.as_str())?.group;
                Some((-priorities.get(group.as_str())?, name.clone(), part.clone()))
            })
            .collect();
        // Stable, and `all` is sorted by name, which therefore decides between groups of equal priority and
        // between versions, whose priority has no effect upstream either.
        parts.sort_by_key(|p| p.0);
        parts.into_iter().map(|(_, name, part)| (name, part)).collect()
    }

    /// The local document; `None` if it still has the ETag `known`.
    async fn local(&self, known: &str, authorized: &Authorized) -> Result<Option<(String, Vec<u8>)>, Response> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(PATH);
        if let Ok(v) = http::HeaderValue::from_str(known) {
            request.headers_mut().insert(header::IF_NONE_MATCH, v);
        }
        let response = self.local.clone().serve(request, authorized.clone()).await;
        match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(None),
            StatusCode::OK => {}
            _ => return Err(response),
        }
        let etag = response.headers().get(header::ETAG).and_then(|v| v.to_str().ok());
        let etag = etag.unwrap_or("").to_owned();
        match response.into_body().collect(LOCAL_LIMIT).await {
            Ok(bytes) => Ok(Some((etag, bytes.to_vec()))),
            Err(_) => Err(unavailable()),
        }
    }

    async fn document(
        &self,
        parts: Vec<(Str, Arc<Part>)>,
        authorized: &Authorized,
    ) -> Result<CachedDocument, Response> {
        let hashes: Vec<Named> = parts
            .iter()
            .map(|(n, p)| (n.clone(), p.document.hash.clone()))
            .collect();
        // A 304 helps only if the remote parts are unchanged, so the ETag is sent only then.
        let current = self.merged.current.load_full().filter(|c| c.remote == hashes);
        let known = current.as_ref().map_or("", |c| &c.local);
        let (etag, bytes) = match (self.local(known, authorized).await?, current) {
            (None, Some(current)) => return Ok(current.document.clone()),
            // A 304 without an ETag in the request is a fault of the local handler.
            (None, None) => return Err(unavailable()),
            (Some(local), _) => local,
        };
        let (merged, metrics) = (self.merged.clone(), self.metrics.clone());
        let built = off_thread(MEMORY, move || merged.build(&etag, &bytes, &parts, hashes, &metrics)).await;
        built.ok_or_else(unavailable)?.map_err(|_| unavailable())
    }
}

impl Merged {
    fn build(
        &self,
        etag: &str,
        local: &[u8],
        parts: &[(Str, Arc<Part>)],
        remote: Vec<Named>,
        metrics: &BackendMetrics,
    ) -> Result<CachedDocument, json::Error> {
        // Others that waited here find the document of the first.
        let _guard = self.merging.lock();
        let began = Instant::now();
        let before = self.current.load_full();
        if let Some(c) = &before
            && c.local == etag
            && c.remote == remote
        {
            return Ok(c.document.clone());
        }
        let mut document: Value = json::decode(local)?;
        for (_, part) in parts {
            // Decoded anew for each merge: the parts are kept compressed, and merges are rare.
            merge(&mut document, json::decode(&part.document.json())?);
        }
        let document = CachedDocument::new(&document, Dialect::V2);
        for cause in causes(before.as_deref(), etag, &remote) {
            metrics.merged_openapi_v2(&cause.apiservice, cause.reason, began.elapsed());
        }
        self.current.store(Some(Arc::new(Current {
            local: etag.to_owned(),
            remote,
            document: document.clone(),
        })));
        Ok(document)
    }
}

#[async_trait]
impl UnprotectedHandler for V2Handler {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        let parts = self.parts();
        if parts.is_empty() {
            // Frees the merged document: without backends it is not needed.
            self.merged.current.store(None);
            return self.local.clone().serve(req, authorized).await;
        }
        match self.document(parts, &authorized).await {
            Ok(document) => document.respond(req.headers()).await,
            Err(response) => response,
        }
    }
}

pub(super) fn unavailable() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[tokio::test]
    async fn the_same_document_is_parsed_once() {
        let all = RemoteDocuments::default();
        let of =
            ApiService::from_value(&json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1"}}));
        let part = || all.all.load().get("v1.g").cloned().unwrap();
        let response = |body: &'static str| FetchedDocument {
            status: 200,
            headers: http::HeaderMap::new(),
            body: body.into(),
            _permit: None,
        };
        all.take(&of, response(r#"{"paths":{"/apis/g/v1/":{}}}"#))
            .await
            .unwrap();
        let first = part();
        // The backend sends no ETag.
        all.take(&of, response(r#"{"paths":{"/apis/g/v1/":{}}}"#))
            .await
            .unwrap();
        assert!(Arc::ptr_eq(&first, &part()));
        all.take(&of, response(r#"{"paths":{"/apis/g/v1/things":{}}}"#))
            .await
            .unwrap();
        assert_ne!(first.document.hash, part().document.hash);
    }

    #[test]
    fn a_merge_is_counted_for_each_changed_part() {
        let part = |name: &str, hash: &str| -> Named { (name.into(), hash.to_owned()) };
        let described =
            |c: Vec<Cause>| -> Vec<String> { c.iter().map(|c| format!("{} {}", c.apiservice, c.reason)).collect() };
        let first = vec![part("v1.a", "1"), part("v1.b", "1")];
        assert_eq!(
            described(causes(None, "x", &first)),
            ["local add", "v1.a add", "v1.b add"]
        );
        let before = Current {
            local: "x".to_owned(),
            remote: first,
            document: CachedDocument::new(&json!({}), Dialect::V2),
        };
        let now = [part("v1.b", "2"), part("v1.c", "1")];
        assert_eq!(
            described(causes(Some(&before), "x", &now)),
            ["v1.b update", "v1.c add", "v1.a delete"]
        );
        assert_eq!(described(causes(Some(&before), "y", &before.remote)), ["local update"]);
    }
}
