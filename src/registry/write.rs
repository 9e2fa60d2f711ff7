//! The options and results of writes: [`WriteOptions`], [`DeleteOptions`], [`ResultObject`].

use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::storage::Entry;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

/// Authorizes the create that an update turns into, because permission to update does not imply permission to
/// create.
#[async_trait]
pub(crate) trait AuthorizeCreate: Send + Sync + 'static {
    /// Returns an error unless the caller may create the object.
    ///
    /// # Errors
    /// 403 if the caller is not authorized to create.
    async fn authorize_create(&self) -> Result<()>;
}

/// The options of a write: ownership, admission and preconditions.
#[derive(Clone)]
pub(crate) struct WriteOptions {
    /// The field manager to record. `None` leaves managed fields as they are in the object: an apply has
    /// already updated them, and some internal writers are not tracked.
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

/// Computes the object to store from the live one (`None` if there is none, for verbs that allow it). Called
/// again after every conflict with a concurrent write.
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
    /// Options of the server's own writes, recorded as `kube-apiserver` like those of upstream's loopback
    /// clients.
    pub(crate) fn internal(subresource: &str) -> Self {
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
            Self::Stored(e) => e.json().into_owned(),
            Self::Tree(v) => crate::api::json::to_vec(v).into(),
        }
    }

    /// True if [`bytes`](Self::bytes) has to decompress the object.
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self, Self::Stored(e) if e.json.is_compressed())
    }

    /// The object as a tree.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Stored(e) => e.decode(),
            Self::Tree(v) => v.clone(),
        }
    }
}
