//! Update: a compare-and-swap loop around a transform, like upstream's `GuaranteedUpdate`.
//!
//! Entry point: [`update`]. Also creates missing objects for applies and for kinds with create-on-update.

use super::admit::{self, Mutated};
use super::meta;
use super::store::Store;
use super::strategy::{Change, Context, Outcome};
use super::write::{ResultObject, Transform, Updated, WriteOptions};
use super::{create, dry_run, empties, errors, size_fallback};
use crate::admission::Operation;
use crate::apimachinery::apply::Writer;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::storage::{Entry, Error, MinRevision, Precondition};
use crate::tasks::compute;
use std::sync::Arc;

impl Store {
    /// Replaces an object with the result of `transform` in a compare-and-swap loop. With `upsert`, a missing
    /// object is created if the transform returns one (apply); kinds with create-on-update do so in any case.
    /// Not cancel safe.
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
        let mut update = Update {
            store: self,
            cx,
            name,
            transform,
            options,
        };
        update.run(upsert).await
    }
}

/// One update, repeated until no concurrent write interferes. The methods take `&mut self` so that their
/// futures are `Send`: `transform` is not `Sync`.
struct Update<'a> {
    store: &'a Store,
    cx: &'a Context,
    name: &'a str,
    /// Makes the new object from the current one.
    transform: Transform<'a>,
    options: &'a WriteOptions,
}

impl Update<'_> {
    /// Updates the object, or creates it if there is none and `upsert` or the resource allows that.
    async fn run(&mut self, upsert: bool) -> Result<Updated> {
        let (store, name) = (self.store, self.name);
        let resource = &store.resource;
        let gr = resource.group_resource();
        let key = resource.key(&self.cx.namespace, name);
        let mut current = read(store, &key).await?;
        loop {
            let Some(live) = current else {
                if !self.may_create(upsert) {
                    return Err(Status::not_found(&gr, name));
                }
                match self.insert(upsert).await {
                    // A concurrent request created the object: update that one.
                    // Not upsert semantics but a race: from here on this is an update.
                    Err(s) if s.reason == "AlreadyExists" => current = read(store, &key).await?,
                    done => return done,
                }
                // Deleted again in between; the client should look before it retries.
                if current.is_none() {
                    return Err(Status::modified(&gr, name));
                }
                continue;
            };
            match self.swap(&live).await? {
                Ok(object) => return Ok(Updated { object, created: false }),
                Err(newer) => current = newer,
            }
        }
    }

    /// Whether the update may create an object that does not exist.
    fn may_create(&self, upsert: bool) -> bool {
        match self.options.subresource.as_str() {
            "" => upsert || self.store.resource.create_on_update,
            "status" => upsert && self.store.strategy.rules().created_by_status,
            _ => false,
        }
    }

    async fn insert(&mut self, upsert: bool) -> Result<Updated> {
        let (store, options) = (self.store, self.options);
        // A patch that cannot create anything fails before the authorization check.
        // `None`: the transform makes the object from nothing, or refuses with 404.
        let mut object = (self.transform)(None)?;
        if let Some(check) = &options.authorize_create {
            check.authorize_create().await?;
        }
        if upsert && !object.uid().is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object.uid()
            );
            return Err(Status::conflict(&store.resource.group_resource(), self.name, &why));
        }
        // The version belongs to the object that is gone.
        object.unset_meta("resourceVersion");
        let options = &WriteOptions {
            options: as_create_options(&options.options),
            ..options.clone()
        };
        let object = create::create(store, self.cx, object, options).await?;
        Ok(Updated { object, created: true })
    }

    /// One compare-and-swap attempt. `Ok(Err(_))` returns the current entry after a conflict.
    async fn swap(&mut self, live: &Arc<Entry>) -> Result<std::result::Result<ResultObject, Option<Arc<Entry>>>> {
        let Self {
            store,
            cx,
            name,
            options,
            ..
        } = *self;
        let resource = &store.resource;
        let strategy = &store.strategy;
        let gr = resource.group_resource();
        compute::leave_reactor_to_decode(live.json.len()).await;
        let old = Arc::new(live.decode());
        // Before the transform, as in upstream's storage: a failed precondition comes before any other error.
        self.check_uid(&old)?;

        let mut new = (self.transform)(Some(&old))?;
        let given = new.gvk();
        // Other subresources are checked by their handlers. Upstream ignores the errors of a status, but has no type to
        // compare such an object by, and stores it without managed fields.
        let (foreign, is_untyped) = match options.subresource.as_str() {
            "" => (meta::type_errors(resource, &new), false),
            "status" => (ErrorList::new(), !meta::type_errors(resource, &new).is_empty()),
            _ => (ErrorList::new(), false),
        };
        meta::set_kind(resource, &mut new);
        meta::set_namespace(resource, cx, &mut new);
        strategy.default(&mut new);
        if is_untyped {
            new.unset_meta("managedFields");
        } else if let Some(manager) = &options.manager {
            let now = time::now();
            let who = Writer {
                manager,
                subresource: &options.subresource,
                now: &now,
                api_version: &resource.gvk().api_version(),
            };
            empties::manage(store, cx, Some(&old), &mut new, &who);
        }
        let write = (Operation::Update, name);
        let mutated = admit::mutate(store, cx, write, Some(old.clone()), options, &mut new).await?;
        resource.schema.forget_unstored(&mut new);
        meta::dedup_owner_references(&mut new, &cx.warnings, true);
        // After mutating admission, which upstream runs as part of the update's transform.
        self.check_version(&mut new, live)?;

        meta::keep_system_fields(&mut new, &old);
        if !cx.dry_run {
            // Upstream drops it on the way to the storage, which a dry run does not reach.
            new.unset_meta("selfLink");
        }
        if !foreign.is_empty() {
            let mut found = meta::validate_common(store, &new, &old);
            found.extend(foreign);
            return Err(Status::invalid(&given.group, &given.kind, name, &found));
        }
        let subresource = &options.subresource;
        // After mutating admission, so that plugins cannot change what the kind protects.
        strategy.prepare(&mut new, Change::Update { old: &old, subresource });
        if subresource.is_empty() {
            empties::count(strategy.rules().generation_counts_empties, cx, &mut new, &old);
        }
        let effects = strategy.effects();
        if let Some(effects) = effects {
            effects.begin(cx, &mut new, Some(&old)).await?;
        }
        let written = self.validate_and_write((&mut new, &old), live, &mutated).await;
        if let Some(effects) = effects {
            match &written {
                // An equal revision means that nothing was written.
                Ok(ResultObject::Stored(entry)) if !cx.dry_run && entry.revision != live.revision => {
                    effects.end(cx, &new, Outcome::Updated { old: &old }).await;
                }
                // A tree after a real write is an object that was deleted.
                Ok(ResultObject::Tree(gone)) if !cx.dry_run => {
                    effects.end(cx, gone, Outcome::Updated { old: &old }).await;
                    effects.end(cx, gone, Outcome::Deleted).await;
                }
                // Also for no-op updates.
                _ => effects.end(cx, &new, Outcome::Abandoned { old: Some(&old) }).await,
            }
        }
        match written {
            Ok(written) => Ok(Ok(written)),
            Err(Failure::Status(s)) => Err(s),
            // Back to the loop with the newer state; effects have been undone.
            Err(Failure::Storage(Error::Conflict(newer))) => Ok(Err(newer)),
            Err(Failure::Storage(e)) => Err(errors::write(&e, &gr, name)),
        }
    }

    /// Validates the new object, and stores it unless nothing changes. Deletes it instead if the update
    /// removed what held it (finalizers).
    async fn validate_and_write(
        &mut self,
        (new, old): (&mut Value, &Value),
        live: &Arc<Entry>,
        mutated: &Mutated<'_>,
    ) -> std::result::Result<ResultObject, Failure> {
        let Self {
            store,
            cx,
            name,
            options,
            ..
        } = *self;
        let resource = &store.resource;
        let found = all_errors(store, cx, &options.subresource, new, old);
        if !found.is_empty() {
            return Err(Status::invalid(resource.error_group(), &resource.kind, name, &found).into());
        }
        let subresource = &options.subresource;
        for text in store.strategy.warnings(new, Change::Update { old, subresource }) {
            cx.warnings.add(text);
        }
        // Before validating admission, which sees what will be stored.
        forget_new_times(new, old);
        mutated.validate(new).await?;

        let key = resource.key(&cx.namespace, name);
        let draft = meta::draft(resource, new);
        // Before the no-op check: an object whose last hold is gone is deleted even if it is otherwise
        // unchanged.
        let dies = goes_with(store, new, old);
        // A no-op, unless the stored bytes are outdated because the encryption key was rotated.
        if draft.json == live.unversioned() && !dies && !live.stale {
            return Ok(ResultObject::Stored(live.clone()));
        }
        // The response of a dry run or a deletion shows the version that the update is based on.
        new.set_meta("resourceVersion", live.revision.0.to_string());
        if cx.dry_run {
            return dry_run::written(&store.storage, new).await.map_err(Failure::Storage);
        }
        if dies {
            // The response contains the updated object with the resourceVersion it was based on.
            // Guarded by the revision: a finalizer added meanwhile keeps the object.
            let gone = store.storage.delete(&key, live.revision).await;
            return gone.map(|_| ResultObject::Tree(new.clone())).map_err(Failure::Storage);
        }
        let ttl = store.strategy.rules().ttl_seconds;
        let when = Precondition::Unchanged(live.revision);
        let put = size_fallback::put(store, &key, when, (new, draft), ttl, options.manager.is_some());
        put.await.map(ResultObject::Stored).map_err(Failure::Storage)
    }

    fn check_uid(&self, old: &Value) -> Result<()> {
        let Some(uid) = self.options.uid.as_deref().filter(|u| *u != old.uid()) else {
            return Ok(());
        };
        let key = self.store.full_key(&self.cx.namespace, self.name);
        // Upstream checks a dry run above the storage, which adds the prefix.
        let key = key
            .strip_prefix("/registry")
            .filter(|_| self.cx.dry_run)
            .unwrap_or(&key);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
             UID in precondition: {uid}, UID in object meta: {}",
            old.uid()
        );
        Err(Status::conflict(&self.store.resource.group_resource(), self.name, &why))
    }

    /// Checks the optimistic lock, and sets the live resourceVersion on the new object.
    fn check_version(&self, new: &mut Value, live: &Entry) -> Result<()> {
        let resource = &self.store.resource;
        let text = new.resource_version();
        let version = match text {
            "" => 0,
            t => meta::parse_version(t)?,
        };
        if version == 0 {
            if !resource.unconditional_update {
                let path = FieldPath::new("metadata").child("resourceVersion");
                let error = FieldError::invalid(&path, 0i64, "must be specified for an update");
                // Upstream puts the resource where the kind belongs.
                return Err(Status::invalid(
                    &resource.gvr.group,
                    &resource.gvr.resource,
                    self.name,
                    &[error],
                ));
            }
        } else if version != live.revision.0 || text.starts_with('0') {
            return Err(Status::modified(&resource.group_resource(), self.name));
        }
        new.set_meta("resourceVersion", live.revision.0.to_string());
        Ok(())
    }
}

async fn read(store: &Store, key: &str) -> Result<Option<Arc<Entry>>> {
    let got = store.storage.get(key, MinRevision::Latest).await;
    got.map_err(|e| errors::read(&e))
}

/// Converts the options for admission: an update that creates is a create to admission.
fn as_create_options(options: &Arc<Value>) -> Arc<Value> {
    if options.is_null() {
        // Internal callers have none.
        return options.clone();
    }
    let mut options = (**options).clone();
    // As upstream's `newCreateOptionsFromUpdateOptions`: admission sees a create with its own options.
    options.set(&["kind"], "CreateOptions");
    Arc::new(options)
}

enum Failure {
    Status(Status),
    Storage(Error),
}

impl From<Status> for Failure {
    fn from(s: Status) -> Self {
        Self::Status(s)
    }
}

/// True if an object was marked for deletion and nothing holds it any longer: no grace period, no finalizer, not
/// its strategy. Whether something held it before does not matter: a delete may have marked it without removing it.
fn goes_with(store: &Store, new: &Value, old: &Value) -> bool {
    // The stored grace period: no update shortens it.
    let grace = old.at(&["metadata", "deletionGracePeriodSeconds"]).as_i64();
    old.is_being_deleted() && grace.unwrap_or(0) == 0 && new.finalizers().is_empty() && !store.holds_deletion(new)
}

/// The errors of an update. Upstream validates the new object with the empty lists and maps of the body, which are not
/// stored.
fn all_errors(store: &Store, cx: &Context, subresource: &str, new: &Value, old: &Value) -> ErrorList {
    if store.strategy.rules().unvalidated_updates {
        return ErrorList::new();
    }
    let found = meta::validate_update(store, subresource, new, old);
    // For a valid object only on the main resource: a subresource's strategy decides what it takes from the body.
    if found.is_empty() && !subresource.is_empty() {
        return found;
    }
    let Some(whole) = empties::with_empties(store, cx, subresource, new) else {
        return found;
    };
    if !found.is_empty() {
        let of_whole = meta::validate_update(store, subresource, &whole, old);
        // The object has to be valid without its empty lists, because it is stored without them.
        return if of_whole.is_empty() { found } else { of_whole };
    }
    // To upstream's comparisons an empty list equals an absent one, so here both objects have it. Only the
    // errors about the list itself remain.
    let was = empties::with_empties(store, cx, subresource, old);
    let mut of_whole = meta::validate_update(store, subresource, &whole, was.as_ref().unwrap_or(old));
    of_whole.retain(|error| cx.empties.is_at(&error.field));
    of_whole
}

/// Restores the old managed fields if only their timestamps would change, so that the update becomes a no-op.
fn forget_new_times(new: &mut Value, old: &Value) {
    let at = ["metadata", "managedFields"];
    let (now, was) = (new.at(&at).items(), old.at(&at).items());
    // Equal entries need no restoring; other lengths are a real change.
    if now.len() != was.len() || now == was {
        return;
    }
    let timeless = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => a.equals_except(b, &["time"]),
        _ => a == b,
    };
    if now.iter().zip(was).all(|(a, b)| timeless(a, b))
        // Anything else that differs must be written, with the new times.
        && new.equals_except_meta(old, &["managedFields", "resourceVersion"])
    {
        let was = old.at(&at).clone();
        new.set(&at, was);
    }
}

#[cfg(test)]
mod tests;
