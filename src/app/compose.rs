//! Composes a gateway: opens the stores, builds the extension server, the core server and the aggregator,
//! puts one filter chain in front and opens the port. Entry point: [`build`]. The order is that of
//! `docs/lifecycle.md`.

use super::enablement::Enablement;
use super::port::Port;
use super::service_accounts::ServiceAccounts;
use super::shared_trust::SharedTrust;
use super::store::Stores;
use super::{
    Error, Gateway, GatewayBuilder, access, admission, audit, authentication, controllers, flows, hooks, kubelets,
    metrics, servers, service_accounts, service_manager, token_objects, trust, webhooks,
};
use crate::aggregator::{self, Aggregator};
use crate::cli::CompletedOptions;
use crate::cli::flags::FLAGS;
use crate::controlplane::ControlPlane;
use crate::controlplane::bootstrap::Advertise;
use crate::controlplane::reviews::ReviewDependencies;
use crate::endpoints::install::PublishedDocuments;
use crate::endpoints::negotiate::Codecs;
use crate::endpoints::zpages;
use crate::proxy::outbound::{Outbound, OwnAddress};
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::transport::ConnectionLimits;
use crate::registry::StoreLookup;
use crate::request::UnprotectedHandler;
use crate::request::headers::IdentityHeaders;
use crate::server::chain::ChainConfig;
use crate::server::generic::GenericServer;
use crate::server::lifecycle::{Lifecycle, ShutdownTimeouts};
use crate::server::reserved::ReservedThread;
use crate::server::service;
use crate::tasks::TaskGroup;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use rustls::crypto::CryptoProvider;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;
use time::OffsetDateTime;
use tokio::sync::mpsc;

/// Shared by every later stage of [`build`]: threads, metrics, the open stores and the bound port.
struct Base {
    options: CompletedOptions,
    provider: Arc<CryptoProvider>,
    telemetry: Telemetry,
    compute: ComputePool,
    reserved: ReservedThread,
    tasks: TaskGroup,
    lifecycle: Lifecycle,
    stores: Arc<Stores>,
    port: Port,
    /// Where the port is bound.
    address: SocketAddr,
    /// `https://host:port` for clients on this machine.
    url: String,
}

impl Base {
    async fn open(mut options: CompletedOptions, sockets: Vec<TcpListener>) -> Result<Self, Error> {
        if let Some(socket) = sockets.first() {
            let bound = socket.local_addr();
            options.bind = bound.map_err(Error::during("an inherited socket has no address"))?;
        }
        // An embedding program may have installed a provider of its own, such as a FIPS build.
        let provider = CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let telemetry = Telemetry::new();
        let compute = ComputePool::start(options.compute.clone(), telemetry.compute.clone()).map_err(Error::Thread)?;
        let reserved = ReservedThread::start().map_err(Error::Thread)?;
        // Lock, bind, then open: a process that loses the race for the directory or the port has changed
        // nothing yet.
        let lock = Stores::lock(&options)?;
        let port = Port::bind(&options, sockets)?;
        let stores = Stores::open(&options, lock, &telemetry).await?;
        let port = port.prepare(&options, &provider).await?;
        let address = port.local_addr();
        let url = options.local_url(address.port());
        telemetry.client_requests.expect(url.trim_start_matches("https://"));
        Ok(Self {
            options,
            provider,
            telemetry,
            compute,
            reserved,
            tasks: TaskGroup::new("gateway"),
            lifecycle: Lifecycle::new(),
            stores,
            port,
            address,
            url,
        })
    }

    /// `host:port` at which clients on this machine, and `default/kubernetes`, reach this server.
    fn loopback(&self) -> &str {
        self.url.trim_start_matches("https://")
    }

    /// The advertised address with the bound port.
    fn advertised(&self) -> SocketAddr {
        SocketAddr::new(self.options.advertise_address, self.address.port())
    }

    /// Egress rules of every connection that the gateway opens to backends and webhooks.
    fn outbound(&self) -> Result<Outbound, Error> {
        Ok(Outbound::from_environment()
            .map_err(Error::other)?
            .with_socket_dirs(self.options.aggregator.socket_dirs.clone())
            .refusing(OwnAddress {
                bound: self.address,
                advertised: self.options.advertise_address,
            }))
    }

    /// Which built-in groups and versions are served.
    fn enablement(&self, plane: &ControlPlane) -> Result<Enablement, Error> {
        let built_in = plane.groups.iter().chain([&plane.apiregistration]);
        let built_in: Vec<_> = built_in.map(|g| g.gv.clone()).collect();
        let enabled = Enablement::read(&self.options.runtime, &built_in).map_err(Error::flag("runtime-config"))?;
        for warning in &enabled.warnings {
            tracing::warn!("--runtime-config: {warning}");
        }
        Ok(enabled)
    }

    /// Publishes the service-account issuer's discovery document and keys.
    fn publish_issuer(&self, core: &GenericServer, issuer: &ServiceAccounts) {
        let external = self.advertised();
        let host = self.options.serving.external_hostname.as_ref();
        let host = host.map_or_else(|| external.to_string(), |name| format!("{name}:{}", external.port()));
        if let Some(documents) = issuer.documents(&self.options, &host) {
            service_accounts::publish(core, documents);
        }
    }

    /// Serves the flags at `/flagz`, and version, uptime and paths at `/statusz`.
    fn publish_zpages(&self, head: &GenericServer) {
        let flags = FLAGS
            .iter()
            .map(|f| (f.name.to_owned(), self.options.values.flagz_value(f.name)));
        head.mux().handle("/flagz", zpages::flagz(flags.collect()));
        let listed = zpages::statusz(OffsetDateTime::now_utc(), Instant::now(), head.listed_paths());
        head.mux().handle("/statusz", listed);
    }
}

/// Inputs of the aggregator from the stages before it.
struct Delegates<'a> {
    plane: &'a ControlPlane,
    serving: &'a servers::Serving,
    identity_headers: &'a IdentityHeaders,
    /// OpenAPI of the aggregator's own group.
    openapi: Arc<dyn UnprotectedHandler>,
    outbound: Outbound,
    policy: ProxyPolicy,
}

fn aggregator_config(base: &Base, delegates: Delegates<'_>) -> aggregator::Config {
    let Delegates {
        plane,
        serving,
        identity_headers,
        openapi,
        outbound,
        policy,
    } = delegates;
    let options = &base.options;
    let storage = |group: &str, plural: &str| plane.store(group, plural).storage().clone();
    aggregator::Config {
        api_services: storage("apiregistration.k8s.io", "apiservices"),
        writer: Arc::new(plane.store("apiregistration.k8s.io", "apiservices").clone()),
        services: storage("", "services"),
        endpoint_slices: storage("discovery.k8s.io", "endpointslices"),
        secrets: storage("", "secrets"),
        config_maps: storage("", "configmaps"),
        definitions: storage("apiextensions.k8s.io", "customresourcedefinitions"),
        discovery: serving.published.apis.clone(),
        openapi: vec![openapi],
        telemetry: base.telemetry.clone(),
        connections: base.tasks.clone(),
        provider: base.provider.clone(),
        outbound,
        policy,
        identity_headers: identity_headers.clone(),
        documents: aggregator::DocumentLimits {
            discovery: options.aggregator.max_discovery_bytes,
            openapi: options.aggregator.max_openapi_bytes,
        },
        identity: Some(base.port.proxy_client.current().certified_key.clone()),
        loopback: base.loopback().to_owned(),
        to_endpoints: options.aggregator.route_by_endpoint,
        reject_redirects: options.aggregator.reject_redirects,
        keeps_discovery: options.aggregator.keeps_discovery,
        disk_cache_dir: Some(options.storage.data_dir.join("aggregator")),
        priorities: serving.priorities.clone(),
        backend_limits: aggregator::BackendLimits {
            requests: match options.aggregator.max_requests {
                // One slow backend must not take all seats of the server.
                0 => options.generic.max_requests_in_flight.div_ceil(2),
                n => n,
            },
            watches: options.aggregator.max_watches,
        },
        connection_limits: ConnectionLimits {
            connections: options.aggregator.max_connections,
            waiting: options.aggregator.max_waiting,
        },
        resolver: None,
    }
}

/// Builds and starts the gateway of a builder.
pub(super) async fn build(builder: GatewayBuilder) -> Result<Gateway, Error> {
    let GatewayBuilder {
        options,
        groups: own,
        layers,
        sockets,
    } = builder;
    let base = Base::open(options, sockets).await?;
    // By field, because the last stages move the others out.
    let Base {
        ref options,
        ref telemetry,
        ref tasks,
        ref stores,
        ..
    } = base;

    // Authentication, authorization and audit.
    let lookup = StoreLookup::default();
    let token_objects = Arc::new(token_objects::TokenObjects(lookup.clone()));
    let access = access::build(options, telemetry)?;
    let authorizer = access.authorizer.clone();
    let authentication = authentication::build(options, &base.port, &token_objects, &base.compute, tasks, telemetry)?;
    let audit = audit::build(options, telemetry)?;
    let shared_trust = SharedTrust::open(options, stores, &base.port, &authentication.service_accounts);

    // Clients of kubelets and webhooks, and the egress rules that the aggregator's backends share.
    let policy = ProxyPolicy {
        hops: Arc::default(),
        isolate: options.aggregator.isolate_answers,
    };
    let kubelets = kubelets::config(options, &base.provider, tasks, policy.clone())?;
    let outbound = base.outbound()?;
    let services = webhooks::Services::default();
    let callers = webhooks::Callers {
        provider: &base.provider,
        outbound: &outbound,
        services: &services,
        telemetry,
        tasks,
    };
    let conversions = callers.conversions();
    let admission_configuration = admission::configuration(&options.admission)?;
    let admission_webhooks = callers.admission(&admission_configuration)?;

    // The stores and their strategies.
    let priorities = own
        .iter()
        .map(|g| (g.group_version().clone(), g.priorities()))
        .collect();
    let plane = servers::control_plane(servers::ControlPlaneInputs {
        stores,
        options,
        lookup: &lookup,
        review_dependencies: ReviewDependencies {
            tokens: authentication.tokens.clone(),
            authorizer: authorizer.clone(),
            anonymous: authentication.anonymous,
            roles: access.roles.clone(),
            audiences: options.authentication.api_audiences.clone(),
        },
        kubelets,
        tokens: authentication.service_accounts.requests.clone(),
        own_groups: own,
        admission_configuration,
        admission_webhooks: &admission_webhooks,
        telemetry,
    });
    let plane = Arc::new(plane.await?);
    // Before the port opens: a client that fails over to another gateway must find its credentials accepted
    // there.
    if let Some(shared_trust) = shared_trust {
        shared_trust.start(tasks).await?;
    }
    // After the stores exist and before anything is served: until its informers have synced, RBAC allows no
    // one but system:masters.
    let access_synced = access.start(&plane, &options.authorization.authorizers, tasks);
    let webhooks_synced = admission_webhooks.start(&plane, tasks);

    // The three servers of the chain, the last one first.
    let serving = servers::Serving {
        enabled: base.enablement(&plane)?,
        min_request_timeout: options.generic.min_request_timeout,
        codecs: Codecs {
            cbor: options.features.enabled("CBORServingAndStorage") == Some(true),
        },
        authorizer: authorizer.clone(),
        published: PublishedDocuments::new(base.advertised().to_string()),
        priorities,
        telemetry: telemetry.clone(),
        tasks: tasks.clone(),
    };
    let (mut extensions, custom, feed) = servers::extensions(&plane, &serving, stores, conversions);
    lookup.set_custom_kinds(custom.kinds());
    let definitions_synced = hooks::definitions(&mut extensions, &plane, custom, feed, &base.compute, telemetry);
    let mut core = servers::core(&plane, &serving, extensions.into_delegate());
    hooks::defaults(&mut core, &plane);
    hooks::identity_leases(&mut core, &plane, &options.host_name);
    base.publish_issuer(&core, &authentication.service_accounts);
    let mut head = GenericServer::new("kube-aggregator", core.into_delegate());
    let own_group = servers::own_group(&head, &plane, &serving);
    let flows = flows::follow(&plane, &options.generic, &lookup, telemetry);
    let delegates = Delegates {
        plane: &plane,
        serving: &serving,
        identity_headers: &authentication.identity_headers,
        openapi: own_group.openapi,
        outbound,
        policy,
    };
    let aggregator = Aggregator::install(&mut head, aggregator_config(&base, delegates));
    // Closes the cycle: webhooks were configured first, but only the aggregator can resolve Services.
    services.set(aggregator.resolver().clone());

    // Hooks, health checks and pages of the head server.
    hooks::proxy_client_certificate(&mut head, base.port.proxy_client.clone(), aggregator);
    let trust = trust::published(options, &base.port, tasks);
    let advertise = Advertise {
        address: options.advertise_address,
        port: base.address.port(),
    };
    hooks::system_objects(&mut head, &plane, advertise, trust);
    hooks::informers(&mut head, &access_synced, &webhooks_synced);
    hooks::storage_readiness(&mut head, stores, options.generic.storage_initialization_timeout);
    let flows_synced: Vec<_> = flows.iter().flat_map(|f| f.synced.clone()).collect();
    let flow_control = flows.map(|flows| flows.install(&mut head));
    let mut synced = access_synced;
    synced.push(definitions_synced);
    synced.extend(flows_synced.into_iter().chain(webhooks_synced));
    hooks::informers_synced(&mut head, synced);
    stores.add_checks(&mut head);
    metrics::publish(telemetry, stores, &plane, options.storage.count_every);
    head.mux()
        .unlisted_handle(webhooks::STATUS_PATH, admission_webhooks.status_page());
    base.publish_zpages(&head);

    // The filter chain in front, then the port.
    let config = ChainConfig {
        identity_headers: authentication.identity_headers,
        request_timeout: options.generic.request_timeout,
        max_requests_in_flight: options.generic.max_requests_in_flight,
        max_mutating_requests_in_flight: options.generic.max_mutating_requests_in_flight,
        flow_control,
        audit: audit.clone(),
        compute: Some(base.compute.clone()),
        reserved: Some(base.reserved),
        ..ChainConfig::new(
            telemetry.clone(),
            base.lifecycle.clone(),
            authentication.authenticator,
            authorizer,
        )
    };
    let mut prepared = head.prepare(config, options.generic.livez_grace_period);
    // Weak inside, so that the chain and the webhooks in it do not keep each other alive.
    services.set_own_server(&prepared.handler);
    // Without layers, no wrapper: each request would pay for it.
    let handler = match layers.is_empty() {
        true => prepared.handler.clone(),
        false => service::guarded(
            layers
                .into_iter()
                .fold(prepared.handler.clone(), |inner, layer| layer(inner)),
        ),
    };
    let (kubeconfig, serving_ca) = (base.port.kubeconfig.clone(), base.port.serving_ca.clone());
    let port = base.port.open(handler.clone(), telemetry.port.clone()).await?;

    // Controllers and hooks, which send requests themselves. A channel of one: the first failure ends the
    // process.
    let (report, fatal) = mpsc::channel(1);
    prepared.start_hooks(tasks, &report);
    let checks = Arc::new(std::mem::take(&mut prepared.health_checks));
    service_manager::report(&checks, &base.lifecycle, tasks);
    let parts = controllers::Parts {
        lookup: &lookup,
        handler: &prepared.handler,
        checks: &checks,
        lifecycle: &base.lifecycle,
        tasks,
        serving_ca,
        issuer: authentication.service_accounts.requests.issuer.clone(),
    };
    controllers::start(options, parts, telemetry)?;
    let data_dir = options.storage.data_dir.display();
    tracing::info!(url = %base.url, %data_dir, kubeconfig = %kubeconfig.display(), "serving");
    Ok(Gateway {
        address: base.address,
        url: base.url,
        kubeconfig,
        lifecycle: base.lifecycle,
        hooks: prepared.pre_shutdown_hooks,
        times: ShutdownTimeouts {
            delay: options.generic.shutdown_delay,
            in_flight: options.generic.request_timeout,
        },
        tasks: base.tasks,
        stores: base.stores,
        audit,
        port,
        handler,
        fatal,
    })
}
