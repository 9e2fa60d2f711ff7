//! Composition of the aggregator: builds its parts and installs routes, hooks and health checks into the head
//! server. Entry point: [`Aggregator::install`].

mod hooks;

use super::apiservice::ApiService;
use super::autoregister::{AutoRegister, Definition};
use super::availability::{Availability, Parts};
use super::backend_stats::{BackendLimits, StatsRegistry};
use super::discovery::{Collector, GroupListHandler};
use super::disk_cache::DiskCache;
use super::documents::{DocumentLimits, Documents};
use super::metrics;
use super::openapi::{Download, Downloader, OpenApiHandler, ROOT, RemoteDocuments, RemoteIndices, V2_PATH, V2Handler};
use super::proxy::{ProxyShared, TerminationMetrics};
use super::reference_users::ReferenceUsers;
use super::references::{self, References};
use super::registration::Registration;
use super::resolver::{ClusterResolver, EndpointSlice, Service, ServiceIndex, ServiceResolver};
use super::status::{self, StatusHandler};
use super::sync_status::SyncStatus;
use super::transports::{ForwardingHeaders, Transports};
use super::writer::ApiServiceWriter;
use crate::apimachinery::gvk::GroupVersion;
use crate::client::{Informer, InformerHandle};
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::endpoints::discovery::aggregated::{Negotiating, Priorities};
use crate::proxy::outbound::Outbound;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::transport::ConnectionLimits;
use crate::request::headers::IdentityHeaders;
use crate::request::{RequestInfo, UnprotectedHandler};
use crate::server::generic::GenericServer;
use crate::server::request_labels::request_labels;
use crate::storage::Storage;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use crate::telemetry::requests::Labels;
use hooks::Controllers;
use http::StatusCode;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use std::path::PathBuf;
use std::sync::Arc;

/// Dependencies and settings of the aggregator.
pub(crate) struct Config {
    /// Storage of APIServices, to watch.
    pub api_services: Arc<dyn Storage>,
    /// Writes APIServices (`Arc<registry::Store>` implements it).
    pub writer: Arc<dyn ApiServiceWriter>,
    /// Storage of Services, to watch.
    pub services: Arc<dyn Storage>,
    /// Storage of EndpointSlices, to watch.
    pub endpoint_slices: Arc<dyn Storage>,
    /// Storage of the Secrets that APIServices refer to, to watch.
    pub secrets: Arc<dyn Storage>,
    /// Storage of the ConfigMaps that APIServices refer to, to watch.
    pub config_maps: Arc<dyn Storage>,
    /// Storage of CustomResourceDefinitions, to watch: each served version gets an APIService.
    pub definitions: Arc<dyn Storage>,
    /// The aggregated document of `/apis`, shared with the delegate servers. The code that installs
    /// their groups, or our own group, adds the corresponding parts.
    pub discovery: Arc<AggregatedDiscovery>,
    /// In-process sources of OpenAPI v3 documents in addition to the delegate servers: that of our own group.
    pub openapi: Vec<Arc<dyn UnprotectedHandler>>,
    pub telemetry: Telemetry,
    /// Owns the tasks of backend connections and tunnels.
    pub connections: TaskGroup,
    /// Cryptography of backend connections.
    pub provider: Arc<CryptoProvider>,
    /// Egress rules for backend connections.
    pub outbound: Outbound,
    /// Header, loop-detection and HTML rules for proxied requests.
    pub policy: ProxyPolicy,
    /// Identity headers in addition to the standard ones: `--requestheader-*`.
    pub identity_headers: IdentityHeaders,
    /// Size limits of backends' documents.
    pub documents: DocumentLimits,
    /// The client certificate presented to backends.
    pub identity: Option<Arc<CertifiedKey>>,
    /// This server's own `host:port`, to which `default/kubernetes` resolves.
    pub loopback: String,
    /// `--enable-aggregator-routing`.
    pub to_endpoints: bool,
    /// `--aggregator-reject-forwarding-redirect`.
    pub reject_redirects: bool,
    /// `--aggregator-keep-discovery`.
    pub keeps_discovery: bool,
    /// Discovery priorities of groups of the delegate servers that are not built in.
    pub priorities: Vec<(GroupVersion, Priorities)>,
    /// Limits of concurrent requests and watches per backend.
    pub backend_limits: BackendLimits,
    /// Limits of connections and waiting requests per address.
    pub connection_limits: ConnectionLimits,
    /// Directory of the disk cache of backends' documents; `None` disables it.
    pub disk_cache_dir: Option<PathBuf>,
    /// Replaces the resolver over Services and EndpointSlices, for tests and embeddings.
    pub resolver: Option<Arc<dyn ServiceResolver>>,
}

/// Handle of the aggregator of a running gateway.
#[derive(Clone)]
pub(crate) struct Aggregator {
    transports: Arc<Transports>,
    registration: Arc<Registration>,
    availability: Arc<Availability>,
    resolver: Arc<dyn ServiceResolver>,
}

/// The objects that the aggregator follows in the store.
struct Informers {
    api_services: Informer<ApiService>,
    services: Informer<Service>,
    endpoint_slices: Informer<EndpointSlice>,
    references: Arc<References>,
    definitions: Informer<Definition>,
}

/// The handles that run the informers.
struct InformerHandles {
    api_services: InformerHandle<ApiService>,
    services: InformerHandle<Service>,
    endpoint_slices: InformerHandle<EndpointSlice>,
    references: references::InformerHandles,
    reference_users: Arc<ReferenceUsers>,
    definitions: InformerHandle<Definition>,
}

impl Informers {
    fn new(config: &Config) -> (Self, InformerHandles) {
        let (api_services, feed_api_services) = Informer::new(config.api_services.clone(), ApiService::from_entry);
        let (services, feed_services) = Informer::new(config.services.clone(), Service::from_entry);
        let (endpoint_slices, feed_slices) = Informer::new(config.endpoint_slices.clone(), EndpointSlice::from_entry);
        let (references, feed_references) = References::new(
            config.secrets.clone(),
            config.config_maps.clone(),
            config.provider.clone(),
        );
        let (definitions, feed_definitions) = Informer::new(config.definitions.clone(), Definition::from_entry);
        // A change of a referenced Secret or ConfigMap takes effect like one of the APIServices that refer to it. This
        // subscription precedes the registration's, so that no change is missed between its read and this index.
        let queue = config.telemetry.queue("APIServiceReferenceController");
        let handles = InformerHandles {
            reference_users: ReferenceUsers::new(&api_services, &references, queue),
            api_services: feed_api_services.blocking_if(ApiService::refers_to_objects),
            services: feed_services,
            endpoint_slices: feed_slices,
            references: feed_references,
            definitions: feed_definitions,
        };
        let informers = Self {
            api_services,
            services,
            endpoint_slices,
            references,
            definitions,
        };
        (informers, handles)
    }
}

/// The documents that backends publish, discovery and OpenAPI in both versions: what fetches them, and what holds
/// the last good ones.
struct BackendDocuments {
    sync_status: SyncStatus,
    collector: Arc<Collector>,
    /// OpenAPI v3.
    indices: Arc<RemoteIndices>,
    /// OpenAPI v2.
    documents: Arc<RemoteDocuments>,
    downloaders: [Arc<Downloader>; 2],
}

impl BackendDocuments {
    fn new(api_services: &Informer<ApiService>, backends: &Aggregator, config: &Config) -> Self {
        let (resolver, transports) = (&backends.resolver, &backends.transports);
        // One for all: its permits bound the documents of all backends together.
        let limits = Documents::new(config.documents);
        // Documents of a previous process are served until the backends have answered.
        let disk_cache = DiskCache::at(config.disk_cache_dir.clone(), limits.clone());
        let sync_status = SyncStatus::new();
        let collector = Collector::new(
            api_services.clone(),
            resolver.clone(),
            transports.clone(),
            config.discovery.clone(),
            (disk_cache.clone(), config.keeps_discovery),
            sync_status.clone(),
            &config.telemetry,
        );
        let indices = Arc::new(RemoteIndices::new(disk_cache.clone()));
        let documents = Arc::new(RemoteDocuments::new(disk_cache));
        let downloads: [(Arc<dyn Download>, &'static str); 2] = [
            (indices.clone(), "open_api_v3_aggregation_controller"),
            (documents.clone(), "open_api_aggregation_controller"),
        ];
        let downloaders = downloads.map(|(what, queue)| {
            Downloader::new(
                api_services.clone(),
                resolver.clone(),
                transports.clone(),
                what,
                sync_status.clone(),
                limits.clone(),
                config.telemetry.queue(queue),
            )
        });
        Self {
            sync_status,
            collector,
            indices,
            documents,
            downloaders,
        }
    }
}

impl Aggregator {
    /// Installs routes, hooks and health checks into the head server. Nothing runs before the server's hooks.
    pub(crate) fn install(server: &mut GenericServer, config: Config) -> Self {
        let (informers, handles) = Informers::new(&config);
        let api_services = &informers.api_services;
        let backend_stats = Arc::new(StatsRegistry::new(config.backend_limits));
        // The order of the subscriptions: subscribers are called in order, so whoever acts on a change of an
        // APIService finds its route in place.
        let aggregator = Self::new(server, &informers, &backend_stats, &config);
        let documents = BackendDocuments::new(api_services, &aggregator, &config);
        let autoregister = AutoRegister::new(
            api_services.clone(),
            &informers.definitions,
            config.writer.clone(),
            &server.delegate().listed_paths(),
            &config.priorities,
            ["autoregister", "crd_autoregistration_controller"].map(|name| config.telemetry.queue(name)),
        );
        let status = StatusHandler {
            api_services: api_services.clone(),
            resolver: aggregator.resolver.clone(),
            transports: aggregator.transports.clone(),
            backend_stats,
            discovery: config.discovery.clone(),
            sync_status: documents.sync_status.clone(),
        };
        // Unlisted, because upstream's list of paths at `/` does not have it.
        server.mux().unlisted_handle(status::PATH, Arc::new(status));
        serve_merged(server, api_services, &aggregator.registration, &documents, config);
        let controllers = Controllers {
            availability: aggregator.availability.clone(),
            registration: aggregator.registration.clone(),
            collector: documents.collector,
            downloaders: documents.downloaders,
            autoregister,
        };
        controllers.add_hooks(server, &informers, handles);
        aggregator
    }

    /// Builds the path of requests to backends: resolver, connections and routes, and the availability that they
    /// report to.
    fn new(server: &GenericServer, informers: &Informers, backend_stats: &Arc<StatsRegistry>, config: &Config) -> Self {
        let Informers {
            api_services,
            services,
            endpoint_slices,
            references,
            ..
        } = informers;
        let telemetry = &config.telemetry;
        let index = ServiceIndex::new(services.clone(), endpoint_slices);
        let resolver = config.resolver.clone().unwrap_or_else(|| {
            let (index, loopback) = (index.clone(), config.loopback.as_str());
            Arc::new(ClusterResolver::new(index, loopback, config.to_endpoints))
        });
        let transports = Arc::new(Transports::new(
            config.provider.clone(),
            references.clone(),
            config.outbound.clone(),
            config.connections.clone(),
            config.connection_limits,
            ForwardingHeaders {
                hop: config.policy.hops.own().clone(),
                identity: Arc::new(config.identity_headers.clone().with_standard()),
            },
            telemetry,
        ));
        transports.set_identity(config.identity.clone());
        metrics::publish(telemetry, backend_stats, &transports, &config.discovery);
        let proxy = ProxyShared {
            delegate: server.delegate().unprotected_handler(),
            resolver: resolver.clone(),
            tasks: config.connections.clone(),
            identities: Default::default(),
            reject_redirects: config.reject_redirects,
            terminations: Arc::new(telemetry.clone()),
            policy: config.policy.clone(),
        };
        let registration = Registration::new(
            api_services.clone(),
            server.mux().clone(),
            Arc::new(proxy),
            transports.clone(),
            backend_stats.clone(),
            telemetry.queue("APIServiceRegistrationController"),
        );
        label_registered(api_services, telemetry);
        let availability = Availability::new(Parts {
            informer: api_services.clone(),
            services: services.clone(),
            endpoint_slices: endpoint_slices.clone(),
            index,
            resolver: resolver.clone(),
            transports: transports.clone(),
            writer: config.writer.clone(),
            telemetry: telemetry.clone(),
        });
        Self {
            transports,
            registration,
            availability,
            resolver,
        }
    }

    /// Replaces the client certificate presented to backends. New connections use it; existing ones finish
    /// their requests.
    pub(crate) fn set_identity(&self, identity: Option<Arc<CertifiedKey>>) {
        // The order matters: handlers must present the new certificate before probes judge by it.
        self.transports.set_identity(identity);
        self.registration.refresh();
        self.availability.enqueue_all();
    }

    /// The proxy handler of an APIService, if registered.
    #[cfg(test)]
    pub(crate) fn handler(&self, name: &str) -> Option<Arc<super::proxy::ProxyHandler>> {
        self.registration.handler(name)
    }

    pub(crate) fn resolver(&self) -> &Arc<dyn ServiceResolver> {
        &self.resolver
    }
}

/// Serves the documents that merge those of all groups, local and remote: `/apis` and OpenAPI in both versions.
fn serve_merged(
    server: &GenericServer,
    api_services: &Informer<ApiService>,
    registration: &Arc<Registration>,
    documents: &BackendDocuments,
    config: Config,
) {
    let mux = server.mux();
    let groups: Arc<dyn UnprotectedHandler> = GroupListHandler::new(api_services.clone());
    // Upstream's quirk: with the slash, the list does not negotiate the aggregated form.
    mux.handle("/apis/", groups.clone());
    let negotiating = Negotiating {
        aggregated: config.discovery,
        plain: groups,
    };
    mux.handle("/apis", Arc::new(negotiating));
    let delegate = server.delegate().unprotected_handler();
    let merged = V2Handler::new(
        delegate.clone(),
        documents.documents.clone(),
        api_services.clone(),
        config.telemetry.backends.clone(),
    );
    mux.handle(V2_PATH, Arc::new(merged));
    let openapi: Arc<dyn UnprotectedHandler> = Arc::new(OpenApiHandler {
        local: [delegate].into_iter().chain(config.openapi).collect(),
        remote: documents.indices.clone(),
        converted: documents.documents.converted(),
        registration: registration.clone(),
    });
    mux.handle(ROOT, openapi.clone());
    mux.handle_prefix(format!("{ROOT}/"), openapi);
}

/// Counts requests for the groups of APIServices under their own names.
fn label_registered(api_services: &Informer<ApiService>, telemetry: &Telemetry) {
    let telemetry = telemetry.clone();
    api_services.subscribe(move |change| {
        // Anybody can request any version: only registered ones become label values.
        if let Some(s) = change.new.or(change.old) {
            telemetry
                .requests
                .set_registered(&s.group, &s.version, change.new.is_some());
        }
    });
}

impl TerminationMetrics for Telemetry {
    fn record(&self, info: Option<&RequestInfo>, code: StatusCode) {
        let Some(info) = info else { return };
        let labels = Labels {
            component: "aggregator",
            ..request_labels(info, false)
        };
        self.requests.terminated(&labels, code.as_u16());
    }
}
