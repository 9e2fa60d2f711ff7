//! What every stage of the composition uses, and what is derived from it and the options alone.

use crate::apimachinery::gvk::GroupVersion;
use crate::app::Error;
use crate::app::enablement::Enablement;
use crate::app::port::Port;
use crate::app::servers::Serving;
use crate::app::service_accounts::{self, ServiceAccounts};
use crate::app::store::Stores;
use crate::authn::Authenticator;
use crate::authz::Authorizer;
use crate::cli::CompletedOptions;
use crate::cli::flags::FLAGS;
use crate::controlplane::ControlPlane;
use crate::endpoints::discovery::aggregated::Priorities;
use crate::endpoints::install::PublishedDocuments;
use crate::endpoints::negotiate::Codecs;
use crate::endpoints::zpages;
use crate::proxy::outbound::{Outbound, OwnAddress};
use crate::server::chain::ChainConfig;
use crate::server::generic::GenericServer;
use crate::server::lifecycle::Lifecycle;
use crate::server::reserved::ReservedThread;
use crate::tasks::TaskGroup;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use rustls::crypto::CryptoProvider;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;
use time::OffsetDateTime;

/// Shared by every later stage of the composition: threads, metrics, the open stores and the bound port.
pub(super) struct Base {
    pub options: CompletedOptions,
    pub provider: Arc<CryptoProvider>,
    pub telemetry: Telemetry,
    pub compute: ComputePool,
    pub reserved: ReservedThread,
    pub tasks: TaskGroup,
    pub lifecycle: Lifecycle,
    pub stores: Arc<Stores>,
    pub port: Port,
    /// Where the port is bound.
    pub address: SocketAddr,
    /// `https://host:port` for clients on this machine.
    pub url: String,
}

impl Base {
    /// Locks the data directory, binds the port and opens the stores.
    ///
    /// # Errors
    /// Another process has the directory or the port, or a file is unusable.
    pub(super) async fn open(mut options: CompletedOptions, sockets: Vec<TcpListener>) -> Result<Self, Error> {
        if let Some(socket) = sockets.first() {
            // Everything after this takes the address from the options, also if a service manager opened the
            // socket.
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
        // After the store is open: keys are made on another thread in the meantime.
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
    pub(super) fn loopback(&self) -> &str {
        self.url.trim_start_matches("https://")
    }

    /// The advertised address with the bound port.
    fn advertised(&self) -> SocketAddr {
        SocketAddr::new(self.options.advertise_address, self.address.port())
    }

    /// Egress rules of every connection that the gateway opens to backends and webhooks.
    pub(super) fn outbound(&self) -> Result<Outbound, Error> {
        Ok(Outbound::from_environment()
            .map_err(Error::other)?
            .with_socket_dirs(self.options.aggregator.socket_dirs.clone())
            // A backend at these addresses would be this server: a loop.
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
    pub(super) fn publish_issuer(&self, core: &GenericServer, issuer: &ServiceAccounts) {
        let external = self.advertised();
        let host = self.options.serving.external_hostname.as_ref();
        let host = host.map_or_else(|| external.to_string(), |name| format!("{name}:{}", external.port()));
        if let Some(documents) = issuer.documents(&self.options, &host) {
            service_accounts::publish(core, documents);
        }
    }

    /// Serves the flags at `/flagz`, and version, uptime and paths at `/statusz`.
    pub(super) fn publish_zpages(&self, head: &GenericServer) {
        let flags = FLAGS
            .iter()
            .map(|f| (f.name.to_owned(), self.options.values.flagz_value(f.name)));
        head.mux().handle("/flagz", zpages::flagz(flags.collect()));
        let listed = zpages::statusz(OffsetDateTime::now_utc(), Instant::now(), head.listed_paths());
        head.mux().handle("/statusz", listed);
    }

    /// Settings of the group versions of all three servers. `priorities` are those of the additional groups.
    pub(super) fn serving(
        &self,
        plane: &ControlPlane,
        authorizer: Arc<dyn Authorizer>,
        priorities: Vec<(GroupVersion, Priorities)>,
    ) -> Result<Serving, Error> {
        Ok(Serving {
            enabled: self.enablement(plane)?,
            min_request_timeout: self.options.generic.min_request_timeout,
            codecs: Codecs {
                cbor: self.options.features.enabled("CBORServingAndStorage") == Some(true),
            },
            authorizer,
            published: PublishedDocuments::new(self.advertised().to_string()),
            priorities,
            telemetry: self.telemetry.clone(),
            tasks: self.tasks.clone(),
        })
    }

    /// The limits of the filter chain, and the threads that it shares with the rest of the gateway.
    pub(super) fn chain_config(
        &self,
        authenticator: Arc<dyn Authenticator>,
        authorizer: Arc<dyn Authorizer>,
    ) -> ChainConfig {
        let limits = &self.options.generic;
        ChainConfig {
            request_timeout: limits.request_timeout,
            max_requests_in_flight: limits.max_requests_in_flight,
            max_mutating_requests_in_flight: limits.max_mutating_requests_in_flight,
            compute: Some(self.compute.clone()),
            reserved: Some(self.reserved.clone()),
            ..ChainConfig::new(
                self.telemetry.clone(),
                self.lifecycle.clone(),
                authenticator,
                authorizer,
            )
        }
    }
}
