//! [`Store`]: every verb on every resource goes through this type.
//!
//! Reads return shared encoded entries; writes operate on the decoded tree. The write methods are not cancel
//! safe: dropping them between the storage write and the strategy's completion hooks leaks allocations.
//! Handlers of client requests run them in an owned task (`endpoints/finish.rs`).

use super::errors;
use super::resource::{Backing, Resource};
use super::schema::reset_set;
use super::strategy::{Context, RestStrategy, Strategy};
use super::write::{DeleteOptions, Deleted, WriteOptions};
use crate::admission::{Admission, AdmitAll};
use crate::apimachinery::apply::{ApplyRequest, Writer};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::value::Value;
use crate::storage::{Budget, Entry, ListOptions, Listing, MinRevision, Storage, Watch, WatchOptions};
use crate::tasks::compute;
use std::sync::Arc;

/// The verbs of one resource over its storage.
///
/// ```no_run
/// use torana::json;
/// use torana::sdk::{ApiServer, Context};
///
/// # async fn example(server: ApiServer) -> Result<(), Box<dyn std::error::Error>> {
/// let gadgets = server.store("gadgets").ok_or("it is a kind of this server")?;
/// let cx = Context::system("default");
/// let gadget = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget",
///     "metadata": {"name": "one"}, "spec": {"size": 3}});
/// gadgets.create_value(&cx, gadget).await?;
///
/// // Read, changed and written again, until nothing has changed in between.
/// let ready = |live: &torana::apimachinery::Value| {
///     let mut gadget = live.clone();
///     gadget.set(&["status", "phase"], "Ready");
///     Ok(gadget)
/// };
/// gadgets.update_with(&cx, "one", "status", ready).await?;
/// assert_eq!(gadgets.get_value("default", "one").await?.str_at(&["status", "phase"]), "Ready");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    pub(super) resource: Arc<Resource>,
    pub(super) strategy: Arc<dyn RestStrategy>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) admission: Arc<dyn Admission>,
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

    pub(crate) fn resource(&self) -> &Arc<Resource> {
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

    /// A copy without admission, for writes that were already admitted as another object (a Scale, a
    /// Binding).
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

    /// The full storage key of an object as it appears in errors: `/registry/configmaps/ns/name`.
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
            // Upstream names the singular of this virtual resource (`componentstatus "x" not found`).
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
        // Taken before the options are moved.
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
        // For the error, because the options are moved.
        let since = options.since;
        self.storage.watch(options).await.map_err(|e| errors::watch(&e, since))
    }

    /// True if the kind's strategy holds a deleted object, whatever its finalizers.
    pub(super) fn holds_deletion(&self, object: &Value) -> bool {
        self.strategy.deletion().is_some_and(|d| d.holds(object))
    }

    // ── convenience for controllers, bootstrap and reviews; more in `in_process` ──

    /// The group and plural name of the objects, which a `Status` about one of them names.
    pub fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }

    /// Creates an object as if a client had sent it: normalised, defaulted, validated and admitted. Not
    /// cancel safe.
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
        let entry = self.get(namespace, name, MinRevision::Latest).await?;
        compute::leave_reactor_to_decode(entry.json.len()).await;
        // The server's own reads, which may run on a reactor.
        Ok(entry.decode())
    }

    /// Returns the latest state of all objects in `namespace`, or in all namespaces if it is empty.
    ///
    /// # Errors
    /// The errors of storage.
    pub(crate) async fn list_entries(&self, namespace: &str) -> Result<Vec<Arc<Entry>>> {
        // Clients fill namespaces, and thereby choose how long a list takes.
        compute::leave_reactor_to_list(self.storage.count()).await;
        Ok(self.list(ListOptions::latest(namespace)).await?.entries)
    }

    /// Updates an object, or one of its subresources (`"status"`, …), with the result of `change` applied to
    /// the live one. An unchanged object is not written. Not cancel safe.
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

    /// Applies a condition to the status of a cluster-scoped object as `manager`, which owns it whoever has written it
    /// before. Without a `lastTransitionTime` it has changed now. Not cancel safe.
    ///
    /// # Errors
    /// 404, and the errors of validation and admission.
    pub(crate) async fn apply_condition(&self, manager: &str, name: &str, mut condition: Value) -> Result<()> {
        let resource = &self.resource;
        let now = time::now();
        if condition.get("lastTransitionTime").is_null() {
            condition.set(&["lastTransitionTime"], now.as_str());
        }
        let gvk = resource.gvk();
        let api_version = gvk.api_version();
        let mut patch = crate::json!({
            "apiVersion": (api_version.as_str()), "kind": (&*gvk.kind), "metadata": {"name": name},
        });
        patch.set(&["status", "conditions"], vec![condition]);
        let request = ApplyRequest {
            writer: Writer {
                manager,
                subresource: "status",
                now: &now,
                api_version: &api_version,
            },
            force: true,
            reset: &reset_set(resource.strategy.reset_fields("status")),
        };
        let mut transform = |live: Option<&Value>| match live {
            Some(_) => resource.schema.apply(live, patch.clone(), &request),
            None => Err(Status::not_found(&resource.group_resource(), name)),
        };
        // Without a manager: the apply has updated the managed fields already.
        let options = WriteOptions {
            subresource: "status".to_owned(),
            ..WriteOptions::default()
        };
        let cx = Context::system("");
        let written = self.update(&cx, name, &mut transform, false, &options).await;
        written.map(drop)
    }

    /// Deletes with default options. Not cancel safe.
    ///
    /// # Errors
    /// 404, and the errors of admission.
    pub(crate) async fn delete_by_name(&self, cx: &Context, name: &str) -> Result<Deleted> {
        self.delete(cx, name, &DeleteOptions::default()).await
    }
}
