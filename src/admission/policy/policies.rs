//! [`Policies`]: the compiled policies with their bindings. The next request after a change brings the [`Snapshot`] up
//! to date, in time that depends on the policies that changed and not on the number of all.

use super::stored::{Binding, StoredPolicy};
use crate::admission::CATCH_UP_TIMEOUT;
use crate::admission::matching::NameIndex;
use crate::client::{Change, Informer, InformerHandle};
use crate::storage::{Entry, Storage};
use crate::sync::Mutex;
use crate::tasks::{Derived, Signal};
use imbl::OrdMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// The policies of one kind. Empty, and not ready, until [`follow`](Self::follow) was called and the feeds
/// run.
pub(crate) struct Policies<P> {
    /// Set late: it needs two stores, and the stores need the plugins that read this.
    followed: OnceLock<Followed<P>>,
    tracked: Mutex<Tracked>,
    snapshot: Derived<Snapshot<P>>,
}

/// The bindings of one policy, by name.
type Bindings = OrdMap<Arc<str>, Arc<Binding>>;

/// The state that the informers reported. Trees, because a hash table that grows moves all policies at once.
#[derive(Default)]
struct Tracked {
    /// By the name of the policy, which may not exist.
    bindings: BTreeMap<Arc<str>, Bindings>,
    /// The policies that have changed, or whose bindings have, since the snapshot was made.
    changed: BTreeSet<Arc<str>>,
}

/// Names taken from [`Tracked::changed`]. Those that are left when this is dropped go back: if a change were forgotten, a
/// policy would not be enforced.
struct Unapplied<'a> {
    tracked: &'a Mutex<Tracked>,
    names: BTreeSet<Arc<str>>,
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

/// The policies that have bindings. Persistent: the next snapshot shares all but what changed.
pub(crate) struct Snapshot<P> {
    all: OrdMap<Arc<str>, Arc<Active<P>>>,
    index: NameIndex,
}

/// A policy in use.
pub(crate) struct Active<P> {
    pub policy: Arc<P>,
    bindings: Bindings,
}

/// The informer did not catch up in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotReady;

impl<P: StoredPolicy> Feeds<P> {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        // Neither ends by itself.
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

impl Tracked {
    fn bind(&mut self, binding: &Arc<Binding>) {
        let policy: Arc<str> = binding.policy.as_str().into();
        let bindings = self.bindings.entry(policy.clone()).or_default();
        bindings.insert(binding.name.as_str().into(), binding.clone());
        self.changed.insert(policy);
    }

    fn unbind(&mut self, binding: &Binding) {
        let policy = binding.policy.as_str();
        if let Some(bindings) = self.bindings.get_mut(policy) {
            bindings.remove(binding.name.as_str());
            // Bindings may name any policy, so an entry without bindings must not stay.
            if bindings.is_empty() {
                self.bindings.remove(policy);
            }
        }
        self.changed.insert(policy.into());
    }

    fn bindings_of(&self, policy: &str) -> Bindings {
        self.bindings.get(policy).cloned().unwrap_or_default()
    }
}

impl<'a> Unapplied<'a> {
    fn take(tracked: &'a Mutex<Tracked>) -> Self {
        let names = std::mem::take(&mut tracked.lock().changed);
        Self { tracked, names }
    }
}

impl Drop for Unapplied<'_> {
    fn drop(&mut self) {
        self.tracked.lock().changed.append(&mut self.names);
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
            tracked: Mutex::default(),
            snapshot: Derived::default(),
        }
    }
}

impl<P> Default for Snapshot<P> {
    fn default() -> Self {
        Self {
            all: OrdMap::new(),
            index: NameIndex::default(),
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
        policy_informer.subscribe(move |change| me.policy_changed(change.key));
        let me = self.clone();
        binding_informer.subscribe(move |change| me.binding_changed(change));
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

    fn policy_changed(&self, name: &str) {
        self.tracked.lock().changed.insert(name.into());
        self.snapshot.invalidate();
    }

    fn binding_changed(&self, change: &Change<'_, Binding>) {
        let mut tracked = self.tracked.lock();
        // It may have moved to another policy.
        if let Some(old) = change.old {
            tracked.unbind(old);
        }
        if let Some(new) = change.new {
            tracked.bind(new);
        }
        drop(tracked);
        self.snapshot.invalidate();
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
            let in_time = tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await;
            in_time.map_err(|_| NotReady)?;
        }
        let derive = |before: &Snapshot<P>| self.updated(before, &followed.policies.informer);
        // One policy may name a hundred thousand resources.
        Ok(self.snapshot.get_off_reactor(derive).await)
    }

    fn updated(&self, before: &Snapshot<P>, policies: &Informer<P>) -> Snapshot<P> {
        let mut next = Snapshot {
            all: before.all.clone(),
            index: before.index.clone(),
        };
        let mut unapplied = Unapplied::take(&self.tracked);
        for name in &unapplied.names {
            // The lock is held for one policy at a time: the informers wait for it on reactors.
            let bindings = self.tracked.lock().bindings_of(name);
            next.set(name, policies.get(name), bindings);
        }
        // Only now: a panic in the loop returns all names, and applying one twice does no harm.
        unapplied.names.clear();
        next
    }
}

impl<P: StoredPolicy> Snapshot<P> {
    /// The snapshot of these policies and bindings.
    pub(crate) fn new<'p>(
        policies: impl Iterator<Item = &'p Arc<P>>,
        bindings: impl Iterator<Item = &'p Arc<Binding>>,
    ) -> Self {
        let mut tracked = Tracked::default();
        for binding in bindings {
            tracked.bind(binding);
        }
        let mut snapshot = Self::default();
        for policy in policies {
            let name: Arc<str> = policy.common().name.as_str().into();
            snapshot.set(&name, Some(policy.clone()), tracked.bindings_of(&name));
        }
        snapshot
    }

    /// Replaces a policy and its bindings, or removes it.
    fn set(&mut self, name: &Arc<str>, policy: Option<Arc<P>>, bindings: Bindings) {
        // Policies without bindings are not in use, and cost requests nothing.
        let new = policy.filter(|_| !bindings.is_empty());
        let old = match &new {
            Some(policy) => {
                let policy = policy.clone();
                self.all.insert(name.clone(), Arc::new(Active { policy, bindings }))
            }
            None => self.all.remove(&**name),
        };
        let old = old.as_ref().map(|active| &active.policy);
        // A change of its bindings leaves its place in the index as it is.
        if let (Some(old), Some(new)) = (old, &new)
            && Arc::ptr_eq(old, new)
        {
            return;
        }
        if let Some(old) = old {
            self.index.remove(name, &old.common().criteria);
        }
        if let Some(new) = &new {
            self.index.insert(name, &new.common().criteria);
        }
    }

    /// The policies that can match a resource, in the order of their names.
    pub(crate) fn candidates(&self, plural: &str) -> impl Iterator<Item = &Active<P>> {
        let names = self.index.candidates(plural);
        names.filter_map(|name| self.all.get(name)).map(|active| &**active)
    }
}

impl<P> Active<P> {
    /// In the order of their names.
    pub(super) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::policy::stored::{Common, ValidatingPolicy};
    use crate::apimachinery::object::ObjectView as _;
    use crate::apimachinery::value::Value;
    use crate::json;
    use crate::storage::embedded::{Engine, Options, ResourceConfig};
    use crate::storage::{Draft, MinRevision, Precondition};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// How often the common fields of a policy were read.
    static READ: AtomicUsize = AtomicUsize::new(0);

    struct Counted(ValidatingPolicy);

    impl StoredPolicy for Counted {
        fn parse(object: &Value) -> Self {
            Self(ValidatingPolicy::parse(object))
        }

        fn common(&self) -> &Common {
            READ.fetch_add(1, Ordering::Relaxed);
            &self.0.common
        }
    }

    fn policy(name: &str, plural: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": [plural]}]}}})
    }

    fn binding(name: &str, policy: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]}})
    }

    async fn put(storage: &Arc<dyn Storage>, object: &Value) {
        let live = storage.get(object.name(), MinRevision::Latest).await;
        let when = match live.expect("the store is open") {
            Some(entry) => Precondition::Unchanged(entry.revision),
            None => Precondition::Absent,
        };
        let put = storage.put(object.name(), when, Draft::new(object, Vec::new()), None);
        put.await.expect("nobody else writes");
    }

    #[tokio::test]
    async fn a_change_costs_time_in_what_changed_and_not_in_all_policies() {
        const POLICIES: usize = 50;
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let storage = |plural: &str| {
            engine.resource(ResourceConfig {
                prefix: format!("/registry/{plural}/"),
                fields: None,
                compressed: false,
            })
        };
        let (stored, bound) = (storage("policies"), storage("bindings"));
        for n in 0..POLICIES {
            put(&stored, &policy(&format!("p{n:03}"), "pods")).await;
            put(&bound, &binding(&format!("b{n:03}"), &format!("p{n:03}"))).await;
        }
        let policies = Arc::new(Policies::<Counted>::default());
        let (feeds, _) = policies.follow(stored.clone(), bound.clone());
        let fed = tokio::spawn(feeds.run());
        let names = async |plural: &str| {
            let before = READ.load(Ordering::Relaxed);
            let snapshot = policies.fresh().await.unwrap();
            let read = READ.load(Ordering::Relaxed) - before;
            let names: Vec<String> = snapshot
                .candidates(plural)
                .map(|active| active.policy.0.common.name.to_string())
                .collect();
            (names, read)
        };
        assert_eq!(names("pods").await.0.len(), POLICIES);

        put(&stored, &policy("p007", "nodes")).await;
        let (pods, read) = names("pods").await;
        assert!(read <= 2, "{read} reads");
        assert!(pods.len() == POLICIES - 1 && pods.is_sorted());
        assert_eq!(names("nodes").await.0, ["p007"]);

        // Moved to another policy, which keeps its own binding.
        put(&bound, &binding("b007", "p008")).await;
        let (nodes, read) = names("nodes").await;
        assert!(nodes.is_empty() && read <= 2, "{nodes:?} {read}");
        let snapshot = policies.fresh().await.unwrap();
        let moved = snapshot.all.get("p008").unwrap();
        let bindings: Vec<&str> = moved.bindings().map(|b| b.name.as_str()).collect();
        assert_eq!(bindings, ["b007", "b008"]);
        fed.abort();
    }
}
