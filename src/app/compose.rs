//! Composes a gateway: opens the stores, builds the extension server, the core server and the aggregator,
//! puts one filter chain in front and opens the port. Entry point: [`build`]. The order is that of
//! `docs/lifecycle.md`.

mod aggregated;
mod base;

use super::access::AuthorizationSetup;
use super::authentication::Authentication;
use super::builder::Around;
use super::flows::FlowControl;
use super::service_accounts::ServiceAccounts;
use super::shared_trust::SharedTrust;
use super::webhooks::AdmissionWebhooks;
use super::{
    Error, Gateway, GatewayBuilder, access, admission, audit, authentication, controllers, flows, hooks, kubelets,
    metrics, servers, service_manager, token_objects, trust, webhooks,
};
use crate::admission::{Configuration, ObjectLookup};
use crate::aggregator::Aggregator;
use crate::audit::Audit;
use crate::authn::service_account::Issuer;
use crate::controlplane::bootstrap::Advertise;
use crate::controlplane::reviews::ReviewDependencies;
use crate::controlplane::{ControlPlane, KubeletConfig};
use crate::extensions::conversion::Conversions;
use crate::flowcontrol::FlowController;
use crate::proxy::outbound::Outbound;
use crate::proxy::policy::ProxyPolicy;
use crate::registry::StoreLookup;
use crate::request::Handler;
use crate::server::chain::ChainConfig;
use crate::server::generic::{GenericServer, Prepared};
use crate::server::lifecycle::ShutdownTimeouts;
use crate::server::service;
use crate::tasks::Signal;
use aggregated::Delegates;
use base::Base;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Builds and starts the gateway of a builder.
pub(super) async fn build(builder: GatewayBuilder) -> Result<Gateway, Error> {
    let GatewayBuilder {
        options,
        groups: own,
        layers,
        sockets,
    } = builder;
    let base = Base::open(options, sockets).await?;
    // Filled later: authenticators and admission read the stores, which in turn need admission.
    let lookup = StoreLookup::default();
    let AccessControl {
        authorization,
        authentication,
        audit,
        shared_trust,
    } = AccessControl::build(&base, &lookup)?;
    let authorizer = authorization.authorizer.clone();
    let egress = Egress::build(&base)?;

    // The stores and their strategies.
    let priorities = own
        .iter()
        .map(|g| (g.group_version().clone(), g.priorities()))
        .collect();
    let plane = servers::control_plane(servers::ControlPlaneInputs {
        stores: &base.stores,
        options: &base.options,
        lookup: &lookup,
        review_dependencies: ReviewDependencies {
            tokens: authentication.tokens.clone(),
            authorizer: authorizer.clone(),
            anonymous: authentication.anonymous,
            roles: authorization.roles.clone(),
            audiences: base.options.authentication.api_audiences.clone(),
        },
        kubelets: egress.kubelets,
        tokens: authentication.service_accounts.requests.clone(),
        own_groups: own,
        admission_configuration: egress.admission_configuration,
        admission_webhooks: &egress.admission_webhooks,
        telemetry: &base.telemetry,
    });
    let plane = Arc::new(plane.await?);
    // Before the port opens: a client that fails over to another gateway must find its credentials accepted
    // there.
    if let Some(shared_trust) = shared_trust {
        shared_trust.start(&base.tasks).await?;
    }
    // After the stores exist and before anything is served: until its informers have synced, RBAC allows no
    // one but system:masters.
    let access_synced = authorization.start(&plane, &base.options.authorization.authorizers, &base.tasks);
    let admission_synced = egress.admission_webhooks.start(&plane, &base.tasks);

    // The three servers of the chain, the last one first.
    let serving = base.serving(&plane, authorizer.clone(), priorities)?;
    let accounts = &authentication.service_accounts;
    let (core, definitions_synced) = core_server(&base, &plane, &serving, &lookup, egress.conversions, accounts);
    let mut head = GenericServer::new("kube-aggregator", core.into_delegate());
    let own_group = servers::own_group(&head, &plane, &serving);
    let delegates = Delegates {
        plane: &plane,
        serving: &serving,
        identity_headers: &authentication.identity_headers,
        openapi: own_group.openapi,
        outbound: egress.outbound,
        policy: egress.policy,
    };
    let aggregator = Aggregator::install(&mut head, aggregated::config(&base, delegates));
    // Closes the cycle: webhooks were configured first, but only the aggregator can resolve Services.
    egress.services.set(aggregator.resolver().clone());
    let synced = Synced {
        access: access_synced,
        admission: admission_synced,
        definitions: definitions_synced,
    };
    let flows = flows::follow(&plane, &base.options.generic, &lookup, &base.telemetry);
    let flow_control = complete_head(&mut head, &base, &plane, aggregator, flows, synced);
    let status = egress
        .admission_webhooks
        .status_page(ObjectLookup::new(Arc::new(lookup.clone())));
    head.mux().unlisted_handle(webhooks::STATUS_PATH, status);
    // After all other paths, because `/statusz` lists those that exist by now.
    base.publish_zpages(&head);

    // The filter chain in front, then the port.
    let config = ChainConfig {
        identity_headers: authentication.identity_headers,
        flow_control,
        audit: audit.clone(),
        ..base.chain_config(authentication.authenticator, authorizer)
    };
    let prepared = head.prepare(config, base.options.generic.livez_grace_period);
    // Weak inside, so that the chain and the webhooks in it do not keep each other alive.
    egress.services.set_own_server(&prepared.handler);
    let handler = layered(&prepared.handler, layers);
    let issuer = authentication.service_accounts.requests.issuer.clone();
    open(base, prepared, handler, &lookup, issuer, audit).await
}

/// Who may call, and what is recorded about it.
struct AccessControl {
    authorization: AuthorizationSetup,
    authentication: Authentication,
    audit: Option<Arc<Audit>>,
    /// Not started: it needs the stores.
    shared_trust: Option<SharedTrust>,
}

impl AccessControl {
    /// Reads what the flags name. The authorizer allows only `system:masters` until its informers are started.
    ///
    /// # Errors
    /// A file or flag that cannot be used.
    fn build(base: &Base, lookup: &StoreLookup) -> Result<Self, Error> {
        let Base {
            options,
            telemetry,
            port,
            ..
        } = base;
        // The stores that it reads are added to `lookup` later.
        let token_objects = Arc::new(token_objects::TokenObjects(lookup.clone()));
        let authorization = access::build(options, telemetry)?;
        let authentication =
            authentication::build(options, port, &token_objects, &base.compute, &base.tasks, telemetry)?;
        let audit = audit::build(options, telemetry)?;
        let shared_trust = SharedTrust::open(options, &base.stores, port, &authentication.service_accounts);
        Ok(Self {
            authorization,
            authentication,
            audit,
            shared_trust,
        })
    }
}

/// The connections that the gateway opens itself: to kubelets, webhooks and backends.
struct Egress {
    /// Of everything that proxies: loop detection must see the same identity everywhere.
    policy: ProxyPolicy,
    /// Proxies, socket directories, and the refusal of this server's own addresses.
    outbound: Outbound,
    kubelets: KubeletConfig,
    /// The Services that webhooks name. Empty until the aggregator is installed.
    services: webhooks::Services,
    conversions: Conversions,
    /// `--admission-control-config-file`
    admission_configuration: Configuration,
    admission_webhooks: AdmissionWebhooks,
}

impl Egress {
    /// Reads what the flags name. No connection is opened before it is used.
    ///
    /// # Errors
    /// A file or flag that cannot be used.
    fn build(base: &Base) -> Result<Self, Error> {
        let Base {
            options,
            provider,
            telemetry,
            tasks,
            ..
        } = base;
        let policy = ProxyPolicy {
            hops: Arc::default(),
            isolate: options.aggregator.isolate_answers,
        };
        let kubelets = kubelets::config(options, provider, tasks, policy.clone())?;
        let outbound = base.outbound()?;
        let services = webhooks::Services::default();
        let callers = webhooks::Callers {
            provider,
            outbound: &outbound,
            services: &services,
            telemetry,
            tasks,
        };
        let conversions = callers.conversions();
        let admission_configuration = admission::configuration(&options.admission)?;
        let admission_webhooks = callers.admission(&admission_configuration)?;
        Ok(Self {
            policy,
            outbound,
            kubelets,
            services,
            conversions,
            admission_configuration,
            admission_webhooks,
        })
    }
}

/// The core server with the extension server behind it. The signal fires when all stored definitions have
/// been read.
fn core_server(
    base: &Base,
    plane: &Arc<ControlPlane>,
    serving: &servers::Serving,
    lookup: &StoreLookup,
    conversions: Conversions,
    accounts: &ServiceAccounts,
) -> (GenericServer, Signal) {
    let (mut extensions, custom, feed) = servers::extensions(plane, serving, &base.stores, conversions);
    lookup.set_custom_kinds(custom.kinds());
    let definitions_synced = hooks::definitions(&mut extensions, plane, custom, feed, &base.compute, &base.telemetry);
    let mut core = servers::core(plane, serving, extensions.into_delegate());
    hooks::defaults(&mut core, plane);
    hooks::identity_leases(&mut core, plane, &base.options.host_name);
    base.publish_issuer(&core, accounts);
    (core, definitions_synced)
}

/// Fire when the informers have synced that run independently of the servers.
struct Synced {
    /// Of roles, bindings and the graph of the Node authorizer.
    access: Vec<Signal>,
    /// Of the configurations and policies of admission.
    admission: Vec<Signal>,
    definitions: Signal,
}

/// Adds the hooks, health checks and metrics of the whole gateway to its head server. Returns the controller
/// of priority and fairness, for the filter chain.
fn complete_head(
    head: &mut GenericServer,
    base: &Base,
    plane: &Arc<ControlPlane>,
    aggregator: Aggregator,
    flows: Option<FlowControl>,
    informers: Synced,
) -> Option<Arc<FlowController>> {
    let Base { options, stores, .. } = base;
    hooks::proxy_client_certificate(head, base.port.proxy_client.clone(), aggregator);
    let trust = trust::published(options, &base.port, &base.tasks);
    let advertise = Advertise {
        address: options.advertise_address,
        port: base.address.port(),
    };
    hooks::system_objects(head, plane, advertise, trust);
    hooks::informers(head, &informers.access, &informers.admission);
    hooks::storage_readiness(head, stores, options.generic.storage_initialization_timeout);
    let flows_synced: Vec<_> = flows.iter().flat_map(|f| f.synced.clone()).collect();
    let flow_control = flows.map(|flows| flows.install(head));
    let mut synced = informers.access;
    synced.push(informers.definitions);
    synced.extend(flows_synced.into_iter().chain(informers.admission));
    hooks::informers_synced(head, synced);
    stores.add_checks(head);
    metrics::publish(&base.telemetry, stores, plane, options.storage.count_every);
    flow_control
}

/// The chain with the layers of the embedding program around it.
fn layered(chain: &Arc<dyn Handler>, layers: Vec<Around>) -> Arc<dyn Handler> {
    // Without layers, no wrapper: each request would pay for it.
    if layers.is_empty() {
        return chain.clone();
    }
    service::guarded(layers.into_iter().fold(chain.clone(), |inner, layer| layer(inner)))
}

/// Opens the port, then starts what sends requests itself: hooks and control loops.
///
/// # Errors
/// The admin's kubeconfig cannot be written, or a flag of the control loops cannot be used.
async fn open(
    base: Base,
    mut prepared: Prepared,
    handler: Arc<dyn Handler>,
    lookup: &StoreLookup,
    issuer: Issuer,
    audit: Option<Arc<Audit>>,
) -> Result<Gateway, Error> {
    let Base {
        options,
        telemetry,
        tasks,
        lifecycle,
        stores,
        port,
        address,
        url,
        ..
    } = base;
    let (kubeconfig, serving_ca) = (port.kubeconfig.clone(), port.serving_ca.clone());
    // The layers are for clients; control loops call the chain itself.
    let port = port.open(handler.clone(), telemetry.port.clone()).await?;

    // A channel of one: the first failure ends the process.
    let (report, fatal) = mpsc::channel(1);
    prepared.start_hooks(&tasks, &report);
    service_manager::report(&prepared.health_checks, &lifecycle, &tasks);
    let parts = controllers::Parts {
        lookup,
        handler: &prepared.handler,
        lifecycle: &lifecycle,
        tasks: &tasks,
        serving_ca,
        issuer,
    };
    controllers::start(&options, parts, &telemetry)?;
    let data_dir = options.storage.data_dir.display();
    tracing::info!(%url, %data_dir, kubeconfig = %kubeconfig.display(), "serving");
    Ok(Gateway {
        address,
        url,
        kubeconfig,
        lifecycle,
        hooks: prepared.pre_shutdown_hooks,
        times: ShutdownTimeouts {
            delay: options.generic.shutdown_delay,
            // By then, requests that are not long-running have ended or timed out.
            in_flight: options.generic.request_timeout,
        },
        tasks,
        stores,
        audit,
        port,
        handler,
        fatal,
    })
}
