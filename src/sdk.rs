//! Toolkit for custom API servers: kinds, a store, the filter chain, discovery, OpenAPI, health, a port.
//!
//! ```text
//! ApiServer::builder(data dir) ─→ build(authenticator, authorizer) ─→ ApiServer ─→ open(Port) ─→ Running
//! ```
//!
//! ```no_run
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::sync::Arc;
//! use std::time::SystemTime;
//! use torana::json;
//! use torana::sdk::authn::{BearerToken, TokenFile};
//! use torana::sdk::authz::AlwaysAllow;
//! use torana::sdk::{ApiServer, Kind, Port, pki};
//!
//! # fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
//!     "size": {"type": "integer", "minimum": 0}}}}});
//! let gadget = Kind::namespaced("Gadget", "gadgets", schema).column("Size", "integer", "spec.size");
//!
//! let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
//! let pair = pki::ensure_serving("pki".as_ref(), &["localhost"], &[localhost], SystemTime::now())?;
//! let port = Port::bind((localhost, 8443).into(), &pair, Vec::new())?;
//! let tokens = BearerToken::new(Arc::new(TokenFile::parse("tokens.csv", "secret,jane,u1,dev")?));
//! let running = ApiServer::builder("store")
//!     .group_version("gadgets.example.com", "v1", [gadget])
//!     .build(Arc::new(tokens), Arc::new(AlwaysAllow))?
//!     .open(port);
//! # Ok(())
//! # }
//! ```
//!
//! A gateway can also serve such kinds in its own process: see [`ApiGroup`], [`crate::gateway::run_with`] and
//! `examples/embedded-group`.
//!
//! | to | use |
//! |---|---|
//! | validate, default and prepare objects beyond their schema | [`Strategy`] |
//! | admit writes by who the caller is, allocate | [`strategy::SideEffects`] |
//! | serve an action or a view of an object | [`Subresource`] |
//! | run a controller in the process | [`Store::watch_values`], on [`ApiServer::tasks`] |
//! | call the server without a port, or serve it on a listener of one's own | [`ApiServer::service`] |
//!
//! Authentication and authorization are supplied by the caller; an extension server behind an aggregator
//! (`examples/extension-server`) uses [`authn::Delegated`] and [`authz::Delegated`].

mod error;
mod group;
mod kind;
mod port;
mod subresource;

pub use error::Error;
pub use group::ApiGroup;
pub use kind::Kind;
pub use port::{Port, Running};
pub use subresource::{CreateSubresource, GetSubresource, Subresource, UpdateSubresource};

pub use crate::registry::{Context, Store, StoreEvent, StoreWatch, Strategy};
pub use crate::tasks::{Signal, Stragglers, TaskGroup};

/// What a `Strategy` may have besides its own methods.
pub mod strategy {
    pub use crate::registry::strategy::{DeleteStrategy, GarbageCollection, NameRule, Outcome, Rules, SideEffects};
}

/// Who a caller is: the traits to implement, and authentication by TokenReviews of another API server.
pub mod authn {
    pub use crate::authn::delegated::{Delegated, DelegatedError};
    pub use crate::authn::token_file::TokenFileError;
    pub use crate::authn::{
        AuthenticatedUser, AuthenticationError, Authenticator, BearerToken, Credentials, PresentedToken, SyncOutcome,
        TokenAuthenticator, TokenFile, TokenUser, Union, X509,
    };
    pub use crate::request::{UserInfo, Warnings};
}

/// What a caller may do: the traits to implement, and authorization by SubjectAccessReviews of another API server.
pub mod authz {
    pub use crate::authz::delegated::{Delegated, Reviewer};
    pub use crate::authz::rbac::PolicyRule;
    pub use crate::authz::{AlwaysAllow, AlwaysDeny, Attributes, Authorizer, Decision, Rules, Union, Verdict};
}

/// A client of API servers.
pub mod client {
    pub use crate::client::{Client, ClientConfig, ClientError, Events, KubeconfigError};
}

/// Certificates of a server, and the CA bundles of its clients.
pub mod pki {
    pub use crate::pki::certs::{CertError, DynamicCa};
    pub use crate::pki::{PkiError, ServingPair, ensure_serving};
}

use crate::admission::{Admission, AdmitAll};
use crate::apimachinery::value::Value;
use crate::authn::Authenticator;
use crate::authz::Authorizer;
use crate::endpoints::ApiGroupVersion;
use crate::endpoints::discovery::aggregated::{Priorities, Source};
use crate::endpoints::discovery::versions;
use crate::endpoints::install::{PublishedDocuments, install};
use crate::endpoints::openapi::OpenApiV2;
use crate::registry::resource::{Backing, Resource};
use crate::server::lifecycle::PreShutdownHook;
use crate::server::reserved::ReservedThread;
use crate::server::{
    ChainConfig, EmptyDelegate, Endpoints, GatewayService, GenericServer, HealthCheck, Lifecycle, Prepared,
};
use crate::storage::embedded::{self, Engine};
use crate::storage::{ResourceConfig, Storage};
use crate::tasks::compute::{ComputePool, Config};
use crate::telemetry::Telemetry;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Collects the groups to serve.
pub struct ApiServerBuilder {
    data_dir: PathBuf,
    groups: Vec<ApiGroup>,
}

/// A server that is ready to be opened on a [`Port`], or to be called through its [`service`](Self::service).
pub struct ApiServer {
    prepared: Prepared,
    engine: Arc<Engine>,
    tasks: TaskGroup,
    stores: Vec<Arc<Store>>,
}

impl ApiServer {
    /// A builder of a server that stores its objects in this directory.
    pub fn builder(data_dir: impl Into<PathBuf>) -> ApiServerBuilder {
        ApiServerBuilder {
            data_dir: data_dir.into(),
            groups: Vec::new(),
        }
    }

    /// The server as a `tower::Service` of HTTP requests: for tests, for layers, and for a listener of one's own.
    /// Requests pass the whole filter chain. Such a listener sees to TLS, and client certificates do not
    /// authenticate; a server on a [`Port`] has both.
    ///
    /// A server whose requests need no port:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use torana::gateway::Body;
    /// use torana::json;
    /// use torana::sdk::authn::{BearerToken, TokenFile};
    /// use torana::sdk::authz::AlwaysAllow;
    /// use torana::sdk::{ApiServer, Context, Kind};
    /// use tower::ServiceExt as _;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dir = tempfile::tempdir()?;
    /// let tokens = BearerToken::new(Arc::new(TokenFile::parse("tokens.csv", "secret,jane,u1,dev")?));
    /// let gadget = Kind::namespaced("Gadget", "gadgets", json!({"type": "object"}));
    /// let server = ApiServer::builder(dir.path())
    ///     .group_version("gadgets.example.com", "v1", [gadget])
    ///     .build(Arc::new(tokens), Arc::new(AlwaysAllow))?;
    /// let gadgets = server.store("gadgets").ok_or("it is a kind of this server")?;
    /// let one = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "metadata": {"name": "one"}});
    /// gadgets.create_value(&Context::system("default"), one).await?;
    ///
    /// let request = http::Request::get("/apis/gadgets.example.com/v1/namespaces/default/gadgets/one");
    /// let request = request.header("authorization", "Bearer secret").body(Body::empty())?;
    /// let response = server.service().oneshot(request).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(&self) -> GatewayService {
        GatewayService::new(self.prepared.handler.clone())
    }

    /// The server's own tasks, for controllers. [`Running::shut_down`] stops them after the last request and before
    /// the store is closed.
    pub fn tasks(&self) -> &TaskGroup {
        &self.tasks
    }

    /// Runs a future when the shutdown begins, while requests are still served, and waits for it: to
    /// deregister the server, or to hand over to another one.
    ///
    /// ```no_run
    /// # fn example(mut server: torana::sdk::ApiServer, gateway: torana::sdk::client::Client) {
    /// server.before_shutdown("deregister", async move {
    ///     let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.gadgets.example.com";
    ///     if let Err(error) = gateway.get(path).await {
    ///         tracing::warn!(%error, "the gateway does not answer");
    ///     }
    /// });
    /// # }
    /// ```
    pub fn before_shutdown(&mut self, name: impl Into<String>, run: impl Future<Output = ()> + Send + 'static) {
        self.prepared.pre_shutdown_hooks.push(PreShutdownHook::new(name, run));
    }

    /// The store of a resource, by plural name; of the first one if several groups have it.
    // A scan, since a server has few kinds and callers keep the store.
    pub fn store(&self, plural: &str) -> Option<&Arc<Store>> {
        self.stores.iter().find(|s| s.resource().gvr.resource == plural)
    }
}

impl ApiServerBuilder {
    /// Adds a group version with these kinds.
    pub fn group_version(self, group: &str, version: &str, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.group(ApiGroup::new(group, version, kinds))
    }

    /// Adds a group version.
    pub fn group(mut self, group: ApiGroup) -> Self {
        self.groups.push(group);
        self
    }

    /// Opens the store and assembles the server. Blocks while the store is read.
    ///
    /// # Errors
    /// The store cannot be opened, a schema is invalid, a name is invalid or taken.
    pub fn build(
        self,
        authenticator: Arc<dyn Authenticator>,
        authorizer: Arc<dyn Authorizer>,
    ) -> Result<ApiServer, Error> {
        let dir = &self.data_dir;
        std::fs::create_dir_all(dir).map_err(|source| Error::Directory {
            path: dir.clone(),
            source,
        })?;
        let engine = Engine::open(dir, embedded::Options::default()).map_err(|e| Error::Store(e.into()))?;

        let mut server = GenericServer::new("extension-apiserver", Arc::new(EmptyDelegate));
        let health = engine.clone();
        // Upstream's name for the store's check, which probes may exclude by name.
        server.add_health_check(HealthCheck::new("etcd", Endpoints::ALL, move || health.health()));

        // No address: clients reach this server through the aggregator.
        let published = PublishedDocuments::new(String::new());
        let (mut stores, mut groups) = (Vec::new(), Vec::new());
        let storage = |row: &Resource| -> Arc<dyn Storage> {
            let Backing::Stored { prefix } = &row.backing else {
                unreachable!("kinds described by a schema are stored")
            };
            engine.resource(ResourceConfig {
                prefix: prefix.clone(),
                fields: None,
                compressed: false,
            })
        };
        // The gateway in front has admitted nothing: it proxies. Rules belong in a kind's strategy.
        let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
        for group in self.groups {
            let (gv, served) = group.serve(&storage, &admission)?;
            stores.extend(served.iter().map(|(_, s)| s.clone()));
            groups.push(ApiGroupVersion::new(gv, served));
        }
        // Preferred version first; discovery lists the versions in this order.
        groups.sort_by(|a, b| versions::compare_versions(&b.gv.version, &a.gv.version));
        let rows = groups.iter().map(|g| (g.gv.clone(), g.rows().cloned().collect()));
        server
            .mux()
            .handle("/openapi/v2", Arc::new(OpenApiV2::new(rows.collect())));
        let plain = group_list(&groups);
        install(
            &server,
            groups,
            Source::BUILT_IN,
            &|_| Priorities::default(),
            &published,
        );
        server.container().replace(published.apis.clone().route("/apis", plain));
        server.mux().handle("/openapi/v3", published.openapi.clone());
        server.mux().handle_prefix("/openapi/v3/", published.openapi);

        let telemetry = Telemetry::new();
        let config = ChainConfig {
            compute: Some(ComputePool::start(Config::default(), telemetry.compute.clone()).map_err(Error::Thread)?),
            reserved: Some(ReservedThread::start().map_err(Error::Thread)?),
            ..ChainConfig::new(telemetry, Lifecycle::new(), authenticator, authorizer)
        };
        let prepared = server.prepare(config, Duration::ZERO);
        Ok(ApiServer {
            prepared,
            engine,
            tasks: TaskGroup::new("extension-apiserver"),
            stores,
        })
    }
}

/// The document of `/apis`. The versions of each group are already in order of preference.
fn group_list(groups: &[ApiGroupVersion]) -> Value {
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ApiGroupVersion { gv, .. } in groups {
        by_name.entry(&gv.group).or_default().push(&gv.version);
    }
    let entries = by_name.iter().map(|(g, v)| versions::group_entry(g, v)).collect();
    versions::api_group_list(entries)
}
