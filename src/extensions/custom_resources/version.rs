//! One served version of a definition: its row, its store and its endpoint, built by the first request for
//! it.

use super::deprecation::deprecation;
use super::scale::{Scale, ScalePaths, ScaleStrategy};
use super::storages::Opened;
use super::terminating::{Flags, RefuseCreates};
use super::{Definition, Storages, Version, columns, selectable};
use crate::admission::Admission;
use crate::apimachinery::codec::json;
use crate::apimachinery::gvk::{GroupResource, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::value::{Str, Value};
use crate::endpoints::ApiGroupVersion;
use crate::endpoints::discovery::resources::storage_version_hash;
use crate::extensions::conversion::{self, CompiledVersion, Conversions, DefinitionVersions};
use crate::extensions::naming::Names;
use crate::registry::converting::NotConverted;
use crate::registry::resource::Backing;
use crate::registry::strategy::{MetaChecks, Plain, RestStrategy};
use crate::registry::{Resource, Schema, Store, Subresource, SubresourceBehaviour, Verbs};
use crate::request::{Authorized, Request, Response};
use crate::schema::{CompileError, KindSchema, PatternCache, SchemaStrategy, StructuralSchema};
use crate::sync::Mutex;
use crate::tasks::{Signal, off_thread};
use aws_lc_rs::digest;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::OnceCell;

/// Estimated bytes allocated per byte of a definition whose schema is compiled.
const MEMORY_PER_BYTE: usize = 12;

/// A version ready to serve requests.
pub(super) struct ServedVersion {
    row: Arc<Resource>,
    store: Arc<Store>,
    versions: Arc<DefinitionVersions>,
    /// The index of the version in `versions`.
    index: usize,
    endpoint: ApiGroupVersion,
}

/// A version that is built when it is first used. If it cannot be served, the reason is kept until the definition
/// changes.
pub(super) struct LazyVersion {
    built: OnceCell<Result<Arc<ServedVersion>, Arc<Unservable>>>,
    retired: Signal,
}

/// Why a version cannot serve a request now.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unavailable {
    /// The definition has no such version, or it cannot be served.
    #[error(transparent)]
    Broken(Arc<Unservable>),
    /// The compute pool is full, the process is ending, or the definition was just deleted, in which case a request
    /// that is sent again finds the next state.
    #[error("the server is too busy to build the resource")]
    Busy,
}

/// Why a version cannot be served until its definition changes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unservable {
    /// The definition has no such version.
    #[error("there is no version {0}")]
    NoVersion(Str),
    /// A name was not accepted yet. Message as upstream words it.
    #[error("the server could not properly serve the {0}")]
    NoName(&'static str),
    /// The schema does not compile.
    #[error(transparent)]
    Schema(#[from] CompileError),
    /// The conversion between the versions cannot be used.
    #[error(transparent)]
    Conversion(#[from] conversion::Error),
    #[cfg(test)]
    #[error("not built in tests")]
    Test,
}

/// Builds versions; shared by all definitions, so that equal schemas are compiled once.
pub(super) struct Builder {
    storages: Opened,
    conversions: Conversions,
    admission: Arc<dyn Admission>,
    endpoint: ApiGroupVersion,
    schemas: Schemas,
    /// The schema of `autoscaling/v1` Scale.
    scale: Arc<dyn Schema>,
}

/// The row of a version, before it is bound to a storage.
pub(super) struct Row {
    pub resource: Resource,
    /// The scale subresource, if it has one; not bound to a store yet.
    scale: Option<Scale>,
    versions: Arc<DefinitionVersions>,
    /// The index of the version in `versions`.
    served: usize,
}

impl ServedVersion {
    /// The store of the custom resources.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Converts an object of another version of the definition to this one.
    pub(crate) async fn convert(&self, object: Value) -> Result<Value, NotConverted> {
        self.versions.convert(object, self.index).await
    }

    /// Serves a request for the resource.
    pub(crate) async fn serve(&self, req: Request, authorized: &Authorized) -> Response {
        let served = (self.row.clone(), self.store.clone());
        self.endpoint.serve_custom(&served, req, authorized).await
    }
}

impl Default for LazyVersion {
    fn default() -> Self {
        Self {
            built: OnceCell::new(),
            retired: Signal::new("a custom resource was replaced"),
        }
    }
}

impl LazyVersion {
    /// True if the version was built.
    pub(crate) fn is_used(&self) -> bool {
        // A build in progress does not count: it is simply started over for the new state.
        self.built.initialized()
    }

    /// Ends the watches: open ones, and those of requests that have not reached the store yet.
    pub(crate) fn retire(&self) {
        self.retired.fire();
    }

    #[cfg(test)]
    pub(crate) fn set_broken(&self) {
        let _ = self.built.set(Err(Arc::new(Unservable::Test)));
    }

    #[cfg(test)]
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.fired()
    }

    /// The version, built if this is its first use.
    ///
    /// # Cancel safety
    /// Cancel safe: another caller continues building.
    pub(crate) async fn get(
        &self,
        builder: &Arc<Builder>,
        definition: &Arc<Definition>,
        version: &Version,
        flags: &Flags,
    ) -> Result<Arc<ServedVersion>, Unavailable> {
        // One caller builds, others wait; a build that fails for lack of capacity stores nothing and is retried.
        let build = || builder.build(definition, version, flags, &self.retired);
        let built = self.built.get_or_try_init(build).await?;
        built.clone().map_err(Unavailable::Broken)
    }
}

impl Builder {
    pub(crate) fn new(
        storages: Arc<dyn Storages>,
        conversions: Conversions,
        admission: Arc<dyn Admission>,
        endpoint: ApiGroupVersion,
        scale: Arc<dyn Schema>,
    ) -> Self {
        Self {
            storages: Opened::new(storages),
            conversions,
            admission,
            endpoint,
            schemas: Schemas::default(),
            scale,
        }
    }

    /// The schema of `autoscaling/v1` Scale.
    pub(crate) fn scale(&self) -> &Arc<dyn Schema> {
        &self.scale
    }

    /// The open storages, one per resource and shared by its versions.
    pub(crate) fn storages(&self) -> &Opened {
        &self.storages
    }

    async fn build(
        self: &Arc<Self>,
        definition: &Arc<Definition>,
        version: &Version,
        flags: &Flags,
        retired: &Signal,
    ) -> Result<Result<Arc<ServedVersion>, Arc<Unservable>>, Unavailable> {
        let bytes = definition.stored.len();
        let (builder, of, name) = (self.clone(), definition.clone(), version.name.clone());
        // Memory is estimated up front, so that the pool can refuse instead of overcommitting.
        let row = off_thread(bytes * MEMORY_PER_BYTE, move || builder.row(&of, &name)).await;
        let row = match row.ok_or(Unavailable::Busy)? {
            // Kept as the result: the definition cannot be served until it changes, and rebuilding would fail alike.
            Ok(row) => row,
            Err(why) => {
                tracing::error!(definition = %definition.name, version = %version.name, %why, "a version cannot be served");
                return Ok(Err(Arc::new(why)));
            }
        };
        let Row {
            resource,
            scale,
            versions,
            served,
        } = row;
        // After the row, which may fail without opening anything.
        let stored = self.storages.get(&resource.group_resource(), &flags.removed).await;
        let storage = versions.storage(stored.ok_or(Unavailable::Busy)?, served);
        let admission = Arc::new(RefuseCreates {
            inner: self.admission.clone(),
            terminating: flags.terminating.clone(),
        });
        if let Some(scale) = scale {
            let mut parent = resource.clone();
            // Without the scale subresource: the scale handler holds this store, and would otherwise hold itself.
            parent.subresources.retain(|s| s.name != "scale");
            scale.bind(&Store::new(Arc::new(parent), storage.clone(), admission.clone()));
        }
        let row = Arc::new(resource);
        let endpoint = ApiGroupVersion {
            // The watches of this version end with it, not with the storage, which other versions share.
            gv: row.gvk().group_version(),
            retired: Some(retired.clone()),
            ..self.endpoint.clone()
        };
        Ok(Ok(Arc::new(ServedVersion {
            store: Arc::new(Store::new(row.clone(), storage, admission)),
            row,
            versions,
            index: served,
            endpoint,
        })))
    }

    /// The row of a version. Compiles its schema, which takes long if it is large, and those of the other
    /// versions, since stored objects may be in any of them.
    ///
    /// # Errors
    /// [`Unservable`].
    pub(crate) fn row(&self, definition: &Definition, version: &str) -> Result<Row, Unservable> {
        // Names first: without them there is no path to serve under.
        check_names(&definition.accepted)?;
        let tree = definition.tree();
        let mut all = Vec::new();
        // All versions, since stored objects may be in any and are converted through their schemas.
        for spec in tree.at(&["spec", "versions"]).items() {
            let name = spec.str_at(&["name"]);
            let gvk = GroupVersionKind::new(&definition.group, name, definition.accepted.kind());
            let schema = spec.at(&["schema", "openAPIV3Schema"]);
            // Shared by content, so equal versions compile once.
            let (structural, source) = self.schemas.compile(&pruning_schema(tree.get("spec"), schema))?;
            all.push(CompiledVersion {
                name: name.to_owned(),
                // Extracted where selectors need them.
                fields: None,
                schema: Arc::new(KindSchema::shared(gvk, structural, source)),
            });
        }
        // Looked up in the tree that was compiled, which is the same state as `definition.versions`.
        let served = all.iter().position(|v| v.name == version);
        let of = definition.versions.iter().find(|v| v.name == version);
        let (Some(served), Some(of)) = (served, of) else {
            return Err(Unservable::NoVersion(version.into()));
        };
        let versions = self.conversions.versions(&tree, &all)?;
        // The index is valid: `all` has one element for each of these.
        let spec = &tree.at(&["spec", "versions"]).items()[served];
        let paths = ScalePaths::of_version(tree.get("spec"), version);
        let inner: Arc<dyn RestStrategy> = match &paths {
            Some(paths) => Arc::new(ScaleStrategy(paths.clone())),
            None => Arc::new(Plain),
        };
        let scale = paths.map(|paths| Scale::new(paths, self.scale.clone()));
        let structural = all[served].schema.structural().clone();
        let mut resource = Resource {
            columns: Some(columns::of_version(spec)),
            selectable: Some(selectable::of_version(spec, Some(structural.clone()))),
            strategy: Arc::new(SchemaStrategy::new(structural, of.status, inner)),
            ..outline(definition, of, versions.schema(served))
        };
        resource.subresources.extend(scale.as_ref().map(Scale::subresource));
        Ok(Row {
            resource,
            scale,
            versions,
            served,
        })
    }
}

pub(super) fn check_names(names: &Names) -> Result<(), Unservable> {
    for (what, name) in [
        ("resource", names.plural()),
        ("kind", names.kind()),
        ("list kind", names.list_kind()),
    ] {
        if name.is_empty() {
            return Err(Unservable::NoName(what));
        }
    }
    Ok(())
}

/// The parts of a version's row that do not depend on its compiled schema.
pub(super) fn outline(definition: &Definition, version: &Version, schema: Arc<dyn Schema>) -> Resource {
    // Accepted names, not requested ones: those may belong to another definition.
    let names = &definition.accepted;
    let gvr = GroupVersionResource::new(&definition.group, &version.name, names.plural());
    let status = version.status.then(|| Subresource {
        name: "status".into(),
        kind: GroupVersionKind::new(&definition.group, &version.name, names.kind()),
        verbs: Verbs::GET_PATCH_UPDATE,
        behaviour: SubresourceBehaviour::Status,
        printable: true,
    });
    // Go's model names have the group reversed: `io.x.v1.A`.
    let reversed: Vec<&str> = definition.group.rsplit('.').collect();
    Resource {
        kind: names.kind().into(),
        list_kind: names.list_kind().into(),
        singular: names.singular().into(),
        short_names: names.short().to_vec(),
        categories: names.categories().to_vec(),
        namespaced: definition.namespaced,
        verbs: Verbs::ALL,
        backing: Backing::Stored {
            prefix: prefix(&gvr.group_resource()),
        },
        schema,
        definition: Str::from(format!("{}.{}.{}", reversed.join("."), version.name, names.kind())),
        columns: None,
        selectable: None,
        strategy: Arc::new(Plain),
        deprecation: version.deprecated.then(|| deprecation(definition, version).into()),
        unstructured: true,
        compressed: false,
        returns_deleted: false,
        unconditional_update: false,
        create_on_update: false,
        meta_checks: MetaChecks::AGAINST_OLD.any_finalizers(),
        storage_version_hash: definition.storage_version_hash(),
        subresources: status.into_iter().collect(),
        gvr,
    }
}

/// The schema that objects are pruned by. A definition from before structural schemas may have none, or
/// preserve unknown fields everywhere; only stored ones can be like that.
pub(super) fn pruning_schema<'a>(spec: &Value, schema: &'a Value) -> Cow<'a, Value> {
    let preserves = spec.get("preserveUnknownFields").as_bool() == Some(true);
    if !schema.is_null() && !preserves {
        return Cow::Borrowed(schema);
    }
    // A missing schema becomes an open object here, since `set` replaces a null.
    let mut open = schema.clone();
    open.set(&["type"], "object");
    // Recursive, as upstream's conversion of v1beta1 definitions with `preserveUnknownFields` was.
    preserve(&mut open);
    Cow::Owned(open)
}

/// Lets a schema, and all those below it, preserve unknown fields.
fn preserve(schema: &mut Value) {
    let Some(m) = schema.as_object_mut() else { return };
    m.insert("x-kubernetes-preserve-unknown-fields", true);
    if let Some(Value::Object(properties)) = m.get_mut("properties") {
        properties.iter_mut().for_each(|(_, property)| preserve(property));
    }
    for word in ["items", "additionalProperties"] {
        if let Some(below) = m.get_mut(word) {
            preserve(below);
        }
    }
}

/// The key prefix of a custom resource's objects, as upstream's.
pub(crate) fn prefix(resource: &GroupResource) -> String {
    format!("/registry/{}/{}/", resource.group, resource.resource)
}

impl Definition {
    /// The hash in discovery, which tells clients about a change of the storage version. Empty if that is not
    /// served.
    pub(super) fn storage_version_hash(&self) -> Str {
        // A storage version that is not served cannot be compared by clients.
        let stored = self.storage_version().filter(|v| v.served);
        stored.map_or_else(Str::default, |v| {
            Str::from(storage_version_hash(&self.group, &v.name, self.accepted.kind()))
        })
    }
}

/// Compiled schemas and their JSON, shared by content: versions of a definition often have the same one, and
/// each version holds those of all.
#[derive(Default)]
struct Schemas {
    by_sum: Mutex<BySum>,
    patterns: Arc<PatternCache>,
}

/// By the SHA-256 of the JSON.
type BySum = HashMap<[u8; 32], (Weak<StructuralSchema>, Bytes)>;

impl Schemas {
    /// The compiled schema, and the JSON it was compiled from.
    fn compile(&self, schema: &Value) -> Result<(Arc<StructuralSchema>, Bytes), CompileError> {
        let source = Bytes::from(json::to_vec(schema));
        // A cryptographic hash, because the content is chosen by clients and a collision would mix up schemas.
        let sum = digest::digest(&digest::SHA256, &source);
        let mut key = [0; 32];
        key.copy_from_slice(sum.as_ref());
        // The lock is not held while compiling, which may take long.
        if let Some((schema, source)) = self.lock().get(&key)
            && let Some(known) = schema.upgrade()
        {
            return Ok((known, source.clone()));
        }
        // Two callers may compile the same schema; the later one wins, and both results are equal.
        let compiled = Arc::new(StructuralSchema::compile_with(schema, &self.patterns)?);
        let mut all = self.lock();
        // Weak entries of dropped schemas are swept on each insert, so the map stays as large as what is in use.
        all.retain(|_, (schema, _)| schema.strong_count() > 0);
        all.insert(key, (Arc::downgrade(&compiled), source.clone()));
        Ok((compiled, source))
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, BySum> {
        self.by_sum.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn old_definitions_keep_unknown_fields() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        assert_eq!(*pruning_schema(&json!({}), &schema), schema);
        for (spec, schema) in [
            (json!({}), Value::Null),
            (json!({"preserveUnknownFields": true}), schema.clone()),
        ] {
            let structural = StructuralSchema::parse(&pruning_schema(&spec, &schema)).expect("structural");
            let mut object = json!({"spec": {"a": "x", "b": 1}, "other": {"x": [1]}});
            assert_eq!(structural.prune(&mut object), Vec::<String>::new());
            assert_eq!(object, json!({"spec": {"a": "x", "b": 1}, "other": {"x": [1]}}));
        }
    }
}
