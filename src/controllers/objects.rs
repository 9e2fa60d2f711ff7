//! [`Objects`]: follows the metadata of all objects, of the built-in resources and of custom ones while they
//! are established. Objects of aggregated API servers are not followed.

mod tracked;

pub(crate) use tracked::{FOREGROUND, ORPHAN, OwnerReference, Tracked, Uid};

use super::loopback::{Failure, Path};
use crate::apimachinery::value::Str;
use crate::client::{Change, Informer};
use crate::registry::{StoreLookup, StoredResource};
use crate::storage::Storage;
use crate::sync::Mutex;
use crate::tasks::{Signal, TaskGroup, off_thread};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long [`Objects::catch_up`] waits, and how long it takes until kinds that have not been read are reported. A kind
/// with an object that cannot be decrypted is never read.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Resources that a report names.
const MAX_NAMED: usize = 10;

/// Names of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub group: Str,
    pub version: Str,
    pub plural: Str,
    pub kind: Str,
    pub namespaced: bool,
}

impl Resource {
    /// The path of the object under a storage key.
    pub(crate) fn path<'a>(&'a self, key: &'a str) -> Path<'a> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Path::of(&self.group, &self.version, namespace, &self.plural).name(name)
    }

    /// The `apiVersion` of its objects.
    pub(crate) fn group_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `<resource>.<group>`, for messages.
    fn qualified(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// A resource that is followed.
pub(crate) struct Followed {
    pub resource: Arc<Resource>,
    pub storage: Arc<dyn Storage>,
    objects: Informer<Tracked>,
    /// Defined by a CustomResourceDefinition.
    custom: bool,
    stop: Signal,
}

impl Followed {
    /// The object under a storage key.
    pub(crate) fn find(&self, key: &str) -> Option<Arc<Tracked>> {
        self.objects.get(key)
    }
}

/// By group and kind.
type ByKind = HashMap<(Str, Str), Arc<Followed>>;
type Observer = Box<dyn Fn(&Arc<Resource>, &Change<'_, Tracked>) + Send + Sync>;

/// The metadata of all objects of the server, for the loops that work on every kind.
pub(crate) struct Objects {
    followed: ArcSwap<ByKind>,
    observers: Mutex<Vec<Observer>>,
    ready: Signal,
}

/// Resources that are not followed: nothing is collected or counted by them.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

impl Default for Objects {
    fn default() -> Self {
        Self {
            followed: ArcSwap::default(),
            observers: Mutex::default(),
            ready: Signal::new("all objects known"),
        }
    }
}

impl Objects {
    /// Calls `f` for each change. It runs in the informers' tasks and must not block. Has an effect before
    /// [`Self::follow`] only.
    pub(crate) fn observe(&self, f: impl Fn(&Arc<Resource>, &Change<'_, Tracked>) + Send + Sync + 'static) {
        let mut observers = self.observers.lock();
        observers.push(Box::new(f));
    }

    /// Fires when every object has been reported.
    pub(crate) fn ready(&self) -> &Signal {
        &self.ready
    }

    /// The resource of a kind, if its objects are followed.
    pub(crate) fn of_kind(&self, group: &str, kind: &str) -> Option<Arc<Followed>> {
        let key = (Str::from(group), Str::from(kind));
        self.followed.load().get(&key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Followed>> {
        self.followed.load().values().cloned().collect()
    }

    /// Waits until everything that was written before has been reported.
    ///
    /// # Errors
    /// After [`MAX_WAIT`]: without an end, a kind that is never read would take one worker after the other.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn catch_up(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + MAX_WAIT;
        for of in self.all() {
            // A kind whose definition is deleted meanwhile never catches up. Biased: it may have been deleted before.
            tokio::select! {
                biased;
                () = of.stop.wait() => {}
                () = of.objects.catch_up(&*of.storage) => {}
                () = tokio::time::sleep_until(deadline) => {
                    let resource = of.resource.qualified();
                    return Err(Failure::unreadable(format!("the objects of {resource} have not been read yet")));
                }
            }
        }
        Ok(())
    }

    /// Follows the objects in `tasks`, if there is an observer.
    pub(crate) fn follow(self: &Arc<Self>, lookup: &StoreLookup, tasks: &TaskGroup) {
        // Taken: the list is fixed from here on, so changes are reported without a lock.
        let observers = std::mem::take(&mut *self.observers.lock());
        // Informers of all objects cost memory, so they run only if a loop needs them.
        if observers.is_empty() {
            return;
        }
        let mut following = Following {
            observers: observers.into(),
            lookup: lookup.clone(),
            tasks: tasks.clone(),
            followed: ByKind::new(),
        };
        for of in lookup.stored() {
            if !IGNORED.contains(&(of.group.as_str(), of.plural.as_str())) {
                following.add(of, false);
            }
        }
        let own = self.clone();
        tasks.spawn_until_stopped(
            "resources of the control loops",
            async move { following.run(&own).await },
        );
    }
}

#[cfg(test)]
impl Objects {
    /// Knows one resource, whose objects have not been read.
    pub(crate) fn unread(resource: Resource, storage: Arc<dyn Storage>) -> Self {
        let key = (resource.group.clone(), resource.kind.clone());
        let followed = Followed {
            resource: Arc::new(resource),
            objects: Informer::new(storage.clone(), Tracked::from_entry).0,
            storage,
            custom: false,
            stop: Signal::new("followed resource"),
        };
        Self {
            followed: ArcSwap::from_pointee(HashMap::from([(key, Arc::new(followed))])),
            ..Self::default()
        }
    }
}

/// Reports the objects of a resource as deleted.
fn report_gone(of: &Followed, observers: &[Observer]) {
    for (key, object) in of.objects.snapshot().iter() {
        let change = Change {
            key,
            old: Some(object),
            new: None,
        };
        observers.iter().for_each(|f| f(&of.resource, &change));
    }
}

/// Waits until all kinds have synced. Returns false if the definitions change before: a kind whose definition is gone
/// never syncs.
async fn all_synced(kinds: &[Signal], changes: Option<&mut watch::Receiver<()>>) -> bool {
    let synced = async {
        // Those that have synced in an earlier round return at once.
        for kind in kinds {
            kind.wait().await;
        }
    };
    let changed = async {
        if let Some(changes) = changes
            && changes.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    };
    // Biased, so that changes which follow one another cannot hide that everything has synced.
    tokio::select! {
        biased;
        () = synced => true,
        () = changed => false,
    }
}

/// Keeps the set of followed resources.
struct Following {
    observers: Arc<[Observer]>,
    lookup: StoreLookup,
    tasks: TaskGroup,
    followed: ByKind,
}

impl Following {
    /// Follows custom resources as their definitions come and go.
    async fn run(mut self, objects: &Objects) {
        let mut changes = self.lookup.custom_kinds().map(|kinds| kinds.changes());
        loop {
            if let Some(changes) = &mut changes {
                // Before the update: a change during it must wake the wait below.
                changes.borrow_and_update();
            }
            self.update().await;
            // Before waiting, so that `of_kind` finds new kinds while their objects are being read.
            objects.followed.store(Arc::new(self.followed.clone()));
            if !self.all_synced(changes.as_mut()).await {
                continue;
            }
            objects.ready.fire();
            let Some(changes) = &mut changes else { return };
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// As [`all_synced`] for the followed resources. Reports those that take long: loops wait for all of them.
    async fn all_synced(&self, changes: Option<&mut watch::Receiver<()>>) -> bool {
        let kinds: Vec<Signal> = self.followed.values().map(|of| of.objects.synced().clone()).collect();
        let mut synced = std::pin::pin!(all_synced(&kinds, changes));
        if let Ok(synced) = tokio::time::timeout(MAX_WAIT, &mut synced).await {
            return synced;
        }
        let unread = self.followed.values().filter(|of| !of.objects.synced().fired());
        let names: Vec<String> = unread.take(MAX_NAMED).map(|of| of.resource.qualified()).collect();
        tracing::warn!(resources = ?names, "objects cannot be read; garbage collection and quotas wait for them");
        synced.await
    }

    fn add(&mut self, of: StoredResource, custom: bool) {
        let resource = Arc::new(Resource {
            group: of.group,
            version: of.version,
            plural: of.plural,
            kind: of.kind,
            namespaced: of.namespaced,
        });
        let (objects, handle) = Informer::new(of.storage.clone(), Tracked::from_entry);
        let (observers, names) = (self.observers.clone(), resource.clone());
        // Before the informer runs, so the observers see every object.
        objects.subscribe(move |change: &Change<'_, Tracked>| observers.iter().for_each(|f| f(&names, change)));
        let stop = Signal::new("followed resource");
        let stopped = stop.clone();
        let name = format!("objects of {}.{}", resource.plural, resource.group);
        self.tasks.spawn_until_stopped(name, async move {
            // Biased towards stopping, because an informer never ends on its own.
            tokio::select! {
                biased;
                () = stopped.wait() => {}
                () = handle.run() => {}
            }
        });
        // By kind, because owner references name kinds and not resources.
        let key = (resource.group.clone(), resource.kind.clone());
        let followed = Followed {
            resource,
            storage: of.storage,
            objects,
            custom,
            stop,
        };
        self.followed.insert(key, Arc::new(followed));
    }

    /// Brings the custom resources up to date.
    async fn update(&mut self) {
        let Some(kinds) = self.lookup.custom_kinds() else {
            return;
        };
        let served = kinds.stored().await;
        // By names, since there may be thousands of definitions.
        let by_kind: HashMap<(&Str, &Str), &StoredResource> = served.iter().map(|s| ((&s.group, &s.kind), s)).collect();
        // The storage of a definition that was deleted and created again is another one.
        let is_same = |a: &Followed, b: &StoredResource| {
            let names = [&a.resource.group, &a.resource.plural, &a.resource.kind];
            names == [&b.group, &b.plural, &b.kind] && Arc::ptr_eq(&a.storage, &b.storage)
        };
        let mut gone = Vec::new();
        self.followed.retain(|(group, kind), of| {
            let same = by_kind.get(&(group, kind)).is_some_and(|s| is_same(of, s));
            if of.custom && !same {
                // First, so that its informer reports nothing after `report_gone`.
                of.stop.fire();
                gone.push(of.clone());
                return false;
            }
            true
        });
        for of in gone {
            // Its objects are gone with the definition, and there may be any number.
            let observers = self.observers.clone();
            off_thread(0, move || report_gone(&of, &observers)).await;
        }
        for of in served {
            let known = self.followed.get(&(of.group.clone(), of.kind.clone()));
            if !known.is_some_and(|f| is_same(f, &of)) {
                self.add(of, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::reviews::NoStorage;
    use futures_util::FutureExt as _;

    #[test]
    fn an_unsynced_kind_does_not_delay_definition_changes() {
        let kinds = [Signal::new("builtin"), Signal::new("custom")];
        let (definitions, mut changes) = watch::channel(());
        let mut settled = || all_synced(&kinds, Some(&mut changes)).now_or_never();
        kinds[0].fire();
        assert_eq!(settled(), None);
        definitions.send_replace(());
        assert_eq!(settled(), Some(false));
        kinds[1].fire();
        assert_eq!(settled(), Some(true));
        assert_eq!(all_synced(&[], None).now_or_never(), Some(true));
    }

    fn unread() -> Objects {
        let resource = Resource {
            group: "g".into(),
            version: "v1".into(),
            plural: "gadgets".into(),
            kind: "Gadget".into(),
            namespaced: true,
        };
        Objects::unread(resource, Arc::new(NoStorage))
    }

    #[tokio::test]
    async fn kinds_without_a_definition_are_not_waited_for() {
        let objects = unread();
        assert!(objects.catch_up().now_or_never().is_none());
        objects.all()[0].stop.fire();
        assert!(matches!(objects.catch_up().now_or_never(), Some(Ok(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_an_unread_kind_times_out() {
        let since = Instant::now();
        let failed = unread().catch_up().await.expect_err("nobody reads it");
        assert!(failed.message.contains("gadgets.g"), "{failed}");
        assert_eq!(since.elapsed().as_secs(), MAX_WAIT.as_secs());
    }
}
