//! Maintains the APIServices of built-in group versions and of custom resources. Follows
//! `kube-aggregator/pkg/controllers/autoregister` and `kubernetes/pkg/controlplane/apiserver/aggregator.go`.
//!
//! Entry points: [`AutoRegister::run`] once at start, then [`AutoRegister::keep`]. The action for each name
//! depends on its current object and on what is wanted:
//!
//! |                                    | nothing wanted | at start       | always         |
//! |------------------------------------|----------------|----------------|----------------|
//! | absent                             | A: nothing     | B: create once | G: create      |
//! | without our label                  | C: untouched   | C: untouched   | C: untouched   |
//! | `onstart`, created after our start | D: untouched   | D: untouched   | D: untouched   |
//! | `onstart`, created before it       | E: delete once | F: update once | F: update once |
//! | `true`                             | H: delete      | I: update      | I: update      |
//!
//! "Once" means once per process: a built-in APIService that was edited or deleted by hand stays that way
//! until the next start. Those of custom resources are restored at once.

mod definitions;
mod priorities;
#[cfg(test)]
mod tests;

pub(crate) use definitions::Definition;
pub(crate) use priorities::{groups, priorities};

use super::apiservice::{AUTOMANAGED, ApiService};
use super::writer::ApiServiceWriter;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::{Map, Str, Value};
use crate::client::{Change, Informer};
use crate::endpoints::discovery::aggregated::Priorities;
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::{Backoff, Signal, WorkQueue};
use crate::telemetry::QueueMetrics;
use futures_util::{StreamExt as _, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(200);
/// Concurrent writes at start: enough to share commits, far below the store's queue bound.
const MAX_CONCURRENT_WRITES: usize = 64;
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(1000));

pub(crate) struct AutoRegister {
    informer: Informer<ApiService>,
    writer: Arc<dyn ApiServiceWriter>,
    /// Requirement at start: built-in group versions.
    wanted: BTreeMap<Str, Value>,
    /// Requirement always: those of custom resources, with the number of definitions that require each.
    always: Mutex<BTreeMap<Str, (usize, Value)>>,
    queue: WorkQueue<Str>,
    /// Names that were not available at least once yet.
    missing: Arc<Mutex<BTreeSet<Str>>>,
}

/// Some built-in APIServices were never available since the start. `Display` lists them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("missing APIService: [{}]", .0.join(" "))]
pub(crate) struct Incomplete(Vec<Str>);

/// The action for one name. The letters in [`decide`] are the cells of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Create,
    Update,
    Delete,
}

/// Whether an APIService is wanted, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requirement {
    Never,
    AtStart,
    Always,
}

fn decide(current: Option<&ApiService>, wanted: Requirement, from_before: bool) -> Action {
    use Requirement::{Always, AtStart, Never};
    match (current.map(|c| c.automanaged.as_deref()), wanted) {
        (None, Never) => Action::Nothing,                              // A
        (None, AtStart | Always) => Action::Create,                    // B, G
        (Some(Some("true")), Never) => Action::Delete,                 // H
        (Some(Some("true")), AtStart | Always) => Action::Update,      // I
        (Some(Some("onstart")), _) if !from_before => Action::Nothing, // D
        (Some(Some("onstart")), Never) => Action::Delete,              // E
        (Some(Some("onstart")), AtStart | Always) => Action::Update,   // F
        (Some(_), _) => Action::Nothing,                               // C
    }
}

impl AutoRegister {
    /// Creates the controller for the listed paths of the delegate servers, including groups that are not
    /// built in (`own`), and for the CustomResourceDefinitions in `definitions`. Neither informer may run
    /// yet. The second metrics belong to a separate controller in upstream; here the work is done in the
    /// informer's callback.
    pub(crate) fn new(
        informer: Informer<ApiService>,
        definitions: &Informer<Definition>,
        writer: Arc<dyn ApiServiceWriter>,
        paths: &[String],
        own: &[(GroupVersion, Priorities)],
        [queue, defined]: [QueueMetrics; 2],
    ) -> Arc<Self> {
        let wanted: BTreeMap<Str, Value> = paths.iter().filter_map(|p| desired(p, own)).collect();
        let missing = Arc::new(Mutex::new(wanted.keys().cloned().collect::<BTreeSet<_>>()));
        let seen = missing.clone();
        informer.subscribe(move |change| {
            // As upstream's check, which waits for the condition and not only for the object.
            if change.new.is_some_and(|s| s.is_available()) {
                seen.lock().remove(change.key);
            }
        });
        let queue = WorkQueue::new(BACKOFF, queue);
        let me = Arc::new(Self {
            informer,
            writer,
            wanted,
            always: Mutex::default(),
            queue,
            missing,
        });
        let noting = me.clone();
        me.informer.subscribe(move |change| noting.note(change));
        let following = me.clone();
        definitions.subscribe(move |change| defined.record_inline(|| following.follow(change)));
        me
    }

    fn note(&self, change: &Change<'_, ApiService>) {
        let ours = change.new.is_some_and(|s| s.automanaged.as_deref() == Some("true"));
        if ours || self.always().contains_key(change.key) {
            self.queue.add(change.key.into());
        }
    }

    fn always(&self) -> MutexGuard<'_, BTreeMap<Str, (usize, Value)>> {
        self.always.lock()
    }

    /// Follows a definition. Counts the definitions that require each APIService, so that a change costs
    /// nothing for those it does not concern.
    fn follow(&self, change: &Change<'_, Definition>) {
        let mut always = self.always();
        // Added before removed, so that an APIService that stays required is not written.
        for (name, object) in change.new.into_iter().flat_map(|d| d.wanted()) {
            let (count, _) = always.entry(name.clone()).or_insert_with(|| {
                // In the index only afterwards, but queued under the lock: whoever takes the name from the
                // queue finds the entry.
                self.queue.add(name);
                (0, object)
            });
            *count += 1;
        }
        for (name, _) in change.old.into_iter().flat_map(|d| d.wanted()) {
            let Some((count, _)) = always.get_mut(&name) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                always.remove(&name);
                self.queue.add(name);
            }
        }
    }

    /// The health check `autoregister-completion`: fails until each built-in APIService was available once.
    ///
    /// # Errors
    /// The names of those that were not.
    pub(crate) fn completion(&self) -> Result<(), Incomplete> {
        let missing = self.missing.lock();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Incomplete(missing.iter().cloned().collect()))
    }

    /// Applies the table once to each name, retrying failures. To be called when the informer has synced.
    ///
    /// # Cancel safety
    /// Cancel safe: what was written stays, and the next run completes it.
    pub(crate) async fn run(&self) {
        let start = self.informer.snapshot();
        let mut names: BTreeSet<Str> = self.wanted.keys().cloned().collect();
        let ours = start.values().filter(|s| s.automanaged.as_deref() == Some("onstart"));
        names.extend(ours.map(|s| s.name.clone()));
        // Until all have succeeded, because `autoregister-completion` waits for them.
        while !names.is_empty() {
            // Together, so that on a first start they share commits of the store.
            let synced = stream::iter(names).map(async |name| {
                // Distinguishes cell D from E and F; `start` was taken before any write of ours.
                let from_before = start.get(name.as_str()).is_some();
                let e = self.sync(&name, from_before).await.err()?;
                tracing::warn!(%name, "cannot register a built-in API: {}", e.message);
                Some(name)
            });
            names = synced
                .buffer_unordered(MAX_CONCURRENT_WRITES)
                .filter_map(async |failed| failed)
                .collect()
                .await;
            if !names.is_empty() {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Maintains the APIServices that are always wanted, until `stop`. To be called after
    /// [`AutoRegister::run`], once all stored definitions are known, since APIServices without a definition
    /// are deleted.
    ///
    /// # Cancel safety
    /// Cancel safe: what was written stays.
    pub(crate) async fn keep(&self, stop: &Signal) {
        let ours = self.informer.snapshot();
        for s in ours.values().filter(|s| s.automanaged.as_deref() == Some("true")) {
            self.queue.add(s.name.clone());
        }
        loop {
            // Stop has priority, so that nothing is written during shutdown.
            let name = tokio::select! {
                biased;
                () = stop.wait() => return self.queue.shut_down(),
                next = self.queue.next() => match next {
                    Some(name) => name,
                    None => return,
                },
            };
            match self.sync(&name, false).await {
                Ok(()) => self.queue.forget(&name),
                Err(e) => {
                    tracing::warn!(%name, "cannot register an API of custom resources: {}", e.message);
                    self.queue.add_rate_limited(name.clone());
                }
            }
            self.queue.done(&name);
        }
    }

    /// Why an APIService of this name is wanted, and the object to write.
    fn wanted(&self, name: &Str) -> (Requirement, Option<Value>) {
        if let Some(object) = self.wanted.get(name) {
            return (Requirement::AtStart, Some(object.clone()));
        }
        match self.always().get(name) {
            Some((_, object)) => (Requirement::Always, Some(object.clone())),
            None => (Requirement::Never, None),
        }
    }

    async fn sync(&self, name: &Str, from_before: bool) -> Result<(), Status> {
        let current = self.informer.get(name);
        let (kind, wanted) = self.wanted(name);
        let done = match (decide(current.as_deref(), kind, from_before), wanted, &current) {
            // Written only if something changes: each write is an event for every watch.
            (Action::Update, Some(object), Some(c)) if c.is_as(&object) => Ok(()),
            (Action::Create, Some(object), _) => self.writer.create(object).await,
            // The spec alone, as upstream: labels and annotations that others have added stay.
            (Action::Update, Some(object), _) => self.writer.set_spec(name, object.get("spec")).await,
            // With the UID: an object that was created again in the meantime must not be deleted.
            (Action::Delete, _, Some(c)) => self.writer.delete(name, &c.uid).await,
            _ => Ok(()),
        };
        match done {
            // Another writer was faster; its result stands.
            Err(e) if matches!(e.reason, "AlreadyExists" | "NotFound" | "Conflict") => Ok(()),
            other => other,
        }
    }
}

/// The APIService for a listed path: `/api/v1`, or `/apis/<g>/<v>` if the priority table or `own` contains
/// it.
fn desired(path: &str, own: &[(GroupVersion, Priorities)]) -> Option<(Str, Value)> {
    let (group, version) = match path {
        "/api/v1" => ("", "v1"),
        _ => {
            let (group, version) = path.strip_prefix("/apis/")?.split_once('/')?;
            (!version.is_empty() && !version.contains('/')).then_some((group, version))?
        }
    };
    let ours = own.iter().find(|(gv, _)| gv.group == group && gv.version == version);
    let at = match ours {
        Some((_, p)) => (p.group, p.version),
        None => priorities(group, version)?,
    };
    Some(managed(group, version, at, "onstart"))
}

/// Name and object of a local APIService with our label.
fn managed(group: &str, version: &str, priorities: (i64, i64), label: &'static str) -> (Str, Value) {
    let (group_priority, version_priority) = priorities;
    let name = format!("{version}.{group}");
    let mut labels = Map::new();
    labels.insert(AUTOMANAGED, label);
    let mut metadata = Map::new();
    metadata.insert("name", name.as_str());
    metadata.insert("labels", labels);
    let mut spec = Map::new();
    if !group.is_empty() {
        spec.insert("group", group);
    }
    spec.insert("version", version);
    spec.insert("groupPriorityMinimum", group_priority);
    spec.insert("versionPriority", version_priority);
    let mut object = Map::new();
    object.insert("apiVersion", "apiregistration.k8s.io/v1");
    object.insert("kind", "APIService");
    object.insert("metadata", metadata);
    object.insert("spec", spec);
    (name.into(), Value::Object(object))
}
