//! [`install()`]: mounts group versions and publishes their discovery and OpenAPI documents.

use super::discovery::resources::Described;
use super::discovery::{AggregatedDiscovery, Route, aggregated, resources, versions};
use super::group_version::ApiGroupVersion;
use super::openapi::{OpenApiV2, OpenApiV3, core_documents, v3, write_group_version};
use crate::apimachinery::gvk::GroupVersion;
use crate::registry::resource::Resource;
use crate::server::container::WebService;
use crate::server::generic::GenericServer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The documents that installed group versions are published in.
#[derive(Clone)]
pub(crate) struct PublishedDocuments {
    /// The aggregated form of `/apis`.
    pub apis: Arc<AggregatedDiscovery>,
    /// The aggregated form of `/api`, which contains only the core group.
    pub api: Arc<AggregatedDiscovery>,
    /// The OpenAPI v3 documents.
    pub openapi: Arc<OpenApiV3>,
    /// The OpenAPI v2 document.
    pub openapi_v2: Arc<OpenApiV2>,
    /// The `host:port` reported to clients of the core group (`serverAddressByClientCIDRs`).
    pub server_address: String,
}

impl PublishedDocuments {
    pub(crate) fn new(server_address: String) -> Self {
        Self {
            apis: Arc::new(AggregatedDiscovery::new()),
            api: Arc::new(AggregatedDiscovery::new()),
            openapi: Arc::new(OpenApiV3::new()),
            openapi_v2: Arc::default(),
            server_address,
        }
    }
}

/// Mounts group versions in the server's container and publishes their group document and their parts of
/// discovery and OpenAPI. `priorities` determines their position among other groups. All versions of a group
/// must be passed in one call, the preferred one first.
pub(crate) fn install(
    server: &GenericServer,
    groups: Vec<ApiGroupVersion>,
    source: aggregated::Source,
    priorities: &dyn Fn(&GroupVersion) -> aggregated::Priorities,
    published: &PublishedDocuments,
) {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for group in groups {
        let gv = group.gv.clone();
        versions
            .entry(gv.group.to_string())
            .or_default()
            .push(gv.version.to_string());
        // Cloned pointers: the documents are built later, from the rows as they are now.
        let rows: Vec<Arc<Resource>> = group.rows().cloned().collect();
        if let Some(telemetry) = &group.telemetry {
            let names = rows.iter().map(|row| {
                let subresources = row.subresources.iter().map(|s| s.name.as_str()).collect();
                (&*row.gvr.resource, subresources)
            });
            // Makes the names metric labels; requests for other names are counted as `other`.
            telemetry.requests.serve(&gv.group, &gv.version, names);
        }
        let to = if gv.group.is_empty() {
            &published.api
        } else {
            &published.apis
        };
        to.set_group_version(
            source,
            &gv,
            priorities(&gv),
            resources::aggregated(
                &gv,
                rows.iter().map(|row| Described::of(row)),
                source == aggregated::Source::CUSTOM,
            ),
        );
        let of = gv.clone();
        published
            .openapi
            .set(&v3::key(&gv), Arc::new(move |to| write_group_version(&of, &rows, to)));
        // After the documents, so that what can be requested is also described.
        server.container().replace(WebService {
            root: group.root(),
            handler: Arc::new(group),
        });
    }
    for (group, of) in versions {
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        if group.is_empty() {
            // The server of the core group also serves the paths without a group.
            for (key, build) in core_documents::all(&[]) {
                published.openapi.set(&key, build);
            }
            let versions = versions::api_versions(&of, &published.server_address);
            // `/api` and `/apis` negotiate the aggregated form; the document of a single group has none.
            let route = published.api.clone().route("/api", versions);
            server.container().replace(route);
        } else {
            let root = format!("/apis/{group}");
            let handler = Arc::new(Route::of(&root, versions::api_group(&group, &of)));
            let (key, build) = core_documents::group(&group);
            published.openapi.set(&key, build);
            server.container().replace(WebService { root, handler });
        }
    }
}
