//! The feed of one resource's cache ([`run`]): reads all objects in pages at one revision, then follows one
//! watch. A broken watch resumes after the last event. If etcd has compacted that revision, everything is
//! read again and the clients' watches end, as in upstream's cacher.
//!
//! ```text
//! Loading ──read──► Ready ──watch broken──► Ready (opened again at the next revision)
//!    ▲                └──compacted, value that cannot be read──┐
//!    └─────────────────────────────────────────────────────────┘        stop ─► Stopped
//! ```

use super::direct;
use super::progress::Requester;
use super::resource::{
    DECODED_IN_PLACE, DECODED_PER_BYTE, Decoder, OWN_WRITE, Resource, Serving, State, after, decode_off_thread, end_of,
};
use crate::storage::cacher::{Cacher, Comparison as Outcome, Initial, Progress, Snapshot};
use crate::storage::{Entry, Error, Event, Revision};
use crate::tasks::{Backoff, off_thread};
use crate::telemetry::Operation;
use bytes::Bytes;
use etcd_client::{GetOptions, WatchOptions, WatchResponse, WatchStream};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Objects per read.
const PAGE: i64 = 2_000;
/// Interval between consistency checks, as upstream's.
const COMPARE: Duration = Duration::from_secs(300);
/// Interval between trims of an idle cache.
const TRIM: Duration = Duration::from_secs(10);
/// Time limit for opening a watch.
const OPEN: Duration = Duration::from_secs(5);
/// A watch without any message for this long, although etcd is known to have a newer revision, is considered
/// broken.
const STALE_WATCH: Duration = Duration::from_millis(900);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(2));

/// Why following a watch ended.
enum End {
    /// Open it again at the same position.
    Broken(String),
    /// Open it again, at the member that calls now go to.
    Failover,
    /// Read everything again.
    Reload(String),
}

/// Runs until the resource is stopped.
pub(super) async fn run(resource: Arc<Resource>) {
    let stop = resource.stop.clone();
    // The stop signal first: the feed never ends on its own.
    tokio::select! {
        biased;
        () = stop.wait() => {}
        () = follow(&resource) => {}
        () = supervise(&resource) => {}
        () = compare(&resource) => {}
        () = trim(&resource) => {}
    }
    let last = resource.state.send_replace(State::Stopped);
    if let State::Ready(serving) = last {
        // Its watches would otherwise wait for events that nobody reads any more.
        serving.cacher.stop();
    }
}

/// Checks that the events of this process's writes arrive. A watch that is silently dead has no other symptom
/// while nobody reads. Never returns.
async fn supervise(resource: &Resource) {
    loop {
        resource.written.notified().await;
        loop {
            let wrote = resource.last_write();
            // Writes during this sleep store a permit and wake nobody.
            tokio::time::sleep(OWN_WRITE).await;
            match resource.ready() {
                Some(serving) if serving.progress.applied() < wrote => {
                    resource.overdue.store(true, Ordering::Release);
                    resource.lagging.notify_one();
                }
                // A cache that is being loaded will include the write.
                _ => break,
            }
        }
    }
}

/// Trims old history and sweeps stalled watches while there are no events. Never returns.
async fn trim(resource: &Resource) {
    loop {
        tokio::time::sleep(TRIM).await;
        if let Some(serving) = resource.ready() {
            // Frees the events of a burst, which takes tens of milliseconds.
            off_thread(0, move || serving.cacher.trim()).await;
        }
    }
}

/// Runs the consistency check periodically and logs differences. Never returns.
async fn compare(resource: &Resource) {
    // Offset by a hash of the prefix, so that resources are not all checked at the same time.
    let spread = resource.prefix().bytes().map(u64::from).sum::<u64>() % COMPARE.as_secs();
    tokio::time::sleep(Duration::from_secs(COMPARE.as_secs() / 2 + spread)).await;
    loop {
        compare_once(resource).await;
        tokio::time::sleep(COMPARE).await;
    }
}

async fn compare_once(resource: &Resource) {
    match direct::is_consistent(resource).await {
        Ok(None) => {}
        Ok(Some(true)) => resource.counters.compared(Outcome::Equal),
        Ok(Some(false)) => {
            resource.counters.compared(Outcome::Different);
            tracing::error!(prefix = %resource.prefix(), "the watch cache differs from etcd and is reloaded");
            // A stored permit: the request is not lost if the feed is busy with a batch.
            resource.reload_wanted.notify_one();
        }
        Err(error) => {
            resource.counters.compared(Outcome::Impossible);
            tracing::warn!(prefix = %resource.prefix(), %error, "the watch cache could not be compared with etcd");
        }
    }
}

async fn follow(resource: &Resource) {
    let mut delays = BACKOFF.delays();
    loop {
        match load(resource).await {
            Ok((serving, revision)) => {
                delays.reset();
                resource.overdue.store(false, Ordering::Release);
                resource.state.send_replace(State::Ready(serving.clone()));
                let why = follow_watch(resource, &serving, revision).await;
                tracing::warn!(prefix = %resource.prefix(), why, "the watch cache is reloaded");
                // Before the watches end: a client that reconnects at once waits for the new cache.
                resource.state.send_replace(State::Loading(Instant::now(), None));
                // `close` and not `stop`: reads that have the old cache already may finish.
                serving.cacher.close();
            }
            Err(e) => {
                let why = e.to_string();
                tracing::warn!(prefix = %resource.prefix(), error = %why, "the resource cannot be loaded");
                resource.state.send_modify(|state| {
                    // Only while loading; the reason is reported by the readiness check.
                    if let State::Loading(_, last) = state {
                        *last = Some(why);
                    }
                });
                tokio::time::sleep(delays.next_delay()).await;
            }
        }
    }
}

/// Reads all objects at one revision and builds a cache.
async fn load(resource: &Resource) -> Result<(Serving, Revision), Error> {
    let end = end_of(resource.prefix());
    let mut from = resource.prefix().as_bytes().to_vec();
    // The first page fixes the revision for all others.
    let mut pinned: Option<Revision> = None;
    let mut entries: Vec<Arc<Entry>> = Vec::new();
    let revision = loop {
        let mut options = GetOptions::new().with_range(end.clone()).with_limit(PAGE);
        if let Some(at) = pinned {
            options = options.with_revision(at.0.cast_signed());
        }
        let read = resource.shared.members.range(&from, options);
        let answer = resource.counted(Operation::List, read).await?;
        let revision = pinned.unwrap_or_else(|| resource.shared.members.saw(answer.header()));
        pinned = Some(revision);
        // etcd's `more` flag and not the page's size: a last page may be full.
        let next = answer.kvs().last().filter(|_| answer.more());
        let next = next.map(|last| after(last.key()));
        entries.extend(direct::decode(resource, answer).await?);
        match next {
            Some(next) => from = next,
            None => break revision,
        }
    };
    let progress = Arc::new(Progress::new(revision, resource.shared.freshness_wait));
    let initial = Initial {
        state: Snapshot::new(entries, revision),
        // A fresh cache has no history; watches from before it get 410 Gone.
        base: revision,
        events: Vec::new(),
    };
    let cacher = Arc::new(Cacher::new(progress.clone(), initial, resource.setting()));
    Ok((Serving { cacher, progress }, revision))
}

/// Follows the watch, reopening it as long as possible; returns why everything must be read again.
async fn follow_watch(resource: &Resource, serving: &Serving, revision: Revision) -> String {
    let mut at = revision;
    let mut delays = BACKOFF.delays();
    loop {
        let opened = Instant::now();
        let (member, client) = resource.shared.members.watch_client(resource.sequence).await;
        let end = match client {
            Err(e) => End::Broken(e.to_string()),
            Ok(mut client) => {
                let options = WatchOptions::new()
                    .with_range(end_of(resource.prefix()))
                    // The next revision: `at` has been applied.
                    .with_start_revision((at.0 + 1).cast_signed())
                    // Progress notifications let an idle resource's cache advance with the store's revision.
                    .with_progress_notify()
                    // A large transaction would exceed the message limit and end the watch again and again.
                    .with_fragment();
                let stream = client.watch(resource.prefix(), Some(options));
                match tokio::time::timeout(OPEN, stream).await {
                    Ok(Ok(stream)) => read_events(resource, serving, member, stream, &mut at).await,
                    Ok(Err(e)) => End::Broken(e.to_string()),
                    Err(_) => End::Broken("no answer".to_owned()),
                }
            }
        };
        match end {
            End::Reload(why) => return why,
            // No pause: the old member failed for somebody else, the new one is expected to answer.
            End::Failover => {}
            End::Broken(why) => {
                tracing::debug!(prefix = %resource.prefix(), why, "a watch on etcd broke and is reopened");
                resource.shared.members.leave(member);
                // A watch that worked for a while is not part of a series of failures.
                if opened.elapsed() > Duration::from_secs(10) {
                    delays.reset();
                }
                tokio::time::sleep(delays.next_delay()).await;
            }
        }
    }
}

async fn read_events(
    resource: &Resource,
    serving: &Serving,
    member: usize,
    mut stream: WatchStream,
    at: &mut Revision,
) -> End {
    let mut requester = Requester::new(resource.shared.progress_retry);
    // Before the watch exists, etcd ignores progress requests.
    let mut created = false;
    let mut heard = Instant::now();
    // Pinned outside of the loop: recreating it per message would subscribe anew each time.
    let mut left = std::pin::pin!(resource.shared.members.left(member));
    // Fragments of a response that was too long for one message.
    let mut parts: Vec<WatchResponse> = Vec::new();
    loop {
        let trusted = resource.shared.progress_reliable.load(Ordering::Acquire);
        // Only when somebody waits: unasked requests would load etcd for nothing.
        let wanted = resource.waiters.beyond(*at).filter(|_| created && trusted);
        // Events before progress requests: an event may make the request unnecessary.
        let answer = tokio::select! {
            biased;
            answer = stream.message() => answer,
            () = requester.due(wanted.unwrap_or_default()), if wanted.is_some() => {
                requester.sent(wanted.unwrap_or_default());
                if let Err(e) = stream.request_progress().await {
                    return End::Broken(e.to_string());
                }
                continue;
            }
            () = resource.reload_wanted.notified() => return End::Reload("it differed from etcd".to_owned()),
            () = &mut left => return End::Failover,
            // A lagging cache alone proves nothing, since etcd may just have no event; a silent stream does.
            () = resource.lagging.notified() => match heard.elapsed() >= STALE_WATCH {
                true => return End::Broken("no event although a newer revision is known".to_owned()),
                false => continue,
            },
            // Evaluates `wanted` anew with the waiter that has come.
            () = resource.waiters.changed() => continue,
        };
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return End::Broken("the stream has ended".to_owned()),
            Err(e) => return End::Broken(e.to_string()),
        };
        heard = Instant::now();
        // The watch's start is gone, and with it the events in between.
        if answer.compact_revision() > 0 {
            return End::Reload(format!("revision {} has been compacted", at.0 + 1));
        }
        if answer.canceled() {
            return End::Broken(answer.cancel_reason().to_owned());
        }
        let reached = resource.shared.members.saw(answer.header());
        if answer.created() {
            created = true;
            continue;
        }
        if answer.events().is_empty() {
            resource.metrics.bookmark_received();
            // etcd sends periodic progress for one watch in order with its events. A response to a progress
            // request (watch id -1) is ordered only in newer versions.
            let true_one = answer.watch_id() >= 0 || trusted;
            match parts.is_empty() {
                true => requester.answered(),
                // In the middle of a fragmented response its revision is not yet reached.
                false => requester.wasted(),
            }
            if true_one && parts.is_empty() && reached > *at {
                *at = reached;
                serving.progress.set_applied(reached);
                serving.progress.set_dispatched(reached);
            }
            continue;
        }
        resource.metrics.events_received(answer.events().len());
        let unfinished = answer.0.fragment;
        parts.push(answer);
        if unfinished {
            // A fragment alone would let the cache announce a revision of which it has only a part.
            continue;
        }
        match decode(resource, serving, std::mem::take(&mut parts), *at).await {
            Ok(events) => {
                let Some(last) = events.last() else { continue };
                *at = last.entry.revision;
                // Applied, then announced, then dispatched: the order the cacher requires.
                serving.cacher.apply(&events);
                serving.progress.set_applied(*at);
                resource.overdue.store(false, Ordering::Release);
                serving.cacher.dispatch(&events);
                serving.progress.set_dispatched(*at);
            }
            // A value that cannot be decoded must not be skipped: the cache would silently lack it.
            Err(e) => return End::Reload(e.to_string()),
        }
    }
}

/// Converts the changes of one response to events, off the reactor if the values are large.
async fn decode(
    resource: &Resource,
    serving: &Serving,
    parts: Vec<WatchResponse>,
    at: Revision,
) -> Result<Vec<Arc<Event>>, Error> {
    let changes = parts.iter().flat_map(WatchResponse::events);
    let size: usize = changes.filter_map(|c| Some(c.kv()?.value().len())).sum();
    if size <= DECODED_IN_PLACE {
        return events(&resource.decoder, &serving.cacher, &parts, at);
    }
    let (decoder, cacher) = (resource.decoder.clone(), serving.cacher.clone());
    let events = move || events(&decoder, &cacher, &parts, at);
    decode_off_thread(size.saturating_mul(DECODED_PER_BYTE), events).await
}

/// Converts the changes of one response to events. The previous state of each comes from the cache, or from
/// an earlier change in the same response.
fn events(decoder: &Decoder, cacher: &Cacher, parts: &[WatchResponse], at: Revision) -> Result<Vec<Arc<Event>>, Error> {
    let mut out: Vec<Arc<Event>> = Vec::new();
    let mut overlay: HashMap<String, Option<Arc<Entry>>> = HashMap::new();
    for change in parts.iter().flat_map(WatchResponse::events) {
        let Some((pair, own)) = change.kv().and_then(|pair| Some((pair, decoder.own(pair.key())?))) else {
            continue;
        };
        let revision = Revision(pair.mod_revision().cast_unsigned());
        // After a reopening etcd may repeat events up to the start revision.
        if revision <= at {
            continue;
        }
        // Earlier changes of this batch are not in the cache yet.
        let previous = match overlay.get(own) {
            Some(previous) => previous.clone(),
            None => cacher.peek(own),
        };
        let deleted = change.event_type() == etcd_client::EventType::Delete;
        let entry = match (deleted, &previous) {
            (false, _) => decoder.entry(own, revision, Bytes::copy_from_slice(pair.value()))?,
            // etcd sends no value with a deletion; watchers get the last state.
            (true, Some(previous)) => Arc::new(previous.at_revision(revision)),
            // It was created and deleted before the cache saw it; there is nothing to report.
            (true, None) => continue,
        };
        overlay.insert(own.to_owned(), (!deleted).then(|| entry.clone()));
        out.push(Arc::new(Event::new(entry, previous, deleted)));
    }
    Ok(out)
}

#[cfg(test)]
#[path = "../../../tests/support/etcd.rs"]
pub(super) mod etcd_process;

#[cfg(test)]
mod tests {
    use super::etcd_process::{self, Etcd};
    use super::*;
    use crate::storage::backend::Backend;
    use crate::storage::etcd::{Access, Cluster, Options};
    use crate::storage::{Draft, ListOptions, MinRevision, Precondition, ResourceConfig};

    #[tokio::test]
    async fn cache_that_differs_from_etcd_is_counted_and_reloaded() {
        if !etcd_process::is_there() {
            return;
        }
        let etcd = Etcd::start(1);
        let access = Access {
            servers: etcd.servers(),
            ca: None,
            identity: None,
            user: None,
        };
        let cluster = Cluster::connect(&access, Options::default()).await.expect("it answers");
        let prefix = "/registry/secrets/".to_owned();
        let config = ResourceConfig {
            prefix: prefix.clone(),
            fields: None,
            compressed: false,
        };
        let store = cluster.resource(config);
        let draft = || {
            Draft::new(
                &crate::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
                vec![],
            )
        };
        store
            .put("ns/a", Precondition::Absent, draft(), None)
            .await
            .expect("written");
        let resource = cluster.resources.lock()[&prefix].clone();
        let compared = |i: usize| resource.counters.comparisons[i].get();
        // A check is impossible while the cache lags or etcd does not answer in time.
        let compare_until = async |outcome: usize| {
            let until = tokio::time::Instant::now() + Duration::from_secs(60);
            while compared(outcome) == 0 {
                assert!(tokio::time::Instant::now() < until, "no comparison happened");
                compare_once(&resource).await;
            }
        };
        let mut state = resource.state.subscribe();
        let is_ready = |s: &State| matches!(s, State::Ready(_));
        tokio::time::timeout(Duration::from_secs(60), state.wait_for(is_ready))
            .await
            .expect("soon")
            .expect("served");
        compare_until(0).await;
        assert_eq!([compared(0), compared(1)], [1, 0]);
        // Put an object into the cache that etcd does not have.
        let serving = resource.ready().expect("in service");
        let ghost = Arc::new(draft().into_entry("ns/ghost", serving.progress.applied()));
        serving.cacher.apply(&[Arc::new(Event::new(ghost, None, false))]);
        compare_until(1).await;
        assert_eq!([compared(0), compared(1)], [1, 1]);
        let stats = cluster.stats();
        let (_, cache) = stats.caches.iter().find(|(p, _)| *p == prefix).expect("it has a cache");
        assert_eq!(cache.counters.comparisons[1].get(), 1, "metrics read the same counters");
        // The cache is reloaded and then matches etcd.
        let anew = |s: &State| matches!(s, State::Ready(now) if !Arc::ptr_eq(&now.cacher, &serving.cacher));
        tokio::time::timeout(Duration::from_secs(60), state.wait_for(anew))
            .await
            .expect("soon")
            .expect("served");
        let list = store.list(ListOptions::latest("")).await.expect("served");
        assert_eq!(list.entries.iter().map(|e| &*e.key).collect::<Vec<_>>(), ["ns/a"]);
        assert!(store.get("ns/ghost", MinRevision::Any).await.expect("served").is_none());
        assert!(resource.counters.loads.get() >= 2, "counters outlive the cache");
        cluster.shutdown();
    }
}
