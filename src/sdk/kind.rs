//! [`Kind`]: a custom kind, and its conversion to a [`Resource`] with a store. Names and schema are checked
//! when it is served, since the group version is only known then.

use super::{Error, Subresource};
use crate::admission::Admission;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::field::{FieldPath, aggregate};
use crate::apimachinery::gvk::{GroupVersion, GroupVersionResource};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::table;
use crate::apimachinery::validation::dns1035_label;
use crate::apimachinery::value::{Str, Value};
use crate::endpoints::discovery::resources::storage_version_hash;
use crate::registry::resource::{Backing, Column, Columns, Resource};
use crate::registry::strategy::{MetaChecks, Plain};
use crate::registry::{self, RestStrategy, Store, Strategy, SubresourceBehaviour, Verbs};
use crate::schema::{KindSchema, SchemaStrategy};
use crate::storage::Storage;
use std::sync::Arc;

type MakeSubresource = Box<dyn FnOnce(Arc<Store>) -> Subresource + Send>;
type TakeStore = Box<dyn FnOnce(Arc<Store>) + Send>;

/// A kind: names, schema and behaviour. Names may be literals or come from configuration.
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
    kind: Str,
    plural: Str,
    namespaced: bool,
    schema: Value,
    short_names: Vec<Str>,
    categories: Vec<Str>,
    status: bool,
    columns: Vec<OwnColumn>,
    strategy: Arc<dyn RestStrategy>,
    subresources: Vec<MakeSubresource>,
    takers: Vec<TakeStore>,
}

/// A table column of the kind's own.
struct OwnColumn {
    name: Str,
    ty: Str,
    /// Field names from the root of the object, dot-separated.
    path: Str,
}

impl Kind {
    fn new(kind: Str, plural: Str, namespaced: bool, schema: Value) -> Self {
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
            takers: Vec::new(),
        }
    }

    /// A kind whose objects are namespaced. `schema` is an `openAPIV3Schema` as in a
    /// CustomResourceDefinition.
    pub fn namespaced(kind: impl Into<Str>, plural: impl Into<Str>, schema: Value) -> Self {
        Self::new(kind.into(), plural.into(), true, schema)
    }

    /// A kind whose objects are cluster-scoped.
    pub fn cluster_scoped(kind: impl Into<Str>, plural: impl Into<Str>, schema: Value) -> Self {
        Self::new(kind.into(), plural.into(), false, schema)
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
    pub fn column(mut self, name: impl Into<Str>, ty: impl Into<Str>, path: impl Into<Str>) -> Self {
        self.columns.push(OwnColumn {
            name: name.into(),
            ty: ty.into(),
            path: path.into(),
        });
        self
    }

    /// Sets the strategy, for rules that the schema cannot express.
    pub fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// Adds the subresource that `make` returns for the store of the kind's objects.
    pub fn subresource(mut self, make: impl FnOnce(Arc<Store>) -> Subresource + Send + 'static) -> Self {
        self.subresources.push(Box::new(make));
        self
    }

    /// Passes the store of the kind's objects to `take` while the server is built: for a controller in the process of
    /// an [`ApiServer`](super::ApiServer) or of a gateway. The store may not be ready yet; `take` should only keep it.
    ///
    /// ```no_run
    /// use torana::gateway::{CompletedOptions, Gateway};
    /// use torana::json;
    /// use torana::sdk::{ApiGroup, Kind, StoreEvent};
    ///
    /// # async fn serve(options: CompletedOptions) -> Result<(), Box<dyn std::error::Error>> {
    /// let (sender, receiver) = tokio::sync::oneshot::channel();
    /// let note = Kind::namespaced("Note", "notes", json!({"type": "object"}))
    ///     .with_store(|notes| drop(sender.send(notes)));
    /// let group = ApiGroup::new("notes.example.com", "v1", [note]);
    /// let gateway = Gateway::builder(options).group(group).start().await?;
    ///
    /// let mut events = receiver.await?.watch_values("").await?;
    /// while let Some(event) = events.next().await {
    ///     if let StoreEvent::Applied(note) = event {
    ///         println!("{}", note.str_at(&["spec", "text"]));
    ///     }
    /// }
    /// # gateway.shut_down().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_store(mut self, take: impl FnOnce(Arc<Store>) + Send + 'static) -> Self {
        self.takers.push(Box::new(take));
        self
    }

    /// Checks the names by upstream's rules for those of a CustomResourceDefinition.
    fn check_names(&self) -> Result<(), Error> {
        let lower_case = self.kind.to_lowercase();
        let others = self.short_names.iter().chain(&self.categories);
        let mut names = [&lower_case, &self.plural].into_iter().chain(others);
        names.try_for_each(|name| check_name(&self.kind, name))
    }

    /// Builds the resource and its store.
    ///
    /// # Errors
    /// An invalid name or schema.
    pub(super) fn serve(
        self,
        gv: &GroupVersion,
        storage: &dyn Fn(&Resource) -> Arc<dyn Storage>,
        admission: &Arc<dyn Admission>,
    ) -> Result<(Arc<Resource>, Arc<Store>), Error> {
        self.check_names()?;
        let gvk = gv.with_kind(&self.kind);
        // Parsed only now, because it needs the group version.
        let schema =
            KindSchema::parse(gvk.clone(), &self.schema, &FieldPath::default()).map_err(|e| Error::Schema {
                kind: self.kind.to_string(),
                reason: aggregate(&e),
            })?;
        let strategy = SchemaStrategy::new(schema.structural().clone(), self.status, self.strategy);
        // Without the version: all versions of a group share their objects, as upstream's keys do.
        let prefix = format!("/registry/{}/{}/", gv.group, self.plural);
        let mut subresources = Vec::new();
        if self.status {
            subresources.push(registry::Subresource {
                name: "status".into(),
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
            gvr: GroupVersionResource::new(&gv.group, &gv.version, &self.plural),
            kind: self.kind.clone(),
            list_kind: Str::from(format!("{}List", self.kind)),
            singular: self.kind.to_lowercase(),
            short_names: self.short_names,
            categories: self.categories,
            namespaced: self.namespaced,
            verbs: Verbs::ALL,
            backing: Backing::Stored { prefix },
            schema: Arc::new(schema),
            definition: Str::from(format!("{}.{}.{}", reversed.join("."), gv.version, self.kind)),
            strategy: Arc::new(strategy),
            columns: Some(columns(&self.columns)),
            selectable: None,
            deprecation: None,
            unstructured: false,
            compressed: false,
            returns_deleted: false,
            // As for custom resources: an update must name the version that it replaces.
            unconditional_update: false,
            meta_checks: MetaChecks::AGAINST_OLD.any_finalizers(),
            create_on_update: false,
            storage_version_hash: Str::from(storage_version_hash(&gv.group, &gv.version, &self.kind)),
            subresources,
        };
        let storage = storage(&row);
        let store = |row: &Resource| Arc::new(Store::new(Arc::new(row.clone()), storage.clone(), admission.clone()));
        // Handlers get a store of the same storage whose resource lacks their subresources, which avoids a
        // reference cycle.
        let parent = store(&row);
        for make in self.subresources {
            // Checked after it is made, because the name comes from the subresource itself.
            let made = make(parent.clone()).into_row(gv, row.group_resource());
            check_name(&self.kind, &made.name)?;
            if row.subresource(&made.name).is_some() {
                return Err(unusable(&self.kind, &made.name, "another subresource has this name"));
            }
            row.subresources.push(made);
        }
        // A second store, since the first has a copy of the row from before the subresources.
        let store = store(&row);
        for take in self.takers {
            take(store.clone());
        }
        Ok((store.resource().clone(), store))
    }
}

fn check_name(kind: &str, name: &str) -> Result<(), Error> {
    match dns1035_label(name).first() {
        None => Ok(()),
        Some(why) => Err(unusable(kind, name, why)),
    }
}

pub(super) fn unusable(kind: &str, name: &str, why: &str) -> Error {
    Error::Name {
        kind: kind.to_owned(),
        name: name.to_owned(),
        reason: why.to_owned(),
    }
}

/// The table columns: Name, the kind's own, Age.
fn columns(own: &[OwnColumn]) -> Columns {
    let column = |name: &str, kind: &str, format: &str| Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: Str::default(),
        priority: 0,
    };
    // Upstream's frame around the columns of custom resources; `name` is the format that clients look for.
    let mut all = vec![column("Name", "string", "name")];
    all.extend(own.iter().map(|c| column(&c.name, &c.ty, "")));
    all.push(column("Age", "string", ""));
    // Split once and not for each row of each table.
    let paths: Vec<Vec<Str>> = own.iter().map(|c| c.path.split('.').map(Str::from).collect()).collect();
    // Only these fields are decoded for a table, so a column's path must be among them.
    let mut reads = Mask::of(&["metadata.{name,creationTimestamp}"]);
    own.iter().for_each(|c| reads.add(&c.path));
    let cells = move |object: &Value| {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let mut cells = vec![Value::from(object.name())];
        cells.extend(paths.iter().map(|p| field(object, p).clone()));
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

/// The field below a path; null if there is none.
fn field<'a>(object: &'a Value, path: &[Str]) -> &'a Value {
    path.iter().fold(object, |value, name| value.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmitAll;
    use crate::controlplane::reviews::NoStorage;
    use crate::json;

    fn serve(kind: Kind) -> Result<(Arc<Resource>, Arc<Store>), Error> {
        let storage = |_: &Resource| -> Arc<dyn Storage> { Arc::new(NoStorage) };
        let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
        kind.serve(&GroupVersion::new("g.example.com", "v1"), &storage, &admission)
    }

    #[test]
    fn a_store_goes_to_who_asked_for_it() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let kind = Kind::namespaced("Gadget", "gadgets", json!({"type": "object"}));
        let kind = kind.with_store(move |store| sender.send(store).expect("the test still runs"));
        let (row, _) = serve(kind).unwrap();
        assert_eq!(receiver.recv().unwrap().group_resource(), row.group_resource());
    }

    #[test]
    fn a_subresource_has_a_name_of_its_own() {
        let with = |name: &'static str| {
            let kind = Kind::namespaced("Gadget", "gadgets", json!({"type": "object"})).status();
            serve(kind.subresource(move |_| Subresource::new(name, "Part"))).err()
        };
        assert!(with("part").is_none());
        assert!(matches!(with("status"), Some(Error::Name { .. })));
        assert!(matches!(with("a/b"), Some(Error::Name { .. })));
    }

    #[test]
    fn names_are_labels() {
        let named = |kind: &str, plural: &str| Kind::namespaced(kind, plural, json!({"type": "object"}));
        assert!(named("Gadget", "gadgets").short_name("gd").check_names().is_ok());
        let wrong = named("Gadget", "gadgets/x").check_names().unwrap_err();
        let wrong = wrong.to_string();
        assert!(
            wrong.starts_with("the name \"gadgets/x\" of Gadget cannot be used: a DNS-1035"),
            "{wrong}"
        );
        assert!(named("2Gadget", "gadgets").check_names().is_err());
        assert!(named("Gadget", "gadgets").short_name("").check_names().is_err());
    }

    #[test]
    fn names_and_columns_may_come_from_configuration() {
        let owned = |text: &str| text.to_owned();
        let kind = Kind::namespaced(owned("Gadget"), owned("gadgets"), json!({"type": "object"}));
        let kind = kind.column(owned("Size"), owned("integer"), owned("spec.size"));
        let columns = columns(&kind.columns);
        assert_eq!(columns.columns[1].name, "Size");
        let cells = (columns.cells)(&json!({"metadata": {"name": "one"}, "spec": {"size": 3}}));
        assert_eq!(cells[..2], [Value::from("one"), Value::from(3i64)]);
    }
}
