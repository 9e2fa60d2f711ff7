//! The two servers behind the aggregator: extensions, and core in front of it.

use crate::admission::plugins::{NamespaceLifecycle, StorageProtection};
use crate::admission::{self, Admission};
use crate::aggregator;
use crate::aggregator::openapi::ROOT;
use crate::apimachinery::gvk::GroupVersion;
use crate::cli::CompletedOptions;
use crate::controlplane::reviews::Judges;
use crate::controlplane::{self, ControlPlane};
use crate::endpoints::discovery::aggregated::{Priorities, Source};
use crate::endpoints::discovery::versions;
use crate::endpoints::group_version::ApiGroupVersion;
use crate::endpoints::install::{Published, install};
use crate::endpoints::{discovery, options::Query};
use crate::registry::resource::{Backing, Resource};
use crate::server::container::WebService;
use crate::server::delegate::{DelegationTarget, EmptyDelegate};
use crate::server::generic::GenericServer;
use crate::server::respond::Answer;
use crate::storage::Storage;
use crate::storage::embedded::{Engine, ResourceConfig};
use std::sync::Arc;

/// Key prefix of namespaces: admission reads them before their row's store exists.
const NAMESPACES: &str = "/registry/namespaces/";

/// The core server's stores.
///
/// # Errors
/// One line: options or the store refuse.
pub async fn control_plane(engine: &Arc<Engine>, options: &CompletedOptions, judges: Judges) -> Result<ControlPlane, String> {
    let namespaces = engine.resource(ResourceConfig { prefix: NAMESPACES.to_owned(), fields: None });
    let admission: Arc<dyn Admission> =
        Arc::new(admission::Chain::new(vec![Arc::new(NamespaceLifecycle::new(namespaces)), Arc::new(StorageProtection)]));
    let store = engine.clone();
    let storage = move |row: &Resource| -> Arc<dyn Storage> {
        let prefix = match &row.backing {
            Backing::Stored { prefix } => prefix.clone(),
            Backing::Answered(_) => unreachable!("rows without a store are not asked for one"),
        };
        store.resource(ResourceConfig { prefix, fields: row.selectable.as_ref().map(|s| s.extract.clone()) })
    };
    let network = &options.network;
    let config = controlplane::Config {
        service_ranges: network.service_cidrs.iter().map(|c| (c.network, c.prefix)).collect(),
        node_ports: (*network.node_ports.start(), *network.node_ports.end()),
        event_ttl_seconds: options.storage.event_ttl.as_secs(),
        judges,
    };
    let plane = controlplane::build(config, &storage, &admission)
        .map_err(|e| format!("--service-cluster-ip-range: {e}"))?;
    plane.adopt().await.map_err(|e| format!("--data-dir: reading the stored services: {e}"))?;
    Ok(plane)
}

fn group_version(g: &controlplane::Group, options: &CompletedOptions) -> ApiGroupVersion {
    ApiGroupVersion {
        min_request_timeout: options.generic.min_request_timeout,
        ..ApiGroupVersion::new(g.gv.clone(), g.resources.clone())
    }
}

/// Priorities of the built-in groups.
pub fn priorities(gv: &GroupVersion) -> Priorities {
    // The aggregator's own group stands before all others.
    let own = (gv.group == "apiregistration.k8s.io").then_some((20001, 0));
    let (group, version) =
        own.or_else(|| aggregator::autoregister::priorities(&gv.group, &gv.version)).unwrap_or((1000, 15));
    Priorities { group, version }
}

/// Extensions: the CustomResourceDefinition group.
pub fn extensions(plane: &ControlPlane, options: &CompletedOptions, published: &Published) -> Arc<dyn DelegationTarget> {
    let server = GenericServer::new("apiextensions-apiserver", Arc::new(EmptyDelegate));
    let own = plane.groups.iter().filter(|g| g.gv.group == "apiextensions.k8s.io");
    let groups = own.map(|g| group_version(g, options)).collect();
    install(&server, groups, Source::BUILT_IN, &priorities, published);
    server.into_delegate()
}

/// Core: every other built-in group, in front of extensions.
pub fn core(
    plane: &ControlPlane,
    options: &CompletedOptions,
    published: &Published,
    delegate: Arc<dyn DelegationTarget>,
) -> GenericServer {
    let server = GenericServer::new("kube-apiserver", delegate);
    let own = plane.groups.iter().filter(|g| g.gv.group != "apiextensions.k8s.io");
    let groups: Vec<ApiGroupVersion> = own.map(|g| group_version(g, options)).collect();
    let names: Vec<(String, String)> = groups
        .iter()
        .filter(|g| !g.gv.group.is_empty())
        .map(|g| (g.gv.group.to_string(), g.gv.version.to_string()))
        .collect();
    let entries = names.iter().map(|(g, v)| versions::group_entry(g, &[v])).collect();
    let list = versions::api_group_list(entries);
    let handler = Arc::new(Answer(move |req: &crate::request::Request| {
        discovery::plain(&list, req.headers(), &Query::of(req))
    }));
    server.container().replace(WebService { root: "/apis".to_owned(), handler });
    install(&server, groups, Source::BUILT_IN, &priorities, published);
    server.mux().handle(ROOT, published.openapi.clone());
    server.mux().unlisted_handle_prefix(format!("{ROOT}/"), published.openapi.clone());
    server
}

/// The aggregator's own group, in the head server. Its OpenAPI is published apart: the head merges all.
pub fn own_group(head: &GenericServer, plane: &ControlPlane, options: &CompletedOptions, published: &Published) -> Published {
    let own = Published { openapi: Arc::default(), ..published.clone() };
    let groups = vec![group_version(&plane.apiregistration, options)];
    install(head, groups, Source::BUILT_IN, &priorities, &own);
    own
}
