//! [`Resource`]: the state of one resource on etcd (keys, encoding, cache), and its single reads and writes.
//! Lists are in `direct` and `handle`; the cache is filled by `feed`.

use super::client::{Members, kv};
use super::error::Failure;
use super::lease::Leases;
use super::progress::Waiters;
use super::values::{self, MediaType};
use crate::storage::backend::{ConvertStored, SelectableFields};
use crate::storage::cacher::{Cacher, CacherConfig, Counters, Progress};
use crate::storage::transform::Transform;
use crate::storage::{Budget, Compaction, Draft, Entry, Error, Precondition, Revision, Undecodable};
use crate::tasks::{Signal, off_thread};
use crate::telemetry::{Operation, StorageMetrics, spans};
use bytes::Bytes;
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

/// Time within which the event of a write must reach this process's cache. After it, reads without freshness
/// requirement no longer wait for the event, and the feed examines its watch.
pub(super) const OWN_WRITE: Duration = Duration::from_secs(1);
/// Values up to this size, in bytes, are decoded on the reactor, which may be held for 200 µs.
pub(super) const DECODED_IN_PLACE: usize = 32 << 10;
/// Approximate memory for decoding, per stored byte.
pub(super) const DECODED_PER_BYTE: usize = 8;

/// State shared by all resources of a cluster.
pub(super) struct Shared {
    pub members: Members,
    pub leases: Leases,
    pub media: MediaType,
    pub freshness_wait: Duration,
    pub ring: crate::storage::cacher::history::Bounds,
    pub budget: Arc<Budget>,
    /// All members answer progress requests reliably.
    pub progress_reliable: AtomicBool,
    /// Whether `progress_reliable` is determined by the members' versions.
    pub decide_by_version: bool,
    /// Time after which a progress request without a sufficient response is repeated.
    pub progress_retry: Duration,
    /// The revision that the API servers of this cluster have compacted, read from the key that coordinates
    /// them.
    pub compaction: Compaction,
    /// The cluster has raised the NOSPACE alarm.
    pub no_space: AtomicBool,
}

/// A cache in service and its progress.
#[derive(Clone)]
pub(super) struct Serving {
    pub cacher: Arc<Cacher>,
    pub progress: Arc<Progress>,
}

/// State of a resource's cache.
#[derive(Clone)]
pub(super) enum State {
    /// Loading since this time; the error of the last attempt, if it failed.
    Loading(Instant, Option<String>),
    Ready(Serving),
    Stopped,
}

/// Decodes stored values. Separate from [`Resource`] so that large values can be decoded on other threads.
pub(super) struct Decoder {
    /// Prefix of the keys, including the cluster's own. Encryption authenticates the full key.
    pub prefix: String,
    pub fields: Option<SelectableFields>,
    /// As in the [`ResourceConfig`](crate::storage::ResourceConfig).
    pub compressed: bool,
    pub transform: Arc<dyn Transform>,
    pub metrics: Arc<StorageMetrics>,
    pub convert: Option<ConvertStored>,
    /// Entries stored in another media type are marked stale.
    pub media: MediaType,
}

pub(super) struct Resource {
    /// Sequence number within the cluster; determines the watch connection.
    pub sequence: usize,
    pub decoder: Arc<Decoder>,
    pub metrics: Arc<StorageMetrics>,
    /// The newest revision written by this process; set before a write is acknowledged.
    pub last_write: AtomicU64,
    /// Notified by every write of this process.
    pub written: Notify,
    /// The event of a write of this process has not come within [`OWN_WRITE`]; cleared by the next event.
    pub overdue: AtomicBool,
    pub state: watch::Sender<State>,
    pub stop: Signal,
    /// The reads that wait for the cache to catch up.
    pub waiters: Waiters,
    /// Notified when the cache was found to differ from etcd.
    pub reload_wanted: Notify,
    /// Notified when the cache did not reach a revision of the store in time.
    pub lagging: Notify,
    pub shared: Arc<Shared>,
    /// Activity counters, which outlive a reloaded cache.
    pub counters: Arc<Counters>,
}

/// Returns the first key after all keys with this prefix, which must not be empty.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A byte of 0xff has no successor: it is dropped and the byte before it incremented.
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// Returns the first key after this one, from which the next page is read. Bytes and not text: a key that is not
/// UTF-8 has no text, and a page from another key would skip some or repeat them for ever.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

impl Resource {
    /// Parameters for creating its cache.
    pub(crate) fn setting(&self) -> CacherConfig {
        CacherConfig {
            bounds: self.shared.ring,
            budget: self.shared.budget.clone(),
            counters: self.counters.clone(),
        }
    }

    /// Returns the cache if it is in service.
    pub(crate) fn ready(&self) -> Option<Serving> {
        match &*self.state.borrow() {
            State::Ready(serving) => Some(serving.clone()),
            _ => None,
        }
    }

    /// Waits for the cache to be in service. Cancel safe.
    pub(crate) async fn serving(&self) -> Result<Serving, Error> {
        let mut state = self.state.subscribe();
        // After a failed attempt readers do not wait for the next one.
        let settled = state.wait_for(|s| !matches!(s, State::Loading(_, None)));
        let settled = tokio::time::timeout(self.shared.freshness_wait, settled).await;
        match settled {
            Ok(Ok(state)) => match &*state {
                State::Ready(serving) => Ok(serving.clone()),
                State::Stopped => Err(Error::NotReady(1)),
                State::Loading(..) => {
                    // `not_ready` borrows the channel again; a second read guard on one thread can deadlock
                    // with a waiting writer.
                    drop(state);
                    Err(self.not_ready())
                }
            },
            _ => Err(self.not_ready()),
        }
    }

    /// The error for readers while the cache is not in service.
    fn not_ready(&self) -> Error {
        let after = self.retry_after();
        match &*self.state.borrow() {
            State::Loading(_, Some(why)) => Error::LoadFailed(after, why.clone()),
            _ => Error::NotReady(after),
        }
    }

    /// Retry-After in seconds, growing with the time spent loading, as upstream's
    /// `calculateRetryAfterForUnreadyCache`.
    fn retry_after(&self) -> u32 {
        match &*self.state.borrow() {
            State::Loading(since, _) => (0.06 * since.elapsed().as_secs_f64()).exp().clamp(1.0, 30.0) as u32,
            _ => 1,
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(&*self.state.borrow(), State::Stopped)
    }

    pub(crate) fn key(&self, own: &str) -> String {
        self.decoder.key(own)
    }

    /// The prefix of its keys, including the cluster's own.
    pub(crate) fn prefix(&self) -> &str {
        &self.decoder.prefix
    }

    /// Returns the part of a key below the prefix; `None` for a key of another resource.
    pub(crate) fn own<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        self.decoder.own(key)
    }

    /// Runs a call and records its metrics.
    pub(crate) async fn counted<T>(
        &self,
        what: Operation,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let since = std::time::Instant::now();
        let span = spans::storage("etcd", what, self.prefix());
        let outcome = call.instrument(span).await;
        self.metrics.operation_done(what, since.elapsed(), outcome.is_err());
        outcome
    }

    /// Decodes a stored value into an entry, off the reactor if it is large.
    pub(crate) async fn entry(&self, own: &str, revision: Revision, value: &[u8]) -> Result<Arc<Entry>, Error> {
        // Copied, so that the entry does not keep the whole response alive.
        let value = Bytes::copy_from_slice(value);
        if value.len() <= DECODED_IN_PLACE {
            return self.decoder.entry(own, revision, value);
        }
        let (decoder, own) = (self.decoder.clone(), own.to_owned());
        let memory = value.len() * DECODED_PER_BYTE;
        decode_off_thread(memory, move || decoder.entry(&own, revision, value)).await
    }

    /// Returns the entry of a pair, from the cache if it has the same revision.
    pub(crate) async fn entry_of(&self, own: &str, pair: &KeyValue) -> Result<Arc<Entry>, Error> {
        let revision = Revision(pair.mod_revision().cast_unsigned());
        // Decoding again would also make a second copy of an object in memory.
        match self.cached(own, revision) {
            Some(entry) => Ok(entry),
            None => self.entry(own, revision, pair.value()).await,
        }
    }

    /// Returns the cached entry of a key, if it has this revision.
    pub(crate) fn cached(&self, own: &str, revision: Revision) -> Option<Arc<Entry>> {
        let cached = self.ready().and_then(|s| s.cacher.peek(own));
        cached.filter(|e| e.revision == revision)
    }

    /// Reads a key from etcd, at the latest state or at a revision. Also returns the revision of the
    /// response.
    pub(crate) async fn read(
        &self,
        own: &str,
        at: Option<Revision>,
    ) -> Result<(Option<Arc<Entry>>, Revision), ReadError> {
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

    /// Returns the cluster's current revision with a linearizable read.
    pub(crate) async fn current(&self) -> Result<Revision, Error> {
        // One key at most: only the response header is of interest.
        let options = GetOptions::new().with_keys_only().with_limit(1);
        let answer = self.counted(Operation::Get, self.shared.members.range(self.prefix(), options));
        let answer = answer.await?;
        Ok(self.shared.members.saw(answer.header()))
    }

    pub(crate) async fn put(
        &self,
        own: &str,
        when: Precondition,
        draft: Draft,
        ttl: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        let key = self.key(own);
        // etcd gives a key that does not exist the modification revision 0.
        let expected = match when {
            Precondition::Absent => 0,
            Precondition::Unchanged(revision) => revision.0.cast_signed(),
        };
        let value = values::encode(&draft.json, self.shared.media);
        let value = self.decoder.transform.seal(&key, value);
        let value = value.map_err(|e| Error::Unwritable(Arc::new(e)))?;
        let what = match when {
            Precondition::Absent => Operation::Create,
            Precondition::Unchanged(_) => Operation::Update,
        };
        // An expired shared lease fails the whole transaction; it is replaced and the write repeated.
        let mut lost_leases = 0;
        let (answer, repeated) = loop {
            let lease = match ttl {
                None => 0,
                Some(ttl) => {
                    let leases = &self.shared.leases;
                    leases.take(&self.shared.members, ttl, &self.metrics).await?
                }
            };
            // Counts attempts: only after a repetition may a failed comparison be due to our own first
            // attempt.
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
            self.wrote(revision);
            return Ok(Arc::new(draft.into_entry(own, revision)));
        }
        let there = first_pair(&answer.op_responses());
        // The value alone proves nothing for the first attempt: somebody else may have written the same.
        // After a repetition it makes no difference who did.
        if repeated
            && let Some(pair) = &there
            && pair.mod_revision() > expected
            && *pair.value() == *value
        {
            // An earlier attempt had succeeded, and only its response was lost.
            let revision = Revision(pair.mod_revision().cast_unsigned());
            self.wrote(revision);
            return Ok(Arc::new(draft.into_entry(own, revision)));
        }
        match there {
            None => Err(Error::Conflict(None)),
            Some(pair) => Err(Error::Conflict(Some(self.entry_of(own, &pair).await?))),
        }
    }

    pub(crate) async fn delete(&self, own: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        let key = self.key(own);
        let expected = unchanged.0.cast_signed();
        // The usual case returns the cached state and decodes nothing.
        let known = self.ready().and_then(|s| s.cacher.peek(own));
        let known = known.filter(|e| e.revision == unchanged);
        let tries = AtomicUsize::new(0);
        let call = self.shared.members.call(|client| {
            tries.fetch_add(1, Ordering::Relaxed);
            // For the case that the cache does not have this revision.
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
                // Cannot happen in a transaction that succeeded with `prev_key`; a conflict makes the caller
                // read again.
                (None, _) => return Err(Error::Conflict(None)),
            };
            self.wrote(revision);
            return Ok(Arc::new(gone.at_revision(revision)));
        }
        match (first_pair(&responses), known) {
            // An earlier attempt had succeeded.
            (None, Some(known)) if tries.into_inner() > 1 => Ok(Arc::new(known.at_revision(revision))),
            (None, _) => Err(Error::Conflict(None)),
            (Some(pair), _) => Err(Error::Conflict(Some(self.entry_of(own, &pair).await?))),
        }
    }

    fn refused(&self, failure: Failure) -> Error {
        if failure.is_no_space() {
            // Before the next alarm check, so that the readiness check does not lag.
            self.shared.no_space.store(true, Ordering::Release);
        }
        failure.into()
    }

    /// Records a write of this process before it is acknowledged. The write does not wait for its event: reads
    /// that must show it do, see [`own_event`](Self::own_event).
    pub(crate) fn wrote(&self, revision: Revision) {
        self.last_write.fetch_max(revision.0, Ordering::AcqRel);
        // A stored permit: the feed is woken at most once a second, however many writes there are.
        self.written.notify_one();
    }

    /// The newest revision that this process has written.
    pub(crate) fn last_write(&self) -> Revision {
        Revision(self.last_write.load(Ordering::Acquire))
    }

    /// Waits until the cache shows a write of this process, whose event is on its way already. Returns `false`
    /// if it does not come in time, or if an earlier one is overdue. Cancel safe.
    pub(crate) async fn own_event(&self, serving: &Serving, revision: Revision, within: Duration) -> bool {
        if serving.progress.applied() >= revision {
            return true;
        }
        // While the watch is being reopened, reads must not wait for it one after the other.
        if self.overdue.load(Ordering::Acquire) {
            return false;
        }
        let event = tokio::time::timeout(within, serving.progress.wait_for(revision));
        matches!(event.await, Ok(Ok(())))
    }
}

impl Decoder {
    fn key(&self, own: &str) -> String {
        format!("{}{own}", self.prefix)
    }

    /// Returns a key without the prefix; `None` for keys outside of it.
    pub(crate) fn own<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)
    }

    /// Decodes a stored value into an entry. Its cost grows with the size of the value: see
    /// [`DECODED_IN_PLACE`].
    ///
    /// # Errors
    /// [`Error::Unreadable`] where the value cannot be decrypted, [`Error::Failed`] where it cannot be
    /// decoded.
    pub(crate) fn entry(&self, own: &str, revision: Revision, value: Bytes) -> Result<Arc<Entry>, Error> {
        let entry = self.open(own, revision, value);
        if entry.is_err() {
            self.metrics.decode_failed();
        }
        entry
    }

    fn open(&self, own: &str, revision: Revision, value: Bytes) -> Result<Arc<Entry>, Error> {
        let key = self.key(own);
        let opened = self.transform.open(&key, value).map_err(|e| Error::Unreadable {
            key: Box::from(&*key),
            source: Arc::new(e),
        })?;
        let broken = |why: Undecodable| Error::Failed(format!("unable to decode key {key:?}: {why}"));
        let mut tree = values::decode(&opened.bytes).map_err(broken)?;
        // Compared before conversion, which makes any object look current.
        let today = values::is_written_so(&opened.bytes, &tree, self.media);
        let revived = self.convert.as_ref().map_or(Ok(false), |convert| convert(&mut tree));
        let converted = revived.map_err(broken)?;
        let mut entry = values::entry(own, revision, &tree, self.fields.as_ref(), self.compressed);
        entry.stale = opened.stale || converted || !today;
        Ok(Arc::new(entry))
    }
}

/// Runs `decode` on the caller's compute pool, or on a blocking thread for the server's own reads.
///
/// # Errors
/// Those of `decode`, and [`Error::NotReady`] where the pool is full, the work was interrupted, or the
/// process is ending.
pub(super) async fn decode_off_thread<T: Send + 'static>(
    memory: usize,
    decode: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    off_thread(memory, decode).await.unwrap_or(Err(Error::NotReady(1)))
}

/// The pair that the `get` of a transaction has found.
pub(super) fn first_pair(responses: &[TxnOpResponse]) -> Option<KeyValue> {
    match responses.first() {
        Some(TxnOpResponse::Get(found)) => found.kvs().first().cloned(),
        _ => None,
    }
}

/// Why a read from etcd failed.
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
