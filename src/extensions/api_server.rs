//! SDK for extension API servers: kinds, a store, the filter chain, discovery, OpenAPI, health, a port.
//!
//! ```text
//! Kind … ─→ ApiServer::builder(data dir) ─→ build(authenticator, authorizer) ─→ ApiServer ─→ open(Port) ─→ Running
//! ```
//!
//! A gateway can also serve such kinds in its own process: see [`ApiGroup`], `torana::app::run_with` and
//! `examples/embedded-group`.
//!
//! Authentication and authorization are supplied by the caller; an extension server behind an aggregator uses
//! [`crate::authn::delegated`] and [`crate::authz::delegated`].

mod group;
mod kind;
mod port;

pub use group::ApiGroup;
pub use kind::Kind;
pub use port::{Port, Running};

use crate::admission::{Admission, AdmitAll};
use crate::apimachinery::value::Value;
use crate::authn::Authenticator;
use crate::authz::Authorizer;
use crate::endpoints::ApiGroupVersion;
use crate::endpoints::discovery::aggregated::{Priorities, Source};
use crate::endpoints::discovery::versions;
use crate::endpoints::install::{PublishedDocuments, install};
use crate::endpoints::openapi::OpenApiV2;
use crate::registry::Store;
use crate::registry::resource::{Backing, Resource};
use crate::request::Handler;
use crate::server::reserved::ReservedThread;
use crate::server::{ChainConfig, EmptyDelegate, Endpoints, GenericServer, HealthCheck, Lifecycle, Prepared};
use crate::storage::embedded::{self, Engine};
use crate::storage::{ResourceConfig, Storage};
use crate::tasks::TaskGroup;
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

/// A server that is ready to be opened on a [`Port`].
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

    /// The handler chain, for tests and for custom listeners.
    pub fn handler(&self) -> Arc<dyn Handler> {
        self.prepared.handler.clone()
    }

    /// The store of a resource, by plural name.
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
    /// A one-line message: the store cannot be opened, a schema is invalid, a name is invalid or taken.
    pub fn build(
        self,
        authenticator: Arc<dyn Authenticator>,
        authorizer: Arc<dyn Authorizer>,
    ) -> Result<ApiServer, String> {
        let dir = &self.data_dir;
        std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let engine = Engine::open(dir, embedded::Options::default()).map_err(|e| e.to_string())?;

        let mut server = GenericServer::new("extension-apiserver", Arc::new(EmptyDelegate));
        let health = engine.clone();
        server.add_health_check(HealthCheck::new("etcd", Endpoints::ALL, move || health.health()));

        let published = PublishedDocuments::new(String::new());
        let (mut stores, mut groups) = (Vec::new(), Vec::new());
        let storage = |row: &Resource| -> Arc<dyn Storage> {
            let Backing::Stored { prefix } = &row.backing else {
                unreachable!("kinds described by a schema are stored")
            };
            engine.resource(ResourceConfig {
                prefix: prefix.clone(),
                fields: None,
            })
        };
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
        let no_thread = |e: std::io::Error| format!("cannot start a thread: {e}");
        let config = ChainConfig {
            compute: Some(ComputePool::start(Config::default(), telemetry.compute.clone()).map_err(no_thread)?),
            reserved: Some(ReservedThread::start().map_err(no_thread)?),
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
