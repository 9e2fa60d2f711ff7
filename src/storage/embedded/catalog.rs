//! Which resources are served, and what else the store holds: objects and history of resources that nobody has asked for
//! yet, or that were released. They are parsed when a resource is first asked for.

use super::committer::Command;
use super::disk::{Contents, Raw, RawEvent};
use super::{ResourceConfig, ResourceStore, Shared, load};
use crate::storage::cacher::{Cacher, Initial, Snapshot};
use crate::storage::{Entry, Event, Revision};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Which resources are served, and what is in the store beside them.
pub(super) struct Catalog {
    pub resources: BTreeMap<String, Arc<ResourceStore>>,
    unserved: BTreeMap<String, Raw>,
    history: BTreeMap<String, Vec<RawEvent>>,
    /// Where `history` begins.
    base: Revision,
    /// Where it begins for resources that were released.
    released: BTreeMap<String, Revision>,
}

/// Takes the keys with a prefix, which ends with a slash, out of a map.
fn take_prefix<V>(map: &mut BTreeMap<String, V>, prefix: &str) -> BTreeMap<String, V> {
    // The character behind the slash: the first key that is past all with the prefix.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    map.extract_if(prefix.to_owned()..end, |_, _| true).collect()
}

impl Catalog {
    /// Of what was found when the store was opened: nothing is served yet. The rest of the contents is the caller's.
    pub fn new(contents: &mut Contents) -> Self {
        let mut history: BTreeMap<String, Vec<RawEvent>> = BTreeMap::new();
        for (key, event) in std::mem::take(&mut contents.events) {
            history.entry(key).or_default().push(event);
        }
        Self {
            resources: BTreeMap::new(),
            unserved: std::mem::take(&mut contents.objects).into_iter().collect(),
            history,
            base: Revision(contents.base),
            released: BTreeMap::new(),
        }
    }

    /// The store of a resource, made of what is there where it is not served yet.
    pub fn serve(&mut self, shared: &Shared, config: &ResourceConfig) -> Arc<ResourceStore> {
        if let Some(served) = self.resources.get(&config.prefix) {
            return served.clone();
        }
        let resource = self.load(shared, config);
        self.resources.insert(config.prefix.clone(), resource.clone());
        resource
    }

    fn load(&mut self, shared: &Shared, config: &ResourceConfig) -> Arc<ResourceStore> {
        let prefix = &config.prefix;
        let fields = config.fields.as_ref();
        let mut entries: HashMap<(String, u64), Arc<Entry>> = HashMap::new();
        let mut expiring = Vec::new();
        let mut objects = Vec::new();
        let history = take_prefix(&mut self.history, prefix);
        for (key, raw) in take_prefix(&mut self.unserved, prefix) {
            let own = &key[prefix.len()..];
            let entry = Arc::new(load::entry(own, raw.revision, &raw.value, fields));
            expiring.extend(raw.expires.map(|at| (at, entry.key.clone(), entry.revision)));
            objects.push(entry.clone());
            if history.contains_key(&key) {
                entries.insert((key, raw.revision), entry);
            }
        }
        let mut events = Vec::new();
        for (key, writes) in history {
            let own = key[prefix.len()..].to_owned();
            let mut entry = |revision: u64, value: &Bytes| -> Arc<Entry> {
                let made = entries.entry((key.clone(), revision));
                made.or_insert_with(|| Arc::new(load::entry(&own, revision, value, fields)))
                    .clone()
            };
            for write in writes {
                let previous = write.previous.as_ref().map(|(revision, value)| entry(*revision, value));
                let after = match (&write.value, &previous) {
                    (Some(value), _) => entry(write.revision, value),
                    (None, Some(previous)) => Arc::new(previous.at_revision(Revision(write.revision))),
                    // A deletion always has a state before it.
                    (None, None) => continue,
                };
                let frames = [const { OnceLock::new() }; 3];
                let deleted = write.value.is_none();
                events.push(Arc::new(Event {
                    entry: after,
                    previous,
                    deleted,
                    frames,
                    binary_frames: OnceLock::new(),
                }));
            }
        }
        events.sort_by_key(|e| e.entry.revision);
        let newest = |e: &Arc<Event>| e.entry.revision;
        let revision = objects
            .iter()
            .map(|e| e.revision)
            .chain(events.last().map(newest))
            .max();
        let initial = Initial {
            state: Snapshot::new(objects, revision.unwrap_or_default()),
            base: self.released.get(prefix).copied().unwrap_or(self.base),
            events,
        };
        let resource = Arc::new(ResourceStore {
            prefix: prefix.clone(),
            cacher: Arc::new(Cacher::new(shared.progress.clone(), initial, shared.ring)),
            released: AtomicBool::new(false),
        });
        if !expiring.is_empty() {
            // It fails after a shutdown, when nothing expires any more.
            let _ = shared.queue.send(Command::Expire(resource.clone(), expiring));
        }
        resource
    }

    /// Puts the objects of a released resource back among those nobody serves. Its history goes.
    pub fn give_back(&mut self, now: Revision, resource: &Arc<ResourceStore>, expires: &HashMap<Box<str>, i64>) {
        for e in resource.cacher.snapshot().scan("", Bound::Unbounded) {
            let raw = Raw {
                revision: e.revision.0,
                value: e.unversioned().into(),
                expires: expires.get(&e.key).copied(),
            };
            self.unserved.insert(format!("{}{}", resource.prefix, e.key), raw);
        }
        self.resources.remove(&resource.prefix);
        self.released.insert(resource.prefix.clone(), now);
    }
}
