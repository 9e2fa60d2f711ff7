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
    /// `None` for an index that never changes.
    levels: Option<Levels>,
}

struct Levels {
    /// ClusterRoles and their bindings, which concern every request.
    cluster: Level,
    /// Roles and RoleBindings, which concern requests in their namespace.
    namespaced: Level,
}

struct Level {
    roles: Source<Role>,
    bindings: Source<Binding>,
}

struct Source<T> {
    storage: Arc<dyn Storage>,
    informer: Informer<T>,
}

impl Followed {
    /// Sources of an index that never changes.
    pub(crate) fn nothing() -> Self {
        Self { levels: None }
    }

    /// True if the index includes every write acknowledged so far that concerns requests in `namespace` (`""`: those of
    /// cluster scope).
    pub(crate) fn is_current(&self, namespace: &str) -> bool {
        let Some(Levels { cluster, namespaced }) = &self.levels else {
            return true;
        };
        let local = || namespaced.roles.is_current_in(namespace) && namespaced.bindings.is_current_in(namespace);
        cluster.roles.is_current() && cluster.bindings.is_current() && (namespace.is_empty() || local())
    }

    /// Waits until the index includes every write acknowledged before this call that concerns requests in `namespace`.
    pub(crate) async fn catch_up(&self, namespace: &str) {
        let Some(Levels { cluster, namespaced }) = &self.levels else {
            return;
        };
        // One after the other: all of them are reading already, so the waits overlap.
        cluster.roles.catch_up().await;
        cluster.bindings.catch_up().await;
        if !namespace.is_empty() {
            namespaced.roles.catch_up_in(namespace).await;
            namespaced.bindings.catch_up_in(namespace).await;
        }
    }
}

impl<T: Send + Sync + 'static> Source<T> {
    fn new(storage: &Arc<dyn Storage>, informer: Informer<T>) -> Self {
        Self {
            storage: storage.clone(),
            informer,
        }
    }

    fn is_current(&self) -> bool {
        self.informer.is_current(&*self.storage)
    }

    fn is_current_in(&self, namespace: &str) -> bool {
        self.informer.is_current_in(&*self.storage, namespace)
    }

    async fn catch_up(&self) {
        self.informer.catch_up(&*self.storage).await;
    }

    async fn catch_up_in(&self, namespace: &str) {
        self.informer.catch_up_in(&*self.storage, namespace).await;
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
            informer.subscribe(move |c| me.set_role(c.key, c.new.cloned()));
            (informer, handle)
        };
        let binding = |storage: &Arc<dyn Storage>| {
            let (informer, handle) = Informer::new(storage.clone(), |e: &Entry| Binding::parse(&e.decode()));
            let me = self.clone();
            informer.subscribe(move |c| me.set_binding(c.key, c.new.cloned()));
            (informer, handle)
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
        let levels = Levels {
            cluster: Level {
                roles: Source::new(&sources.cluster_roles, cluster_roles),
                bindings: Source::new(&sources.cluster_role_bindings, cluster_bindings),
            },
            namespaced: Level {
                roles: Source::new(&sources.roles, roles),
                bindings: Source::new(&sources.role_bindings, bindings),
            },
        };
        // A second set of stores must not take effect: the index would mix both.
        let _ = self.followed.set(Followed { levels: Some(levels) });
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

#[cfg(test)]
mod tests;
