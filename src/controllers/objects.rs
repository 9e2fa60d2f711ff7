//! [`Objects`]: follows the metadata of all objects, of the built-in resources and of custom ones while they
//! are established. Objects of aggregated API servers are not followed.

mod tracked;

pub(crate) use tracked::{FOREGROUND, ORPHAN, OwnerReference, Tracked, Uid};

use super::loopback::Path;
use crate::apimachinery::value::Str;
use crate::client::{Change, Informer};
use crate::registry::{StoreLookup, StoredResource};
use crate::storage::Storage;
use crate::sync::Mutex;
use crate::tasks::{Signal, TaskGroup, off_thread};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;

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

/// All objects.
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

    /// All followed resources.
    pub(crate) fn all(&self) -> Vec<Arc<Followed>> {
        self.followed.load().values().cloned().collect()
    }

    /// Waits until everything that was written before has been reported.
    pub(crate) async fn catch_up(&self) {
        for of in self.all() {
            of.objects.catch_up(&*of.storage).await;
        }
    }

    /// Follows the objects in `tasks`, if anybody observes them.
    pub(crate) fn follow(self: &Arc<Self>, lookup: &StoreLookup, tasks: &TaskGroup) {
        let observers = std::mem::take(&mut *self.observers.lock());
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
                changes.borrow_and_update();
            }
            self.update().await;
            objects.followed.store(Arc::new(self.followed.clone()));
            for of in self.followed.values() {
                of.objects.synced().wait().await;
            }
            objects.ready.fire();
            let Some(changes) = &mut changes else { return };
            if changes.changed().await.is_err() {
                return;
            }
        }
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
