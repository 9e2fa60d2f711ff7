//! One resource on etcd: its keys, its bytes, where its cache stands, and single reads and writes.

use super::client::{Members, kv};
use super::error::Failure;
use super::lease::Leases;
use super::values::{self, MediaType};
use crate::storage::backend::{Revive, SelectableFields};
use crate::storage::cacher::{Cacher, Counters, Progress, Setting};
use crate::storage::transform::Transform;
use crate::storage::{Budget, Draft, Entry, Error, Precondition, Revision};
use crate::tasks::{Signal, off_thread};
use crate::telemetry::{Operation, StorageMetrics};
use bytes::Bytes;
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long a write waits, once it is durable, for the cache of this process to show it.
const OWN_WRITE: Duration = Duration::from_secs(1);
/// Up to so many stored bytes are decoded on the reactor: 200 µs is the most that a reactor may be held.
pub(super) const DECODED_IN_PLACE: usize = 32 << 10;
/// About how much memory decoding takes, by stored byte.
pub(super) const DECODED_PER_BYTE: usize = 8;

/// What all resources of a cluster have in common.
pub(super) struct Shared {
    pub members: Members,
    pub leases: Leases,
    pub media: MediaType,
    pub patience: Duration,
    pub ring: crate::storage::cacher::history::Bounds,
    pub budget: Arc<Budget>,
    /// Every member answers requests for progress truly; upstream's rule by version.
    pub trusted: AtomicBool,
    /// That rule decides.
    pub by_version: bool,
    /// The database is full.
    pub no_space: AtomicBool,
}

/// A cache in service, and how far it has come.
#[derive(Clone)]
pub(super) struct Serving {
    pub cacher: Arc<Cacher>,
    pub progress: Arc<Progress>,
}

/// Where a resource stands.
#[derive(Clone)]
pub(super) enum State {
    /// Being read, since then; the last attempt has failed for this reason.
    Loading(Instant, Option<String>),
    Ready(Serving),
    Stopped,
}

/// Turns stored bytes into entries. It is separate from [`Resource`] so that large values can be decoded on other threads.
pub(super) struct Decoder {
    /// Of the resource's keys, as in [`Resource::prefix`]; encrypted values are bound to their whole key.
    pub prefix: String,
    pub fields: Option<SelectableFields>,
    pub transform: Arc<dyn Transform>,
    pub metrics: Arc<StorageMetrics>,
    pub revive: Option<Revive>,
    /// Entries that are stored in another media type are marked as stale.
    pub media: MediaType,
}

pub(super) struct Resource {
    /// The how manieth of its cluster it is.
    pub number: usize,
    /// Of its keys, the cluster's own prefix included.
    pub prefix: String,
    pub decoder: Arc<Decoder>,
    pub metrics: Arc<StorageMetrics>,
    /// The newest revision written here: whoever is told of a write is told after this says so.
    pub wrote: AtomicU64,
    pub state: watch::Sender<State>,
    pub stop: Signal,
    /// Reads that wait for the cache to catch up.
    pub waiting: AtomicUsize,
    /// Rung when one comes.
    pub bell: Notify,
    /// Rung when the cache was found to be wrong.
    pub suspect: Notify,
    /// Rung when the cache has not seen in time what etcd is known to have.
    pub behind: Notify,
    pub shared: Arc<Shared>,
    /// What its caches have done; one follows the other where everything is read anew.
    pub counters: Arc<Counters>,
}

/// Counted while somebody waits for progress.
pub(super) struct Waiter<'a>(&'a AtomicUsize);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The first key behind all with this prefix, which ends with a slash or is not empty at least.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

impl Resource {
    /// What a cache of it is made with.
    pub fn setting(&self) -> Setting {
        Setting {
            bounds: self.shared.ring,
            budget: self.shared.budget.clone(),
            counters: self.counters.clone(),
        }
    }

    /// The cache, if it is in service.
    pub fn ready(&self) -> Option<Serving> {
        match &*self.state.borrow() {
            State::Ready(serving) => Some(serving.clone()),
            _ => None,
        }
    }

    /// The cache, once it is in service.
    pub async fn serving(&self) -> Result<Serving, Error> {
        let mut state = self.state.subscribe();
        // What could not be read once is not waited for again.
        let settled = state.wait_for(|s| !matches!(s, State::Loading(_, None)));
        let settled = tokio::time::timeout(self.shared.patience, settled).await;
        match settled {
            Ok(Ok(state)) => match &*state {
                State::Ready(serving) => Ok(serving.clone()),
                State::Stopped => Err(Error::NotReady(1)),
                State::Loading(..) => {
                    drop(state);
                    Err(self.not_ready())
                }
            },
            _ => Err(self.not_ready()),
        }
    }

    /// What readers are told until the cache is in service.
    fn not_ready(&self) -> Error {
        let after = self.retry_after();
        match &*self.state.borrow() {
            State::Loading(_, Some(why)) => Error::Unread(after, why.clone()),
            _ => Error::NotReady(after),
        }
    }

    /// Upstream's advice by the time it has taken already.
    fn retry_after(&self) -> u32 {
        match &*self.state.borrow() {
            State::Loading(since, _) => (0.06 * since.elapsed().as_secs_f64()).exp().clamp(1.0, 30.0) as u32,
            _ => 1,
        }
    }

    pub fn is_stopped(&self) -> bool {
        matches!(&*self.state.borrow(), State::Stopped)
    }

    /// Asks for progress while the guard lives.
    pub fn ask_for_progress(&self) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.bell.notify_one();
        Waiter(&self.waiting)
    }

    pub fn key(&self, own: &str) -> String {
        format!("{}{own}", self.prefix)
    }

    /// Below the prefix; `None` for a key of somebody else.
    pub fn own<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        self.decoder.own(key)
    }

    /// Counts a call, and how long it took.
    pub async fn counted<T>(
        &self,
        what: Operation,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let since = std::time::Instant::now();
        let outcome = call.await;
        self.metrics.requested(what, since.elapsed(), outcome.is_err());
        outcome
    }

    /// The entry of stored bytes, decoded off the reactor where they are many.
    pub async fn entry(&self, own: &str, revision: Revision, value: &[u8]) -> Result<Arc<Entry>, Error> {
        if value.len() <= DECODED_IN_PLACE {
            return self.decoder.entry(own, revision, value);
        }
        let (decoder, own, value) = (self.decoder.clone(), own.to_owned(), value.to_vec());
        let memory = value.len() * DECODED_PER_BYTE;
        decode_off_thread(memory, move || decoder.entry(&own, revision, &value)).await
    }

    /// The entry of a pair, from the cache where that has just this state.
    pub async fn entry_of(&self, own: &str, pair: &KeyValue) -> Result<Arc<Entry>, Error> {
        let revision = Revision(pair.mod_revision().cast_unsigned());
        match self.cached(own, revision) {
            Some(entry) => Ok(entry),
            None => self.entry(own, revision, pair.value()).await,
        }
    }

    /// The cache's entry of a key, where it is the one of this revision.
    pub fn cached(&self, own: &str, revision: Revision) -> Option<Arc<Entry>> {
        let cached = self.ready().and_then(|s| s.cacher.peek(own));
        cached.filter(|e| e.revision == revision)
    }

    /// What etcd has at a key, now or at a revision, and the revision of the answer.
    pub async fn read(&self, own: &str, at: Option<Revision>) -> Result<(Option<Arc<Entry>>, Revision), ReadError> {
        let mut options = GetOptions::new();
        if let Some(at) = at {
            options = options.with_revision(at.0.cast_signed());
        }
        let key = self.key(own);
        let answer = self.counted(Operation::Get, self.shared.members.range(&key, options));
        let answer = answer.await?;
        let revision = self.shared.members.saw(answer.header());
        let entry = match answer.kvs().first() {
            None => None,
            Some(pair) => Some(self.entry_of(own, pair).await.map_err(ReadError::Broken)?),
        };
        Ok((entry, revision))
    }

    /// The revision of the cluster, asked of its majority.
    pub async fn current(&self) -> Result<Revision, Error> {
        let options = GetOptions::new().with_keys_only().with_limit(1);
        let answer = self.counted(Operation::Get, self.shared.members.range(&self.prefix, options));
        let answer = answer.await?;
        Ok(self.shared.members.saw(answer.header()))
    }

    pub async fn put(
        &self,
        own: &str,
        when: Precondition,
        draft: Draft,
        ttl: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        let key = self.key(own);
        let expected = match when {
            Precondition::Absent => 0,
            Precondition::Unchanged(revision) => revision.0.cast_signed(),
        };
        let value = values::encode(&draft.json, self.shared.media);
        let value = self.decoder.transform.seal(&key, value).map_err(Error::Unreadable)?;
        let what = match when {
            Precondition::Absent => Operation::Create,
            Precondition::Unchanged(_) => Operation::Update,
        };
        let mut lost_leases = 0;
        let (answer, repeated) = loop {
            let lease = match ttl {
                None => 0,
                Some(ttl) => {
                    let leases = &self.shared.leases;
                    leases.take(&self.shared.members, ttl, &self.metrics).await?
                }
            };
            let tries = AtomicUsize::new(0);
            let call = self.shared.members.call(|client| {
                tries.fetch_add(1, Ordering::Relaxed);
                let options = (lease != 0).then(|| PutOptions::new().with_lease(lease));
                let txn = Txn::new()
                    .when([Compare::mod_revision(&*key, CompareOp::Equal, expected)])
                    .and_then([TxnOp::put(&*key, value.to_vec(), options)])
                    .or_else([TxnOp::get(&*key, None)]);
                async move { kv(&client).txn(txn).await }
            });
            match self.counted(what, call).await {
                Err(e) if e.is_lease_lost() && lost_leases < 3 => {
                    lost_leases += 1;
                    self.shared.leases.forget(lease);
                }
                Err(e) => return Err(self.refused(e)),
                Ok(answer) => break (answer, tries.into_inner() > 1),
            }
        };
        let revision = self.shared.members.saw(answer.header());
        if answer.succeeded() {
            self.await_own(revision).await;
            return Ok(Arc::new(draft.into_entry(own, revision)));
        }
        let there = first_pair(&answer.op_responses());
        if repeated
            && let Some(pair) = &there
            && pair.mod_revision() > expected
            && *pair.value() == *value
        {
            // The attempt before was made after all; only its answer was lost.
            let revision = Revision(pair.mod_revision().cast_unsigned());
            self.await_own(revision).await;
            return Ok(Arc::new(draft.into_entry(own, revision)));
        }
        match there {
            None => Err(Error::Conflict(None)),
            Some(pair) => Err(Error::Conflict(Some(self.entry_of(own, &pair).await?))),
        }
    }

    pub async fn delete(&self, own: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        let key = self.key(own);
        let expected = unchanged.0.cast_signed();
        let known = self.ready().and_then(|s| s.cacher.peek(own));
        let known = known.filter(|e| e.revision == unchanged);
        let tries = AtomicUsize::new(0);
        let call = self.shared.members.call(|client| {
            tries.fetch_add(1, Ordering::Relaxed);
            let options = DeleteOptions::new().with_prev_key();
            let txn = Txn::new()
                .when([Compare::mod_revision(&*key, CompareOp::Equal, expected)])
                .and_then([TxnOp::delete(&*key, Some(options))])
                .or_else([TxnOp::get(&*key, None)]);
            async move { kv(&client).txn(txn).await }
        });
        let answer = self.counted(Operation::Delete, call).await;
        let answer = answer.map_err(|e| self.refused(e))?;
        let revision = self.shared.members.saw(answer.header());
        let responses = answer.op_responses();
        if answer.succeeded() {
            let gone = match (known, responses.first()) {
                (Some(known), _) => known,
                (None, Some(TxnOpResponse::Delete(deleted))) => match deleted.prev_kvs().first() {
                    Some(pair) => self.entry(own, unchanged, pair.value()).await?,
                    None => return Err(Error::Conflict(None)),
                },
                (None, _) => return Err(Error::Conflict(None)),
            };
            self.await_own(revision).await;
            return Ok(Arc::new(gone.at_revision(revision)));
        }
        match (first_pair(&responses), known) {
            // The attempt before was made after all.
            (None, Some(known)) if tries.into_inner() > 1 => Ok(Arc::new(known.at_revision(revision))),
            (None, _) => Err(Error::Conflict(None)),
            (Some(pair), _) => Err(Error::Conflict(Some(self.entry_of(own, &pair).await?))),
        }
    }

    fn refused(&self, failure: Failure) -> Error {
        if failure.is_no_space() {
            self.shared.no_space.store(true, Ordering::Release);
        }
        failure.into()
    }

    /// Reads of any age in this process see its own writes.
    async fn await_own(&self, revision: Revision) {
        self.wrote.fetch_max(revision.0, Ordering::AcqRel);
        if let Some(serving) = self.ready() {
            // Late means a watch that is being made again; reads that ask for the latest state don't rely on it.
            let seen = tokio::time::timeout(OWN_WRITE, serving.progress.wait_for(revision)).await;
            if !matches!(seen, Ok(Ok(()))) {
                self.behind.notify_one();
            }
        }
    }
}

impl Decoder {
    /// A key below the prefix; `None` for a key of somebody else.
    pub fn own<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)
    }

    /// The entry of stored bytes. It takes time by their number: see [`DECODED_IN_PLACE`].
    ///
    /// # Errors
    /// [`Error::Unreadable`] where the value cannot be decrypted, [`Error::Failed`] where it cannot be decoded.
    pub fn entry(&self, own: &str, revision: Revision, value: &[u8]) -> Result<Arc<Entry>, Error> {
        let entry = self.open(own, revision, value);
        if entry.is_err() {
            self.metrics.could_not_decode();
        }
        entry
    }

    fn open(&self, own: &str, revision: Revision, value: &[u8]) -> Result<Arc<Entry>, Error> {
        let key = format!("{}{own}", self.prefix);
        let broken = |why: String| Error::Unreadable(format!("unable to transform key {key:?}: {why}"));
        let opened = self
            .transform
            .open(&key, Bytes::copy_from_slice(value))
            .map_err(broken)?;
        let broken = |why: String| Error::Failed(format!("unable to decode key {key:?}: {why}"));
        let mut tree = values::decode(&opened.bytes).map_err(broken)?;
        let today = values::is_written_so(&opened.bytes, &tree, self.media);
        let revived = self.revive.as_ref().map_or(Ok(false), |revive| revive(&mut tree));
        let converted = revived.map_err(broken)?;
        let mut entry = values::entry(own, revision, &tree, self.fields.as_ref());
        entry.stale = opened.stale || converted || !today;
        Ok(Arc::new(entry))
    }
}

/// Runs `decode` on the caller's compute pool, or on a blocking thread for the server's own reads.
///
/// # Errors
/// Those of `decode`, and [`Error::NotReady`] where the pool is full, the work was interrupted, or the process is ending.
pub(super) async fn decode_off_thread<T: Send + 'static>(
    memory: usize,
    decode: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    off_thread(memory, decode).await.unwrap_or(Err(Error::NotReady(1)))
}

fn first_pair(responses: &[TxnOpResponse]) -> Option<KeyValue> {
    match responses.first() {
        Some(TxnOpResponse::Get(found)) => found.kvs().first().cloned(),
        _ => None,
    }
}

/// Why a read of etcd itself has failed.
#[derive(Debug)]
pub(super) enum ReadError {
    Call(Failure),
    Broken(Error),
}

impl From<Failure> for ReadError {
    fn from(e: Failure) -> Self {
        Self::Call(e)
    }
}

impl From<ReadError> for Error {
    fn from(e: ReadError) -> Self {
        match e {
            ReadError::Call(failure) => failure.into(),
            ReadError::Broken(e) => e,
        }
    }
}
