//! Composes a gateway: opens the stores, builds the extension server, the core server and the aggregator,
//! puts one filter chain in front and opens the port. Entry point: [`build`]. The order is that of
//! `docs/lifecycle.md`.

use super::enablement::Enablement;
use super::port::Port;
use super::shared_trust::SharedTrust;
use super::store::Stores;
use super::{
    Error, Gateway, GatewayBuilder, access, admission, audit, authentication, controllers, flows, hooks, kubelets,
    metrics, servers, service_accounts, service_manager, token_objects, trust, webhooks,
};
use crate::aggregator::{self, Aggregator};
use crate::cli::flags::FLAGS;
use crate::controlplane::bootstrap::Advertise;
use crate::controlplane::reviews::ReviewDependencies;
use crate::endpoints::install::PublishedDocuments;
use crate::endpoints::negotiate::Codecs;
use crate::endpoints::zpages;
use crate::proxy::outbound::{Outbound, OwnAddress};
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::transport::ConnectionLimits;
use crate::registry::StoreLookup;
use crate::server::chain::ChainConfig;
use crate::server::generic::GenericServer;
use crate::server::lifecycle::{Lifecycle, ShutdownTimeouts};
use crate::server::reserved::ReservedThread;
use crate::server::service;
use crate::tasks::TaskGroup;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// Builds and starts the gateway of a builder.
pub(super) async fn build(builder: GatewayBuilder) -> Result<Gateway, Error> {
    let GatewayBuilder {
        mut options,
        groups: own,
        layers,
        sockets,
    } = builder;
    if let Some(socket) = sockets.first() {
        let bound = socket.local_addr();
        options.bind = bound.map_err(Error::during("an inherited socket has no address"))?;
    }
    let provider = rustls::crypto::CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let data_dir = options.storage.data_dir.clone();
    let telemetry = Telemetry::new();
    let compute = ComputePool::start(options.compute.clone(), telemetry.compute.clone()).map_err(Error::Thread)?;
    let reserved = ReservedThread::start().map_err(Error::Thread)?;
    let lock = Stores::lock(&options)?;
    let port = Port::bind(&options, sockets)?;
    let stores = Stores::open(&options, lock, &telemetry).await?;
    let port = port.prepare(&options, &provider).await?;
    let address = port.local_addr();
    let url = options.local_url(address.port());
    telemetry.client_requests.expect(url.trim_start_matches("https://"));
    let lookup = StoreLookup::default();
    let token_objects = Arc::new(token_objects::TokenObjects(lookup.clone()));
    let access = access::build(&options, &telemetry)?;
    let authorizer = access.authorizer.clone();
    let tasks = TaskGroup::new("gateway");
    let authentication = authentication::build(&options, &port, &token_objects, &compute, &tasks, &telemetry)?;
    let audit = audit::build(&options, &telemetry)?;
    let shared_trust = SharedTrust::open(&options, &stores, &port, &authentication.service_accounts);
    let lifecycle = Lifecycle::new();

    let review_dependencies = ReviewDependencies {
        tokens: authentication.tokens.clone(),
        authorizer: authorizer.clone(),
        anonymous: authentication.anonymous,
        roles: access.roles.clone(),
        audiences: options.authentication.api_audiences.clone(),
    };
    let policy = ProxyPolicy {
        hops: Arc::default(),
        isolate: options.aggregator.isolate_answers,
    };
    let kubelets = kubelets::config(&options, &provider, &tasks, policy.clone())?;
    let issuing = authentication.service_accounts.requests.clone();
    let priorities: Vec<_> = own
        .iter()
        .map(|g| (g.group_version().clone(), g.priorities()))
        .collect();
    let outbound = Outbound::from_environment()
        .map_err(Error::other)?
        .with_socket_dirs(options.aggregator.socket_dirs.clone())
        .refusing(OwnAddress {
            bound: address,
            advertised: options.advertise_address,
        });
    let services = webhooks::Services::default();
    let callers = webhooks::Callers {
        provider: &provider,
        outbound: &outbound,
        services: &services,
        telemetry: &telemetry,
        tasks: &tasks,
    };
    let conversions = callers.conversions();
    let admission_configuration = admission::configuration(&options.admission)?;
    let admission_webhooks = callers.admission(&admission_configuration)?;
    let plane = servers::control_plane(servers::ControlPlaneInputs {
        stores: &stores,
        options: &options,
        lookup: &lookup,
        review_dependencies,
        kubelets,
        tokens: issuing,
        own_groups: own,
        admission_configuration,
        admission_webhooks: &admission_webhooks,
        telemetry: &telemetry,
    });
    let plane = Arc::new(plane.await?);
    if let Some(shared_trust) = shared_trust {
        shared_trust.start(&tasks).await?;
    }
    let access_synced = access.start(&plane, &options.authorization.authorizers, &tasks);
    let webhooks_synced = admission_webhooks.start(&plane, &tasks);
    let external = SocketAddr::new(options.advertise_address, address.port());
    let built_in: Vec<_> = plane.groups.iter().chain([&plane.apiregistration]).collect();
    let built_in: Vec<_> = built_in.iter().map(|g| g.gv.clone()).collect();
    let enabled = Enablement::read(&options.runtime, &built_in).map_err(Error::flag("runtime-config"))?;
    for warning in &enabled.warnings {
        tracing::warn!("--runtime-config: {warning}");
    }
    let serving = servers::Serving {
        enabled,
        min_request_timeout: options.generic.min_request_timeout,
        codecs: Codecs {
            cbor: options.features.enabled("CBORServingAndStorage") == Some(true),
        },
        authorizer: authorizer.clone(),
        published: PublishedDocuments::new(external.to_string()),
        priorities: priorities.clone(),
        telemetry: telemetry.clone(),
        tasks: tasks.clone(),
    };
    let (mut extensions, custom, feed) = servers::extensions(&plane, &serving, &stores, conversions);
    lookup.set_custom_kinds(custom.kinds());
    let definitions_synced = hooks::definitions(&mut extensions, &plane, custom, feed, &compute, &telemetry);
    let mut core = servers::core(&plane, &serving, extensions.into_delegate());
    hooks::defaults(&mut core, &plane);
    hooks::identity_leases(&mut core, &plane, &options.host_name);
    let host = options.serving.external_hostname.clone();
    let host = host.map_or_else(|| external.to_string(), |name| format!("{name}:{}", external.port()));
    if let Some(documents) = authentication.service_accounts.documents(&options, &host) {
        service_accounts::publish(&core, documents);
    }
    let mut head = GenericServer::new("kube-aggregator", core.into_delegate());
    let own = servers::own_group(&head, &plane, &serving);
    let flows = flows::follow(&plane, &options.generic, &lookup, &telemetry);
    let identity = port.proxy_client.clone();
    let aggregator = Aggregator::install(
        &mut head,
        aggregator::Config {
            api_services: plane.store("apiregistration.k8s.io", "apiservices").storage().clone(),
            writer: Arc::new(plane.store("apiregistration.k8s.io", "apiservices").clone()),
            services: plane.store("", "services").storage().clone(),
            endpoint_slices: plane.store("discovery.k8s.io", "endpointslices").storage().clone(),
            secrets: plane.store("", "secrets").storage().clone(),
            config_maps: plane.store("", "configmaps").storage().clone(),
            definitions: plane
                .store("apiextensions.k8s.io", "customresourcedefinitions")
                .storage()
                .clone(),
            discovery: serving.published.apis.clone(),
            openapi: vec![own.openapi],
            telemetry: telemetry.clone(),
            connections: tasks.clone(),
            provider,
            outbound,
            policy,
            identity_headers: authentication.identity_headers.clone(),
            documents: aggregator::DocumentLimits {
                discovery: options.aggregator.max_discovery_bytes,
                openapi: options.aggregator.max_openapi_bytes,
            },
            identity: Some(identity.current().certified_key.clone()),
            loopback: url.trim_start_matches("https://").to_owned(),
            to_endpoints: options.aggregator.route_by_endpoint,
            reject_redirects: options.aggregator.reject_redirects,
            keeps_discovery: options.aggregator.keeps_discovery,
            disk_cache_dir: Some(data_dir.join("aggregator")),
            priorities,
            backend_limits: aggregator::BackendLimits {
                requests: match options.aggregator.max_requests {
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
        },
    );
    services.set(aggregator.resolver().clone());
    hooks::proxy_client_certificate(&mut head, identity, aggregator);
    let trust = trust::published(&options, &port, &tasks);
    let advertise = Advertise {
        address: options.advertise_address,
        port: address.port(),
    };
    hooks::system_objects(&mut head, &plane, advertise, trust);
    hooks::informers(&mut head, &access_synced, &webhooks_synced);
    hooks::storage_readiness(&mut head, &stores, options.generic.storage_initialization_timeout);
    let mut synced: Vec<_> = access_synced.into_iter().chain([definitions_synced]).collect();
    let flow_control = flows.map(|flows| {
        let (consumer, controller) = (flows.consumer, flows.controller.clone());
        head.add_post_start_hook("priority-and-fairness-config-consumer", move |cx| async move {
            consumer.start(&cx.tasks);
            Ok(())
        });
        head.add_post_start_hook("priority-and-fairness-filter", move |cx| async move {
            cx.tasks
                .spawn_until_stopped("seats of priority levels", controller.run());
            Ok(())
        });
        flows::serve_dumps(&head, &flows.controller);
        synced.extend(flows.synced);
        flows.controller
    });
    synced.extend(webhooks_synced);
    hooks::informers_synced(&mut head, synced);
    stores.add_checks(&mut head);
    metrics::publish(&telemetry, &stores, &plane, options.storage.count_every);
    let flags = FLAGS.iter().map(|f| (f.name.to_owned(), options.values.shown(f.name)));
    head.mux()
        .unlisted_handle(webhooks::STATUS_PATH, admission_webhooks.status_page());
    head.mux().handle("/flagz", zpages::flagz(flags.collect()));
    let listed = {
        let (mux, started) = (head.mux().clone(), crate::apimachinery::time::now());
        zpages::statusz(started, Instant::now(), move || mux.listed_paths())
    };
    head.mux().handle("/statusz", listed);
    let config = ChainConfig {
        identity_headers: authentication.identity_headers,
        request_timeout: options.generic.request_timeout,
        max_requests_in_flight: options.generic.max_requests_in_flight,
        max_mutating_requests_in_flight: options.generic.max_mutating_requests_in_flight,
        flow_control,
        audit: audit.clone(),
        compute: Some(compute),
        reserved: Some(reserved),
        ..ChainConfig::new(
            telemetry.clone(),
            lifecycle.clone(),
            authentication.authenticator,
            authorizer,
        )
    };
    let mut prepared = head.prepare(config, options.generic.livez_grace_period);

    let (report, fatal) = mpsc::channel(1);
    let (kubeconfig, serving_ca) = (port.kubeconfig.clone(), port.serving_ca.clone());
    services.set_own_server(&prepared.handler);
    let handler = prepared.handler.clone();
    let handler = match layers.is_empty() {
        true => handler,
        false => service::guarded(layers.into_iter().fold(handler, |inner, layer| layer(inner))),
    };
    let port = port.open(handler.clone(), telemetry.port.clone()).await?;
    prepared.start_hooks(&tasks, &report);
    let checks = Arc::new(std::mem::take(&mut prepared.health_checks));
    service_manager::report(&checks, &lifecycle, &tasks);
    let parts = controllers::Parts {
        lookup: &lookup,
        handler: &prepared.handler,
        checks: &checks,
        lifecycle: &lifecycle,
        tasks: &tasks,
        serving_ca,
        issuer: authentication.service_accounts.requests.issuer.clone(),
    };
    controllers::start(&options, parts, &telemetry)?;
    tracing::info!(%url, data_dir = %data_dir.display(), kubeconfig = %kubeconfig.display(), "serving");
    let times = ShutdownTimeouts {
        delay: options.generic.shutdown_delay,
        in_flight: options.generic.request_timeout,
    };
    let hooks = prepared.pre_shutdown_hooks;
    Ok(Gateway {
        address,
        url,
        kubeconfig,
        lifecycle,
        hooks,
        times,
        tasks,
        stores,
        audit,
        port,
        handler,
        fatal,
    })
}
