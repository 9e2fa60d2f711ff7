//! Delete: decides by preconditions, finalizers and grace period whether an object is removed or first marked
//! as being deleted.
//!
//! Entry point: [`delete`]. The outcomes:
//!
//! ```text
//! live ──┬─ grace period running and not shortened ──────────────→ unchanged
//!        ├─ grace > 0, or finalizers, or held by the strategy ───→ marked (deletionTimestamp), kept
//!        ├─ grace 0 of a kind with graceful deletion ────────────→ marked, then removed
//!        └─ nothing holds it ────────────────────────────────────→ removed
//! ```

use super::resource::Resource;
use super::store::Store;
use super::strategy::{Context, GarbageCollection, Outcome};
use super::write::{DeleteOptions, Deleted, ResultObject, WriteOptions};
use super::{admit, errors, meta};
use crate::admission::Operation;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::storage::{Entry, Error, MinRevision, Precondition};
use crate::tasks::compute;
use std::sync::Arc;

impl Store {
    /// Deletes an object, or marks it for deletion. Not cancel safe.
    ///
    /// # Errors
    /// The Status of preconditions, admission or storage.
    pub(crate) async fn delete(&self, cx: &Context, name: &str, options: &DeleteOptions) -> Result<Deleted> {
        delete(self, cx, name, options).await
    }
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(super) async fn delete(store: &Store, cx: &Context, name: &str, options: &DeleteOptions) -> Result<Deleted> {
    delete_as(store, cx, name, name, options).await
}

/// [`delete`] with a different name for admission: upstream passes none for the items of a collection.
pub(super) async fn delete_as(
    store: &Store,
    cx: &Context,
    name: &str,
    admitted_as: &str,
    options: &DeleteOptions,
) -> Result<Deleted> {
    let gr = store.resource.group_resource();
    let key = store.resource.key(&cx.namespace, name);
    let got = store.storage.get(&key, MinRevision::Latest).await;
    let mut current = got.map_err(|e| errors::read(&e))?;
    // The resourceVersion precondition is checked only before this delete writes the object itself.
    let mut marked = false;
    loop {
        let Some(live) = current else {
            return Err(Status::not_found(&gr, name));
        };
        // A retry decodes again, because the object has changed.
        compute::leave_reactor_to_decode(live.json.len()).await;
        let old = Arc::new(live.decode());
        // Before admission: a failed precondition must not reach webhooks.
        check_preconditions(&store.resource, name, &old, options, marked)?;
        if let Some(deletion) = store.strategy.deletion() {
            deletion.check(&old)?;
        }
        let plan = plan(store, &old, options);
        // While an earlier delete's grace period runs, nothing changes, so admission is skipped.
        // Once per delete: a repetition after a conflict is the same request.
        if !marked && plan != Plan::Pending {
            admit(store, cx, admitted_as, &old, options).await?;
        }
        let (new, then_gone) = match plan {
            Plan::Pending => {
                let object = ResultObject::Stored(live);
                return Ok(Deleted { object, gone: false });
            }
            Plan::Go => match remove(store, cx, &key, &live).await {
                Ok(object) => {
                    deleted(store, cx, &old).await;
                    return Ok(Deleted { object, gone: true });
                }
                Err(Error::Conflict(newer)) => {
                    // Somebody wrote in between; decide anew from the newer state.
                    current = newer;
                    continue;
                }
                Err(e) => return Err(errors::write(&e, &gr, name)),
            },
            Plan::Mark(new) => (new, false),
            Plan::MarkThenGo(new) => (new, true),
        };
        match mark(store, cx, &key, &live, new).await {
            // In a dry run nothing has been marked that could be removed.
            Ok(object) if !then_gone || cx.dry_run => {
                return Ok(Deleted {
                    object,
                    gone: then_gone,
                });
            }
            Ok(ResultObject::Stored(entry)) => {
                // From here on the resourceVersion is ours and no longer the client's.
                marked = true;
                match remove(store, cx, &key, &entry).await {
                    Ok(object) => {
                        deleted(store, cx, &entry.decode()).await;
                        return Ok(Deleted { object, gone: true });
                    }
                    // Somebody else has removed what is marked, which also an update does.
                    Err(Error::Conflict(None)) => {
                        let object = ResultObject::Stored(entry);
                        return Ok(Deleted { object, gone: true });
                    }
                    Err(Error::Conflict(newer)) => current = newer,
                    Err(e) => return Err(errors::write(&e, &gr, name)),
                }
            }
            Ok(object @ ResultObject::Tree(_)) => return Ok(Deleted { object, gone: true }),
            Err(Error::Conflict(newer)) => current = newer,
            Err(e) => return Err(errors::write(&e, &gr, name)),
        }
    }
}

async fn deleted(store: &Store, cx: &Context, object: &Value) {
    if let Some(effects) = store.strategy.effects() {
        effects.end(cx, object, Outcome::Deleted).await;
    }
}

async fn admit(store: &Store, cx: &Context, name: &str, old: &Arc<Value>, options: &DeleteOptions) -> Result<()> {
    let write = WriteOptions {
        options: options.raw.clone(),
        ..WriteOptions::default()
    };
    let mut nothing = Value::Null;
    let operation = (Operation::Delete, name);
    let mutated = admit::mutate(store, cx, operation, Some(old.clone()), &write, &mut nothing).await?;
    mutated.validate(&nothing).await
}

async fn remove(store: &Store, cx: &Context, key: &str, live: &Arc<Entry>) -> std::result::Result<ResultObject, Error> {
    if cx.dry_run {
        return Ok(ResultObject::Tree(live.decode()));
    }
    store.storage.delete(key, live.revision).await.map(ResultObject::Stored)
}

async fn mark(
    store: &Store,
    cx: &Context,
    key: &str,
    live: &Arc<Entry>,
    mut new: Value,
) -> std::result::Result<ResultObject, Error> {
    let draft = meta::draft(&store.resource, &new);
    // Already marked that way: no write, and no event.
    if draft.json == live.unversioned() {
        return Ok(ResultObject::Stored(live.clone()));
    }
    if cx.dry_run {
        new.set_meta("resourceVersion", live.revision.0.to_string());
        return Ok(ResultObject::Tree(new));
    }
    let put = store
        .storage
        .put(key, Precondition::Unchanged(live.revision), draft, None);
    put.await.map(ResultObject::Stored)
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
    marked: bool,
) -> Result<()> {
    // Both have their own delete upstream, with different messages.
    let own_words = matches!(
        (resource.gvr.group.as_str(), resource.gvr.resource.as_str()),
        ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions")
    );
    let failed = |what: &str, asked: &str, found: &str| {
        let why = format!("Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}");
        Status::conflict(&resource.group_resource(), name, &why)
    };
    // Here upstream names the Kind instead of the resource, and as for validation, the group of the stored
    // version.
    let about = GroupResource::new(resource.error_group(), &resource.kind);
    if let Some(uid) = options.uid.as_deref().filter(|u| *u != old.uid()) {
        if own_words {
            return Err(failed("UID", uid, old.uid()));
        }
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            old.uid()
        );
        return Err(Status::conflict(&about, name, &why));
    }
    let version = options.resource_version.as_deref().filter(|_| !marked);
    if let Some(version) = version.filter(|v| *v != old.resource_version()) {
        if own_words {
            return Err(failed("ResourceVersion", version, old.resource_version()));
        }
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            old.resource_version()
        );
        return Err(Status::conflict(&about, name, &why));
    }
    Ok(())
}

/// The effect of a delete on the object.
#[derive(Debug, PartialEq)]
enum Plan {
    Pending,
    Go,
    Mark(Value),
    MarkThenGo(Value),
}

fn plan(store: &Store, old: &Value, options: &DeleteOptions) -> Plan {
    let deletion = store.strategy.deletion();
    let mut new = old.clone();
    // Upstream treats a negative grace period as one second.
    let requested = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s });
    let running = old.at(&["metadata", "deletionGracePeriodSeconds"]).as_i64();
    // The grace period set by this delete. `None`: the kind has no graceful deletion, or its grace period is
    // over.
    let grace = match (old.is_being_deleted(), deletion.and_then(|d| d.grace(old, requested))) {
        (_, None) => None,
        (false, Some(grace)) => Some(grace),
        (true, Some(_)) => match (running, requested) {
            // Over already: an earlier delete marked the object, and its removal failed or was never tried, such as
            // after a crash. Every later delete must remove it, or nothing could.
            (None | Some(0), _) => None,
            (Some(running), Some(asked)) if asked < running => {
                shorten(&mut new, running, asked);
                Some(asked)
            }
            (Some(_), _) => return Plan::Pending,
        },
    };
    if let Some(finalizers) = collector_finalizers(store.strategy.rules().garbage_collection, old, options) {
        match finalizers.is_empty() {
            true => new.unset_meta("finalizers"),
            false => new.set_meta("finalizers", finalizers),
        }
    }
    // Looked at in `new`: this delete may add or remove the collector's finalizers.
    let held = !new.finalizers().is_empty() || store.holds_deletion(&new);
    let first = !old.is_being_deleted();
    match grace {
        None if !held => return Plan::Go,
        None => {
            // The kind has no graceful deletion, but finalizers hold the object from now on.
            let now = time::now();
            if first || new.meta("deletionTimestamp") > now.as_str() {
                new.set_meta("deletionTimestamp", now);
            }
            new.set_meta("deletionGracePeriodSeconds", 0i64);
        }
        Some(seconds) if first => {
            let end = ::time::OffsetDateTime::now_utc() + grace_duration(seconds);
            new.set_meta("deletionTimestamp", time::format(end));
            new.set_meta("deletionGracePeriodSeconds", seconds);
        }
        Some(_) => {}
    }
    if first {
        // Like upstream, count the deletion mark as a new generation.
        let generation = old.at(&["metadata", "generation"]).as_i64().unwrap_or(0);
        if generation > 0 {
            new.set_meta("generation", generation + 1);
        }
    }
    // Last, so that it sees the final deletion metadata.
    if let Some(deletion) = deletion {
        deletion.mark(&mut new, old);
    }
    if held || grace.is_some_and(|g| g > 0) {
        Plan::Mark(new)
    } else {
        Plan::MarkThenGo(new)
    }
}

/// A grace period as Go's `time.Duration(seconds) * time.Second`, which wraps around. So every number of seconds that a
/// client sends is at most 292 years, and the end is a date that exists.
fn grace_duration(seconds: i64) -> ::time::Duration {
    ::time::Duration::nanoseconds(seconds.wrapping_mul(1_000_000_000))
}

/// Shortens a running grace period, but never to an end in the past.
fn shorten(object: &mut Value, running: i64, asked: i64) {
    let now = ::time::OffsetDateTime::now_utc();
    // An unparsable time cannot be stored; the fallback is never taken.
    let end = time::parse(object.meta("deletionTimestamp")).unwrap_or(now);
    // From the start of the first delete, not from now.
    let mut end = end - grace_duration(running) + grace_duration(asked);
    let mut asked = asked;
    if end < now {
        end = now;
        // One second and not zero: the kubelet still has to end the pod, since a grace period was asked for.
        asked = asked.min(1);
    }
    object.set_meta("deletionTimestamp", time::format(end));
    object.set_meta("deletionGracePeriodSeconds", asked);
}

/// The finalizers after adding or removing those of the garbage collector; `None` if they do not change.
fn collector_finalizers(default: GarbageCollection, old: &Value, options: &DeleteOptions) -> Option<Vec<Value>> {
    if default == GarbageCollection::Unsupported {
        return None;
    }
    let had = old.finalizers();
    let policy = match (options.orphan_dependents, options.propagation.as_deref()) {
        // The deprecated `orphanDependents` precedes the policy; validation refuses both at once.
        (Some(true), _) | (_, Some("Orphan")) => Some(ORPHAN),
        (_, Some("Foreground")) => Some(FOREGROUND),
        (Some(false), _) | (_, Some(_)) => None,
        (None, None) => match had.iter().find(|f| **f == ORPHAN || **f == FOREGROUND) {
            Some(&f) if f == ORPHAN => Some(ORPHAN),
            Some(_) => Some(FOREGROUND),
            None => (default == GarbageCollection::Orphan).then_some(ORPHAN),
        },
    };
    let mut now: Vec<&str> = had
        .iter()
        .copied()
        .filter(|f| *f != ORPHAN && *f != FOREGROUND)
        .collect();
    // At the end: the finalizers of others keep their order.
    now.extend(policy);
    // Equal lists need no write.
    (now != had).then(|| now.into_iter().map(Value::from).collect())
}

#[cfg(test)]
mod tests;
