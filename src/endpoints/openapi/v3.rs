//! [`OpenApiV3`]: `/openapi/v3`, an index with content hashes and one document per group version.

use super::cached::{CachedDocument, MEMORY, bare, set};
use super::{operations, paths};
use crate::api::openapi::{Components, Dialect, closure};
use crate::apimachinery::codec::json;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::options::Query;
use crate::registry::resource::Resource;
use crate::request::{Authorized, Body, Request, Response, UnprotectedHandler};
use crate::tasks::off_thread;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, EXPIRES};
use http::{HeaderMap, StatusCode};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const ROOT: &str = "/openapi/v3";

/// Builds a document. Called on first use, off the reactor threads.
pub type Build = Arc<dyn Fn() -> Value + Send + Sync>;

struct Document {
    build: Build,
    cached: OnceLock<CachedDocument>,
}

/// The documents of one server by key, such as `api/v1`, `apis/apps/v1` or `version`.
#[derive(Default)]
pub struct OpenApiV3 {
    documents: ArcSwap<BTreeMap<String, Arc<Document>>>,
}

impl OpenApiV3 {
    /// An empty set of documents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a document.
    pub fn set(&self, key: &str, build: Build) {
        // Built by the first request for it, not here.
        let document = Arc::new(Document {
            build,
            cached: OnceLock::new(),
        });
        self.documents.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.insert(key.to_owned(), document.clone());
            all
        });
    }

    /// Removes a document.
    pub fn remove(&self, key: &str) {
        self.documents.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.remove(key);
            all
        });
    }

    /// The keys of all documents.
    pub fn keys(&self) -> Vec<String> {
        self.documents.load().keys().cloned().collect()
    }

    /// Key and `serverRelativeURL` of every document. Builds all documents, because the URLs contain their hashes.
    pub async fn urls(&self) -> Vec<(String, String)> {
        let all = self.documents.load_full();
        let hashes = off_thread(MEMORY, move || {
            let one =
                |(key, d): (&String, &Arc<Document>)| (key.clone(), format!("{ROOT}/{key}?hash={}", d.cached().hash));
            all.iter().map(one).collect()
        });
        hashes.await.unwrap_or_default()
    }

    /// The document under `key`, built if necessary; `None` if there is none or it could not be built.
    pub async fn document(&self, key: &str) -> Option<CachedDocument> {
        let document = self.documents.load().get(key).cloned()?;
        if let Some(cached) = document.cached.get() {
            return Some(cached.clone());
        }
        off_thread(MEMORY, move || document.cached().clone()).await
    }

    /// Responds with the document under `key` (without a leading slash): immutable if `?hash=` matches, a redirect if
    /// it is outdated.
    pub async fn serve_key(&self, key: &str, headers: &HeaderMap, query: &Query) -> Response {
        let Some(document) = self.document(key).await else {
            return bare(StatusCode::NOT_FOUND);
        };
        if query.get("hash").is_some_and(|h| !h.is_empty() && h != document.hash) {
            return document.moved(headers, &format!("{ROOT}/{key}?hash={}", document.hash));
        }
        let mut response = document.respond(headers).await;
        if query.get("hash") == Some(&document.hash) && response.status() != StatusCode::NOT_ACCEPTABLE {
            set(&mut response, CACHE_CONTROL, "public, immutable");
            set(&mut response, EXPIRES, &in_a_year());
        }
        response
    }

    /// Responds with the index.
    pub async fn serve_index(&self) -> Response {
        index(self.urls().await)
    }
}

impl Document {
    fn cached(&self) -> &CachedDocument {
        self.cached
            .get_or_init(|| CachedDocument::new(&(self.build)(), Dialect::V3))
    }
}

/// The index `{"paths": {key: {serverRelativeURL}}}`. Like upstream, it is not labelled as JSON.
pub fn index(urls: Vec<(String, String)>) -> Response {
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
pub fn key(gv: &GroupVersion) -> String {
    gv.path().trim_start_matches('/').to_owned()
}

/// Wraps paths and schemas into `{openapi, info, paths, components}`.
pub fn document(paths: Map, schemas: Map) -> Value {
    let mut out = crate::json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "components": {"securitySchemes": {"BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"}}},
    });
    out.set(&["components", "schemas"], schemas);
    out.set(&["paths"], paths);
    out
}

/// Builds the document of a group version. Components of built-in kinds are looked up by definition name, others come
/// from the kind's schema.
pub fn group_version_document(gv: &GroupVersion, rows: &[Arc<Resource>]) -> Value {
    let operations = operations::of_rows(gv, rows.iter());
    let mut named = paths::definitions(&operations);
    let own = own_components(gv, rows, &mut named);
    let names = closure(named.iter().map(String::as_str));
    let group_versions = [(gv.group.as_str(), gv.version.as_str())];
    let mut schemas = Components::load().schemas(Dialect::V3, &names, &group_versions);
    for (name, schema) in own {
        schemas.insert(name, schema);
    }
    document(paths::paths(Dialect::V3, gv, &operations), schemas)
}

/// The components of kinds with a schema of their own, and of their lists. Definitions they refer to are added to
/// `named`.
pub(super) fn own_components(gv: &GroupVersion, rows: &[Arc<Resource>], named: &mut Vec<String>) -> Map {
    let mut own = Map::new();
    for row in rows {
        let Some(component) = row.schema.openapi() else {
            continue;
        };
        let list = list_of(gv, row);
        references(&component, named);
        references(&list, named);
        own.insert(row.definition.as_str(), component);
        own.insert(format!("{}List", row.definition), list);
    }
    own
}

/// The list kind's component for a kind with its own schema.
fn list_of(gv: &GroupVersion, row: &Resource) -> Value {
    let reference = |name: &str| crate::json!({"$ref": (format!("{COMPONENTS}{name}"))});
    let mut list = crate::json!({
        "description": (format!("{0}List is a list of {0}", row.kind)),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "items": {"type": "array"},
        },
        "x-kubernetes-group-version-kind": [
            {"group": (gv.group.as_str()), "kind": (format!("{}List", row.kind)), "version": (gv.version.as_str())}],
    });
    list.set(&["properties", "items", "items"], reference(&row.definition));
    let metadata = vec![reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")];
    list.set(&["properties", "metadata", "allOf"], metadata);
    list
}

const COMPONENTS: &str = "#/components/schemas/";

/// Collects the names of the components a schema refers to.
fn references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(m) => {
            for (key, v) in m.iter() {
                match v.as_str().and_then(|s| s.strip_prefix(COMPONENTS)) {
                    Some(name) if key == "$ref" => out.push(name.to_owned()),
                    _ => references(v, out),
                }
            }
        }
        Value::Array(a) => a.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
