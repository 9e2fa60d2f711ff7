//! The graph of which objects are needed on which node. Edges: pod → node, object referenced by a pod → pod,
//! PersistentVolume → claim, secret of a volume → PersistentVolume, VolumeAttachment and ResourceSlice →
//! node.
//!
//! Stored inverted, per node and with reference counts, so that a decision is a hash lookup. Entry points:
//! [`Graph::follow`] and [`View::reaches`].

use super::refs::{ObjectKind, Pod, Volume};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::authz::rbac::Behind;
use crate::client::{CATCH_UP_TIMEOUT, Informer, InformerHandle};
use crate::storage::{Entry, Storage};
use crate::sync::Mutex;
use crate::tasks::{Signal, TaskGroup};
use arc_swap::ArcSwap;
use imbl::{HashMap, OrdSet};
use std::sync::{Arc, OnceLock};

/// An immutable snapshot of the graph. Persistent maps make it cheap to copy on write.
#[derive(Clone, Default)]
pub(super) struct View {
    /// Node → vertex → number of the node's pods that reference it. Objects that name their node count as
    /// one.
    nodes: HashMap<Str, Arc<Needs>>,
    volumes: HashMap<Str, Arc<Volume>>,
    /// Secret → volumes whose drivers need it.
    by_secret: HashMap<Str, OrdSet<Str>>,
}

type Needs = HashMap<(ObjectKind, Str), usize>;

fn key(namespace: &str, name: &str) -> Str {
    if namespace.is_empty() {
        name.into()
    } else {
        Str::from(format!("{namespace}/{name}"))
    }
}

impl View {
    /// True if the object is needed on the node.
    pub(crate) fn reaches(&self, node: &str, kind: ObjectKind, namespace: &str, name: &str) -> bool {
        let Some(needs) = self.nodes.get(node) else {
            return false;
        };
        let of = |kind: ObjectKind, key: Str| needs.contains_key(&(kind, key));
        let volume = |name: &str| {
            // Two steps at decision time, volume to claim and claim to node, so that a volume that is bound
            // or released changes one entry, however many nodes use the claim.
            let claim = self.volumes.get(name).and_then(|v| v.claim.clone());
            claim.is_some_and(|claim| of(ObjectKind::Claim, claim))
        };
        match kind {
            ObjectKind::Volume => volume(name),
            ObjectKind::Attachment | ObjectKind::Slice => of(kind, name.into()),
            ObjectKind::Secret => {
                let key = key(namespace, name);
                let volumes = self.by_secret.get(&key);
                of(kind, key) || volumes.into_iter().flatten().any(|v| volume(v))
            }
            _ => of(kind, key(namespace, name)),
        }
    }

    fn count(&mut self, node: &Str, what: (ObjectKind, Str), more: bool) {
        // Cloning a persistent map copies its root only; the entry is replaced because snapshots share it.
        let mut needs = self.nodes.get(node).map(|n| Needs::clone(n)).unwrap_or_default();
        let n = needs.get(&what).copied().unwrap_or(0);
        match (more, n) {
            (true, n) => drop(needs.insert(what, n + 1)),
            // Zero cannot occur: each decrement repeats an earlier increment with the same parsed pod.
            // Ignored rather than wrapped.
            (false, 0 | 1) => drop(needs.remove(&what)),
            (false, n) => drop(needs.insert(what, n - 1)),
        }
        // Otherwise every node name that ever existed would stay.
        if needs.is_empty() {
            self.nodes.remove(node);
        } else {
            self.nodes.insert(node.clone(), Arc::new(needs));
        }
    }

    fn pod(&mut self, pod_key: &str, pod: &Pod, there: bool) {
        // An unscheduled pod gives no node access to anything.
        if pod.node.is_empty() {
            return;
        }
        let namespace = pod_key.split_once('/').map_or("", |(ns, _)| ns);
        self.count(&pod.node, (ObjectKind::Pod, pod_key.into()), there);
        // References are always in the pod's own namespace; none can name another one.
        for (kind, name) in &pod.refs {
            self.count(&pod.node, (*kind, key(namespace, name)), there);
        }
    }

    pub(super) fn set_pod(&mut self, key: &str, old: Option<&Pod>, new: Option<&Pod>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.pod(key, old, false);
        }
        if let Some(new) = new {
            self.pod(key, new, true);
        }
    }

    pub(super) fn set_volume(&mut self, name: &str, new: Option<&Arc<Volume>>) {
        let old = match new {
            Some(new) => self.volumes.insert(name.into(), new.clone()),
            None => self.volumes.remove(name),
        };
        for secret in old.iter().flat_map(|v| &v.secrets) {
            if let Some(set) = self.by_secret.get_mut(secret) {
                set.remove(name);
                if set.is_empty() {
                    self.by_secret.remove(secret);
                }
            }
        }
        for secret in new.iter().flat_map(|v| &v.secrets) {
            self.by_secret.entry(secret.clone()).or_default().insert(name.into());
        }
    }

    /// Updates an object that names its node directly.
    pub(super) fn set_direct(&mut self, kind: ObjectKind, name: &str, old: Option<&Str>, new: Option<&Str>) {
        if old == new {
            return;
        }
        if let Some(node) = old.filter(|n| !n.is_empty()) {
            self.count(node, (kind, name.into()), false);
        }
        if let Some(node) = new.filter(|n| !n.is_empty()) {
            self.count(node, (kind, name.into()), true);
        }
    }
}

/// The storage of the resources in the graph.
#[derive(Clone)]
pub(crate) struct Sources {
    /// `pods`
    pub pods: Arc<dyn Storage>,
    /// `persistentvolumes`
    pub volumes: Arc<dyn Storage>,
    /// `volumeattachments`
    pub attachments: Arc<dyn Storage>,
    /// `resourceslices`, if they are served.
    pub slices: Option<Arc<dyn Storage>>,
}

/// The graph and its informers. Decisions fail until [`Graph::follow`] was called and its [`Feeds`] run.
#[derive(Default)]
pub(crate) struct Graph {
    view: ArcSwap<View>,
    writing: Mutex<()>,
    /// Set late: it needs stores, and the chain in front of the stores needs the authorizer.
    followed: OnceLock<Followed>,
}

struct Followed {
    pods: (Arc<dyn Storage>, Informer<Pod>),
    volumes: (Arc<dyn Storage>, Informer<Volume>),
    direct: Vec<(Arc<dyn Storage>, Informer<Str>)>,
}

/// The informers' tasks, which the caller must run.
pub(crate) struct Feeds {
    pods: InformerHandle<Pod>,
    volumes: InformerHandle<Volume>,
    direct: Vec<InformerHandle<Str>>,
    synced: Vec<Signal>,
}

impl Followed {
    fn is_current(&self, pods_in: Option<&str>) -> bool {
        let (storage, pods) = &self.pods;
        let has_pods = match pods_in {
            Some(namespace) => pods.is_current_in(&**storage, namespace),
            None => pods.is_current(&**storage),
        };
        has_pods && self.volumes.1.is_current(&*self.volumes.0) && self.direct.iter().all(|(s, i)| i.is_current(&**s))
    }

    async fn catch_up(&self, pods_in: Option<&str>) {
        let (storage, pods) = &self.pods;
        // One after the other: all of them are reading already, so the waits overlap.
        match pods_in {
            Some(namespace) => pods.catch_up_in(&**storage, namespace).await,
            None => pods.catch_up(&**storage).await,
        }
        self.volumes.1.catch_up(&*self.volumes.0).await;
        for (storage, informer) in &self.direct {
            informer.catch_up(&**storage).await;
        }
    }
}

impl Graph {
    /// A graph without sources.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Runs a feed on the blocking pool while the change of another one is under way: a Pod may refer to tens of
    /// thousands of objects.
    fn not_waiting<T: Send + Sync + 'static>(self: &Arc<Self>, feed: InformerHandle<T>) -> InformerHandle<T> {
        let me = self.clone();
        feed.blocking_while(move || me.writing.try_lock().is_none())
    }

    fn change(&self, edit: impl FnOnce(&mut View)) {
        // Up to four informers write. Without the lock, one could store a copy that lacks what another has
        // just stored.
        let _one_at_a_time = self.writing.lock();
        let mut view = View::clone(&self.view.load());
        edit(&mut view);
        self.view.store(Arc::new(view));
    }

    /// The graph with every write that was acknowledged before this call. Of Pods, only those in the namespace `pods_in`
    /// count (`None`: all; `""`: none): one that refers to tens of thousands of objects takes its time.
    pub(super) async fn fresh(&self, pods_in: Option<&str>) -> Result<Arc<View>, Behind> {
        // Before `follow`, the graph is empty, which must not be taken for "no relationship".
        let followed = self.followed.get().ok_or(Behind)?;
        if !followed.is_current(pods_in) {
            // An outdated graph could still allow what a deleted pod needed, so lagging storage fails the
            // decision instead.
            let caught_up = tokio::time::timeout(CATCH_UP_TIMEOUT, followed.catch_up(pods_in)).await;
            caught_up.map_err(|_| Behind)?;
        }
        Ok(self.view.load_full())
    }

    fn direct(self: &Arc<Self>, kind: ObjectKind, storage: &Arc<dyn Storage>) -> (Informer<Str>, InformerHandle<Str>) {
        let node = |e: &Entry| {
            let v: Value = e.decode();
            debug_assert!(!v.name().is_empty());
            Str::from(v.str_at(&["spec", "nodeName"]))
        };
        let (informer, handle) = Informer::new(storage.clone(), node);
        let me = self.clone();
        informer.subscribe(move |c| {
            let (old, new) = (c.old.map(|s| &**s), c.new.map(|s| &**s));
            me.change(|view| view.set_direct(kind, c.key, old, new));
        });
        (informer, self.not_waiting(handle))
    }

    /// Sets the sources. Must be called once; the returned feeds must be run.
    pub(crate) fn follow(self: &Arc<Self>, sources: &Sources) -> Feeds {
        let (pods, feed_pods) = Informer::new(sources.pods.clone(), |e: &Entry| Pod::parse(&e.decode()));
        let me = self.clone();
        pods.subscribe(move |c| {
            let (old, new) = (c.old.map(|p| &**p), c.new.map(|p| &**p));
            // Most pod updates are status reports that change no reference; copying the view for each would
            // be the main cost.
            if old != new {
                me.change(|view| view.set_pod(c.key, old, new));
            }
        });
        let (volumes, feed_volumes) = Informer::new(sources.volumes.clone(), |e: &Entry| Volume::parse(&e.decode()));
        let me = self.clone();
        volumes.subscribe(move |c| me.change(|view| view.set_volume(c.key, c.new)));
        let stores = [
            Some((ObjectKind::Attachment, &sources.attachments)),
            // Absent if the resource API group is disabled.
            sources.slices.as_ref().map(|s| (ObjectKind::Slice, s)),
        ];
        let (mut direct, mut feeds) = (Vec::new(), Vec::new());
        for (kind, storage) in stores.into_iter().flatten() {
            let (informer, handle) = self.direct(kind, storage);
            direct.push((storage.clone(), informer));
            feeds.push(handle);
        }
        let mut synced = vec![pods.synced().clone(), volumes.synced().clone()];
        synced.extend(direct.iter().map(|(_, i)| i.synced().clone()));
        // Only the first call takes effect.
        let _ = self.followed.set(Followed {
            pods: (sources.pods.clone(), pods),
            volumes: (sources.volumes.clone(), volumes),
            direct,
        });
        Feeds {
            pods: self.not_waiting(feed_pods),
            volumes: self.not_waiting(feed_volumes),
            direct: feeds,
            synced,
        }
    }

    #[cfg(test)]
    pub(super) fn fixed(view: View) -> Arc<Self> {
        use crate::storage::embedded::{Engine, Options, ResourceConfig};
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let storage: Arc<dyn Storage> = engine.resource(ResourceConfig {
            prefix: "/registry/none/".into(),
            fields: None,
            compressed: false,
        });
        let me = Arc::new(Self {
            view: ArcSwap::from_pointee(view),
            ..Self::default()
        });
        let (pods, feed_pods) = Informer::new(storage.clone(), |_: &Entry| Pod::default());
        let (volumes, feed_volumes) = Informer::new(storage.clone(), |_: &Entry| Volume::default());
        tokio::spawn(feed_pods.run());
        tokio::spawn(feed_volumes.run());
        let _ = me.followed.set(Followed {
            pods: (storage.clone(), pods),
            volumes: (storage, volumes),
            direct: Vec::new(),
        });
        std::mem::forget((dir, engine));
        me
    }
}

impl Feeds {
    /// Signals that fire when the initial lists have been read.
    pub(crate) fn synced(&self) -> &[Signal] {
        &self.synced
    }

    /// Spawns the feeds in `tasks`; they stop with the group.
    pub(crate) fn start(self, tasks: &TaskGroup) {
        tasks.spawn_until_stopped("node graph: pods", self.pods.run());
        tasks.spawn_until_stopped("node graph: volumes", self.volumes.run());
        for feed in self.direct {
            tasks.spawn_until_stopped("node graph", feed.run());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::embedded::{Engine, Options, ResourceConfig};
    use crate::storage::{Draft, Precondition};
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_pending_pod_delays_decisions_in_its_namespace_only() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let storage = |plural: &str| -> Arc<dyn Storage> {
            engine.resource(ResourceConfig {
                prefix: format!("/registry/{plural}/"),
                fields: None,
                compressed: false,
            })
        };
        let sources = Sources {
            pods: storage("pods"),
            volumes: storage("persistentvolumes"),
            attachments: storage("volumeattachments"),
            slices: None,
        };
        let graph = Graph::new();
        let feeds = graph.follow(&sources);
        tokio::spawn(feeds.volumes.run());
        for feed in feeds.direct {
            tokio::spawn(feed.run());
        }
        // Reads only while this test waits for it.
        let mut pods = std::pin::pin!(feeds.pods.run());
        for synced in &feeds.synced {
            tokio::select! {
                () = synced.wait() => {}
                () = &mut pods => unreachable!("a feed does not end"),
            }
        }
        let pod = json!({"metadata": {"name": "p", "namespace": "a"}, "spec": {"nodeName": "n1"}});
        let stored = sources
            .pods
            .put("a/p", Precondition::Absent, Draft::new(&pod, Vec::new()), None);
        stored.await.unwrap();
        let at_once = |pods_in: Option<&str>| matches!(graph.fresh(pods_in).now_or_never(), Some(Ok(_)));
        let everywhere = None;
        assert_eq!(
            [Some("a"), everywhere, Some("b"), Some("")].map(at_once),
            [false, false, true, true]
        );
        let view = tokio::select! {
            view = graph.fresh(Some("a")) => view.unwrap(),
            () = &mut pods => unreachable!("a feed does not end"),
        };
        assert!(view.reaches("n1", ObjectKind::Pod, "a", "p"));
        engine.shutdown();
    }
}
