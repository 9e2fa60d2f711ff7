//! [`Kind`]: a custom kind, and its conversion to a [`Resource`] with a store. Names and schema are checked
//! when it is served, since the group version is only known then.

use super::Error;
use crate::admission::Admission;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::field::{FieldPath, aggregate};
use crate::apimachinery::gvk::{GroupVersion, GroupVersionResource};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::table;
use crate::apimachinery::value::{Str, Value};
use crate::endpoints::discovery::resources::storage_version_hash;
use crate::registry::resource::{Backing, Column, Columns, Resource, SubresourceHandler};
use crate::registry::strategy::{MetaChecks, Plain};
use crate::registry::{RestStrategy, Store, Strategy, Subresource, SubresourceBehaviour, Verbs};
use crate::schema::{KindSchema, SchemaStrategy};
use crate::storage::Storage;
use std::sync::Arc;

type MakeHandler = Box<dyn FnOnce(Arc<Store>) -> Arc<dyn SubresourceHandler> + Send>;

struct OwnSubresource {
    name: &'static str,
    kind: &'static str,
    verbs: Verbs,
    handler: MakeHandler,
}

/// A kind: names, schema and behaviour.
///
/// ```
/// use torana::json;
/// use torana::sdk::Kind;
///
/// let schema = json!({"type": "object", "required": ["spec"], "properties": {
///     "spec": {
///         "type": "object",
///         "properties": {
///             "min": {"type": "integer", "minimum": 0, "default": 0},
///             "max": {"type": "integer", "default": 10},
///         },
///         "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min exceeds max"}],
///     },
///     "status": {"type": "object", "properties": {"used": {"type": "integer"}}},
/// }});
/// let range = Kind::namespaced("Range", "ranges", schema)
///     .short_name("rg")
///     .category("all")
///     .status()
///     .column("Max", "integer", "spec.max")
///     .column("Used", "integer", "status.used");
/// ```
pub struct Kind {
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    schema: Value,
    short_names: Vec<Str>,
    categories: Vec<Str>,
    status: bool,
    columns: Vec<(&'static str, &'static str, &'static str)>,
    strategy: Arc<dyn RestStrategy>,
    subresources: Vec<OwnSubresource>,
}

impl Kind {
    fn new(kind: &'static str, plural: &'static str, namespaced: bool, schema: Value) -> Self {
        Self {
            kind,
            plural,
            namespaced,
            schema,
            short_names: Vec::new(),
            categories: Vec::new(),
            status: false,
            columns: Vec::new(),
            strategy: Arc::new(Plain),
            subresources: Vec::new(),
        }
    }

    /// A kind whose objects are namespaced. `schema` is an `openAPIV3Schema` as in a
    /// CustomResourceDefinition.
    pub fn namespaced(kind: &'static str, plural: &'static str, schema: Value) -> Self {
        Self::new(kind, plural, true, schema)
    }

    /// A kind whose objects are cluster-scoped.
    pub fn cluster_scoped(kind: &'static str, plural: &'static str, schema: Value) -> Self {
        Self::new(kind, plural, false, schema)
    }

    /// Adds a short name.
    pub fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(Str::new(name));
        self
    }

    /// Adds a category, such as `all`.
    pub fn category(mut self, name: &str) -> Self {
        self.categories.push(Str::new(name));
        self
    }

    /// Adds the `status` subresource; `status` is then ignored in other writes.
    pub fn status(mut self) -> Self {
        self.status = true;
        self
    }

    /// Adds a table column between Name and Age: heading, type (`string`, `integer`, `boolean`, `number`) and
    /// the fields it shows, dot-separated (`spec.size`).
    pub fn column(mut self, name: &'static str, ty: &'static str, path: &'static str) -> Self {
        self.columns.push((name, ty, path));
        self
    }

    /// Sets the strategy, for rules that the schema cannot express.
    pub fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// Adds a subresource whose objects are of `kind` in the same group version. The handler factory receives
    /// the store of the parent resource.
    pub fn subresource<H: SubresourceHandler>(
        mut self,
        name: &'static str,
        kind: &'static str,
        verbs: Verbs,
        handler: impl FnOnce(Arc<Store>) -> H + Send + 'static,
    ) -> Self {
        self.subresources.push(OwnSubresource {
            name,
            kind,
            verbs,
            handler: Box::new(|store| Arc::new(handler(store))),
        });
        self
    }

    /// Builds the resource and its store.
    pub(super) fn serve(
        self,
        gv: &GroupVersion,
        storage: &dyn Fn(&Resource) -> Arc<dyn Storage>,
        admission: &Arc<dyn Admission>,
    ) -> Result<(Arc<Resource>, Arc<Store>), Error> {
        let gvk = gv.with_kind(self.kind);
        let schema =
            KindSchema::parse(gvk.clone(), &self.schema, &FieldPath::default()).map_err(|e| Error::Schema {
                kind: self.kind,
                reason: aggregate(&e),
            })?;
        let strategy = SchemaStrategy::new(schema.structural().clone(), self.status, self.strategy);
        let prefix = format!("/registry/{}/{}/", gv.group, self.plural);
        let mut subresources = Vec::new();
        if self.status {
            subresources.push(Subresource {
                name: "status",
                kind: gvk,
                verbs: Verbs::GET_PATCH_UPDATE,
                behaviour: SubresourceBehaviour::Status,
                printable: true,
            });
        }
        // OpenAPI definitions are named after the reversed group, as upstream's of custom resources:
        // `com.example.v1.Gadget`.
        let reversed: Vec<&str> = gv.group.rsplit('.').collect();
        let mut row = Resource {
            gvr: GroupVersionResource::new(&gv.group, &gv.version, self.plural),
            kind: Str::new(self.kind),
            list_kind: Str::from(format!("{}List", self.kind)),
            singular: Str::from(self.kind.to_lowercase()),
            short_names: self.short_names,
            categories: self.categories,
            namespaced: self.namespaced,
            verbs: Verbs::ALL,
            backing: Backing::Stored { prefix },
            schema: Arc::new(schema),
            definition: Str::from(format!("{}.{}.{}", reversed.join("."), gv.version, self.kind)),
            strategy: Arc::new(strategy),
            columns: Some(columns(self.columns)),
            selectable: None,
            deprecation: None,
            unstructured: false,
            compressed: false,
            returns_deleted: false,
            // As for custom resources: an update must name the version that it replaces.
            unconditional_update: false,
            meta_checks: MetaChecks::AGAINST_OLD.any_finalizers(),
            create_on_update: false,
            storage_version_hash: Str::from(storage_version_hash(&gv.group, &gv.version, self.kind)),
            subresources,
        };
        let storage = storage(&row);
        let store = |row: &Resource| Arc::new(Store::new(Arc::new(row.clone()), storage.clone(), admission.clone()));
        // Handlers get a store of the same storage whose resource lacks their subresources, which avoids a
        // reference cycle.
        let parent = store(&row);
        for sub in self.subresources {
            row.subresources.push(Subresource {
                name: sub.name,
                kind: gv.with_kind(sub.kind),
                verbs: sub.verbs,
                behaviour: SubresourceBehaviour::Custom((sub.handler)(parent.clone())),
                printable: true,
            });
        }
        let store = store(&row);
        Ok((store.resource().clone(), store))
    }
}

/// The table columns: Name, the kind's own, Age.
fn columns(own: Vec<(&'static str, &'static str, &'static str)>) -> Columns {
    let column = |name, kind, format| Column {
        name: Str::const_new(name),
        kind: Str::const_new(kind),
        format: Str::const_new(format),
        description: Str::default(),
        priority: 0,
    };
    let mut all = vec![column("Name", "string", "name")];
    all.extend(own.iter().map(|(name, ty, _)| column(name, ty, "")));
    all.push(column("Age", "string", ""));
    let paths: Vec<Vec<&'static str>> = own.iter().map(|(_, _, path)| path.split('.').collect()).collect();
    // Only these fields are decoded for a table, so a column's path must be among them.
    let mut reads = Mask::of(&["metadata.{name,creationTimestamp}"]);
    own.iter().for_each(|(_, _, path)| reads.add(path));
    let cells = move |object: &Value| {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let mut cells = vec![Value::from(object.name())];
        cells.extend(paths.iter().map(|p| object.at(p).clone()));
        cells.push(Value::from(table::age(object.meta("creationTimestamp"), now)));
        cells
    };
    Columns {
        columns: all.into(),
        cells: Arc::new(cells),
        reads,
        always_headed: false,
        conditions: |_| Value::Null,
    }
}
