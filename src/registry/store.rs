//! [`Store`]: every verb on every resource goes through this type.
//!
//! Reads return shared encoded entries; writes operate on the decoded tree. The write methods are not cancel safe:
//! dropping them between the storage write and the strategy's completion hooks leaks allocations. Handlers of client
//! requests run them in an owned task (`endpoints/finish.rs`).

use super::resource::{Backing, Resource};
use super::strategy::{Context, RestStrategy, Strategy};
use super::{create, delete, delete_collection, errors, update};
use crate::admission::{Admission, AdmitAll};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::value::Value;
use crate::storage::{Budget, Entry, ListOptions, Listing, MinRevision, Storage, Watch, WatchOptions};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

/// The verbs of one resource over its storage.
#[derive(Clone)]
pub struct Store {
    pub(super) resource: Arc<Resource>,
    pub(super) strategy: Arc<dyn RestStrategy>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) admission: Arc<dyn Admission>,
}

/// Authorizes the create that an update turns into, because permission to update does not imply permission to create.
#[async_trait]
pub trait AuthorizeCreate: Send + Sync + 'static {
    /// Returns an error unless the caller may create the object.
    ///
    /// # Errors
    /// 403 if the caller is not authorized to create.
    async fn authorize_create(&self) -> Result<()>;
}

/// The options of a write: ownership, admission and preconditions.
#[derive(Clone)]
pub struct WriteOptions {
    /// The field manager to record. `None` leaves managed fields as they are in the object: an apply has already
    /// updated them, and some internal writers are not tracked.
    pub manager: Option<String>,
    /// The subresource written through, such as `status`; empty for the main resource.
    pub subresource: String,
    /// The options object passed to admission; null for internal callers.
    pub options: Arc<Value>,
    /// Precondition: the stored object has this UID (from the body of a PUT).
    pub uid: Option<String>,
    /// The kind of the submitted object if it is not the resource's (a Scale).
    pub kind: Option<GroupVersionKind>,
    /// Authorizes the create an update turns into; `None` for internal callers, which always may.
    pub authorize_create: Option<Arc<dyn AuthorizeCreate>>,
}

/// The object that results from a write.
#[derive(Clone, Debug)]
pub(crate) enum ResultObject {
    Stored(Arc<Entry>),
    /// An object that is not stored: the result of a dry run, or the last state of a deleted object.
    Tree(Value),
}

/// The result of an update.
#[derive(Clone, Debug)]
pub(crate) struct Updated {
    /// The object after the update.
    pub object: ResultObject,
    /// True if the update created the object (201).
    pub created: bool,
}

/// The parsed `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// The requested grace period in seconds.
    pub grace_period_seconds: Option<i64>,
    /// Precondition: the object has this UID.
    pub uid: Option<String>,
    /// Precondition: the object has this resourceVersion.
    pub resource_version: Option<String>,
    /// The propagation policy: `Orphan`, `Background` or `Foreground`.
    pub propagation: Option<String>,
    /// The deprecated equivalent of Orphan (`true`) and Background (`false`).
    pub orphan_dependents: Option<bool>,
    /// The options object passed to admission.
    pub raw: Arc<Value>,
}

/// The result of a delete.
#[derive(Clone, Debug)]
pub(crate) struct Deleted {
    /// The last state of the object, or its state with the deletion timestamp.
    pub object: ResultObject,
    /// True if the object was removed; false if finalizers or a grace period hold it.
    pub gone: bool,
}

/// Computes the object to store from the live one (`None` if there is none, for verbs that allow it). Called again
/// after every conflict with a concurrent write.
pub(crate) type Transform<'a> = &'a mut (dyn FnMut(Option<&Value>) -> Result<Value> + Send);

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            manager: None,
            subresource: String::new(),
            options: Arc::new(Value::Null),
            uid: None,
            kind: None,
            authorize_create: None,
        }
    }
}

impl WriteOptions {
    /// Options of the server's own writes, recorded as `kube-apiserver` like those of upstream's loopback clients.
    pub fn internal(subresource: &str) -> Self {
        Self {
            manager: Some("kube-apiserver".to_owned()),
            subresource: subresource.to_owned(),
            ..Self::default()
        }
    }
}

impl ResultObject {
    /// The object encoded as JSON.
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Self::Stored(e) => e.json.clone(),
            Self::Tree(v) => crate::api::json::to_vec(v).into(),
        }
    }

    /// The encoded size of a stored object; 0 for a tree.
    pub(crate) fn stored_size(&self) -> usize {
        match self {
            Self::Stored(e) => e.json.len(),
            Self::Tree(_) => 0,
        }
    }

    /// The object as a tree.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Stored(e) => e.decode(),
            Self::Tree(v) => v.clone(),
        }
    }
}

impl Store {
    /// Creates the store of a resource. `storage` must be bound to the resource's key prefix.
    pub(crate) fn new(resource: Arc<Resource>, storage: Arc<dyn Storage>, admission: Arc<dyn Admission>) -> Self {
        Self {
            strategy: resource.strategy.clone(),
            resource,
            storage,
            admission,
        }
    }

    /// The resource served.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// The storage of the objects.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The budget for cached encodings of the objects.
    pub(crate) fn budget(&self) -> Option<&Arc<Budget>> {
        self.storage.budget()
    }

    /// The admission chain for writes.
    pub(crate) fn admission(&self) -> &Arc<dyn Admission> {
        &self.admission
    }

    /// A copy without admission, for writes that were already admitted as another object (a Scale, a Binding).
    #[must_use]
    pub(crate) fn without_admission(&self) -> Self {
        Self {
            admission: Arc::new(AdmitAll),
            ..self.clone()
        }
    }

    /// A copy with another strategy, for subresources that write the object by rules of their own.
    #[must_use]
    pub(crate) fn with_strategy(&self, strategy: impl Strategy) -> Self {
        Self {
            strategy: Arc::new(strategy),
            ..self.clone()
        }
    }

    /// The full storage key of an object as shown in errors: `/registry/configmaps/ns/name`.
    pub(crate) fn full_key(&self, namespace: &str, name: &str) -> String {
        let prefix = self.resource.prefix().unwrap_or("");
        format!("{prefix}{}", self.resource.key(namespace, name))
    }

    /// Checks that a name is usable as a storage key. Names in a request's path have already been checked.
    ///
    /// # Errors
    /// 400 with the message of upstream's `NamespaceKeyFunc`.
    pub(crate) fn check_name(name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        match path_segment_name(name).first() {
            None => Ok(()),
            Some(why) => Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {why}"))),
        }
    }

    /// Returns an object that is at least as new as `min`. Cancel safe.
    ///
    /// # Errors
    /// 404, and the errors of storage.
    pub(crate) async fn get(&self, namespace: &str, name: &str, min: MinRevision) -> Result<Arc<Entry>> {
        let mut gr = self.resource.group_resource();
        if let Backing::Computed(_) = self.resource.backing {
            // Upstream shows the singular for this virtual resource (`componentstatus "x" not found`).
            gr.resource = self.resource.singular.clone();
        }
        self.storage
            .get(&self.resource.key(namespace, name), min)
            .await
            .map_err(|e| errors::read(&e))?
            .ok_or_else(|| crate::apimachinery::Status::not_found(&gr, name))
    }

    /// Lists objects in key order. Cancel safe.
    ///
    /// # Errors
    /// 410 for an expired revision, 429 while storage is not ready, 504 for a revision in the future.
    pub(crate) async fn list(&self, options: ListOptions) -> Result<Listing> {
        // An expired revision is worded differently if it came from a continue token.
        let with_token = options.token.is_some();
        self.storage
            .list(options)
            .await
            .map_err(|e| errors::list(&e, with_token))
    }

    /// Watches for changes.
    ///
    /// # Errors
    /// 410 for an expired revision, 429 while storage is not ready, 504 for a revision in the future.
    pub(crate) async fn watch(&self, options: WatchOptions) -> Result<Box<dyn Watch>> {
        let since = options.since;
        self.storage.watch(options).await.map_err(|e| errors::watch(&e, since))
    }

    /// Creates `object`, which must be decoded and normalised and have a name or generateName, in `cx.namespace`. Not
    /// cancel safe.
    ///
    /// # Errors
    /// The Status of validation, admission or storage.
    pub(crate) async fn create(&self, cx: &Context, object: Value, options: &WriteOptions) -> Result<ResultObject> {
        create::create(self, cx, object, options).await
    }

    /// Replaces an object with the result of `transform` in a compare-and-swap loop. With `upsert`, a missing object
    /// is created if the transform returns one (apply); kinds with create-on-update do so in any case. Not cancel
    /// safe.
    ///
    /// # Errors
    /// The Status of the transform, validation, admission or storage.
    pub(crate) async fn update(
        &self,
        cx: &Context,
        name: &str,
        transform: Transform<'_>,
        upsert: bool,
        options: &WriteOptions,
    ) -> Result<Updated> {
        update::update(self, cx, name, transform, upsert, options).await
    }

    /// Deletes an object, or marks it for deletion. Not cancel safe.
    ///
    /// # Errors
    /// The Status of preconditions, admission or storage.
    pub(crate) async fn delete(&self, cx: &Context, name: &str, options: &DeleteOptions) -> Result<Deleted> {
        delete::delete(self, cx, name, options).await
    }

    /// Deletes the objects selected by a list and returns that list, as upstream does. Not cancel safe.
    ///
    /// # Errors
    /// Stops at the first error; objects deleted before it stay deleted.
    pub(crate) async fn delete_collection(
        &self,
        cx: &Context,
        select: ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing> {
        delete_collection::delete_collection(self, cx, select, options).await
    }

    /// True if the kind's strategy holds a deleted object, whatever its finalizers.
    pub(super) fn holds_deletion(&self, object: &Value) -> bool {
        self.strategy.deletion().is_some_and(|d| d.holds(object))
    }

    // ── convenience for controllers, bootstrap and reviews ──

    /// Creates an object as if a client had sent it: normalised, defaulted, validated and admitted. Not cancel safe.
    ///
    /// # Errors
    /// The Status of validation, admission or storage.
    pub async fn create_value(&self, cx: &Context, mut object: Value) -> Result<Value> {
        self.resource.schema.normalize(&mut object)?;
        Ok(self.create(cx, object, &WriteOptions::internal("")).await?.to_value())
    }

    /// Returns the latest state of an object as a tree. `namespace` is empty for cluster-scoped kinds.
    ///
    /// # Errors
    /// 404, and the errors of storage.
    pub async fn get_value(&self, namespace: &str, name: &str) -> Result<Value> {
        Ok(self.get(namespace, name, MinRevision::Latest).await?.decode())
    }

    /// Returns the latest state of all objects in `namespace`, or in all namespaces if it is empty.
    ///
    /// # Errors
    /// The errors of storage.
    pub(crate) async fn list_entries(&self, namespace: &str) -> Result<Vec<Arc<Entry>>> {
        Ok(self.list(ListOptions::latest(namespace)).await?.entries)
    }

    /// Updates an object, or one of its subresources (`"status"`, …), with the result of `change` applied to the live
    /// one. An unchanged object is not written. Not cancel safe.
    ///
    /// # Errors
    /// 404, the errors of `change`, and those of validation and admission.
    pub async fn update_with(
        &self,
        cx: &Context,
        name: &str,
        subresource: &str,
        mut change: impl FnMut(&Value) -> Result<Value> + Send,
    ) -> Result<Value> {
        let gr = self.resource.group_resource();
        let options = WriteOptions::internal(subresource);
        let mut transform = |live: Option<&Value>| match live {
            Some(live) => change(live),
            None => Err(crate::apimachinery::Status::not_found(&gr, name)),
        };
        let updated = self.update(cx, name, &mut transform, false, &options).await?;
        Ok(updated.object.to_value())
    }

    /// Deletes with default options. Not cancel safe.
    ///
    /// # Errors
    /// 404, and the errors of admission.
    pub(crate) async fn delete_by_name(&self, cx: &Context, name: &str) -> Result<Deleted> {
        self.delete(cx, name, &DeleteOptions::default()).await
    }
}
