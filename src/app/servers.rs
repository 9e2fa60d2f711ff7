//! Builds the two servers behind the aggregator, extensions and core, and the control plane whose stores they
//! serve.

use super::Error;
use super::enablement::Enablement;
use super::store::Stores;
use super::webhooks::AdmissionWebhooks;
use crate::admission::{Configuration, ObjectLookup};
use crate::aggregator;
use crate::aggregator::openapi::ROOT;
use crate::api;
use crate::apimachinery::gvk::GroupVersion;
use crate::authz::Authorizer;
use crate::cli::CompletedOptions;
use crate::client::InformerHandle;
use crate::controlplane::reviews::ReviewDependencies;
use crate::controlplane::schema::BuiltinSchema;
use crate::controlplane::stored_versions::convert_stored;
use crate::controlplane::{self, ControlPlane, KubeletConfig};
use crate::endpoints::discovery::aggregated::{Priorities, Source};
use crate::endpoints::discovery::versions;
use crate::endpoints::group_version::ApiGroupVersion;
use crate::endpoints::install::{PublishedDocuments, install};
use crate::endpoints::negotiate::Codecs;
use crate::endpoints::{discovery, options::Query};
use crate::extensions::conversion::Conversions;
use crate::extensions::custom_resources::{self, CustomResources, Definition};
use crate::extensions::definitions::CustomResourceDefinition;
use crate::registry::StoreLookup;
use crate::registry::resource::{Backing, Resource};
use crate::sdk::ApiGroup;
use crate::server::container::WebService;
use crate::server::delegate::{DelegationTarget, EmptyDelegate};
use crate::server::generic::GenericServer;
use crate::server::respond::FnHandler;
use crate::storage::{ResourceConfig, Storage};
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;

/// The dependencies of the control plane.
pub(crate) struct ControlPlaneInputs<'a> {
    pub stores: &'a Arc<Stores>,
    pub options: &'a CompletedOptions,
    /// Filled with the control plane's stores.
    pub lookup: &'a StoreLookup,
    pub review_dependencies: ReviewDependencies,
    pub kubelets: KubeletConfig,
    pub tokens: controlplane::TokenRequests,
    /// Additional groups of the embedding program.
    pub own_groups: Vec<ApiGroup>,
    pub admission_configuration: Configuration,
    pub admission_webhooks: &'a AdmissionWebhooks,
    pub telemetry: &'a Telemetry,
}

/// Builds the control plane and waits until its stores are loaded.
///
/// # Errors
/// An option or the store is unusable, or an additional group cannot be served.
pub(crate) async fn control_plane(inputs: ControlPlaneInputs<'_>) -> Result<ControlPlane, Error> {
    let ControlPlaneInputs {
        stores,
        options,
        lookup,
        review_dependencies,
        kubelets,
        tokens,
        own_groups,
        admission_configuration,
        admission_webhooks,
        telemetry,
    } = inputs;
    let needs = super::admission::PluginDependencies {
        cluster: ObjectLookup::new(Arc::new(lookup.clone())),
        authorizer: review_dependencies.authorizer.clone(),
        telemetry,
        webhooks: admission_webhooks,
        configuration: admission_configuration,
        toleration_seconds: [
            options.admission.not_ready_seconds,
            options.admission.unreachable_seconds,
        ],
    };
    let admission = super::admission::chain(&options.admission, &needs)?;
    let store = stores.clone();
    let storage = move |row: &Resource| -> Arc<dyn Storage> {
        let Backing::Stored { prefix } = &row.backing else {
            unreachable!("rows without a store of their own are not asked for one")
        };
        let config = ResourceConfig {
            prefix: prefix.clone(),
            fields: row.selectable.as_ref().map(|s| s.extract.clone()),
            compressed: row.compressed,
        };
        store.resource(&row.group_resource(), config, convert_stored(row))
    };
    let network = &options.network;
    let config = controlplane::Config {
        service_ranges: network.service_cidrs.iter().map(|c| (c.network, c.prefix)).collect(),
        node_ports: (*network.node_ports.start(), *network.node_ports.end()),
        event_ttl_seconds: options.storage.event_ttl.as_secs(),
        review_dependencies,
        components: super::components::all(stores),
        kubelets,
        tokens: Some(tokens),
        definitions: Arc::new(CustomResourceDefinition),
    };
    let mut plane = controlplane::build(config, lookup, &storage, &admission).map_err(Error::other)?;
    for group in own_groups {
        let (gv, resources) = group.serve(&storage, &admission).map_err(Error::other)?;
        plane.add(controlplane::Group { gv, resources }).map_err(Error::other)?;
    }
    // Before the allocations are read: they must count every stored Service, or an address would be given out
    // twice.
    stores.loaded(options.generic.storage_initialization_timeout).await;
    plane
        .load_allocations()
        .await
        .map_err(Error::during("reading the stored services"))?;
    Ok(plane)
}

/// Settings shared by all group versions.
pub(crate) struct Serving {
    /// `--runtime-config`
    pub enabled: Enablement,
    /// `--min-request-timeout`
    pub min_request_timeout: Duration,
    /// Encodings enabled by feature gates.
    pub codecs: Codecs,
    /// For the second check when an update creates an object.
    pub authorizer: Arc<dyn Authorizer>,
    /// Collects discovery and OpenAPI of the served groups.
    pub published: PublishedDocuments,
    /// Discovery priorities of the additional groups.
    pub priorities: Vec<(GroupVersion, Priorities)>,
    pub telemetry: Telemetry,
    /// Owns the tasks of watches over WebSocket.
    pub(crate) tasks: TaskGroup,
}

impl Serving {
    fn group_version(&self, g: &controlplane::Group) -> ApiGroupVersion {
        self.endpoint(g.gv.clone(), g.resources.clone())
    }

    fn endpoint(&self, gv: GroupVersion, resources: Vec<controlplane::Served>) -> ApiGroupVersion {
        ApiGroupVersion {
            min_request_timeout: self.min_request_timeout,
            codecs: self.codecs,
            telemetry: Some(self.telemetry.clone()),
            upgrades: Some(self.tasks.clone()),
            ..ApiGroupVersion::new(gv, resources)
        }
        .with_authorizer(self.authorizer.clone())
    }

    fn priorities(&self, gv: &GroupVersion) -> Priorities {
        let own = self.priorities.iter().find(|(of, _)| of == gv);
        own.map_or_else(|| priorities(gv), |(_, p)| *p)
    }
}

/// Discovery priorities of the built-in groups.
pub(crate) fn priorities(gv: &GroupVersion) -> Priorities {
    // The aggregator's own group precedes all others.
    let own = (gv.group == "apiregistration.k8s.io").then_some((20001, 0));
    let (group, version) = own
        .or_else(|| aggregator::autoregister::priorities(&gv.group, &gv.version))
        .unwrap_or((1000, 15));
    Priorities { group, version }
}

/// The extension server: the CustomResourceDefinition group, and the custom resources of all definitions. The
/// handle runs the informer of the definitions.
pub(crate) fn extensions(
    plane: &ControlPlane,
    serving: &Serving,
    stores: &Arc<Stores>,
    conversions: Conversions,
) -> (GenericServer, CustomResources, InformerHandle<Definition>) {
    let server = GenericServer::new("apiextensions-apiserver", Arc::new(EmptyDelegate));
    let served = serving.enabled.groups(plane);
    let own = served.iter().filter(|g| g.gv.group == "apiextensions.k8s.io");
    let groups = own.map(|g| serving.group_version(g)).collect();
    install(&server, groups, Source::BUILT_IN, &priorities, &serving.published);
    let definitions = plane.store("apiextensions.k8s.io", "customresourcedefinitions").clone();
    // The subresource `scale` of a custom resource is of this built-in kind.
    let scale = api::by_gvk("autoscaling", "v1", "Scale").expect("the schema table has Scale");
    let config = custom_resources::Config {
        // Custom resources pass the same admission chain as built-in ones.
        admission: definitions.admission().clone(),
        definitions,
        storages: stores.clone(),
        conversions,
        endpoint: serving.endpoint(GroupVersion::default(), Vec::new()),
        published: serving.published.clone(),
        scale: Arc::new(BuiltinSchema(scale)),
        telemetry: serving.telemetry.clone(),
    };
    let (custom, feed) = CustomResources::install(&server, config);
    (server, custom, feed)
}

/// The core server: every other built-in group, with the extension server as its delegate.
pub(crate) fn core(plane: &ControlPlane, serving: &Serving, delegate: Arc<dyn DelegationTarget>) -> GenericServer {
    let published = &serving.published;
    let server = GenericServer::new("kube-apiserver", delegate);
    let enabled = serving.enabled.groups(plane);
    let own = enabled.iter().filter(|g| g.gv.group != "apiextensions.k8s.io");
    let groups: Vec<ApiGroupVersion> = own.map(|g| serving.group_version(g)).collect();
    // Groups in table order, each with its versions, preferred one first. Not a map: discovery lists groups
    // in this order, as upstream does.
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    for gv in groups.iter().map(|g| &g.gv).filter(|gv| !gv.group.is_empty()) {
        match names.iter_mut().find(|(group, _)| *group == gv.group.as_str()) {
            Some((_, of)) => of.push(gv.version.to_string()),
            None => names.push((gv.group.to_string(), vec![gv.version.to_string()])),
        }
    }
    let entries = names.iter().map(|(group, of)| {
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        versions::group_entry(group, &of)
    });
    let entries = entries.collect();
    let list = versions::api_group_list(entries);
    let handler = Arc::new(FnHandler(move |req: &crate::request::Request| {
        discovery::plain(&list, req.headers(), &Query::of(req))
    }));
    server.container().replace(WebService {
        root: "/apis".to_owned(),
        handler,
    });
    install(
        &server,
        groups,
        Source::BUILT_IN,
        &|gv| serving.priorities(gv),
        published,
    );
    let registration = serving.enabled.of(&plane.apiregistration);
    let served = enabled.iter().chain(&registration);
    let served = served.map(|g| (g.gv.clone(), g.resources.iter().map(|(r, _)| r.clone()).collect()));
    published.openapi_v2.set(served.collect());
    server.mux().handle("/openapi/v2", published.openapi_v2.clone());
    server.mux().handle(ROOT, published.openapi.clone());
    server
        .mux()
        .unlisted_handle_prefix(format!("{ROOT}/"), published.openapi.clone());
    server
}

/// Installs the aggregator's own group in the head server. Its OpenAPI is kept apart because the aggregator
/// merges all documents.
pub(crate) fn own_group(head: &GenericServer, plane: &ControlPlane, serving: &Serving) -> PublishedDocuments {
    let own = PublishedDocuments {
        openapi: Arc::default(),
        ..serving.published.clone()
    };
    let served = serving.enabled.of(&plane.apiregistration);
    let groups = served.iter().map(|g| serving.group_version(g)).collect();
    install(head, groups, Source::BUILT_IN, &priorities, &own);
    own
}
