//! The store of one resource: every verb of every kind goes through here.
//!
//! Reads hand out shared encoded entries; writes work on the tree between decoding and encoding. A write that a client
//! waits for must be run in an owned task (`endpoints/finish.rs`): the futures here are not cancel safe.

use super::resource::{Backing, Resource};
use super::strategy::Context;
use super::{create, delete, delete_collection, errors, update};
use crate::admission::{Admission, Always};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::value::Value;
use crate::storage::{Budget, Entry, ListOptions, Listing, MinRevision, Storage, Watch, WatchOptions};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

/// One resource's verbs over its storage.
pub struct Store {
    pub(super) resource: Arc<Resource>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) admission: Arc<dyn Admission>,
}

/// Asked before an update turns into a create: whoever may change an object may not always make one.
#[async_trait]
pub trait MayCreate: Send + Sync + 'static {
    /// Refuses, or not.
    ///
    /// # Errors
    /// 403.
    async fn may_create(&self) -> Result<()>;
}

/// Who a write is recorded for, and with which options object admission sees it.
#[derive(Clone)]
pub struct WriteOptions {
    /// `fieldManager` or the User-Agent's first part. `None`: managed fields are left as they are in the object (an
    /// apply has set them already, or an internal writer does not track them).
    pub manager: Option<String>,
    /// `status`, another subresource, or empty for the main resource.
    pub subresource: String,
    /// The options object for admission; null for internal callers.
    pub options: Arc<Value>,
    /// The stored object must have this uid (a PUT whose body names one).
    pub uid: Option<String>,
    /// The kind of the object sent, where it is not the row's (a Scale).
    pub kind: Option<GroupVersionKind>,
    /// Asked before an update creates; `None`: it may (internal callers).
    pub may_create: Option<Arc<dyn MayCreate>>,
}

/// What a write left behind.
#[derive(Clone, Debug)]
pub enum Written {
    /// It is stored.
    Stored(Arc<Entry>),
    /// It is not, or no longer, stored: a dry run, or the last state of a deleted object.
    Tree(Value),
}

/// An update's outcome.
#[derive(Clone, Debug)]
pub struct Updated {
    /// The object as it is now.
    pub object: Written,
    /// The object did not exist before (201).
    pub created: bool,
}

/// How to delete, parsed from DeleteOptions.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Seconds of grace asked for.
    pub grace_period_seconds: Option<i64>,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must have this resourceVersion.
    pub resource_version: Option<String>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation: Option<String>,
    /// The older form of Orphan (`true`) and Background (`false`).
    pub orphan_dependents: Option<bool>,
    /// The options object for admission.
    pub raw: Arc<Value>,
}

/// A delete's outcome.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The last state, or the state marked for deletion.
    pub object: Written,
    /// True where the object is gone; false where finalizers or grace still hold it.
    pub gone: bool,
}

/// Makes the object to store from the live one (`None`: there is none, which only some verbs allow). Called again
/// where another write came between.
pub type Transform<'a> = &'a mut (dyn FnMut(Option<&Value>) -> Result<Value> + Send);

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            manager: None,
            subresource: String::new(),
            options: Arc::new(Value::Null),
            uid: None,
            kind: None,
            may_create: None,
        }
    }
}

impl WriteOptions {
    /// The server's own writes are recorded as those of `kube-apiserver`, as upstream's loopback clients have it.
    pub fn internal(subresource: &str) -> Self {
        Self {
            manager: Some("kube-apiserver".to_owned()),
            subresource: subresource.to_owned(),
            ..Self::default()
        }
    }
}

impl Written {
    /// The encoded object.
    pub fn bytes(&self) -> Bytes {
        match self {
            Self::Stored(e) => e.json.clone(),
            Self::Tree(v) => crate::apimachinery::codec::json::to_vec(v).into(),
        }
    }

    /// Bytes of the encoded object; 0 of a tree.
    pub fn stored_size(&self) -> usize {
        match self {
            Self::Stored(e) => e.json.len(),
            Self::Tree(_) => 0,
        }
    }

    /// The tree.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Stored(e) => e.decode(),
            Self::Tree(v) => v.clone(),
        }
    }
}

impl Store {
    /// A store of this resource. `storage` is that of the resource's prefix.
    pub fn new(resource: Arc<Resource>, storage: Arc<dyn Storage>, admission: Arc<dyn Admission>) -> Self {
        Self {
            resource,
            storage,
            admission,
        }
    }

    /// The row.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// The storage below.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Where second encodings of its objects are counted.
    pub fn budget(&self) -> Option<&Arc<Budget>> {
        self.storage.budget()
    }

    /// The admission chain of its writes.
    pub fn admission(&self) -> &Arc<dyn Admission> {
        &self.admission
    }

    /// The same store for writers whose write went through admission as another object (a Scale, a Binding).
    #[must_use]
    pub fn past_admission(&self) -> Self {
        Self::new(self.resource.clone(), self.storage.clone(), Arc::new(Always))
    }

    /// The full key of an object as errors show it: `/registry/configmaps/ns/name`.
    pub fn full_key(&self, namespace: &str, name: &str) -> String {
        let prefix = self.resource.prefix().unwrap_or("");
        format!("{prefix}{}", self.resource.key(namespace, name))
    }

    /// Whether a key can be made of this name. What comes from a request's path was asked already.
    ///
    /// # Errors
    /// 400, in the words of upstream's `NamespaceKeyFunc`.
    pub fn check_name(name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        match path_segment_name(name).first() {
            None => Ok(()),
            Some(why) => Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {why}"))),
        }
    }

    /// The object.
    ///
    /// # Errors
    /// 404, and storage's refusals.
    pub async fn get(&self, namespace: &str, name: &str, min: MinRevision) -> Result<Arc<Entry>> {
        let mut gr = self.resource.group_resource();
        if let Backing::Computed(_) = self.resource.backing {
            // Upstream's word for what was never a resource of its own (`componentstatus "x" not found`).
            gr.resource = self.resource.singular.clone();
        }
        self.storage
            .get(&self.resource.key(namespace, name), min)
            .await
            .map_err(|e| errors::read(&e))?
            .ok_or_else(|| crate::apimachinery::Status::not_found(&gr, name))
    }

    /// Objects in key order.
    ///
    /// # Errors
    /// 410, 429, 504.
    pub async fn list(&self, options: ListOptions) -> Result<Listing> {
        let with_token = options.token.is_some();
        self.storage
            .list(options)
            .await
            .map_err(|e| errors::list(&e, with_token))
    }

    /// Changes.
    ///
    /// # Errors
    /// 410, 429, 504.
    pub async fn watch(&self, options: WatchOptions) -> Result<Box<dyn Watch>> {
        let since = options.since;
        self.storage.watch(options).await.map_err(|e| errors::watch(&e, since))
    }

    /// Creates `object` (decoded and normalized; named, or with generateName) in `cx.namespace`.
    ///
    /// # Errors
    /// Any Status.
    pub async fn create(&self, cx: &Context, object: Value, options: &WriteOptions) -> Result<Written> {
        create::create(self, cx, object, options).await
    }

    /// Replaces an object by what `transform` makes of it, in a compare-and-swap loop.
    /// `upsert`: a missing object is created where the transform gives one (apply; kinds with create-on-update do this
    /// by themselves).
    ///
    /// # Errors
    /// Any Status.
    pub async fn update(
        &self,
        cx: &Context,
        name: &str,
        transform: Transform<'_>,
        upsert: bool,
        options: &WriteOptions,
    ) -> Result<Updated> {
        update::update(self, cx, name, transform, upsert, options).await
    }

    /// Deletes, or marks for deletion.
    ///
    /// # Errors
    /// Any Status.
    pub async fn delete(&self, cx: &Context, name: &str, options: &DeleteOptions) -> Result<Deleted> {
        delete::delete(self, cx, name, options).await
    }

    /// Deletes what a list selects; the listed objects, as upstream answers them.
    ///
    /// # Errors
    /// Any Status; what was deleted before stays deleted.
    pub async fn delete_collection(
        &self,
        cx: &Context,
        select: ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing> {
        delete_collection::delete_collection(self, cx, select, options).await
    }

    // ── for controllers, bootstrap and reviews ──

    /// Creates a tree as it would have been sent by a client: normalized, defaulted, validated, admitted.
    ///
    /// # Errors
    /// Any Status.
    pub async fn create_value(&self, cx: &Context, mut object: Value) -> Result<Value> {
        self.resource.schema.normalize(&mut object)?;
        Ok(self.create(cx, object, &WriteOptions::internal("")).await?.to_value())
    }

    /// The object's tree at the latest state, in `namespace` (or `""`).
    ///
    /// # Errors
    /// 404, and storage's refusals.
    pub async fn get_value(&self, namespace: &str, name: &str) -> Result<Value> {
        Ok(self.get(namespace, name, MinRevision::Latest).await?.decode())
    }

    /// All objects of `namespace` (or, with `""`, of all), at the latest state.
    ///
    /// # Errors
    /// Storage's refusals.
    pub async fn list_entries(&self, namespace: &str) -> Result<Vec<Arc<Entry>>> {
        Ok(self.list(ListOptions::latest(namespace)).await?.entries)
    }

    /// Changes an object (`subresource`: `""`, `"status"`, …) by what `change` makes of the live one. An unchanged
    /// tree is not written.
    ///
    /// # Errors
    /// 404, what `change` fails with, any Status of validation and admission.
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

    /// Deletes with default options.
    ///
    /// # Errors
    /// 404, any Status of admission.
    pub async fn delete_by_name(&self, cx: &Context, name: &str) -> Result<Deleted> {
        self.delete(cx, name, &DeleteOptions::default()).await
    }
}
