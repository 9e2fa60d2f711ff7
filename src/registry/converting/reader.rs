//! [`Reader`]: turns stored entries, of any version of their kind, into entries of the served version. Entries whose
//! bytes already are what the version serves pass unchanged; others are converted once and cached with their entry.
//! Writes and watches are left to `storage` and `watch`.

use super::flights::Flights;
use super::{Converting, KindVersion, KindVersions, NotConverted, RenameField};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::storage::{Budget, Draft, EncodingKey, Entry, Error, EventType, Select};
use crate::tasks::compute;
use bytes::Bytes;
use futures_util::FutureExt as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Entries up to this size in total are converted on the calling task, larger ones on the compute pool.
const CONVERTED_IN_PLACE: usize = 32 << 10;
/// Upper bound of the memory reserved for one conversion on the compute pool.
const MEMORY: usize = 8 << 20;
/// Estimated bytes allocated per stored byte of a converted object: two trees and the served bytes.
const MEMORY_PER_BYTE: usize = 16;

/// Reads one version of a kind.
pub(super) struct Reader {
    kind: Arc<KindVersions>,
    served: usize,
    /// The first bytes of our own encoding of an object in the served version.
    head: Vec<u8>,
    /// The mark of entries whose stored bytes are what this version serves; `None` if it has no shape.
    mark: Option<u64>,
    /// Versions from which a conversion changes `apiVersion` only: their marks, and how their encodings
    /// start.
    alike: Vec<(u64, Vec<u8>)>,
    /// The object that the selectable fields are extracted from.
    selected_parts: Mask,
    /// Distinguishes cached conversions of this reader from those of others, such as a definition's former
    /// state.
    id: usize,
    budget: Option<Arc<Budget>>,
    flights: Flights,
    /// Extractions of fields in progress.
    extractions: Arc<Flights>,
}

/// Entries between decoding and encoding.
struct Decoded {
    /// Positions and stored entries of the objects that are being converted.
    waiting: Vec<(usize, Arc<Entry>)>,
    converting: Converting,
    /// Entries that are already in the served version.
    served: Vec<(usize, Arc<Entry>)>,
}

impl From<NotConverted> for Error {
    fn from(why: NotConverted) -> Self {
        Self::NotConverted(why.0)
    }
}

impl Reader {
    pub(crate) fn new(kind: Arc<KindVersions>, served: usize, budget: Option<Arc<Budget>>) -> Self {
        let version = &kind.versions[served];
        let alike = kind.versions.iter().filter(|other| {
            let fingerprint = |v: &KindVersion| v.shape.as_ref().map_or(0, |s| s.fingerprint());
            kind.conversion.changes_only_version() && fingerprint(other) == fingerprint(version)
        });
        // Marks of other versions are recognised, too: their bytes need only another `apiVersion`.
        let alike = alike.filter_map(|other| Some((mark(other)?, head(other)))).collect();
        // Random: a definition that is updated gets a new reader, which must not find the former one's
        // results in the cache.
        let id = uuid::Uuid::new_v4().as_u128() as usize;
        let mut selected_parts = Mask::of(&[]);
        let fields = kind.versions[served].fields.iter();
        fields
            .flat_map(|f| f.names.iter())
            .for_each(|name| selected_parts.add(name));
        Self {
            head: head(version),
            mark: mark(version),
            alike,
            kind,
            served,
            selected_parts,
            id,
            budget,
            flights: Flights::default(),
            extractions: Arc::default(),
        }
    }

    pub(crate) fn version(&self) -> &KindVersion {
        &self.kind.versions[self.served]
    }

    /// Distinguishes this reader from all others.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// The key of this reader's results in the caches of entries and events.
    pub(crate) fn key(&self, of: Option<EventType>) -> EncodingKey {
        EncodingKey::Version(self.id, of)
    }

    pub(crate) fn budget(&self) -> Option<&Arc<Budget>> {
        self.budget.as_ref()
    }

    /// True if the entry is marked: its stored bytes are what this version serves.
    pub(crate) fn is_served_as_stored(&self, entry: &Entry) -> bool {
        match self.mark {
            // Compared by mark: a byte comparison cannot know whether the schema still accepts the object.
            Some(mark) => entry.shape.is(mark),
            None => self.version().shape.is_none() && entry.json().starts_with(&self.head),
        }
    }

    /// Evaluates a selector of the served version on a served entry. Entries served as they are stored do not
    /// carry the fields, which are then extracted from their bytes.
    pub(crate) fn selects(&self, test: &dyn Select, served: &Entry) -> bool {
        let Some(fields) = self.version().fields.as_ref().filter(|_| test.reads_fields()) else {
            return test.matches(served);
        };
        let fields = (fields.extract)(&served.decode_parts(&self.selected_parts));
        test.matches_with(served, &fields)
    }

    /// Extracts the fields that the test needs of served entries, on the compute pool if that takes long.
    /// Each entry is read once, however many watches wait for it.
    ///
    /// # Cancel safety
    /// Cancel safe: gives the extraction up, unless another reader waits for it.
    pub(crate) async fn prepare(&self, test: &Arc<dyn Select>, served: &[Arc<Entry>]) -> Result<(), Error> {
        let todo = served.iter().filter(|e| test.extracts(e));
        let todo: Vec<(usize, Arc<Entry>)> = todo.cloned().enumerate().collect();
        let size: usize = todo.iter().map(|(_, e)| e.json.len()).sum();
        // Small entries are extracted when the test needs them.
        if size <= CONVERTED_IN_PLACE {
            return Ok(());
        }
        let (extractions, own) = (self.extractions.clone(), test.clone());
        let boarding = self.extractions.board(todo, move |entries| {
            async move {
                let entries: Arc<[Arc<Entry>]> = entries.into();
                let done = extract(own, entries.clone()).await;
                extractions.land(&entries);
                done.map(|()| entries)
            }
            .boxed()
        });
        // The own part first: it makes progress while the others' flights are under way.
        if let Some((_, flight)) = boarding.own {
            flight.await?;
        }
        for (_, entry, flight, _) in boarding.joined {
            if flight.await.is_err() {
                // The other reader may have used up its share of the pool.
                extract(test.clone(), [entry].into()).await?;
            }
        }
        Ok(())
    }

    /// The served entry, if it needs no conversion or is cached.
    pub(crate) fn at_hand(&self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        if self.is_served_as_stored(entry) {
            return Some(entry.clone());
        }
        entry.encodings.cached_object(self.key(None))
    }

    /// Returns the served entry of a stored one.
    pub(crate) async fn one(self: &Arc<Self>, entry: Arc<Entry>) -> Result<Arc<Entry>, Error> {
        let mut entries = vec![entry];
        self.all(&mut entries).await?;
        Ok(entries.pop().expect("it keeps the number of entries"))
    }

    /// Replaces stored entries by served ones. Conversions are cached with the stored entries as far as the
    /// budget permits, so that later readers share them.
    ///
    /// # Cancel safety
    /// Cancel safe: gives the conversion up.
    pub(crate) async fn all(self: &Arc<Self>, entries: &mut [Arc<Entry>]) -> Result<(), Error> {
        let mut todo = Vec::new();
        let mut size = 0;
        for (i, entry) in entries.iter_mut().enumerate() {
            if self.is_served_as_stored(entry) {
                continue;
            }
            match entry.encodings.cached_object(self.key(None)) {
                Some(cached) => *entry = cached,
                None => match self.respelled(entry) {
                    Some(respelled) => *entry = respelled,
                    None => {
                        size += entry.json.len();
                        todo.push((i, entry.clone()));
                    }
                },
            }
        }
        let converted = match self.kind.conversion.asks_others() {
            // The order: a webhook is only asked if there is something to convert.
            _ if todo.is_empty() => return Ok(()),
            true => self.share(todo).await?,
            false => self.convert(todo, size).await?,
        };
        for (i, entry) in converted {
            entries[i] = entry;
        }
        Ok(())
    }

    /// Converts entries that no other reader is converting, and waits for those that another is.
    async fn share(self: &Arc<Self>, todo: Vec<(usize, Arc<Entry>)>) -> Result<Vec<(usize, Arc<Entry>)>, Error> {
        let reader = self.clone();
        let boarding = self.flights.board(todo, move |entries| {
            let size = entries.iter().map(|e| e.json.len()).sum();
            let todo = entries.iter().cloned().enumerate().collect();
            async move {
                let converted = reader.convert(todo, size).await;
                reader.flights.land(&entries);
                converted.map(|mut all| {
                    all.sort_unstable_by_key(|(i, _)| *i);
                    all.into_iter().map(|(_, entry)| entry).collect()
                })
            }
            .boxed()
        });
        let mut converted = Vec::new();
        if let Some((positions, flight)) = boarding.own {
            converted.extend(positions.into_iter().zip(flight.await?.iter().cloned()));
        }
        for (i, entry, flight, index) in boarding.joined {
            let entry = match flight.await {
                Ok(all) => all[index].clone(),
                // Another object of that call may be the cause.
                Err(_) => {
                    let size = entry.json.len();
                    let mut alone = self.convert(vec![(i, entry)], size).await?;
                    alone.pop().expect("one object gives one").1
                }
            };
            converted.push((i, entry));
        }
        Ok(converted)
    }

    async fn convert(
        self: &Arc<Self>,
        todo: Vec<(usize, Arc<Entry>)>,
        size: usize,
    ) -> Result<Vec<(usize, Arc<Entry>)>, Error> {
        let reader = self.clone();
        let decoded = stage(size, move || reader.decode(todo)).await??;
        let mut served = decoded.served;
        if !decoded.waiting.is_empty() {
            // The webhook is awaited between two jobs, so that a slow one does not occupy the compute pool.
            let objects = match decoded.converting {
                Converting::Done(objects) => objects?,
                Converting::Pending(objects) => objects.await?,
            };
            let (reader, waiting) = (self.clone(), decoded.waiting);
            served.extend(stage(size, move || reader.encode(waiting, objects)).await??);
        }
        Ok(served)
    }

    /// The entry with another `apiVersion`, without decoding it: for versions with equal schemas, between
    /// which nothing else changes.
    fn respelled(&self, stored: &Arc<Entry>) -> Option<Arc<Entry>> {
        // Only entries that have been found to be in shape in that version.
        let (_, head) = self.alike.iter().find(|(mark, _)| stored.shape.is(*mark))?;
        let before = stored.json();
        if !before.starts_with(head) {
            return None;
        }
        let make = || {
            let mut json = Vec::with_capacity(before.len() - head.len() + self.head.len());
            json.extend_from_slice(&self.head);
            json.extend_from_slice(&before[head.len()..]);
            let moved = |at: u32| (at as usize - head.len() + self.head.len()) as u32;
            Entry {
                json: Bytes::from(json).into(),
                // Only the write knows which bytes it will store.
                stale: true,
                // Both spans lie behind the head, so they move by the difference of its length.
                version_span: (moved(stored.version_span.0), stored.version_span.1),
                managed_span: match stored.managed_span {
                    (_, 0) => (0, 0),
                    (at, length) => (moved(at), length),
                },
                ..Entry::clone(stored)
            }
        };
        Some(stored.encodings.object(self.budget.as_ref(), self.key(None), make))
    }

    /// Decodes entries, finishes those of the served version, and starts to convert the others.
    fn decode(&self, todo: Vec<(usize, Arc<Entry>)>) -> Result<Decoded, Error> {
        let target = self.version();
        let (mut served, mut waiting, mut objects) = (Vec::new(), Vec::new(), Vec::new());
        for (i, entry) in todo {
            let mut object = entry.decode();
            let from = self.kind.index_of(object.api_version()).ok_or_else(|| {
                let from = object.api_version();
                // Upstream's message, from apiextensions' `pkg/apiserver/conversion/converter.go`.
                Error::NotConverted(format!("request to convert CR from an invalid group/version: {from}"))
            })?;
            if let Some(shape) = &self.kind.versions[from].shape {
                shape.read(&mut object);
            }
            if from == self.served {
                served.push((i, self.entry(&entry, &object)));
            } else {
                waiting.push((i, entry));
                objects.push(object);
            }
        }
        let converting = match objects.is_empty() {
            true => Converting::Done(Ok(objects)),
            false => self.kind.conversion.convert(objects, target),
        };
        Ok(Decoded {
            waiting,
            converting,
            served,
        })
    }

    fn encode(
        &self,
        waiting: Vec<(usize, Arc<Entry>)>,
        objects: Vec<Value>,
    ) -> Result<Vec<(usize, Arc<Entry>)>, Error> {
        // A webhook may return anything; pairing by position requires equal numbers.
        if objects.len() != waiting.len() {
            let (got, wanted) = (objects.len(), waiting.len());
            return Err(Error::NotConverted(format!(
                "the conversion returned {got} objects, expected {wanted}"
            )));
        }
        let shape = self.version().shape.as_ref();
        let converted = waiting.into_iter().zip(objects).map(|((i, entry), mut object)| {
            if let Some(shape) = shape {
                shape.converted(&mut object);
            }
            (i, self.entry(&entry, &object))
        });
        Ok(converted.collect())
    }

    /// The entry of a served object: the stored one if the bytes are the same.
    fn entry(&self, stored: &Arc<Entry>, object: &Value) -> Arc<Entry> {
        let draft = Draft::new(object, self.fields(stored, object));
        // Equal bytes: the stored entry serves as it is, and every later reader knows by the mark.
        if draft.json == stored.unversioned() {
            if let Some(mark) = self.mark {
                stored.shape.set(mark);
            }
            return stored.clone();
        }
        let make = || Entry {
            // Even an update without changes may store other bytes, which only the write finds out.
            stale: true,
            ..draft.into_entry(&stored.key, stored.revision)
        };
        stored.encodings.object(self.budget.as_ref(), self.key(None), make)
    }

    fn fields(&self, stored: &Entry, object: &Value) -> Vec<(Str, Str)> {
        match (self.kind.conversion.stored_fields(), &self.version().fields) {
            (Some(names), _) => renamed(names, stored),
            (None, Some(fields)) => (fields.extract)(object),
            (None, None) => Vec::new(),
        }
    }
}

/// The first bytes of our encoding of an object in this version.
fn head(version: &KindVersion) -> Vec<u8> {
    format!("{{\"apiVersion\":\"{}\",", version.api_version).into_bytes()
}

/// The mark of an entry whose bytes have this version and its shape.
fn mark(version: &KindVersion) -> Option<u64> {
    let fingerprint = version.shape.as_ref()?.fingerprint();
    let mut hasher = DefaultHasher::new();
    (fingerprint, version.api_version.as_str()).hash(&mut hasher);
    // 0 means that an entry has no mark.
    (fingerprint != 0).then(|| hasher.finish().max(1))
}

/// The fields of a stored entry under their served names.
pub(super) fn renamed(names: RenameField, entry: &Entry) -> Vec<(Str, Str)> {
    let fields = entry.fields.iter();
    fields
        .filter_map(|(k, v)| names(k).map(|k| (Str::new(k), v.clone())))
        .collect()
}

/// Extracts the fields that the test needs.
async fn extract(test: Arc<dyn Select>, entries: Arc<[Arc<Entry>]>) -> Result<(), Error> {
    let size = entries.iter().map(|e| e.json.len()).sum();
    stage(size, move || entries.iter().for_each(|e| test.prepare(e))).await
}

/// Runs one stage of a conversion, of objects of `size` bytes, off the reactor if it is large.
async fn stage<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    if size <= CONVERTED_IN_PLACE {
        return Ok(work());
    }
    let memory = size.saturating_mul(MEMORY_PER_BYTE).min(MEMORY);
    // The compute pool also limits how much memory conversions of one caller take together.
    let done = compute::offload(memory, async move { work() }).await;
    // The pool is overloaded or the conversion took too long: report storage as not ready, so that the client
    // retries.
    done.map_err(|_| Error::NotReady(1))
}
