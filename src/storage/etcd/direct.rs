//! Lists answered by etcd itself ([`list`], [`keys`]). Only keys and revisions are requested; an object comes
//! from the cache if the cache has it at that revision, and is fetched otherwise.

use super::resource::{DECODED_IN_PLACE, DECODED_PER_BYTE, ReadError, Resource, after, decode_off_thread, end_of};
use crate::storage::cacher::Snapshot;
use crate::storage::{ContinueToken, Entry, Error, ListOptions, Listing, Revision};
use crate::telemetry::Operation;
use crate::telemetry::request_parts::{self, Part};
use bytes::Bytes;
use etcd_client::{GetOptions, GetResponse};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Keys per request.
const PAGE: i64 = 10_000;
/// Up to this many missing objects are fetched one by one; beyond it the whole page is fetched.
const SINGLE: usize = 8;

/// Time after which a committed event must have reached the cache.
const SETTLED: Duration = Duration::from_secs(5);

/// A page of keys, in key order.
struct Page {
    found: Vec<(String, Revision)>,
    /// Number of keys from the start of this page to the end of the range.
    count: usize,
    /// Where the next page begins: after the last key, even if that is not in `found` because it is not text.
    next: Option<Vec<u8>>,
    revision: Revision,
}

async fn range(
    resource: &Resource,
    what: Operation,
    from: &[u8],
    prefix: &str,
    options: GetOptions,
) -> Result<GetResponse, ReadError> {
    let options = options.with_range(end_of(&resource.key(prefix)));
    let read = resource.counted(what, resource.shared.members.range(from, options));
    Ok(read.await?)
}

/// Reads a page of the keys with a prefix. `from` is a full key.
async fn page(
    resource: &Resource,
    from: &[u8],
    prefix: &str,
    limit: i64,
    at: Option<Revision>,
) -> Result<Page, ReadError> {
    let mut options = GetOptions::new().with_keys_only().with_limit(limit);
    // Pages after the first read at the revision of the first, or an object could be missed or listed twice.
    if let Some(at) = at {
        options = options.with_revision(at.0.cast_signed());
    }
    let answer = range(resource, Operation::ListOnlyKeys, from, prefix, options).await?;
    let revision = resource.shared.members.saw(answer.header());
    let found = answer.kvs().iter().filter_map(|pair| {
        let own = resource.own(pair.key())?;
        Some((own.to_owned(), Revision(pair.mod_revision().cast_unsigned())))
    });
    Ok(Page {
        found: found.collect(),
        count: usize::try_from(answer.count()).unwrap_or(0),
        next: answer
            .kvs()
            .last()
            .filter(|_| answer.more())
            .map(|last| after(last.key())),
        // A read at a revision still has the current revision in its header.
        revision: at.unwrap_or(revision),
    })
}

/// Returns the objects of a page, at its revision.
async fn objects(
    resource: &Resource,
    from: &[u8],
    prefix: &str,
    page: &Page,
    limit: i64,
) -> Result<Vec<Arc<Entry>>, ReadError> {
    let state = resource.ready().map(|s| s.cacher.snapshot());
    let known = |own: &str, revision| {
        let entry = state.as_ref().and_then(|s| s.get(own));
        entry.filter(|e| e.revision == revision).cloned()
    };
    // Counted before anything is fetched: a few single reads beat transferring the page, many do not.
    let unknown = page.found.iter().filter(|(own, r)| known(own, *r).is_none()).count();
    if unknown > SINGLE {
        let options = GetOptions::new()
            .with_limit(limit)
            // The same revision as the keys, so that both describe one state.
            .with_revision(page.revision.0.cast_signed());
        let answer = range(resource, Operation::List, from, prefix, options).await?;
        return decode(resource, answer).await.map_err(ReadError::Broken);
    }
    let mut out = Vec::with_capacity(page.found.len());
    for (own, revision) in &page.found {
        match known(own, *revision) {
            Some(entry) => out.push(entry),
            None => out.extend(resource.read(own, Some(page.revision)).await?.0),
        }
    }
    Ok(out)
}

/// Returns the entries of a response. Values that are not cached are decoded together, off the reactor if
/// they are large.
pub(super) async fn decode(resource: &Resource, mut answer: GetResponse) -> Result<Vec<Arc<Entry>>, Error> {
    let mut found: Vec<(String, Revision, EntrySource)> = Vec::with_capacity(answer.kvs().len());
    let mut size = 0;
    for pair in answer.take_kvs() {
        let Some(own) = resource.own(pair.key()) else { continue };
        let (own, revision) = (own.to_owned(), Revision(pair.mod_revision().cast_unsigned()));
        // Decoding is most of the cost of a list; the cache has almost every object already.
        let state = match resource.cached(&own, revision) {
            Some(entry) => EntrySource::Cached(entry),
            None => {
                let (_, value) = pair.into_key_value();
                size += value.len();
                EntrySource::Stored(value.into())
            }
        };
        found.push((own, revision, state));
    }
    let _timing = request_parts::timing(Part::Decode);
    let decoder = resource.decoder.clone();
    let decode = move || {
        let entries = found.into_iter().map(|(own, revision, state)| match state {
            EntrySource::Cached(entry) => Ok(entry),
            EntrySource::Stored(value) => decoder.entry(&own, revision, value),
        });
        entries.collect()
    };
    match size <= DECODED_IN_PLACE {
        true => decode(),
        false => decode_off_thread(size.saturating_mul(DECODED_PER_BYTE), decode).await,
    }
}

enum EntrySource {
    Cached(Arc<Entry>),
    Stored(Bytes),
}

/// Lists at a revision, or at the latest state.
///
/// # Errors
/// [`Error::Compacted`], [`Error::TooNew`], [`Error::Failed`].
pub(super) async fn list(resource: &Resource, options: &ListOptions, at: Option<Revision>) -> Result<Listing, Error> {
    let mut looked_at = 0;
    let answer = match options.single {
        true => one(resource, options, at).await,
        false => many(resource, options, at, &mut looked_at).await,
    };
    if let Ok(listing) = &answer {
        // At least the result: a single read examines its object without counting it.
        let looked_at = looked_at.max(listing.entries.len());
        let metrics = &resource.metrics;
        metrics.listed_from_store(looked_at, looked_at, listing.entries.len());
    }
    answer.map_err(|e| match e {
        ReadError::Call(failure) if failure.is_compacted() => Error::Compacted(at.unwrap_or_default()),
        ReadError::Call(failure) if failure.is_future() => Error::TooNew {
            requested: at.unwrap_or_default(),
            current: resource.shared.members.seen(),
        },
        other => other.into(),
    })
}

async fn one(resource: &Resource, options: &ListOptions, at: Option<Revision>) -> Result<Listing, ReadError> {
    let (entry, revision) = resource.read(&options.prefix, at).await?;
    Ok(Listing {
        entries: entry.into_iter().filter(|e| options.predicate.matches(e)).collect(),
        revision: at.unwrap_or(revision),
        next: None,
        remaining: None,
    })
}

async fn many(
    resource: &Resource,
    options: &ListOptions,
    at: Option<Revision>,
    looked_at: &mut usize,
) -> Result<Listing, ReadError> {
    let everything = options.predicate.is_everything();
    let limit = match options.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let start = match &options.token {
        // A token cannot lead out of the prefix it was made for, whatever a client puts into it.
        Some(token) if token.start > options.prefix => &token.start,
        _ => &options.prefix,
    };
    let mut from = resource.key(start).into_bytes();
    // With a selector any number of objects may not match, so full pages are read regardless of the limit.
    let size = match everything {
        true => i64::try_from(limit).map_or(PAGE, |l| l.min(PAGE)),
        false => PAGE,
    };
    let mut listing = Listing {
        entries: Vec::new(),
        revision: at.unwrap_or_default(),
        next: None,
        remaining: None,
    };
    let mut pinned = at;
    loop {
        let page = page(resource, &from, &options.prefix, size, pinned).await?;
        pinned = Some(page.revision);
        listing.revision = page.revision;
        let objects = objects(resource, &from, &options.prefix, &page, size).await?;
        let total = objects.len();
        *looked_at += total;
        for (i, entry) in objects.into_iter().enumerate() {
            if !options.predicate.matches(&entry) {
                continue;
            }
            let key = entry.key.clone();
            listing.entries.push(entry);
            if listing.entries.len() == limit {
                if i + 1 < total || page.next.is_some() {
                    listing.next = Some(ContinueToken {
                        revision: Some(page.revision),
                        // The smallest key behind it.
                        start: format!("{key}\0"),
                    });
                    // etcd's count covers the range from this page's start, not only the page.
                    listing.remaining = everything.then(|| page.count.saturating_sub(i + 1));
                }
                return Ok(listing);
            }
        }
        match page.next {
            // After the page's last key and not the last match: the rest of the page has been looked at.
            Some(next) => from = next,
            None => return Ok(listing),
        }
    }
}

/// Returns all keys in scope with their revisions, at the latest state.
///
/// # Errors
/// [`Error::Failed`].
pub(super) async fn keys(
    resource: &Resource,
    prefix: &str,
    single: bool,
) -> Result<(Revision, Vec<(String, Revision)>), Error> {
    if single {
        let (entry, revision) = resource.read(prefix, None).await?;
        let found = entry.map(|e| (e.key.to_string(), e.revision));
        return Ok((revision, found.into_iter().collect()));
    }
    Ok(keys_at(resource, prefix, None).await?)
}

async fn keys_at(
    resource: &Resource,
    prefix: &str,
    at: Option<Revision>,
) -> Result<(Revision, Vec<(String, Revision)>), ReadError> {
    let (mut from, mut pinned, mut out) = (resource.key(prefix).into_bytes(), at, Vec::new());
    loop {
        let page = page(resource, &from, prefix, PAGE, pinned).await?;
        pinned = Some(page.revision);
        out.extend(page.found);
        match page.next {
            Some(next) => from = next,
            None => return Ok((page.revision, out)),
        }
    }
}

/// Reports whether the cache matches etcd, now or at the cache's revision; `None` if that cannot be
/// determined.
///
/// # Errors
/// [`Error::Failed`].
pub(super) async fn is_consistent(resource: &Resource) -> Result<Option<bool>, Error> {
    let Some(serving) = resource.ready() else {
        return Ok(None);
    };
    // The snapshot first: whatever etcd reports afterwards is at least as new.
    let state = serving.cacher.snapshot();
    let (_, now) = keys(resource, "", false).await?;
    if same(&state, "", false, &now) {
        return Ok(Some(true));
    }
    // The cache merely lags if it equals etcd's state at its own revision.
    match keys_at(resource, "", Some(state.revision)).await {
        Ok((_, then)) => Ok(Some(same(&state, "", false, &then))),
        // The cache's revision was compacted: the resource had no event for long. A recent change arrives
        // within the wait.
        Err(ReadError::Call(failure)) if failure.is_compacted() => {
            tokio::time::sleep(SETTLED).await;
            let still = serving.cacher.snapshot().revision == state.revision;
            // A change since then makes the comparison meaningless; the next round decides.
            Ok(still.then_some(false))
        }
        Err(e) => Err(e.into()),
    }
}

/// True if a state contains exactly these keys at these revisions.
pub(super) fn same(state: &Snapshot, prefix: &str, single: bool, pairs: &[(String, Revision)]) -> bool {
    if single {
        return state.get(prefix).map(|e| e.revision) == pairs.first().map(|(_, r)| *r);
    }
    // Both are in key order, so one pass suffices.
    let mut there = state.scan(prefix, Bound::Unbounded);
    pairs
        .iter()
        .all(|(key, revision)| there.next().is_some_and(|e| *e.key == **key && e.revision == *revision))
        && there.next().is_none()
}
