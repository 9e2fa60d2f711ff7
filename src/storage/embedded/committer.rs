//! [`Committer`]: the single thread that writes. It takes all queued commands, checks preconditions against
//! memory, commits the accepted writes in one transaction, and once that is durable publishes: snapshots,
//! revision, replies, watchers. After a failed transaction it accepts no further writes.
//!
//! Periodic work between batches is in [`maintenance`]; SQLite itself in [`super::disk`].

mod maintenance;

use super::disk::{Disk, Row};
use super::{Options, ResourceStore, Shared, Unavailable, space};
use crate::storage::{Draft, Entry, Error, Event, Precondition, Revision};
use bytes::Bytes;
use maintenance::{Comparison, MAINTENANCE};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Maximum number of client writes per transaction.
// Large enough to make the fsync cheap per write, small enough that a waiting write is not delayed by a
// second batch's worth of work.
const BATCH: usize = 1024;
/// Bytes of values after which a transaction takes no more writes.
const BATCH_BYTES: usize = 1 << 20;
pub(super) type WriteResult = Result<Arc<Entry>, Error>;

pub(super) enum Action {
    Put {
        when: Precondition,
        draft: Draft,
        /// The encoded, possibly encrypted value.
        stored: Bytes,
        ttl: Option<u64>,
    },
    Delete {
        unchanged: Revision,
    },
}

pub(super) struct Write {
    pub resource: Arc<ResourceStore>,
    pub key: Box<str>,
    pub action: Action,
    /// Where to send the result; `None` for the store's own deletions of expired objects.
    pub reply: Option<oneshot::Sender<WriteResult>>,
    /// Permits it took from the queue's capacity.
    pub permits: u32,
}

pub(super) enum Command {
    Write(Write),
    /// Schedules objects loaded from disk for expiry: time, key, revision.
    Expire(Arc<ResourceStore>, Vec<(i64, Box<str>, Revision)>),
    /// Stops serving a resource; its objects return to the unserved ones. The sender is signalled when done.
    Release(Arc<ResourceStore>, SyncSender<()>),
    Shutdown,
}

/// A transaction being assembled.
#[derive(Default)]
struct Batch {
    rows: Vec<Row>,
    /// Per resource (compared by address), in order of first write.
    events: Vec<(Arc<ResourceStore>, Vec<Arc<Event>>)>,
    /// Results of earlier writes in this batch, which the snapshots do not show yet.
    overlay: HashMap<(usize, Box<str>), Option<Arc<Entry>>>,
    answers: Vec<(oneshot::Sender<WriteResult>, WriteResult)>,
    expiries: Vec<(i64, Arc<ResourceStore>, Box<str>, Revision)>,
    /// Expired objects deleted by this batch, with a retry time in case it fails.
    retry_expiry: Vec<(i64, Arc<ResourceStore>, Box<str>, Revision)>,
    objects: i64,
    /// Change of [`Committer::packed`].
    packed: i64,
}

/// An object that expires unless it has been written again since this revision.
type Expiring = (Arc<ResourceStore>, Box<str>, Revision);

/// The state of the store when it was opened.
pub(super) struct LoadedState {
    pub revision: u64,
    pub objects: u64,
    /// Their estimated size on disk; see [`space::packed`].
    pub packed: u64,
    pub marks: VecDeque<(u64, i64)>,
}

pub(super) struct Committer {
    shared: Arc<Shared>,
    queue: Receiver<Command>,
    disk: Disk,
    options: Options,
    revision: u64,
    objects: u64,
    packed: u64,
    /// Timestamps of revisions, in seconds since 1970, oldest first; used to keep history by age.
    marks: VecDeque<(u64, i64)>,
    /// By expiry time in milliseconds, then by order of arrival.
    expiring: BTreeMap<(i64, u64), Expiring>,
    // The counter keeps two objects that expire in the same millisecond apart.
    expiring_next: u64,
    compact_to: u64,
    written: usize,
    maintained: Instant,
    /// When maintenance last found writes.
    busy: Instant,
    /// When `Options::on_idle` was last called.
    rested: Instant,
    comparison: Comparison,
}

/// Milliseconds since 1970.
fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as i64)
}

impl Batch {
    fn current(&self, resource: &Arc<ResourceStore>, key: &str) -> Option<Arc<Entry>> {
        if !self.overlay.is_empty() {
            // The address is a valid identity: `events` holds an `Arc` of each resource in the overlay, so
            // none is freed and reused meanwhile.
            let id = (Arc::as_ptr(resource) as usize, Box::from(key));
            if let Some(pending) = self.overlay.get(&id) {
                return pending.clone();
            }
        }
        resource.cacher.peek(key)
    }

    fn add(&mut self, write: Write, revision: u64) -> bool {
        let Write {
            resource,
            key,
            action,
            reply,
            ..
        } = write;
        let current = self.current(&resource, &key);
        let holds = match &action {
            Action::Put {
                when: Precondition::Absent,
                ..
            } => current.is_none(),
            Action::Put {
                when: Precondition::Unchanged(r),
                ..
            }
            | Action::Delete { unchanged: r } => current.as_ref().is_some_and(|e| e.revision == *r),
        };
        if !holds {
            // The conflict carries the current state, so that the caller's retry needs no read of its own.
            self.answers.extend(reply.map(|to| (to, Err(Error::Conflict(current)))));
            return false;
        }
        // Without a reply it is one of the store's own expiries. If the transaction fails nobody else retries
        // it.
        if let (None, Action::Delete { unchanged }) = (&reply, &action) {
            self.retry_expiry
                .push((now() + 1000, resource.clone(), key.clone(), *unchanged));
        }
        // Rows hold full keys; the cacher's are relative to the resource's prefix.
        let full_key = format!("{}{key}", resource.prefix);
        let prev = current.as_ref().map_or(0, |e| e.revision.0);
        let (entry, value, expires, deleted) = match (action, &current) {
            (Action::Put { draft, stored, ttl, .. }, _) => {
                // Saturating: a lease may be as long as its caller likes, and an overflow would expire the
                // object at once.
                let expires = ttl.map(|s| now().saturating_add_unsigned(s.saturating_mul(1000)));
                (draft.into_entry(&key, Revision(revision)), Some(stored), expires, false)
            }
            (Action::Delete { .. }, Some(current)) => (current.at_revision(Revision(revision)), None, None, true),
            // The precondition check above guarantees a current state.
            (Action::Delete { .. }, None) => return false,
        };
        let entry = Arc::new(entry);
        self.objects += i64::from(!deleted) - i64::from(current.is_some());
        if let Some(was) = &current {
            // The entry carries its resource version in the JSON, the stored value does not.
            self.packed -= space::packed(full_key.len(), was.json.len() - was.version_span.1 as usize).cast_signed();
        }
        if let Some(now) = &value {
            self.packed += space::packed(full_key.len(), now.len()).cast_signed();
        }
        self.rows.push(Row {
            revision,
            key: full_key,
            prev,
            value,
            expires,
        });
        self.expiries
            .extend(expires.map(|at| (at, resource.clone(), key.clone(), Revision(revision))));
        let id = Arc::as_ptr(&resource) as usize;
        // Inserted even for a deletion (as `None`), which must hide the snapshot's entry from later writes of
        // this batch.
        self.overlay.insert((id, key), (!deleted).then(|| entry.clone()));
        let event = Arc::new(Event::new(entry.clone(), current, deleted));
        // Linear: a batch rarely touches more than a handful of resources.
        match self.events.iter_mut().find(|(r, _)| Arc::ptr_eq(r, &resource)) {
            Some((_, events)) => events.push(event),
            None => self.events.push((resource, vec![event])),
        }
        self.answers.extend(reply.map(|to| (to, Ok(entry))));
        true
    }
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Receiver<Command>,
        disk: Disk,
        options: Options,
        found: LoadedState,
    ) -> Self {
        let comparison = Comparison::new(options.compare_every);
        Self {
            shared,
            queue,
            disk,
            options,
            revision: found.revision,
            objects: found.objects,
            packed: found.packed,
            comparison,
            marks: found.marks,
            expiring: BTreeMap::new(),
            expiring_next: 0,
            compact_to: 0,
            written: 0,
            maintained: Instant::now(),
            busy: Instant::now(),
            rested: Instant::now(),
        }
    }

    /// Runs until it receives a shutdown command or all senders are gone.
    pub(crate) fn run(mut self) {
        loop {
            // One blocking receive, then whatever has arrived meanwhile: group commit without a timer. Under
            // load the batch grows by itself to what came in during the last fsync.
            let mut writes = Vec::new();
            let mut bytes = 0;
            let mut ending = match self.queue.recv_timeout(self.next_timeout()) {
                Ok(command) => self.handle(command, &mut writes, &mut bytes),
                Err(RecvTimeoutError::Timeout) => false,
                // All handles are gone, so nobody can write any more.
                Err(RecvTimeoutError::Disconnected) => true,
            };
            while !ending && writes.len() < BATCH && bytes < BATCH_BYTES {
                match self.queue.try_recv() {
                    Ok(command) => ending = self.handle(command, &mut writes, &mut bytes),
                    Err(_) => break,
                }
            }
            self.enqueue_expired(&mut writes);
            let idle = writes.is_empty();
            self.commit(writes);
            if ending {
                break;
            }
            self.maintain(idle);
        }
        self.finish();
    }

    fn next_timeout(&self) -> Duration {
        let next = self
            .expiring
            .first_key_value()
            .map(|((at, _), _)| at.saturating_sub(now()));
        let next = next.map(|ms| Duration::from_millis(ms.max(0).cast_unsigned()));
        next.unwrap_or(MAINTENANCE).min(MAINTENANCE)
    }

    /// Handles a command; returns true on shutdown.
    fn handle(&mut self, command: Command, writes: &mut Vec<Write>, bytes: &mut usize) -> bool {
        match command {
            Command::Write(write) => {
                // Returned when a write leaves the queue, not when it is committed: the next batch may fill
                // while this one is synced. A batch is itself bounded.
                self.shared.permits.add_permits(write.permits as usize);
                if let Action::Put { stored, .. } = &write.action {
                    *bytes += stored.len();
                }
                writes.push(write);
            }
            Command::Expire(resource, objects) => {
                for (at, key, revision) in objects {
                    self.expire_at(at, resource.clone(), key, revision);
                }
            }
            Command::Release(resource, done) => {
                // Writes queued before the release must be committed first.
                // The batch's byte count is not reset; that ends the batch early, which is harmless.
                self.commit(std::mem::take(writes));
                self.release(&resource);
                // The channel has room for one message; the receiver may have gone.
                let _ = done.send(());
            }
            Command::Shutdown => return true,
        }
        false
    }

    fn release(&mut self, resource: &Arc<ResourceStore>) {
        resource.cacher.stop();
        // Read before they are dropped: the expiry times are needed when the resource is served again.
        let expires: HashMap<Box<str>, i64> = self
            .expiring
            .iter()
            .filter(|(_, (r, ..))| Arc::ptr_eq(r, resource))
            .map(|((at, _), (_, key, _))| (key.clone(), *at))
            .collect();
        self.expiring.retain(|_, (r, ..)| !Arc::ptr_eq(r, resource));
        let stored = |key: &str, revision: Revision| self.disk.value(key, revision.0);
        let mut catalog = self.shared.catalog.lock();
        let given_back = catalog.give_back(Revision(self.revision), resource, &expires, stored);
        drop(catalog);
        if let Err(e) = given_back {
            self.fail(&e);
        }
    }

    fn expire_at(&mut self, at: i64, resource: Arc<ResourceStore>, key: Box<str>, revision: Revision) {
        self.expiring_next += 1;
        self.expiring
            .insert((at, self.expiring_next), (resource, key, revision));
    }

    fn enqueue_expired(&mut self, writes: &mut Vec<Write>) {
        let now = now();
        // Twice the batch size, so that expiry proceeds even when clients fill every batch.
        while writes.len() < 2 * BATCH
            && let Some(first) = self.expiring.first_entry()
            && first.key().0 <= now
        {
            let (resource, key, unchanged) = first.remove();
            // Conditional on the revision: an object written again since has a new expiry or none.
            let action = Action::Delete { unchanged };
            writes.push(Write {
                resource,
                key,
                action,
                reply: None,
                permits: 0,
            });
        }
    }

    fn commit(&mut self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let mut batch = Batch::default();
        // Revisions are numbered in a local variable, so that a failed transaction consumes none.
        let mut revision = self.revision;
        // Read once: the flag changes only on this thread.
        let full = self.shared.full.load(Ordering::Acquire);
        for write in writes {
            // Checked again here: the state may have changed while the write was queued.
            let refusal = match self.shared.failed.get() {
                Some(why) => Some(Error::Failed(why.clone())),
                None if write.resource.is_released() => Some(Error::NotReady(1)),
                None if full && matches!(write.action, Action::Put { .. }) => Some(Unavailable::DiskFull.into()),
                None => None,
            };
            if let Some(refusal) = refusal {
                batch.answers.extend(write.reply.map(|to| (to, Err(refusal))));
            } else if batch.add(write, revision + 1) {
                revision += 1;
            }
        }
        if !batch.rows.is_empty() {
            let objects = self.objects.saturating_add_signed(batch.objects);
            let started = Instant::now();
            if let Err(e) = self.disk.commit(&batch.rows, objects) {
                // Answers of refused writes are replaced as well: a conflict may be due to a write of this
                // very transaction, which has not happened.
                let why = self.fail(&e);
                for (at, resource, key, unchanged) in batch.retry_expiry {
                    self.expire_at(at, resource, key, unchanged);
                }
                for (to, _) in batch.answers {
                    // The client may have stopped waiting.
                    let _ = to.send(Err(Error::Failed(why.clone())));
                }
                return;
            }
            self.shared.counters.committed(batch.rows.len(), started.elapsed());
            self.written += batch.rows.len();
            (self.revision, self.objects) = (revision, objects);
            self.packed = self.packed.saturating_add_signed(batch.packed);
        }
        self.publish(batch);
    }

    fn publish(&mut self, batch: Batch) {
        let Batch {
            events,
            answers,
            expiries,
            ..
        } = batch;
        // The order matters: an acknowledged write must be visible to reads, and watchers must not lead the
        // cache.
        for (resource, events) in &events {
            resource.cacher.apply(events);
        }
        self.shared.progress.set_applied(Revision(self.revision));
        for (to, answer) in answers {
            // The client may have stopped waiting.
            let _ = to.send(answer);
        }
        // Watchers last, because waking many of them takes long and the writers need not wait for it.
        for (resource, events) in &events {
            resource.cacher.dispatch(events);
        }
        self.shared.progress.set_dispatched(Revision(self.revision));
        for (at, resource, key, revision) in expiries {
            self.expire_at(at, resource, key, revision);
        }
    }

    /// Records a failed transaction. After most errors the contents of the disk are unknown, so no write is
    /// ever tried again. A full disk is different: SQLite has rolled the transaction back completely, and
    /// writes resume when there is space.
    fn fail(&self, e: &rusqlite::Error) -> String {
        if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
            if !self.shared.full.swap(true, Ordering::AcqRel) {
                tracing::error!(error = %e, "the disk is full, writes are refused until there is space");
            }
            return Unavailable::DiskFull.to_string();
        }
        let why = format!("the store can no longer be written: {e}");
        // One line: every later write repeats only the stored reason.
        tracing::error!(error = %e, "storage failed; writes are refused until a restart");
        self.shared.failed.get_or_init(|| why).clone()
    }

    /// Refuses all commands still queued (their writes were never acknowledged) and closes the file.
    fn finish(self) {
        // Closed first: a writer that waits for permits gets an error instead of waiting for ever.
        self.shared.permits.close();
        // Writers that arrived after the last batch get an answer, too.
        while let Ok(command) = self.queue.try_recv() {
            if let Command::Write(Write { reply: Some(to), .. }) = command {
                let _ = to.send(Err(Error::NotReady(1)));
            }
        }
        // The first failure has been logged; an orderly close would report it again.
        if self.shared.failed.get().is_some() {
            return;
        }
        if let Err(e) = self.disk.close() {
            tracing::error!(error = %e, "the store could not be closed cleanly");
        }
    }
}
