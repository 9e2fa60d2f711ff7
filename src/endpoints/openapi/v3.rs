//! [`OpenApiV3`]: `/openapi/v3`, an index with content hashes and one document per group version.

use super::cached::{CachedDocument, MEMORY};
use super::content::{bare, set};
use super::{described, operations, paths};
use crate::api::openapi::{Components, Dialect, closure};
use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::pieces::Pieces;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::options::Query;
use crate::registry::resource::Resource;
use crate::request::{Authorized, Body, Request, Response, UnprotectedHandler};
use crate::sync::Mutex;
use crate::tasks::off_thread;
use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, EXPIRES};
use http::{HeaderMap, StatusCode};
use imbl::OrdMap;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

const ROOT: &str = "/openapi/v3";

/// Writes a document. Called on first use, off the reactor threads.
pub(crate) type Build = Arc<dyn Fn(&mut Pieces<'_>) + Send + Sync>;

/// Compressed size, in bytes, of the temporary documents that are kept. Beyond it the least recently built are dropped.
const KEPT: usize = 8 << 20;

struct Document {
    build: Build,
    /// Known in advance for a temporary document.
    hash: Option<String>,
    /// An estimate of what building it allocates, in bytes. Large documents are built one after the other.
    memory: usize,
    cached: ArcSwapOption<CachedDocument>,
    /// Held while the document is built, so that it is built once.
    building: Mutex<()>,
}

/// The documents of one server by key, such as `api/v1`, `apis/apps/v1` or `version`.
#[derive(Default)]
pub(crate) struct OpenApiV3 {
    documents: ArcSwap<OrdMap<String, Arc<Document>>>,
    /// The temporary documents that are built, the oldest first.
    built: Arc<Mutex<VecDeque<Arc<Document>>>>,
}

impl OpenApiV3 {
    /// An empty set of documents.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a document.
    pub(crate) fn set(&self, key: &str, build: Build) {
        self.insert(key, build, None, MEMORY);
    }

    /// Adds or replaces a document that is built only for requests for it, not for the index, and not kept
    /// for ever. `hash` must change with its content; `memory` is what building it allocates, in bytes.
    pub(crate) fn set_temporary(&self, key: &str, hash: String, memory: usize, build: Build) {
        self.insert(key, build, Some(hash), memory);
    }

    fn insert(&self, key: &str, build: Build, hash: Option<String>, memory: usize) {
        // Built by the first request for it, not here.
        let document = Arc::new(Document {
            build,
            hash,
            memory,
            cached: ArcSwapOption::empty(),
            building: Mutex::new(()),
        });
        let old = self.documents.rcu(|all| {
            let mut all = OrdMap::clone(all);
            all.insert(key.to_owned(), document.clone());
            all
        });
        self.forget(old.get(key));
    }

    pub(crate) fn remove(&self, key: &str) {
        let old = self.documents.rcu(|all| {
            let mut all = OrdMap::clone(all);
            all.remove(key);
            all
        });
        self.forget(old.get(key));
    }

    fn forget(&self, document: Option<&Arc<Document>>) {
        if let Some(gone) = document.filter(|d| d.hash.is_some()) {
            let mut built = self.built.lock();
            built.retain(|d| !Arc::ptr_eq(d, gone));
        }
    }

    /// The keys of all documents.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<String> {
        self.documents.load().keys().cloned().collect()
    }

    /// Key and `serverRelativeURL` of every document. Builds all documents that are not temporary, because
    /// the URLs contain their hashes.
    pub(crate) async fn urls(&self) -> Vec<(String, String)> {
        let all = self.documents.load_full();
        let hashes = off_thread(MEMORY, move || {
            let one = |(key, d): (&String, &Arc<Document>)| {
                let hash = d.hash.clone().unwrap_or_else(|| d.built().hash.clone());
                (key.clone(), format!("{ROOT}/{key}?hash={hash}"))
            };
            all.iter().map(one).collect()
        });
        // Without a free place in the pool the index is empty for once; clients ask again.
        hashes.await.unwrap_or_default()
    }

    /// The document under `key`, built if necessary; `None` if there is none or it could not be built.
    pub(crate) async fn document(&self, key: &str) -> Option<CachedDocument> {
        let document = self.documents.load().get(key).cloned()?;
        // Without the lock: nearly every request finds the document built.
        if let Some(cached) = document.cached.load_full() {
            return Some(CachedDocument::clone(&cached));
        }
        let built = self.built.clone();
        off_thread(document.memory, move || {
            let new = document.built();
            if document.hash.is_some() {
                // Only temporary documents count towards the limit: there are few others, and they never change.
                keep(&mut built.lock(), document);
            }
            CachedDocument::clone(&new)
        })
        .await
    }

    /// Responds with the document under `key` (without a leading slash): immutable if `?hash=` matches, a
    /// redirect if it is outdated.
    pub(crate) async fn serve_key(&self, key: &str, headers: &HeaderMap, query: &Query) -> Response {
        let Some(document) = self.document(key).await else {
            // Both cases return `None`; a document that exists could not be built now.
            let overloaded = self.documents.load().contains_key(key);
            return bare(if overloaded {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::NOT_FOUND
            });
        };
        if query.get("hash").is_some_and(|h| !h.is_empty() && h != document.hash) {
            return document.moved(headers, &format!("{ROOT}/{key}?hash={}", document.hash));
        }
        let mut response = document.respond(headers).await;
        if query.get("hash") == Some(&document.hash) && document.negotiate(headers).is_some() {
            set(&mut response, CACHE_CONTROL, "public, immutable");
            set(&mut response, EXPIRES, &in_a_year());
        }
        response
    }

    /// Responds with the index.
    pub(crate) async fn serve_index(&self) -> Response {
        index(self.urls().await)
    }
}

impl Document {
    /// The document, built if it is not cached.
    fn built(&self) -> Arc<CachedDocument> {
        // Checked again under the lock: another thread may have built it meanwhile.
        let _building = self.building.lock();
        if let Some(cached) = self.cached.load_full() {
            return cached;
        }
        let mut document = CachedDocument::written(Dialect::V3, |to| (self.build)(to));
        if let Some(hash) = &self.hash {
            // The index already published this hash in the URL of the document.
            document.hash.clone_from(hash);
        }
        let document = Arc::new(document);
        self.cached.store(Some(document.clone()));
        document
    }
}

/// Adds a document to those that are built, and empties the oldest ones beyond [`KEPT`].
fn keep(built: &mut VecDeque<Arc<Document>>, document: Arc<Document>) {
    // It may be in the list: several requests can have waited for the same build.
    built.retain(|d| !Arc::ptr_eq(d, &document));
    built.push_back(document);
    let size = |d: &Arc<Document>| d.cached.load().as_ref().map_or(0, |cached| cached.packed_len());
    let mut total: usize = built.iter().map(size).sum();
    while total > KEPT {
        let Some(oldest) = built.pop_front() else { break };
        // Before it is emptied: its size is read from the cached document.
        total -= size(&oldest);
        oldest.cached.store(None);
    }
}

/// The index `{"paths": {key: {serverRelativeURL}}}`. Like upstream, it is not labelled as JSON.
pub(crate) fn index(urls: Vec<(String, String)>) -> Response {
    let one = |(key, url): (String, String)| {
        let mut m = Map::new();
        m.insert("serverRelativeURL", url);
        (key, Value::Object(m))
    };
    let paths: Map = urls.into_iter().map(one).collect();
    let mut m = Map::new();
    m.insert("paths", paths);
    let mut r = Response::new(Body::full(json::to_vec(&Value::Object(m))));
    set(&mut r, CONTENT_TYPE, "text/plain; charset=utf-8");
    r
}

fn in_a_year() -> String {
    let then = time::OffsetDateTime::now_utc() + time::Duration::days(365);
    // Ends in `UTC` instead of `GMT`: upstream formats with `time.RFC1123`.
    let date = then.format(time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] UTC"
    ));
    date.unwrap_or_default()
}

#[async_trait]
impl UnprotectedHandler for OpenApiV3 {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        match req.uri().path().strip_prefix(ROOT) {
            Some("") => self.serve_index().await,
            Some(rest) => match rest.strip_prefix('/').filter(|k| !k.is_empty()) {
                Some(key) => {
                    let (key, query) = (key.to_owned(), Query::of(&req));
                    let headers = req.into_parts().0.headers;
                    self.serve_key(&key, &headers, &query).await
                }
                None => bare(StatusCode::NOT_FOUND),
            },
            None => bare(StatusCode::NOT_FOUND),
        }
    }
}

/// The key of a group version's document, such as `apis/apps/v1`.
pub(crate) fn key(gv: &GroupVersion) -> String {
    gv.path().trim_start_matches('/').to_owned()
}

/// Wraps paths and schemas into `{openapi, info, paths, components}`.
pub(crate) fn document(paths: Map, schemas: Map) -> Value {
    let mut out = crate::json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "components": {"securitySchemes": (security_schemes())},
    });
    out.set(&["components", "schemas"], schemas);
    out.set(&["paths"], paths);
    out
}

fn security_schemes() -> Value {
    crate::json!({"BearerToken": {
        "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"}})
}

/// Writes the document of a group version. Components of built-in kinds are looked up by definition name,
/// others come from the kind's schema.
pub(crate) fn write_group_version(gv: &GroupVersion, rows: &[Arc<Resource>], to: &mut Pieces<'_>) {
    let is_custom = rows.iter().any(|row| row.unstructured);
    let operations = operations::of_rows(gv, rows.iter());
    let mut named = paths::definitions(&operations);
    to.object(|document| {
        document.object("components", |components| {
            components.object("schemas", |schemas| {
                let mut own = HashSet::new();
                described::write(Dialect::V3, gv, rows, &mut named, schemas, &mut own);
                let names = closure(named.iter().map(String::as_str));
                let group_versions = [(gv.group.as_str(), gv.version.as_str())];
                for (name, schema) in Components::load().schemas(Dialect::V3, &names, &group_versions) {
                    if !own.contains(name.as_str()) {
                        schemas.value(&name, &schema);
                    }
                }
            });
            if !is_custom {
                components.value("securitySchemes", &security_schemes());
            }
        });
        let info = match is_custom {
            true => crate::json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}),
            false => crate::json!({"title": "Kubernetes", "version": "1.36"}),
        };
        document.value("info", &info);
        document.value("openapi", &"3.0.0".into());
        document.object("paths", |all| {
            for (path, item) in paths::paths(Dialect::V3, gv, &operations) {
                all.value(&path, &Value::Object(item));
            }
        });
    });
}

/// A document as a tree.
#[cfg(test)]
pub(crate) fn tree(write: impl FnOnce(&mut Pieces<'_>)) -> Value {
    let mut text = Vec::new();
    Pieces::write(&mut |piece| text.extend_from_slice(piece), write);
    json::decode(&text).expect("a document is JSON")
}

#[cfg(test)]
mod tests;
