//! A row: everything the verbs, discovery and OpenAPI need to know about one resource, as data.

use super::converting::Conversion;
use super::schema::Schema;
use super::store::WriteOptions;
use super::strategy::{Context, MetaChecks, Strategy};
use crate::apimachinery::codec::json::parts::Mask;
use crate::apimachinery::gvk::{GroupResource, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::{Str, Value};
use crate::request::{Request, Response};
use crate::storage::Storage;
use async_trait::async_trait;
use std::sync::Arc;

/// A set of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbs(pub u16);

#[allow(missing_docs, reason = "each constant is the verb of its name")]
impl Verbs {
    pub const CREATE: Self = Self(1);
    pub const DELETE: Self = Self(2);
    pub const DELETE_COLLECTION: Self = Self(4);
    pub const GET: Self = Self(8);
    pub const LIST: Self = Self(16);
    pub const PATCH: Self = Self(32);
    pub const UPDATE: Self = Self(64);
    pub const WATCH: Self = Self(128);
    /// What a stored resource usually has.
    pub const ALL: Self = Self(255);
    /// What a status subresource has.
    pub const GET_PATCH_UPDATE: Self = Self(8 | 32 | 64);

    /// Both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// This set without those.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// True where all of `other` are here.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Names in discovery's order (alphabetical).
    pub fn names(self) -> Vec<&'static str> {
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

/// A table column, as in `meta.k8s.io/v1` Table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: &'static str,
    /// `name` or empty.
    pub format: &'static str,
    /// Description; empty: upstream's has none.
    pub description: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: i64,
}

/// Makes a table's cells, one per column.
pub type Cells = Arc<dyn Fn(&Value) -> Vec<Value> + Send + Sync>;

/// Reads the selectable fields out of an object.
pub type ExtractFields = Arc<dyn Fn(&Value) -> Vec<(Str, Str)> + Send + Sync>;

/// How a kind prints as a table.
#[derive(Clone)]
pub struct Columns {
    /// Headings.
    pub columns: Arc<[Column]>,
    /// One cell per column.
    pub cells: Cells,
    /// The fields that cells are made of: what else an object has need not be there.
    pub reads: Mask,
    /// Every event of a watch has the headings, not the first alone.
    pub always_headed: bool,
    /// What a row says about its object as a whole; null: nothing.
    pub conditions: fn(&Value) -> Value,
}

/// Which fields a field selector may name, beside `metadata.name` and (namespaced) `metadata.namespace`.
#[derive(Clone)]
pub struct SelectableFields {
    /// Their names.
    pub names: Arc<[Str]>,
    /// Their values in an object; one pair per name.
    pub extract: ExtractFields,
}

/// What stands behind a resource.
#[derive(Clone)]
pub enum Backing {
    /// Objects in a store, under this key prefix (`/registry/configmaps/`).
    Stored {
        /// Full key prefix, closed by a slash.
        prefix: String,
    },
    /// Objects of another resource, seen through a conversion.
    Converted {
        /// The prefix of that resource.
        prefix: String,
        /// Its group, version and plural.
        hub: GroupVersionResource,
        /// To it and back.
        conversion: Arc<dyn Conversion>,
    },
    /// Nothing: whoever reads makes it (component statuses).
    Computed(Arc<dyn Storage>),
    /// Nothing: a create is answered (reviews).
    Answered(Arc<dyn Answer>),
}

/// Answers a create without storing anything.
#[async_trait]
pub trait Answer: Send + Sync + 'static {
    /// The object to send back.
    ///
    /// # Errors
    /// Any Status.
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value>;
}

/// Serves a connect-style subresource (log, exec, proxy): has the raw request.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// The core/v1 kind of its options: `PodExecOptions`.
    fn options(&self) -> &'static str;

    /// Takes paths below its own, and the methods that are no verbs.
    fn takes_path(&self) -> bool {
        false
    }

    /// A GET that opens a stream needs the permission to create, as a POST would.
    fn streams(&self) -> bool {
        false
    }

    /// Answers; `name` is the parent's, `options` are of the kind [`options`](Self::options) names.
    ///
    /// # Errors
    /// Any Status.
    async fn connect(&self, cx: &Context, name: &str, options: &Value, req: Request) -> Result<Response>;
}

/// Serves a subresource with an object body of its own kind (binding, finalize, approval, scale).
#[async_trait]
pub trait SubresourceHandler: Send + Sync + 'static {
    /// Fills in defaults of what is POSTed.
    fn default(&self, _object: &mut Value) {}
    /// Looks at what is POSTed before validating admission does, and completes it.
    ///
    /// # Errors
    /// Any Status.
    async fn prepare_create(&self, _cx: &Context, _name: &str, object: Value) -> Result<Value> {
        Ok(object)
    }
    /// GET.
    ///
    /// # Errors
    /// Any Status.
    async fn get(&self, cx: &Context, name: &str) -> Result<Value>;
    /// POST.
    ///
    /// # Errors
    /// Any Status.
    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value>;
    /// PUT (and PATCH, after the patch was applied to what [`get`](Self::get) gave).
    ///
    /// # Errors
    /// Any Status.
    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value>;
    /// [`update`](Self::update), recorded for the write's manager (`None`: an apply, whose managed fields stand in the
    /// object), of the object with the write's UID. The default looks at neither.
    ///
    /// # Errors
    /// Any Status.
    async fn update_as(&self, cx: &Context, name: &str, object: Value, _write: &WriteOptions) -> Result<Value> {
        self.update(cx, name, object).await
    }
    /// What a patch is made on: as [`get`](Self::get), with the managed fields as this endpoint has them.
    ///
    /// # Errors
    /// Any Status.
    async fn live(&self, cx: &Context, name: &str) -> Result<Value> {
        self.get(cx, name).await
    }
    /// True where what is POSTed may name the object it means, by its UID say.
    fn keeps_system_fields(&self) -> bool {
        false
    }
    /// The schema of its kind, where that is not the resource's.
    fn schema(&self) -> Option<Arc<dyn Schema>> {
        None
    }
    /// Its table; `None`: it has none.
    fn columns(&self) -> Option<Columns> {
        None
    }
}

/// How a subresource acts.
#[derive(Clone)]
pub enum SubresourceBehaviour {
    /// A part of the parent (`status`, `pods/resize`): an update of it through the strategy's methods for that part.
    Status,
    /// An object of its own, or one that is written in a way of its own (scale, binding, namespaces/finalize).
    Custom(Arc<dyn SubresourceHandler>),
    /// A connection.
    Connect(Arc<dyn Connect>),
}

/// A subresource of a row.
#[derive(Clone)]
pub struct Subresource {
    /// Name: `status`.
    pub name: &'static str,
    /// The kind it speaks.
    pub kind: GroupVersionKind,
    /// Its verbs.
    pub verbs: Verbs,
    /// What it does.
    pub behaviour: SubresourceBehaviour,
}

/// One resource in one version.
#[derive(Clone)]
pub struct Resource {
    /// Group, version and plural.
    pub gvr: GroupVersionResource,
    /// Kind. The list kind is this with `List` behind it.
    pub kind: Str,
    /// Singular, lower case.
    pub singular: Str,
    /// Short names.
    pub short_names: Vec<Str>,
    /// Categories (`all`, `api-extensions`).
    pub categories: Vec<Str>,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// What it can do.
    pub verbs: Verbs,
    /// Where it lives.
    pub backing: Backing,
    /// Its type.
    pub schema: Arc<dyn Schema>,
    /// Name of its OpenAPI definition, `io.k8s.api.core.v1.ConfigMap`.
    pub definition: Str,
    /// Its behaviour.
    pub strategy: Arc<dyn Strategy>,
    /// Its table; `None`: Name and Age.
    pub columns: Option<Columns>,
    /// Its selectable fields; `None`: name and namespace only.
    pub selectable: Option<SelectableFields>,
    /// A delete answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// An update without resourceVersion is allowed.
    pub unconditional_update: bool,
    /// A PUT to a missing name creates.
    pub create_on_update: bool,
    /// What the kind checks of the metadata itself.
    pub meta_checks: MetaChecks,
    /// Discovery's storageVersionHash; empty: none.
    pub storage_version_hash: Str,
    /// Subresources.
    pub subresources: Vec<Subresource>,
}

impl Resource {
    /// Group and plural.
    pub fn group_resource(&self) -> GroupResource {
        self.gvr.group_resource()
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(&self.gvr.group, &self.gvr.version, &self.kind)
    }

    /// The group in refusals of invalid objects: that of the version they are judged in.
    pub fn judged_group(&self) -> &str {
        match &self.backing {
            Backing::Converted { hub, .. } => &hub.group,
            _ => &self.gvr.group,
        }
    }

    /// The prefix of its keys; `None`: nothing of it is stored.
    pub fn prefix(&self) -> Option<&str> {
        match &self.backing {
            Backing::Stored { prefix } | Backing::Converted { prefix, .. } => Some(prefix),
            Backing::Computed(_) | Backing::Answered(_) => None,
        }
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The key of an object below the resource's prefix.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }
}
