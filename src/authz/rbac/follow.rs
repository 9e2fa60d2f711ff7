//! Feeds the index from storage: four informers, and how far each of them has read. Entry points:
//! [`Rbac::follow`] sets the sources, [`Followed::catch_up`] waits for acknowledged writes.

use super::Rbac;
use super::objects::{Binding, Role};
use crate::client::{Informer, InformerHandle};
use crate::storage::{Entry, Storage};
use crate::tasks::{Signal, TaskGroup};
use std::sync::Arc;

/// The storage of the four RBAC resources.
#[derive(Clone)]
pub(crate) struct Sources {
    /// `clusterroles`
    pub cluster_roles: Arc<dyn Storage>,
    /// `clusterrolebindings`
    pub cluster_role_bindings: Arc<dyn Storage>,
    /// `roles`
    pub roles: Arc<dyn Storage>,
    /// `rolebindings`
    pub role_bindings: Arc<dyn Storage>,
}

/// The informers' tasks, which the caller must run.
pub(crate) struct Feeds {
    roles: [InformerHandle<Role>; 2],
    bindings: [InformerHandle<Binding>; 2],
    synced: Vec<Signal>,
}

/// The sources of the index.
pub(super) struct Followed {
    roles: Vec<(Arc<dyn Storage>, Informer<Role>)>,
    bindings: Vec<(Arc<dyn Storage>, Informer<Binding>)>,
}

impl Followed {
    /// Sources of an index that never changes.
    pub(crate) fn nothing() -> Self {
        Self {
            roles: Vec::new(),
            bindings: Vec::new(),
        }
    }

    /// True if the index includes every write acknowledged so far.
    pub(crate) fn is_current(&self) -> bool {
        self.roles.iter().all(|(s, i)| i.is_current(&**s)) && self.bindings.iter().all(|(s, i)| i.is_current(&**s))
    }

    /// Waits until the index includes every write acknowledged before this call.
    pub(crate) async fn catch_up(&self) {
        // One after the other: all of them are reading already, so the waits overlap.
        for (storage, informer) in &self.roles {
            informer.catch_up(&**storage).await;
        }
        for (storage, informer) in &self.bindings {
            informer.catch_up(&**storage).await;
        }
    }
}

impl Rbac {
    /// Sets the sources. Decisions fail until the returned feeds run. Must be called once; later calls have
    /// no effect on decisions.
    pub(crate) fn follow(self: &Arc<Self>, sources: &Sources) -> Feeds {
        // ClusterRoles and Roles share one index: keys of the latter contain a `/`, which names cannot.
        let role = |storage: &Arc<dyn Storage>| {
            let (informer, handle) = Informer::new(storage.clone(), |e: &Entry| Role::parse(&e.decode()));
            let me = self.clone();
            informer.subscribe(move |c| me.change(|index| index.set_role(c.key, c.new.cloned())));
            let me = self.clone();
            // A binding of another informer may have tens of thousands of subjects.
            (informer, handle.blocking_while(move || me.is_changing()))
        };
        let binding = |storage: &Arc<dyn Storage>| {
            let (informer, handle) = Informer::new(storage.clone(), |e: &Entry| Binding::parse(&e.decode()));
            let me = self.clone();
            informer.subscribe(move |c| me.change(|index| index.set_binding(c.key, c.new.cloned())));
            let me = self.clone();
            (informer, handle.blocking_while(move || me.is_changing()))
        };
        let (cluster_roles, feed_cluster_roles) = role(&sources.cluster_roles);
        let (roles, feed_roles) = role(&sources.roles);
        let (cluster_bindings, feed_cluster_bindings) = binding(&sources.cluster_role_bindings);
        let (bindings, feed_bindings) = binding(&sources.role_bindings);
        let synced = [&cluster_roles, &roles].map(|i| i.synced().clone());
        let synced = synced
            .into_iter()
            .chain([&cluster_bindings, &bindings].map(|i| i.synced().clone()));
        let feeds = Feeds {
            synced: synced.collect(),
            roles: [feed_cluster_roles, feed_roles],
            bindings: [feed_cluster_bindings, feed_bindings],
        };
        // A second set of stores must not take effect: the index would mix both.
        let _ = self.followed.set(Followed {
            roles: vec![
                (sources.cluster_roles.clone(), cluster_roles),
                (sources.roles.clone(), roles),
            ],
            bindings: vec![
                (sources.cluster_role_bindings.clone(), cluster_bindings),
                (sources.role_bindings.clone(), bindings),
            ],
        });
        feeds
    }
}

impl Feeds {
    /// Signals that fire when the initial lists have been read.
    pub(crate) fn synced(&self) -> &[Signal] {
        &self.synced
    }

    /// Spawns the feeds in `tasks`; they stop with the group.
    pub(crate) fn start(self, tasks: &TaskGroup) {
        for feed in self.roles {
            tasks.spawn_until_stopped("roles", feed.run());
        }
        for feed in self.bindings {
            tasks.spawn_until_stopped("role bindings", feed.run());
        }
    }
}
