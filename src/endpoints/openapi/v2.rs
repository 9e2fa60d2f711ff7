//! [`OpenApiV2`]: the combined document of all group versions at `/openapi/v2`, for older clients.

use super::cached::{CachedDocument, MEMORY, bare};
use super::{core_documents, operations, paths, v3};
use crate::api::openapi::{Components, Dialect, closure};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::registry::resource::Resource;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::tasks::off_thread;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::StatusCode;
use std::sync::{Arc, OnceLock};

mod parameters;
mod schema;

/// The resources of every group version served.
pub type ServedResources = Vec<(GroupVersion, Vec<Arc<Resource>>)>;

/// Serves the document, which is built on first use and after every change of the resources.
pub struct OpenApiV2 {
    current: ArcSwap<Current>,
}

struct Current {
    served: ServedResources,
    cached: OnceLock<CachedDocument>,
}

impl OpenApiV2 {
    /// A document of these resources.
    pub fn new(served: ServedResources) -> Self {
        Self {
            current: ArcSwap::from_pointee(Current {
                served,
                cached: OnceLock::new(),
            }),
        }
    }

    /// Replaces the resources; the document is rebuilt on its next use.
    pub fn set(&self, served: ServedResources) {
        self.current.store(Arc::new(Current {
            served,
            cached: OnceLock::new(),
        }));
    }

    /// The document, built if necessary; `None` if that failed because of overload, a timeout or shutdown.
    pub async fn document(&self) -> Option<CachedDocument> {
        let current = self.current.load_full();
        let built = off_thread(MEMORY, move || {
            let build = || CachedDocument::new(&document(&current.served), Dialect::V2);
            current.cached.get_or_init(build).clone()
        });
        built.await
    }
}

/// Builds the combined document of these resources.
pub fn document(served: &ServedResources) -> Value {
    let mut all_paths = Map::new();
    let mut named: Vec<String> = Vec::new();
    let mut own = Map::new();
    for (gv, rows) in served {
        let operations = operations::of_rows(gv, rows.iter());
        named.extend(paths::definitions(&operations));
        for (name, mut component) in v3::own_components(gv, rows, &mut named) {
            schema::definition(&mut component);
            own.insert(name, component);
        }
        for (path, item) in paths::paths(Dialect::V2, gv, &operations) {
            all_paths.insert(path, item);
        }
    }
    let mut groups: Vec<&str> = served.iter().map(|(gv, _)| gv.group.as_str()).collect();
    groups.dedup();
    let mut definitions = Vec::new();
    for (path, item, definition) in core_documents::items(&groups) {
        all_paths.insert(path, item);
        definitions.extend(definition);
    }
    let names = closure(named.iter().map(String::as_str).chain(definitions));
    let group_versions: Vec<(&str, &str)> = served
        .iter()
        .map(|(gv, _)| (gv.group.as_str(), gv.version.as_str()))
        .collect();
    let mut definitions = Components::load().schemas(Dialect::V2, &names, &group_versions);
    for (name, definition) in own {
        definitions.insert(name, definition);
    }
    let mut out = crate::json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"}},
        "security": [{"BearerToken": []}],
    });
    out.set(&["parameters"], parameters::share(&mut all_paths));
    out.set(&["paths"], all_paths);
    out.set(&["definitions"], definitions);
    out
}

#[async_trait]
impl UnprotectedHandler for OpenApiV2 {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        match self.document().await {
            Some(document) => document.respond(req.headers()).await,
            None => bare(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}
