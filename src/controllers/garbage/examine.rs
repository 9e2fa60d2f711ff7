//! Decides about one object with owners.
//!
//! ```text
//! owners                                     object
//! one exists and is not waiting (solid)      stays, without its other references
//! none is solid, one waits for dependents    is deleted in the foreground if it has dependents itself
//! otherwise                                  is deleted
//! ```

use super::graph::{Coordinates, Node};
use super::seen::{Found, Owner, Seen};
use super::{BATCH, Collector, Error, Item, UNSERVED_FOR};
use crate::apimachinery::value::Value;
use crate::controllers::discovery::{Discovered, ServedResource, discover};
use crate::controllers::loopback::{JSON, Path, found};
use crate::controllers::objects::{Followed, OwnerReference, Resource, Tracked, Uid};
use crate::controllers::sized;
use crate::json;
use crate::storage::{MinRevision, Revision};
use std::sync::Arc;
use tokio::time::Instant;

/// The state of an owner under the coordinates of one reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not exist, or not under these coordinates.
    Dangling,
    /// It is deleted after its dependents.
    Waiting,
    Solid,
    /// A namespaced owner of a cluster-scoped object, which can never be resolved.
    Invalid,
}

/// The action for an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// Keep it, without the references that are not solid.
    Release,
    Delete(&'static str),
}

/// The rule of the module's table. `has_dependents` is about the object itself.
pub(super) fn verdict(standings: &[Standing], object: &Tracked, has_dependents: bool) -> Verdict {
    let any = |s: Standing| standings.contains(&s);
    // An owner that cannot be resolved may exist: deleting the object could destroy data.
    if any(Standing::Invalid) || standings.is_empty() {
        Verdict::Keep
    } else if any(Standing::Solid) {
        match standings.iter().all(|s| *s == Standing::Solid) {
            true => Verdict::Keep,
            false => Verdict::Release,
        }
    } else if any(Standing::Waiting) && has_dependents {
        // The owner waits for this object, so this object must wait for its own dependents.
        Verdict::Delete("Foreground")
    // Finalizers that the object has already express what its creator wants for its dependents.
    } else if object.orphans {
        Verdict::Delete("Orphan")
    } else if object.foreground {
        Verdict::Delete("Foreground")
    } else {
        Verdict::Delete("Background")
    }
}

impl Collector {
    pub(super) async fn examine(&self, uid: &Uid) -> Result<(), Error> {
        let Some(node) = self.node(uid) else { return Ok(()) };
        let object = &node.object;
        // Deleting it again would be a no-op at best; only its own dependents may still need a push.
        if object.deleting {
            if object.waits_for_dependents() {
                self.add(Item::Owner(uid.clone()));
            }
            return Ok(());
        }
        let standings = self.standings(&node).await?;
        let has_dependents = self.graph().has_dependents(uid);
        match verdict(&standings, object, has_dependents) {
            Verdict::Keep => Ok(()),
            Verdict::Release => {
                let mut standings = standings.into_iter();
                let solid = move |r: &OwnerReference| (standings.next() == Some(Standing::Solid)).then(|| r.clone());
                self.set_owners(&node, solid).await.map(drop)
            }
            Verdict::Delete(policy) => {
                // A and B own each other and both wait: unless one stops blocking, neither is ever deleted.
                if standings.contains(&Standing::Waiting) && has_dependents && self.is_in_cycle(uid).await {
                    return self.unblock(&node).await;
                }
                self.delete(&node, policy).await
            }
        }
    }

    /// The state of each owner.
    async fn standings(&self, node: &Node<Arc<Resource>>) -> Result<Vec<Standing>, Error> {
        let mut seen = Seen::default();
        let mut standings = Vec::with_capacity(node.object.owners.len());
        for reference in &node.object.owners {
            standings.push(self.standing(reference, node, &mut seen).await?);
            // Reads of the cache are ready at once.
            if standings.len().is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
        }
        Ok(standings)
    }

    async fn standing(
        &self,
        reference: &OwnerReference,
        node: &Node<Arc<Resource>>,
        seen: &mut Seen,
    ) -> Result<Standing, Error> {
        // UIDs are never reused, so a deletion that was seen is final and needs no read.
        if self.graph().is_gone(&reference.uid) {
            return Ok(Standing::Dangling);
        }
        let of = self.objects.of_kind(reference.group(), &reference.kind);
        let found = match (seen.get(reference), &of) {
            (Some(found), _) => found,
            (None, Some(of)) => match owner_key(of.resource.namespaced, node, reference) {
                Some(key) => read_owner(of, &key).await?.into(),
                None => Found::Invalid,
            },
            (None, None) => self.remote_owner(reference, node, seen).await?,
        };
        seen.remember(reference, &found);
        let owner = match found {
            // Same name, other UID: the owner was deleted and created anew. The new one is not the owner.
            Found::Owner(owner) if owner.uid == reference.uid => owner,
            other => {
                if let Some(of) = of.filter(|of| of.resource.namespaced)
                    // Only now, because every search counts against the bound.
                    && seen.may_search()
                {
                    self.report_misplaced(reference, node, &of).await;
                }
                return Ok(match other {
                    Found::Invalid => Standing::Invalid,
                    Found::Absent | Found::Owner(_) => Standing::Dangling,
                });
            }
        };
        if owner.waits_for_dependents {
            return Ok(Standing::Waiting);
        }
        let at = Coordinates::of(reference, &node.key);
        self.graph().confirm(&reference.uid, at);
        Ok(Standing::Solid)
    }

    /// An owner whose kind is not followed: one of an aggregated API server, or unknown.
    async fn remote_owner(
        &self,
        reference: &OwnerReference,
        node: &Node<Arc<Resource>>,
        seen: &mut Seen,
    ) -> Result<Found, Error> {
        let served = match &seen.served {
            Some(served) => served.clone(),
            None => self.serving(reference).await?,
        };
        seen.served = Some(served.clone());
        // Retried, not dangling: the API server of the kind may only be missing for now.
        let resource = resource_of(&served, reference).ok_or_else(|| unknown_kind(reference))?;
        let Some(key) = owner_key(resource.namespaced, node, reference) else {
            return Ok(Found::Invalid);
        };
        let Ok(_place) = self.remote_reads.try_acquire() else {
            return Err(Error::Busy);
        };
        let namespace = key.split_once('/').map_or("", |(ns, _)| ns);
        let path = Path::of(&resource.group, &resource.version, namespace, &resource.resource);
        // Any revision will do, since an `Owner` has none.
        let owner = |v: Value| Owner::from(&Tracked::from_value(&v, Revision(0)));
        let live = self.api.extract(path.name(&reference.name), JSON, owner).await;
        Ok(found(live)?.into())
    }

    /// The resources that the gateway serves now.
    ///
    /// # Errors
    /// A moment ago the owner's kind was not among them.
    async fn serving(&self, reference: &OwnerReference) -> Result<Arc<Discovered>, Error> {
        let known = self.served.lock().clone();
        // Only its absence is remembered: if the kind were not served any more, its objects would seem to be gone.
        if let Some((at, served)) = known
            && at.elapsed() < UNSERVED_FOR
            && resource_of(&served, reference).is_none()
        {
            return Err(unknown_kind(reference));
        }
        let served = Arc::new(discover(&self.api).await?);
        *self.served.lock() = Some((Instant::now(), served.clone()));
        Ok(served)
    }

    /// Whether a dependent of the object waits for its own dependents, the object among them.
    async fn is_in_cycle(&self, uid: &Uid) -> bool {
        let mut after = None;
        loop {
            {
                // In a block, so that the lock is not held while the task yields.
                let graph = self.graph();
                let batch = graph.dependents_after(uid, after.as_ref(), BATCH);
                let waits = |d: &Uid| graph.node(d).is_some_and(|n| n.object.waits_for_dependents());
                if batch.is_empty() || batch.iter().any(waits) {
                    return !batch.is_empty();
                }
                after = batch.last().cloned();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Lets the owners of an object in a cycle be deleted before it. The change brings the object back here.
    async fn unblock(&self, node: &Node<Arc<Resource>>) -> Result<(), Error> {
        let unblocking = |r: &OwnerReference| {
            Some(OwnerReference {
                blocks: Some(false),
                ..r.clone()
            })
        };
        if self.set_owners(node, unblocking).await? {
            return Err(Error::Changed);
        }
        self.delete(node, "Foreground").await
    }

    async fn delete(&self, node: &Node<Arc<Resource>>, policy: &str) -> Result<(), Error> {
        let path = node.resource.path(&node.key);
        let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            // The version, too: between decision and deletion the object may have got another owner.
            "preconditions": {"uid": (&*node.object.uid), "resourceVersion": (node.object.revision.0.to_string())}});
        let Err(refused) = self.api.delete(path, &options).await else {
            return Ok(());
        };
        match refused.code {
            404 => return Ok(()),
            409 => {}
            _ => return Err(refused.into()),
        }
        // Something has changed. If not the owners, the decision stands.
        let object = node.object.clone();
        let is_same = move |live: &Value| Tracked::from_value(live, Revision(0)).owners == object.owners;
        match self.live(node, is_same).await? {
            None => return Ok(()),
            Some(false) => return Err(Error::Changed),
            Some(true) => {}
        }
        // Status updates of a busy object could otherwise fail the precondition for ever.
        options.unset(&["preconditions", "resourceVersion"]);
        match self.api.delete(path, &options).await {
            Err(e) if e.code != 404 => Err(e.into()),
            _ => Ok(()),
        }
    }
}

/// The resource of an owner's kind.
fn resource_of<'a>(served: &'a Discovered, reference: &OwnerReference) -> Option<&'a ServedResource> {
    let is_owner = |r: &&ServedResource| r.group == reference.group() && r.kind == reference.kind && r.has("get");
    served.resources.iter().find(is_owner)
}

fn unknown_kind(reference: &OwnerReference) -> Error {
    Error::UnknownKind(beginning(&reference.api_version), beginning(&reference.kind))
}

/// Truncates, for the log, a member that a client may have filled with megabytes.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 256;
    text[..text.floor_char_boundary(SHOWN)].to_owned()
}

/// The owner as it is now.
async fn read_owner(of: &Followed, key: &str) -> Result<Option<Owner>, Error> {
    let live = of.storage.get(key, MinRevision::Latest).await;
    let Some(entry) = live.map_err(|e| Error::Storage(format!("{e:?}")))? else {
        return Ok(None);
    };
    // The informer has usually parsed this state already.
    if let Some(known) = of.find(key).filter(|known| known.revision == entry.revision) {
        return Ok(Some(Owner::from(&*known)));
    }
    let read = |entry: &crate::storage::Entry| Owner::from(&Tracked::from_entry(entry));
    Ok(sized::read(Some(entry), read).await?)
}

/// The storage key of the owner; `None` for a namespaced owner of a cluster-scoped object.
fn owner_key(namespaced: bool, node: &Node<Arc<Resource>>, reference: &OwnerReference) -> Option<String> {
    if !namespaced {
        return Some(reference.name.to_string());
    }
    let (namespace, _) = node.key.split_once('/')?;
    Some(format!("{namespace}/{}", reference.name))
}

#[cfg(test)]
mod tests;
