//! [`Catalog`]: the resources being served, and the stored objects and history of resources that were not
//! requested yet or have been released. Those are parsed when the resource is requested ([`Catalog::serve`]).

use super::committer::Command;
use super::disk::{Contents, Raw, RawEvent};
use super::{ResourceConfig, ResourceStore, Shared, load};
use crate::storage::cacher::{Cacher, CacherConfig, Initial, Snapshot};
use crate::storage::transform::{ENCRYPTED, Plain, Transform};
use crate::storage::{Entry, Error, Event, Revision};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Served resources, and stored data of all others.
pub(super) struct Catalog {
    pub resources: BTreeMap<String, Arc<ResourceStore>>,
    unserved: BTreeMap<String, Raw>,
    history: BTreeMap<String, Vec<RawEvent>>,
    /// Events after this revision are in `history`.
    base: Revision,
    /// The same for released resources, whose earlier history is gone.
    released: BTreeMap<String, Revision>,
}

/// Removes and returns the keys with a prefix, which must end with a slash.
fn take_prefix<V>(map: &mut BTreeMap<String, V>, prefix: &str) -> BTreeMap<String, V> {
    // '0' is the character after '/', so this is the first key after all keys with the prefix.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    map.extract_if(prefix.to_owned()..end, |_, _| true).collect()
}

/// Parses stored values and remembers the first failure.
struct Reader<'a> {
    config: &'a ResourceConfig,
    transform: Option<&'a dyn Transform>,
    broken: Option<Error>,
}

impl Reader<'_> {
    // `own` is the key without the prefix, as the cacher uses it.
    fn entry(&mut self, own: &str, revision: u64, value: &Bytes) -> Option<Arc<Entry>> {
        let key = || format!("{}{own}", self.config.prefix);
        let opened = match self.transform {
            // Plain value, no transform: parsed in place, without a copy.
            None if !value.starts_with(ENCRYPTED) => Ok(None),
            // Encrypted at some time, but no encryption is configured now: opening fails with the error that
            // names the cause.
            None => Plain.open("", value.clone()).map(Some),
            Some(transform) => transform.open(&key(), value.clone()).map(Some),
        };
        let entry = match opened {
            Ok(None) => load::entry(own, revision, value, self.config),
            Ok(Some(opened)) => {
                let mut entry = load::entry(own, revision, &opened.bytes, self.config);
                entry.stale = opened.stale;
                entry
            }
            // Reported once per resource; with a lost key every object would log the same line.
            Err(source) => {
                if self.broken.is_none() {
                    let error = Error::Unreadable {
                        key: key().into(),
                        source: Arc::new(source),
                    };
                    tracing::error!(prefix = self.config.prefix, %error, "a resource cannot be read and is not served");
                    self.broken = Some(error);
                }
                return None;
            }
        };
        Some(Arc::new(entry))
    }
}

impl Catalog {
    /// Takes objects and events out of `contents`; no resource is served yet.
    pub(crate) fn new(contents: &mut Contents) -> Self {
        let mut history: BTreeMap<String, Vec<RawEvent>> = BTreeMap::new();
        for (key, event) in std::mem::take(&mut contents.events) {
            // Events arrive in order of revision, so each key's list is in order, too.
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

    /// Returns the store of a resource, loading it on first use.
    pub(crate) fn serve(
        &mut self,
        shared: &Shared,
        config: &ResourceConfig,
        transform: Option<Arc<dyn Transform>>,
    ) -> Arc<ResourceStore> {
        if let Some(served) = self.resources.get(&config.prefix) {
            return served.clone();
        }
        let resource = self.load(shared, config, transform);
        self.resources.insert(config.prefix.clone(), resource.clone());
        resource
    }

    fn load(
        &mut self,
        shared: &Shared,
        config: &ResourceConfig,
        transform: Option<Arc<dyn Transform>>,
    ) -> Arc<ResourceStore> {
        let prefix = &config.prefix;
        let mut reader = Reader {
            config,
            transform: transform.as_deref(),
            broken: None,
        };
        // Shared between state and history, so that an event's entry and the current entry are one
        // allocation.
        let mut entries: HashMap<(String, u64), Arc<Entry>> = HashMap::new();
        let mut expiring = Vec::new();
        let mut objects = Vec::new();
        let history = take_prefix(&mut self.history, prefix);
        for (key, raw) in take_prefix(&mut self.unserved, prefix) {
            let own = &key[prefix.len()..];
            let Some(entry) = reader.entry(own, raw.revision, &raw.value) else {
                // Kept for the next release and load; dropping it would turn an unreadable object into a
                // deleted one.
                self.unserved.insert(key, raw);
                continue;
            };
            expiring.extend(raw.expires.map(|at| (at, entry.key.clone(), entry.revision)));
            objects.push(entry.clone());
            // Only objects with a change in the history can be shared; the map would otherwise hold every
            // object.
            if history.contains_key(&key) {
                entries.insert((key, raw.revision), entry);
            }
        }
        let mut events = Vec::new();
        for (key, writes) in history {
            let own = key[prefix.len()..].to_owned();
            let mut entry = |revision: u64, value: &Bytes| -> Option<Arc<Entry>> {
                let id = (key.clone(), revision);
                if let Some(known) = entries.get(&id) {
                    return Some(known.clone());
                }
                let made = reader.entry(&own, revision, value)?;
                entries.insert(id, made.clone());
                Some(made)
            };
            for write in writes {
                let previous = write
                    .previous
                    .as_ref()
                    .and_then(|(revision, value)| entry(*revision, value));
                let after = match (&write.value, &previous) {
                    (Some(value), _) => match entry(write.revision, value) {
                        Some(entry) => entry,
                        None => continue,
                    },
                    // As upstream, a deletion event carries the last state at the revision of the deletion.
                    (None, Some(previous)) => Arc::new(previous.at_revision(Revision(write.revision))),
                    // A deletion always has a previous state.
                    (None, None) => continue,
                };
                let deleted = write.value.is_none();
                events.push(Arc::new(Event::new(after, previous, deleted)));
            }
        }
        // They were grouped by key; the history needs them in order of revision.
        events.sort_by_key(|e| e.entry.revision);
        let newest = |e: &Arc<Event>| e.entry.revision;
        // The state's revision is that of the resource's own newest change, deletions included, and not the
        // store's.
        let revision = objects
            .iter()
            .map(|e| e.revision)
            .chain(events.last().map(newest))
            .max();
        let initial = Initial {
            state: Snapshot::new(objects, revision.unwrap_or_default()),
            // A released resource has lost the events between `base` and its release; a watch from there must
            // get 410 Gone.
            base: self.released.get(prefix).copied().unwrap_or(self.base),
            events,
        };
        let resource = Arc::new(ResourceStore {
            prefix: prefix.clone(),
            compressed: config.compressed,
            cacher: Arc::new(Cacher::new(
                shared.progress.clone(),
                initial,
                CacherConfig::new(shared.ring, shared.budget.clone()),
            )),
            released: AtomicBool::new(false),
            broken: reader.broken,
            transform,
        });
        if !expiring.is_empty() {
            // Sending fails after shutdown, when nothing expires any more.
            let _ = shared.queue.send(Command::Expire(resource.clone(), expiring));
        }
        resource
    }

    /// Returns the objects of a released resource to the unserved ones. Its history is dropped. `stored` reads the
    /// value of an object from the disk, by its full key and revision.
    ///
    /// # Errors
    /// Those of `stored`. The objects are then incomplete: a key that is missing would look free.
    pub(crate) fn give_back(
        &mut self,
        now: Revision,
        resource: &Arc<ResourceStore>,
        expires: &HashMap<Box<str>, i64>,
        stored: impl Fn(&str, Revision) -> rusqlite::Result<Bytes>,
    ) -> rusqlite::Result<()> {
        self.resources.remove(&resource.prefix);
        // Watches from before this revision can no longer be served, because the events went with the cacher.
        self.released.insert(resource.prefix.clone(), now);
        for e in resource.cacher.snapshot().scan("", Bound::Unbounded) {
            let key = format!("{}{}", resource.prefix, e.key);
            let value: Bytes = match &resource.transform {
                None => e.unversioned().into(),
                // Not encrypted again, which fails while a KMS plugin is away: the cache holds the plain JSON only.
                Some(_) => stored(&key, e.revision)?,
            };
            let raw = Raw {
                revision: e.revision.0,
                value,
                expires: expires.get(&e.key).copied(),
            };
            self.unserved.insert(key, raw);
        }
        Ok(())
    }
}
