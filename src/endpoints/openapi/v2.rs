//! [`OpenApiV2`]: the combined document of all group versions at `/openapi/v2`, for older clients.

use super::cached::{CachedDocument, MEMORY};
use super::content::bare;
use super::{core_documents, described, operations, paths};
use crate::api::openapi::{Components, Dialect, closure};
use crate::apimachinery::codec::json::pieces::Pieces;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::registry::resource::Resource;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::tasks::off_thread;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::StatusCode;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

mod parameters;

/// The resources of every group version served.
pub(crate) type ServedResources = Vec<(GroupVersion, Vec<Arc<Resource>>)>;

/// Lists custom resources. Called while the document is built, off the reactor threads.
pub(crate) type ListCustom = Arc<dyn Fn() -> ServedResources + Send + Sync>;

/// Serves the document, which is built on first use and after every change of the resources.
#[derive(Default)]
pub(crate) struct OpenApiV2 {
    current: ArcSwap<Current>,
}

#[derive(Clone)]
struct Custom {
    list: ListCustom,
    /// An estimate of what their part of the document allocates while it is built, in bytes.
    memory: usize,
}

#[derive(Default)]
struct Current {
    served: Arc<ServedResources>,
    custom: Option<Custom>,
    cached: OnceLock<CachedDocument>,
}

impl OpenApiV2 {
    /// A document of these resources.
    pub(crate) fn new(served: ServedResources) -> Self {
        let empty = Self::default();
        empty.set(served);
        empty
    }

    /// Replaces the resources; the document is rebuilt on its next use.
    pub(crate) fn set(&self, served: ServedResources) {
        let served = Arc::new(served);
        self.current.rcu(|old| Current {
            served: served.clone(),
            custom: old.custom.clone(),
            cached: OnceLock::new(),
        });
    }

    /// Replaces the custom resources, which are added to the others; the document is rebuilt on its next use.
    /// `memory` is what their part allocates meanwhile, in bytes.
    pub(crate) fn set_custom(&self, memory: usize, list: ListCustom) {
        let custom = Custom { list, memory };
        self.current.rcu(|old| Current {
            served: old.served.clone(),
            custom: Some(custom.clone()),
            cached: OnceLock::new(),
        });
    }

    /// The document, built if necessary; `None` if that failed because of overload, a timeout or shutdown.
    pub(crate) async fn document(&self) -> Option<CachedDocument> {
        let current = self.current.load_full();
        let memory = MEMORY + current.custom.as_ref().map_or(0, |custom| custom.memory);
        let built = off_thread(memory, move || {
            let build = || {
                let custom = current
                    .custom
                    .as_ref()
                    .map(|custom| (custom.list)())
                    .unwrap_or_default();
                let served: Vec<_> = current.served.iter().chain(&custom).collect();
                CachedDocument::written(Dialect::V2, |to| write(&served, to))
            };
            // Concurrent first requests wait here, off the reactor, instead of building the document again. A later
            // change of the resources replaces `Current` as a whole, so a document is never cached for other
            // resources than its own.
            current.cached.get_or_init(build).clone()
        });
        built.await
    }
}

/// Writes the combined document of these resources, one path and one definition at a time: the trees of all
/// would take many times the memory of the text.
pub(crate) fn write(served: &[&(GroupVersion, Vec<Arc<Resource>>)], to: &mut Pieces<'_>) {
    // The documents of custom groups have no operation of their own.
    let built_in = served
        .iter()
        .filter(|(_, rows)| !rows.iter().any(|row| row.unstructured));
    let group_versions = built_in.map(|(gv, _)| (gv.group.as_str(), gv.version.as_str()));
    let group_versions: Vec<(&str, &str)> = group_versions.collect();
    let mut groups: Vec<&str> = group_versions.iter().map(|(group, _)| *group).collect();
    // Versions of a group follow each other, so removing neighbours suffices.
    groups.dedup();
    let mut named: HashSet<String> = HashSet::new();
    // Filled while the paths are written, which is why the section follows them.
    let mut shared = Map::new();
    to.object(|document| {
        document.value("swagger", &"2.0".into());
        document.value("info", &crate::json!({"title": "Kubernetes", "version": "1.36"}));
        document.object("paths", |all| {
            let mut write = |path: &str, mut item: Map| {
                parameters::share(&mut item, &mut shared);
                all.value(path, &Value::Object(item));
            };
            for (path, item, definition) in core_documents::items(&groups) {
                named.extend(definition.map(str::to_owned));
                write(&path, item);
            }
            for (gv, rows) in served {
                let operations = operations::of_rows(gv, rows.iter());
                named.extend(paths::definitions(&operations));
                for (path, item) in paths::paths(Dialect::V2, gv, &operations) {
                    write(&path, item);
                }
            }
        });
        document.value("parameters", &Value::Object(shared));
        document.object("definitions", |all| {
            let mut written: HashSet<String> = HashSet::new();
            for (gv, rows) in served {
                let mut references = Vec::new();
                described::write(Dialect::V2, gv, rows, &mut references, all, &mut written);
                named.extend(references);
            }
            let names = closure(named.iter().map(String::as_str));
            for (name, component) in Components::load().schemas(Dialect::V2, &names, &group_versions) {
                // The schema of a custom kind takes precedence over a built-in definition of the same name.
                if !written.contains(name.as_str()) {
                    all.value(&name, &component);
                }
            }
        });
        let token = crate::json!({
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"});
        document.value("securityDefinitions", &crate::json!({"BearerToken": token}));
        document.value("security", &crate::json!([{"BearerToken": []}]));
    });
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
