//! Serves custom resources (upstream: `k8s.io/apiextensions-apiserver/pkg/apiserver`). Entry point:
//! [`CustomResources`].
//!
//! ```text
//! informer ──▶ catalog ◀── handler ── version (first use: schema, row, store) ──▶ endpoints
//!    │            ▲
//!    │            └── discovery: documents of groups and versions
//!    └──▶ establishing, finalizing; naming is a controller of its own
//! ```
//!
//! An unused definition costs its stored bytes and a [`Definition`]. Its schema is compiled, and the storage
//! of its objects opened, by the first request that needs them. A change of the spec replaces only the
//! versions it concerns; requests in flight finish with what they started with.

mod catalog;
mod columns;
mod conformance;
mod definition;
mod deprecation;
mod discovery;
mod establishing;
mod finalizing;
mod handler;
mod published;
mod scale;
mod selectable;
mod storages;
mod terminating;
mod version;
mod worker;

pub(crate) use definition::{Definition, Version};
pub(crate) use finalizing::FINALIZER;
pub(crate) use storages::Storages;
pub(crate) use version::prefix;

use crate::admission::Admission;
use crate::client::{Informer, InformerHandle};
use crate::endpoints::ApiGroupVersion;
use crate::endpoints::install::PublishedDocuments;
use crate::extensions::conversion::Conversions;
use crate::registry::{CustomKinds, Schema, Store};
use crate::server::generic::GenericServer;
use crate::tasks::TaskGroup;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use catalog::Catalog;
use conformance::Conformance;
use discovery::Discovery;
use establishing::Establishing;
use finalizing::Finalizing;
use handler::CustomResourceHandler;
use std::sync::Arc;
use version::Builder;

/// Dependencies of custom resources.
pub(crate) struct Config {
    /// The store of the definitions.
    pub definitions: Arc<Store>,
    /// Opens and closes the storage of custom resources.
    pub storages: Arc<dyn Storages>,
    /// Converts custom resources between versions.
    pub conversions: Conversions,
    /// Admits writes of custom resources.
    pub admission: Arc<dyn Admission>,
    /// The settings of all group versions; its group version and resources are not used.
    pub endpoint: ApiGroupVersion,
    /// Where discovery and OpenAPI of custom resources are published.
    pub published: PublishedDocuments,
    /// The schema of `autoscaling/v1` Scale.
    pub scale: Arc<dyn Schema>,
    pub telemetry: Telemetry,
}

/// The custom resources of all definitions, and their controllers.
pub(crate) struct CustomResources {
    definitions: Informer<Definition>,
    catalog: Arc<Catalog>,
    discovery: Arc<Discovery>,
    establishing: Establishing,
    finalizing: Finalizing,
    conformance: Conformance,
}

impl CustomResources {
    /// Serves custom resources below `/apis/` of `server`, as far as no built-in group claims the path. The
    /// handle runs the informer of the definitions.
    pub(crate) fn install(server: &GenericServer, config: Config) -> (Self, InformerHandle<Definition>) {
        let store = config.definitions;
        let (definitions, feed) = Informer::new(store.storage().clone(), Definition::from_entry);
        let builder = Builder::new(
            config.storages,
            config.conversions,
            config.admission,
            config.endpoint,
            config.scale,
        );
        let catalog = Arc::new(Catalog::new(builder));
        let discovery = Arc::new(Discovery::new(
            catalog.clone(),
            config.published,
            config.telemetry.clone(),
        ));
        let establishing = Establishing::new(store.clone(), &config.telemetry);
        let finalizing = Finalizing::new(store.clone(), definitions.clone(), catalog.clone(), &config.telemetry);
        let conformance = Conformance::new(store.clone(), &config.telemetry);
        let conforms = conformance.clone();
        let (follows, shown) = (catalog.clone(), discovery.clone());
        let (established, finalized) = (establishing.clone(), finalizing.clone());
        // The catalog comes first: discovery and the controllers look definitions up in it.
        definitions.subscribe(move |change| {
            follows.apply(change);
            shown.note(change);
            established.note(change);
            finalized.note(change);
            conforms.note(change);
        });
        // Requests that no definition answers fall through to the server behind this one.
        let next = server.delegate().unprotected_handler();
        let handler = CustomResourceHandler::new(definitions.clone(), store.storage().clone(), catalog.clone(), next);
        server.mux().unlisted_handle_prefix("/apis/", Arc::new(handler));
        let own = Self {
            definitions,
            catalog,
            discovery,
            establishing,
            finalizing,
            conformance,
        };
        (own, feed)
    }

    pub(crate) fn definitions(&self) -> &Informer<Definition> {
        &self.definitions
    }

    /// The kinds of the definitions, for admission.
    pub(crate) fn kinds(&self) -> Arc<dyn CustomKinds> {
        self.catalog.clone()
    }

    /// Starts the controllers in `tasks`; they end with the group. Their computations run
    /// on the pool: a definition may have megabytes.
    pub(crate) fn start(self, tasks: &TaskGroup, compute: &ComputePool) {
        // Controllers start once the informer has its first list, or they would act on missing definitions.
        let synced = self.definitions.synced().clone();
        self.establishing.start(tasks, compute, &synced);
        self.finalizing.start(tasks, compute, &synced);
        self.conformance.start(tasks, compute, &synced);
        tasks.spawn_until_stopped("discovery of custom resources", self.discovery.run(synced));
        let catalog = self.catalog;
        tasks.spawn_until_stopped("storage of removed custom resources", async move {
            catalog.close_removed().await
        });
    }
}
