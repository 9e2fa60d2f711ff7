//! [`Resource`]: the declarative description of one resource in one version, used by the verbs, discovery and
//! OpenAPI.
//!
//! Behaviour that data cannot express is in the [`Strategy`](super::Strategy) and in the handlers of
//! subresources. The built-in table is in `controlplane`; custom resources are built from their CRDs.

use super::converting::Pair;
use super::schema::Schema;
use super::selectable_fields::SelectableFields;
use super::strategy::{Context, MetaChecks, RestStrategy};
use super::write::WriteOptions;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::gvk::{GroupResource, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::{Str, Value};
use crate::request::{Request, Response};
use crate::storage::Storage;
use async_trait::async_trait;
use std::sync::Arc;

/// A set of verbs, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verbs(pub u16);

impl Verbs {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const CREATE: Self = Self(1);
    pub(crate) const DELETE: Self = Self(2);
    pub(crate) const DELETE_COLLECTION: Self = Self(4);
    pub(crate) const GET: Self = Self(8);
    pub(crate) const LIST: Self = Self(16);
    pub(crate) const PATCH: Self = Self(32);
    pub(crate) const UPDATE: Self = Self(64);
    pub(crate) const WATCH: Self = Self(128);
    /// The verbs of an ordinary stored resource.
    pub(crate) const ALL: Self = Self(255);
    /// The verbs of a status subresource.
    pub(crate) const GET_PATCH_UPDATE: Self = Self(8 | 32 | 64);

    /// The union of both sets.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// This set minus `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// True if this set contains all of `other`.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// The verbs' names in alphabetical order, as discovery lists them.
    pub(crate) fn names(self) -> Vec<&'static str> {
        // In the order of the bits, which is alphabetical.
        [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
        .into_iter()
        .enumerate()
        .filter(|(i, _)| self.0 & (1 << i) != 0)
        .map(|(_, n)| n)
        .collect()
    }
}

/// A column of a `meta.k8s.io/v1` Table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub name: Str,
    /// OpenAPI type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: Str,
    /// OpenAPI format, such as `name`, or empty.
    pub format: Str,
    /// The description; empty where upstream has none.
    pub description: Str,
    /// 0: always printed; 1: with `-o wide`.
    pub priority: i64,
}

/// Computes the cells of an object's row, one per column.
pub(crate) type Cells = Arc<dyn Fn(&Value) -> Vec<Value> + Send + Sync>;

/// How a kind is printed as a table.
#[derive(Clone)]
pub(crate) struct Columns {
    pub columns: Arc<[Column]>,
    /// Computes one cell per column.
    pub cells: Cells,
    /// The fields that `cells` reads; anything else may be missing from its argument.
    pub reads: Mask,
    /// Send the column definitions with every watch event instead of only the first.
    pub always_headed: bool,
    /// Computes the row's conditions, such as `Completed`; null for none.
    pub conditions: fn(&Value) -> Value,
}

/// Where a resource's objects come from.
#[derive(Clone)]
pub(crate) enum Backing {
    /// Objects in storage under a key prefix such as `/registry/configmaps/`.
    Stored {
        /// The full key prefix with a trailing slash.
        prefix: String,
    },
    /// Objects stored as another version of the kind, served through a conversion.
    Converted {
        /// The key prefix of the stored version.
        prefix: String,
        /// The stored version (the hub).
        hub: GroupVersionResource,
        /// The conversion from and to the hub.
        conversion: Arc<dyn Pair>,
    },
    /// Objects computed on every read (component statuses).
    Computed(Arc<dyn Storage>),
    /// Nothing is stored: a create returns a computed response (reviews).
    CreateOnly(Arc<dyn CreateHandler>),
}

/// Responds to a create without storing anything.
#[async_trait]
pub(crate) trait CreateHandler: Send + Sync + 'static {
    /// Computes the response object.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value>;
}

/// Serves a connect-style subresource (log, exec, proxy), with access to the raw request.
#[async_trait]
pub(crate) trait Connect: Send + Sync + 'static {
    /// The core/v1 kind of the options, such as `PodExecOptions`.
    fn options(&self) -> &'static str;

    /// True if subpaths and additional HTTP methods are routed here as well (proxy subresources).
    fn takes_path(&self) -> bool {
        false
    }

    /// True if a GET opens an interactive stream and therefore also requires the `create` permission that a
    /// POST needs.
    fn get_requires_create(&self) -> bool {
        false
    }

    /// Serves the request. `name` is the parent's; `options` is an object of the kind returned by
    /// [`options`](Self::options).
    ///
    /// # Errors
    /// The Status to respond with.
    async fn connect(&self, cx: &Context, name: &str, options: &Value, req: Request) -> Result<Response>;
}

/// Serves a subresource whose body is an object of its own kind (binding, finalize, approval, scale).
#[async_trait]
pub(crate) trait SubresourceHandler: Send + Sync + 'static {
    /// Sets defaults on a POSTed object.
    fn default(&self, _object: &mut Value) {}
    /// Completes and checks a POSTed object before validating admission.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn prepare_create(&self, _cx: &Context, _name: &str, object: Value) -> Result<Value> {
        Ok(object)
    }
    /// Serves GET.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn get(&self, cx: &Context, name: &str) -> Result<Value>;
    /// Serves POST.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value>;
    /// Serves PUT, and PATCH after the patch has been applied to the result of [`live`](Self::live).
    ///
    /// # Errors
    /// The Status to respond with.
    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value>;
    /// [`update`](Self::update) with the options of the write: the manager to record (`None` for an apply,
    /// which already carries its managed fields) and the UID precondition. The default ignores both.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn update_as(&self, cx: &Context, name: &str, object: Value, _write: &WriteOptions) -> Result<Value> {
        self.update(cx, name, object).await
    }
    /// The object that a patch applies to: that of [`get`](Self::get), with managed fields translated for
    /// this subresource.
    ///
    /// # Errors
    /// The Status to respond with.
    async fn live(&self, cx: &Context, name: &str) -> Result<Value> {
        self.get(cx, name).await
    }
    /// True if validating admission sees updates without managed fields. Upstream builds the Scale that it
    /// validates again, from the object with the replicas (`toScaleUpdateValidation` in
    /// `pkg/registry/apps/deployment/storage`).
    fn validated_without_managed_fields(&self) -> bool {
        false
    }

    /// True if a POSTed object may carry system fields, such as the UID of the object it refers to.
    fn keeps_system_fields(&self) -> bool {
        false
    }
    /// The schema of the subresource's kind if it is not the parent's.
    fn schema(&self) -> Option<Arc<dyn Schema>> {
        None
    }
    /// The table columns; `None` if the subresource cannot be printed as a table.
    fn columns(&self) -> Option<Columns> {
        None
    }
}

/// How a subresource is served.
#[derive(Clone)]
pub(crate) enum SubresourceBehaviour {
    /// A part of the parent (`status`, `pods/resize`), updated through the strategy's methods for that part.
    Status,
    /// An object of another kind, or one with its own way to be written (scale, binding,
    /// namespaces/finalize).
    Custom(Arc<dyn SubresourceHandler>),
    /// A connection that the connector serves (exec, proxy).
    Connect(Arc<dyn Connect>),
}

/// A subresource of a resource.
#[derive(Clone)]
pub(crate) struct Subresource {
    /// The path segment, such as `status`.
    pub name: Str,
    /// The kind of its request and response bodies.
    pub kind: GroupVersionKind,
    pub verbs: Verbs,
    /// How it is served.
    pub behaviour: SubresourceBehaviour,
    /// Whether it is served as a table; a custom one also needs columns.
    pub printable: bool,
}

impl Subresource {
    /// True if its objects are also served as tables.
    pub(crate) fn has_table(&self) -> bool {
        match &self.behaviour {
            SubresourceBehaviour::Custom(handler) => self.printable && handler.columns().is_some(),
            _ => self.printable,
        }
    }
}

/// One resource in one version.
#[derive(Clone)]
pub(crate) struct Resource {
    /// Group, version and plural.
    pub gvr: GroupVersionResource,
    /// The kind, in the singular and in camel case: `ConfigMap`.
    pub kind: Str,
    /// The kind of lists, usually the kind with a `List` suffix.
    pub(crate) list_kind: Str,
    /// The singular name in lower case.
    pub(crate) singular: Str,
    /// Short names, such as `cm`.
    pub(crate) short_names: Vec<Str>,
    /// Categories, such as `all` or `api-extensions`.
    pub(crate) categories: Vec<Str>,
    /// True for namespaced, false for cluster-scoped resources.
    pub(crate) namespaced: bool,
    pub(crate) verbs: Verbs,
    /// Where the objects come from.
    pub(crate) backing: Backing,
    /// The schema of the kind.
    pub(crate) schema: Arc<dyn Schema>,
    /// The name of the OpenAPI definition, such as `io.k8s.api.core.v1.ConfigMap`.
    pub(crate) definition: Str,
    pub(crate) strategy: Arc<dyn RestStrategy>,
    /// The table columns; `None` prints name and age.
    pub(crate) columns: Option<Columns>,
    /// The selectable fields; `None` if only name and namespace are.
    pub(crate) selectable: Option<SelectableFields>,
    /// A warning for every request, in addition to the strategy's.
    pub(crate) deprecation: Option<Str>,
    /// Lists have the shape of upstream's unstructured lists: items carry `apiVersion` and `kind`, and the
    /// metadata always has `continue`. True for custom resources.
    pub(crate) unstructured: bool,
    /// The storage keeps large objects compressed in memory: they are numerous, and few of them are read.
    pub(crate) compressed: bool,
    /// A delete returns the deleted object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// An update may omit resourceVersion.
    pub(crate) unconditional_update: bool,
    /// A PUT to a name that does not exist creates the object.
    pub(crate) create_on_update: bool,
    /// The kind's own metadata validation.
    pub(crate) meta_checks: MetaChecks,
    /// The `storageVersionHash` in discovery; empty for none.
    pub(crate) storage_version_hash: Str,
    pub(crate) subresources: Vec<Subresource>,
}

impl Resource {
    /// The group and plural name.
    pub(crate) fn group_resource(&self) -> GroupResource {
        self.gvr.group_resource()
    }

    /// The group, version and kind.
    pub(crate) fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(&self.gvr.group, &self.gvr.version, &self.kind)
    }

    /// The group in validation errors: that of the version the object is validated in.
    pub(crate) fn error_group(&self) -> &str {
        match &self.backing {
            Backing::Converted { hub, .. } => &hub.group,
            _ => &self.gvr.group,
        }
    }

    /// A warning for every request for the resource.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref().or(self.strategy.rules().deprecation)
    }

    /// The key prefix; `None` if nothing is stored.
    pub(crate) fn prefix(&self) -> Option<&str> {
        match &self.backing {
            Backing::Stored { prefix } | Backing::Converted { prefix, .. } => Some(prefix),
            Backing::Computed(_) | Backing::CreateOnly(_) => None,
        }
    }

    /// The subresource with this name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The key of an object relative to the resource's prefix.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }
}
