//! Handles the dependents of an owner: they are examined when it is gone or deleted in the foreground, and
//! lose their reference to it when it is deleted with the policy Orphan.

use super::graph::Item;
use super::{BATCH, Collector, Error};
use crate::controllers::objects::{FOREGROUND, ORPHAN, Uid};
use futures_util::StreamExt as _;

impl Collector {
    /// An owner that is gone, or waits for its dependents.
    pub(super) async fn owner(&self, uid: &Uid) -> Result<(), Error> {
        match self.node(uid) {
            Some(node) if node.object.waits_for_dependents() => {
                // A dependent that was created before the owner's deletion may not have been reported yet.
                self.objects.catch_up().await?;
                if !self.graph().is_blocked(uid) {
                    return self.remove_finalizer(&node, FOREGROUND).await;
                }
            }
            _ if self.graph().is_gone(uid) => {}
            _ => return Ok(()),
        }
        let mut after = None;
        loop {
            // In batches by key: the lock is not held over the queue, and dependents may come and go in between.
            let batch = self.graph().dependents_after(uid, after.as_ref(), BATCH);
            let Some(last) = batch.last().cloned() else {
                return Ok(());
            };
            after = Some(last);
            batch.into_iter().for_each(|uid| self.add(Item::Object(uid)));
            tokio::task::yield_now().await;
        }
    }

    /// An owner that waits for its dependents to be orphaned.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<(), Error> {
        let Some(node) = self.node(uid).filter(|n| n.object.waits_for_orphans()) else {
            return Ok(());
        };
        self.objects.catch_up().await?;
        let mut after = None;
        let mut failed = None;
        loop {
            let batch = self.graph().dependents_after(uid, after.as_ref(), BATCH);
            let Some(last) = batch.last().cloned() else { break };
            after = Some(last);
            let orphaned = batch.into_iter().map(|dependent| self.orphan_one(dependent, uid));
            // Boxed: a batch of requests in one future would be large.
            let mut orphaned = futures_util::stream::iter(orphaned).buffer_unordered(BATCH).boxed();
            while let Some(result) = orphaned.next().await {
                // One failure does not stop the others. The finalizer stays until a retry finds no dependents.
                failed = result.err().or(failed);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => self.remove_finalizer(&node, ORPHAN).await,
        }
    }

    async fn orphan_one(&self, dependent: Uid, owner: &Uid) -> Result<(), Error> {
        match self.node(&dependent) {
            Some(node) => {
                let owner = owner.clone();
                self.set_owners(&node, move |r| (r.uid != owner).then(|| r.clone()))
                    .await
                    .map(drop)
            }
            // Deleted meanwhile, or it no longer has owners.
            None => Ok(()),
        }
    }
}
