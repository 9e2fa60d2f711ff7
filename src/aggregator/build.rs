//! Composition of the aggregator: builds its parts and installs routes, hooks and health checks into the head
//! server. Entry point: [`Aggregator::install`].

use super::apiservice::ApiService;
use super::autoregister::{AutoRegister, Definition};
use super::availability::{Availability, ControllerKind, Parts};
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
use crate::apimachinery::value::Str;
use crate::client::{Informer, InformerHandle};
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::endpoints::discovery::aggregated::{Negotiating, Priorities};
use crate::proxy::outbound::Outbound;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::transport::ConnectionLimits;
use crate::request::headers::IdentityHeaders;
use crate::request::{RequestInfo, UnprotectedHandler};
use crate::server::generic::GenericServer;
use crate::server::health::{Endpoints, HealthCheck};
use crate::server::request_labels::request_labels;
use crate::storage::Storage;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use crate::telemetry::requests::Labels;
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
    /// The aggregated document of `/apis`, shared with the delegate servers. Whoever installs their groups,
    /// or our own group, adds the corresponding parts.
    pub discovery: Arc<AggregatedDiscovery>,
    /// In-process sources of OpenAPI v3 documents in addition to the delegate servers: that of our own group.
    pub openapi: Vec<Arc<dyn UnprotectedHandler>>,
    /// Metrics.
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

/// The controllers that the hooks start. All of them subscribe to the informers when they are built, so that none
/// misses an object.
struct Controllers {
    availability: Arc<Availability>,
    registration: Arc<Registration>,
    collector: Arc<Collector>,
    /// Of OpenAPI v3 documents, and of v2 documents.
    downloaders: [Arc<Downloader>; 2],
    autoregister: Arc<AutoRegister>,
}

impl Aggregator {
    /// Installs routes, hooks and health checks into the head server. Nothing runs before the server's hooks.
    pub(crate) fn install(server: &mut GenericServer, config: Config) -> Self {
        let (informers, handles) = Informers::new(&config);
        let Informers {
            api_services,
            services,
            endpoint_slices,
            references,
            definitions,
        } = &informers;
        let telemetry = &config.telemetry;
        let delegate = server.delegate().unprotected_handler();
        let index = ServiceIndex::new(services.clone(), endpoint_slices);
        let resolver = config.resolver.clone().unwrap_or_else(|| {
            let (index, loopback) = (index.clone(), config.loopback.as_str());
            Arc::new(ClusterResolver::new(index, loopback, config.to_endpoints))
        });
        let transports = Arc::new(Transports::new(
            config.provider,
            references.clone(),
            config.outbound,
            config.connections.clone(),
            config.connection_limits,
            ForwardingHeaders {
                hop: config.policy.hops.own().clone(),
                identity: Arc::new(config.identity_headers.with_standard()),
            },
            telemetry,
        ));
        transports.set_identity(config.identity);
        let backend_stats = Arc::new(StatsRegistry::new(config.backend_limits));
        metrics::publish(telemetry, &backend_stats, &transports, &config.discovery);
        let proxy = ProxyShared {
            delegate: delegate.clone(),
            resolver: resolver.clone(),
            tasks: config.connections,
            identities: Default::default(),
            reject_redirects: config.reject_redirects,
            terminations: Arc::new(telemetry.clone()),
            policy: config.policy,
        };
        // Subscribers are called in order, so whoever acts on a change of an APIService finds its route in
        // place.
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

        // The documents of backends: discovery, and OpenAPI in both versions.
        let published = Documents::new(config.documents);
        let disk_cache = DiskCache::at(config.disk_cache_dir, published.clone());
        let sync_status = SyncStatus::new();
        let collector = Collector::new(
            api_services.clone(),
            resolver.clone(),
            transports.clone(),
            config.discovery.clone(),
            (disk_cache.clone(), config.keeps_discovery),
            sync_status.clone(),
            telemetry,
        );
        let indices = Arc::new(RemoteIndices::new(disk_cache.clone()));
        let documents = Arc::new(RemoteDocuments::new(disk_cache));
        let downloads: [(Arc<dyn Download>, &'static str); 2] = [
            (Arc::clone(&indices) as _, "open_api_v3_aggregation_controller"),
            (documents.clone(), "open_api_aggregation_controller"),
        ];
        let downloaders = downloads.map(|(what, queue)| {
            Downloader::new(
                api_services.clone(),
                resolver.clone(),
                transports.clone(),
                what,
                sync_status.clone(),
                published.clone(),
                telemetry.queue(queue),
            )
        });
        let autoregister = AutoRegister::new(
            api_services.clone(),
            definitions,
            config.writer,
            &server.delegate().listed_paths(),
            &config.priorities,
            ["autoregister", "crd_autoregistration_controller"].map(|name| telemetry.queue(name)),
        );

        let mux = server.mux();
        let status = StatusHandler {
            api_services: api_services.clone(),
            resolver: resolver.clone(),
            transports: transports.clone(),
            backend_stats,
            discovery: config.discovery.clone(),
            sync_status,
        };
        mux.unlisted_handle(status::PATH, Arc::new(status));
        let groups: Arc<dyn UnprotectedHandler> = GroupListHandler::new(api_services.clone());
        // Upstream's quirk: with the slash, the list does not negotiate the aggregated form.
        mux.handle("/apis/", groups.clone());
        let negotiating = Negotiating {
            aggregated: config.discovery,
            plain: groups,
        };
        mux.handle("/apis", Arc::new(negotiating));
        let converted = documents.converted();
        let backends = telemetry.backends.clone();
        let merged = V2Handler::new(delegate.clone(), documents, api_services.clone(), backends);
        mux.handle(V2_PATH, Arc::new(merged));
        let openapi: Arc<dyn UnprotectedHandler> = Arc::new(OpenApiHandler {
            local: [delegate].into_iter().chain(config.openapi).collect(),
            remote: indices,
            converted,
            registration: registration.clone(),
        });
        mux.handle(ROOT, openapi.clone());
        mux.handle_prefix(format!("{ROOT}/"), openapi);

        let aggregator = Self {
            transports,
            registration: registration.clone(),
            availability: availability.clone(),
            resolver,
        };
        let controllers = Controllers {
            availability,
            registration,
            collector,
            downloaders,
            autoregister,
        };
        controllers.add_hooks(server, &informers, handles);
        aggregator
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

    /// Where Services are.
    pub(crate) fn resolver(&self) -> &Arc<dyn ServiceResolver> {
        &self.resolver
    }
}

/// Counts requests for the groups of APIServices under their own names.
fn label_registered(api_services: &Informer<ApiService>, telemetry: &Telemetry) {
    let telemetry = telemetry.clone();
    api_services.subscribe(move |change| {
        if let Some(s) = change.new.or(change.old) {
            telemetry
                .requests
                .set_registered(&s.group, &s.version, change.new.is_some());
        }
    });
}

impl Controllers {
    /// Adds the hooks and health checks, under upstream's names.
    fn add_hooks(self, server: &mut GenericServer, informers: &Informers, handles: InformerHandles) {
        let initiated = server.add_paths_complete_signal("APIServiceRegistrationControllerInitiated");
        self.start_informers(server, informers, handles);
        let (first, fire) = (informers.api_services.synced().clone(), initiated.clone());
        server.add_post_start_hook("apiservice-registration-controller", move |_| async move {
            // The informer's callbacks create the routes, so after its initial sync all of them exist.
            first.wait().await;
            fire.fire();
            Ok(())
        });
        let ready = initiated.clone();
        server.add_post_start_hook("apiservice-wait-for-first-sync", move |_| async move {
            ready.wait().await;
            Ok(())
        });
        self.start_availability(server, informers);
        let (c, ready) = (self.collector, initiated.clone());
        server.add_post_start_hook("apiservice-discovery-controller", move |cx| async move {
            ready.wait().await;
            c.run_first_pass(&cx.tasks).await;
            Ok(())
        });
        let hooks = ["apiservice-openapiv3-controller", "apiservice-openapi-controller"];
        for (name, d) in hooks.into_iter().zip(self.downloaders) {
            server.add_post_start_hook(name, move |cx| async move {
                // Not awaited: backends that are slow in OpenAPI must not delay readiness.
                d.start(&cx.tasks);
                Ok(())
            });
        }
        let r = self.autoregister.clone();
        let defined = informers.definitions.synced().clone();
        server.add_post_start_hook("kube-apiserver-autoregistration", move |cx| async move {
            let stop = cx.tasks.stop_signal().clone();
            cx.tasks.spawn_until_stopped("autoregistration", async move {
                initiated.wait().await;
                r.run().await;
                // `keep` deletes APIServices without a definition, so all definitions must be known.
                defined.wait().await;
                r.keep(&stop).await;
            });
            Ok(())
        });
        let r = self.autoregister;
        server.add_health_check(HealthCheck::new("autoregister-completion", Endpoints::ALL, move || {
            r.completion()
        }));
    }

    fn start_informers(&self, server: &mut GenericServer, informers: &Informers, handles: InformerHandles) {
        let (served, probed) = (self.registration.clone(), self.availability.clone());
        let referred = informers.references.synced();
        server.add_post_start_hook("start-kube-aggregator-informers", move |cx| async move {
            cx.tasks
                .spawn_until_stopped("reference informers", handles.references.run());
            cx.tasks.spawn_until_stopped("reference users", async move {
                let renew = move |name: &Str| {
                    served.renew(name);
                    probed.enqueue(name);
                };
                handles.reference_users.run(renew).await;
            });
            cx.tasks.spawn_until_stopped("apiservice informer", async move {
                // References first: otherwise an APIService would briefly count as one whose certificates are
                // missing.
                for known in referred {
                    known.wait().await;
                }
                handles.api_services.run().await;
            });
            cx.tasks.spawn_until_stopped("service informer", handles.services.run());
            cx.tasks
                .spawn_until_stopped("endpointslice informer", handles.endpoint_slices.run());
            cx.tasks
                .spawn_until_stopped("definition informer", handles.definitions.run());
            Ok(())
        });
    }

    fn start_availability(&self, server: &mut GenericServer, informers: &Informers) {
        let api_services = informers.api_services.synced();
        let [services, slices] = [informers.services.synced(), informers.endpoint_slices.synced()];
        // The remote controller would report Services as missing before the first list of them is known.
        let controllers = [
            (
                "apiservice-status-local-available-controller",
                "local availability start",
                ControllerKind::Local,
                vec![api_services.clone()],
            ),
            (
                "apiservice-status-remote-available-controller",
                "remote availability start",
                ControllerKind::Remote,
                vec![api_services.clone(), services.clone(), slices.clone()],
            ),
        ];
        for (hook, task, kind, synced) in controllers {
            let availability = self.availability.clone();
            server.add_post_start_hook(hook, move |cx| async move {
                let tasks = cx.tasks.clone();
                cx.tasks.spawn_until_stopped(task, async move {
                    for s in synced {
                        s.wait().await;
                    }
                    availability.start(kind, &tasks);
                });
                Ok(())
            });
        }
    }
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
