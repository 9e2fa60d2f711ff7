//! [`Policies`]: the compiled policies with their bindings. A change makes the next request rebuild the
//! [`Snapshot`].

use super::stored::{Binding, StoredPolicy};
use crate::admission::matching::PluralIndex;
use crate::client::{Informer, InformerHandle};
use crate::storage::{Entry, Storage};
use crate::tasks::{Derived, Signal};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a request waits until the informer has delivered the policies that were acknowledged before it.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The policies of one kind. Empty, and not ready, until [`follow`](Self::follow) was called and the feeds
/// run.
pub(crate) struct Policies<P> {
    followed: OnceLock<Followed<P>>,
    snapshot: Derived<Snapshot<P>>,
}

/// An informer with its storage.
struct Source<T> {
    storage: Arc<dyn Storage>,
    informer: Informer<T>,
}

struct Followed<P> {
    policies: Source<P>,
    bindings: Source<Binding>,
}

/// Feeds [`Policies`] while it runs.
pub(crate) struct Feeds<P>(InformerHandle<P>, InformerHandle<Binding>);

/// The policies that have bindings.
pub(crate) struct Snapshot<P> {
    all: Vec<Active<P>>,
    index: PluralIndex,
}

/// A policy in use.
pub(crate) struct Active<P> {
    pub policy: Arc<P>,
    pub bindings: Vec<Arc<Binding>>,
}

/// The informer did not catch up in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotReady;

impl<P: StoredPolicy> Feeds<P> {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        tokio::join!(self.0.run(), self.1.run());
    }
}

impl<T: Send + Sync + 'static> Source<T> {
    fn is_current(&self) -> bool {
        self.informer.is_current(&*self.storage)
    }

    async fn catch_up(&self) {
        if !self.is_current() {
            self.informer.catch_up(&*self.storage).await;
        }
    }
}

impl<P: StoredPolicy> Followed<P> {
    fn is_current(&self) -> bool {
        self.policies.is_current() && self.bindings.is_current()
    }
}

impl<P> Default for Policies<P> {
    fn default() -> Self {
        Self {
            followed: OnceLock::new(),
            snapshot: Derived::default(),
        }
    }
}

impl<P> Default for Snapshot<P> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            index: PluralIndex::default(),
        }
    }
}

impl<P: StoredPolicy> Policies<P> {
    /// Follows the stored policies and bindings. The signals fire when they have been read. Must be called
    /// once; later calls have no effect on requests.
    pub(crate) fn follow(
        self: &Arc<Self>,
        policies: Arc<dyn Storage>,
        bindings: Arc<dyn Storage>,
    ) -> (Feeds<P>, [Signal; 2]) {
        let (policy_informer, policy_feed) = Informer::new(policies.clone(), |entry: &Entry| P::parse(&entry.decode()));
        let (binding_informer, binding_feed) = Informer::new(bindings.clone(), Binding::from_entry);
        let me = self.clone();
        policy_informer.subscribe(move |_| me.snapshot.invalidate());
        let me = self.clone();
        binding_informer.subscribe(move |_| me.snapshot.invalidate());
        // Subscribed before the feeds run, so no change is missed.
        let synced = [policy_informer.synced().clone(), binding_informer.synced().clone()];
        let _ = self.followed.set(Followed {
            policies: Source {
                storage: policies,
                informer: policy_informer,
            },
            bindings: Source {
                storage: bindings,
                informer: binding_informer,
            },
        });
        (Feeds(policy_feed, binding_feed), synced)
    }

    /// False only if it is certain that no policy can match this resource.
    pub(crate) fn may_match(&self, plural: &str) -> bool {
        // A stale informer may lack a policy that was acknowledged, so only a current one can exclude it.
        let followed = self.followed.get().filter(|f| f.is_current());
        let snapshot = followed.and_then(|_| self.snapshot.current());
        snapshot.is_none_or(|s| s.index.has_candidates(plural))
    }

    /// All policies and bindings that were acknowledged before this call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn fresh(&self) -> Result<Arc<Snapshot<P>>, NotReady> {
        let followed = self.followed.get().ok_or(NotReady)?;
        if !followed.is_current() {
            let caught_up = async { tokio::join!(followed.policies.catch_up(), followed.bindings.catch_up()) };
            let in_time = tokio::time::timeout(CATCH_UP, caught_up).await;
            in_time.map_err(|_| NotReady)?;
        }
        let derive = |_: &_| {
            let (policies, bindings) = (
                followed.policies.informer.snapshot(),
                followed.bindings.informer.snapshot(),
            );
            Snapshot::new(policies.values(), bindings.values())
        };
        // One policy may name a hundred thousand resources.
        Ok(self.snapshot.get_off_reactor(derive).await)
    }
}

impl<P: StoredPolicy> Snapshot<P> {
    /// The snapshot of these policies and bindings.
    pub(crate) fn new<'p>(
        policies: impl Iterator<Item = &'p Arc<P>>,
        bindings: impl Iterator<Item = &'p Arc<Binding>>,
    ) -> Self {
        let mut by_policy: HashMap<&str, Vec<Arc<Binding>>> = HashMap::new();
        for binding in bindings {
            by_policy.entry(&binding.policy).or_default().push(binding.clone());
        }
        let active = |policy: &Arc<P>| {
            // Policies without bindings are not in use, and cost requests nothing.
            let bindings = by_policy.remove(policy.common().name.as_str())?;
            Some(Active {
                policy: policy.clone(),
                bindings,
            })
        };
        let all: Vec<Active<P>> = policies.filter_map(active).collect();
        let index = PluralIndex::new(all.iter().map(|a| &a.policy.common().criteria));
        Self { all, index }
    }

    /// The policies that can match a resource.
    pub(crate) fn candidates(&self, plural: &str) -> impl Iterator<Item = &Active<P>> {
        self.index.candidates(plural).map(|position| &self.all[position])
    }
}
