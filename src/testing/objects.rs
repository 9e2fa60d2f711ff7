//! The processing of one kind of object, from its bytes to a response, without a socket and without requests
//! to the store. Opaque, so that the tables of the control plane stay private.

use crate::admission::{Admission, AdmitAll};
use crate::apimachinery::apply::{ApplyRequest, Writer};
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use crate::authz::{AlwaysAllow, Rbac, rbac};
use crate::controlplane::reviews::ReviewDependencies;
use crate::controlplane::{self, ControlPlane, KubeletConfig};
use crate::endpoints::negotiate::{Media, Negotiated, Transform};
use crate::endpoints::options::Query;
use crate::endpoints::respond::{self, list::ListMeta};
use crate::extensions::definitions::CustomResourceDefinition;
use crate::proxy::resolver::SystemResolver;
use crate::registry::StoreLookup;
use crate::registry::resource::{Backing, Resource};
use crate::registry::schema::reset_set;
use crate::registry::strategy::Change;
use crate::request::Response;
use crate::storage::embedded::{Engine, ResourceConfig};
use crate::storage::{Draft, Entry, Listing, Revision, Storage};
use crate::tasks::TaskGroup;
use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;

const NOW: &str = "2026-01-02T03:04:05Z";
/// Fields that writers of the main resource never own.
const RESET: &[&str] = &["status"];

struct NoTokens;

#[async_trait::async_trait]
impl TokenAuthenticator for NoTokens {
    async fn authenticate_token(
        &self,
        _: PresentedToken<'_>,
    ) -> std::result::Result<Option<TokenUser>, AuthenticationError> {
        Ok(None)
    }
}

/// A built-in resource.
pub struct Objects(Arc<Resource>);

/// The representation of a list.
#[derive(Clone, Copy)]
pub enum Listed {
    /// `meta.k8s.io` Table.
    Table,
    /// `meta.k8s.io` PartialObjectMetadataList.
    Metadata,
}

impl Objects {
    /// The resource of a group, as the gateway serves it. The engine is only opened for it: no request
    /// reaches the store.
    pub fn of(engine: &Arc<Engine>, group: &str, resource: &str) -> Self {
        Self(plane(engine).store(group, resource).resource().clone())
    }

    /// Normalises and defaults an object, and prepares it for its creation.
    ///
    /// # Errors
    /// A field has a wrong type.
    pub fn prepare(&self, object: &mut Value) -> Result<()> {
        self.0.schema.normalize(object)?;
        self.0.strategy.default(object);
        self.0.strategy.prepare(object, Change::Create);
        Ok(())
    }

    /// Validates an object that is to be created.
    pub fn validate(&self, object: &Value) -> ErrorList {
        self.0.strategy.validate(object, Change::Create)
    }

    /// Applies a strategic merge patch.
    ///
    /// # Errors
    /// The patch does not fit the object.
    pub fn strategic_merge(&self, object: &Value, patch: &Value) -> Result<Value> {
        let merged = self.0.schema.strategic_merge(object, patch);
        merged.expect("built-in kinds have strategic merge patches")
    }

    /// Makes a manager the owner of all fields of a new object.
    pub fn manage(&self, object: &mut Value, manager: &str) {
        self.0
            .schema
            .manage_update(None, object, &who(manager), &reset_set(RESET));
    }

    /// Performs a server-side apply.
    ///
    /// # Errors
    /// A conflict.
    pub fn apply(&self, live: &Value, configuration: Value, manager: &str) -> Result<Value> {
        let request = ApplyRequest {
            writer: who(manager),
            force: false,
            reset: &reset_set(RESET),
        };
        self.0.schema.apply(Some(live), configuration, &request)
    }

    /// The response to a list of `count` objects that all are this one.
    ///
    /// # Errors
    /// The object cannot be represented so.
    pub fn list(&self, entry: &Arc<Entry>, count: usize, listed: Listed) -> Result<Response> {
        let listing = Listing {
            entries: vec![entry.clone(); count],
            revision: Revision(7),
            next: None,
            remaining: None,
        };
        let negotiated = Negotiated {
            media: Media::Json,
            transform: match listed {
                Listed::Table => Transform::Table("v1"),
                Listed::Metadata => Transform::PartialList("v1"),
            },
            pretty: false,
        };
        let (meta, headers, query) = (ListMeta::default(), HeaderMap::new(), Query::default());
        respond::list::list(listing, &meta, &self.0, negotiated, &headers, &query, None)
    }
}

/// An object as the store holds it.
pub fn entry(object: &Value, key: &str) -> Arc<Entry> {
    Arc::new(Draft::new(object, vec![]).into_entry(key, Revision(7)))
}

fn who(manager: &str) -> Writer<'_> {
    Writer {
        manager,
        subresource: "",
        now: NOW,
        api_version: "v1",
    }
}

/// The configuration of a control plane whose dependencies do nothing.
pub(crate) fn config() -> controlplane::Config {
    controlplane::Config {
        service_ranges: vec![("10.0.0.0".parse().expect("an address"), 24)],
        node_ports: (30000, 32767),
        event_ttl_seconds: 3600,
        review_dependencies: ReviewDependencies {
            tokens: Arc::new(NoTokens),
            authorizer: Arc::new(AlwaysAllow),
            anonymous: true,
            roles: Rbac::fixed(rbac::Index::default()),
            audiences: vec![],
        },
        components: vec![],
        kubelets: KubeletConfig {
            certificate_authority: None,
            client: None,
            preferred_address_types: vec!["InternalIP".into()],
            port: 10250,
            timeout: Duration::from_secs(5),
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            tasks: TaskGroup::new("objects"),
            policy: Default::default(),
            names: Arc::new(SystemResolver),
        },
        tokens: None,
        definitions: Arc::new(CustomResourceDefinition),
    }
}

fn plane(engine: &Arc<Engine>) -> ControlPlane {
    let storage = |row: &Resource| -> Arc<dyn Storage> {
        let Backing::Stored { prefix } = &row.backing else {
            unreachable!("only rows with a store of their own are asked for one")
        };
        engine.resource(ResourceConfig {
            prefix: prefix.clone(),
            fields: None,
            compressed: false,
        })
    };
    let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
    controlplane::build(config(), &StoreLookup::default(), &storage, &admission).expect("the range is usable")
}
