//! Watches: streams of events as JSON lines or length-prefixed messages.
//!
//! Entry point: [`watch`]. `frames` encodes the events; frames of plain objects are encoded once and shared
//! by all watchers.

mod frames;
mod messages;

use super::super::call::Call;
use super::super::negotiate::{Offer, Transform};
use super::super::offload;
use super::super::options::ListQuery;
use super::super::options::list::min_revision;
use super::super::respond;
use super::super::respond::table::Include;
use super::{VerbResult, list};
use crate::apimachinery::FieldSelector;
use crate::apimachinery::status::{Result, Status};
use crate::request::user::MASTERS;
use crate::request::{Body, Initializing, OnDemandBody, RequestContext};
use crate::storage::budget::WatchPermit;
use crate::storage::{MinRevision, Watch, WatchItem, WatchOptions};
use crate::tasks::Signal;
use crate::tasks::compute::{self, Current, Reservation};
use crate::telemetry::WatchMetrics;
use bytes::Bytes;
use frames::{EncodedFrame, Frames, Representation};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body::Frame;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Available events are joined into chunks of about this size; larger frames are sent separately. This also
/// bounds the memory held by a watch whose client does not read.
const CHUNK: usize = 16 * 1024;

/// Estimated memory, in bytes, for encoding one object for a watch on the compute pool.
const ENCODING: usize = 4 << 20;

pub(crate) async fn watch(call: Call) -> VerbResult {
    let resource = call.resource().clone();
    if !resource.verbs.has(crate::registry::Verbs::WATCH) {
        return Err(Status::method_not_supported(&resource.group_resource(), "watch"));
    }
    // As in upstream's `ListResource`, `Accept` is first checked for an object, and for a stream only at the end.
    call.negotiate(Offer::Objects)?;
    // Below `/watch/` upstream checks the options of a list, unless the query asks for a watch as well.
    let is_watch = !call.route.watch_path || call.query.flag("watch") == Some(true);
    // Admission counts the terms of the parsed selectors, so it runs where they are parsed; a refused query is
    // then also freed on the pool.
    let (mut call, (query, permit)) = list::parse(call, is_watch, move |call, mut query| {
        fix_name(call, &mut query)?;
        let permit = admit(call, query.terms())?;
        Ok((query, permit))
    })
    .await?;
    let timeout = timeout(query.timeout_seconds, call.min_request_timeout);
    // The store needs it too: it sends a bookmark shortly before, from which the client resumes.
    let until = Instant::now() + timeout;
    let selectors = selectors(&call)?;
    let options = options(&call, &query, until)?;
    let initial = options.initial.is_some();
    let watch = match call.store().watch(options).await {
        // An expired or future revision is reported by an ERROR event in the stream: clients react to the
        // event, not to a status code.
        Err(s) if !matches!(s.code, 410 | 504) => return Err(s),
        other => other,
    };
    // Stream negotiation comes last, so that errors in the options take precedence, as upstream.
    let negotiated = call.negotiate(Offer::Events)?;
    let form = match negotiated.transform {
        Transform::None => Representation::Object,
        Transform::Partial(version) | Transform::PartialList(version) => Representation::Partial(version),
        Transform::Table(version) => Representation::Table(version, Include::parse(&call.query)?),
    };
    // No event is a list: in upstream the encoding of the first one fails, which ends the watch.
    let unencodable = matches!(negotiated.transform, Transform::PartialList(_));
    let (media, content_type) = (negotiated.media, negotiated.media.stream_type());
    let frames = Frames::new(
        resource,
        media,
        form,
        query.bookmarks,
        query.initial_events == Some(true),
    )
    .shared(call.store().budget());
    let watch = match watch {
        Ok(w) => w,
        Err(s) => {
            let error = frames::error(&s, media);
            return Ok(match messages::requested(&call) {
                Some(tasks) => messages::single(&mut call.parts, error.into(), media, &tasks),
                None => respond::bytes(200, content_type, Body::full(error)),
            });
        }
    };
    // Without initial events the watch is initialized now: nothing is done before something changes.
    let initializing = initial
        .then(|| RequestContext::of(&call.parts).initializing.clone())
        .flatten();
    let stream = Stream {
        watch,
        initializing,
        frames: Encoder::Idle(frames),
        unencodable,
        pool: compute::current(),
        permit,
        _selectors: selectors,
        parts: VecDeque::new(),
        refused: false,
        // Pinned on the heap: the body is polled through a reference and must be `Unpin`.
        timeout: Box::pin(tokio::time::sleep(timeout)),
        metrics: call.watch_metrics.clone(),
        ending: [RequestContext::of(&call.parts).ending.clone(), call.retired.clone()].map(|s| s.map(Ends::new)),
    };
    if let Some(tasks) = messages::requested(&call) {
        return Ok(messages::stream(&mut call.parts, stream, media, &tasks));
    }
    let mut response = respond::bytes(200, content_type, Body::stream(stream));
    response.extensions_mut().insert(OnDemandBody);
    Ok(response)
}

/// Takes one of the limited places for concurrent watches, per user and in total, and the terms of its
/// selectors. Members of `system:masters` are exempt.
fn admit(call: &Call, terms: usize) -> Result<Option<WatchPermit>> {
    /// Seconds for `Retry-After`.
    const AGAIN: u32 = 1;
    let Some(budget) = call.store().budget() else {
        return Ok(None);
    };
    let user = &call.cx.user;
    // Administrators must be able to watch even while tenants use up all places.
    let exempt = user.groups.iter().any(|group| *group == *MASTERS);
    let permit = budget.admit_watch(&user.name, terms, exempt);
    permit
        .map(Some)
        .map_err(|why| Status::too_many_requests(why.to_string(), AGAIN))
}

/// Reserves memory for long selectors, because a client can open thousands of watches. `None` for selectors
/// of ordinary length.
fn selectors(call: &Call) -> Result<Option<Reservation>> {
    /// Estimated memory of a parsed selector per byte of the query.
    const PARSED: usize = 16;
    let length = list::query_length(call);
    let current = compute::current().filter(|_| length > list::SHORT_QUERY);
    let Some(mut reservation) = current.and_then(|current| current.reservation()) else {
        return Ok(None);
    };
    reservation
        .grow(length * PARSED)
        .map_err(offload::offload_error_status)?;
    Ok(Some(reservation))
}

/// How long the watch may last.
fn timeout(requested_seconds: Option<u64>, minimum: Duration) -> Duration {
    /// Go's longest duration, some 292 years. An [`Instant`] so far ahead still exists, unlike one that is as many
    /// seconds ahead as a client can ask for.
    const MAX_TIMEOUT: Duration = Duration::from_nanos(i64::MAX.cast_unsigned());
    // `timeoutSeconds` is not spread: the client chose it.
    requested_seconds.map_or_else(
        || spread(minimum),
        |seconds| Duration::from_secs(seconds).min(MAX_TIMEOUT),
    )
}

/// A random duration between one and two times `minimum`, so that watches do not all end at the same time.
fn spread(minimum: Duration) -> Duration {
    // Only needs to differ between watches, so 32 bits of an existing source of randomness suffice.
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    minimum.mul_f64(1.0 + f64::from(random) / f64::from(u32::MAX))
}

/// Handles `/watch/…/<name>`: the name acts as a field selector, which the query must not contradict.
fn fix_name(call: &Call, query: &mut ListQuery) -> Result<()> {
    let name = call.name();
    if name.is_empty() {
        return Ok(());
    }
    if !query.fields.is_everything() && query.fields.requires_exact("metadata.name") != Some(name) {
        return Err(Status::bad_request(
            "fieldSelector metadata.name doesn't match requested name",
        ));
    }
    query.fields = Arc::new(FieldSelector::exact("metadata.name", name));
    Ok(())
}

fn options(call: &Call, query: &ListQuery, until: Instant) -> Result<WatchOptions> {
    let (prefix, single) = query.prefix(call.resource(), &call.cx.namespace);
    let min = min_revision(&query.version)?;
    let (since, initial) = match (min, query.initial_events) {
        // The requested state comes first and replaces the replay of history.
        (min, Some(true)) => (None, Some(min)),
        // From a revision: the changes since then are replayed.
        (MinRevision::AtLeast(r), _) => (Some(r), None),
        // Only changes from now on.
        (_, Some(false)) => (None, None),
        // Older clients: without a revision, the state comes first as ADDED events.
        (min, None) => (None, Some(min)),
    };
    Ok(WatchOptions {
        prefix,
        single,
        predicate: query.predicate(call.resource()),
        since,
        initial,
        bookmarks: query.bookmarks,
        until: Some(until),
    })
}

/// The response body. Polled by hand, because a future per event and a select over the end conditions would
/// cost more than the event itself.
struct Stream {
    watch: Box<dyn Watch>,
    /// Held until the initial events have been sent: until another item comes, or nothing for now.
    initializing: Option<Initializing>,
    frames: Encoder,
    /// Whether the first event ends the watch.
    unencodable: bool,
    /// The compute pool for encoding large objects.
    pool: Option<Current>,
    permit: Option<WatchPermit>,
    /// Holds the memory charge for long selectors for the lifetime of the watch.
    _selectors: Option<Reservation>,
    /// The parts of a large frame that remain to be sent.
    parts: VecDeque<Bytes>,
    /// Whether a frame was dropped, because this user's watches already hold too much memory. No event may follow
    /// one that is missing, so the stream ends after what precedes it, and the client resumes from there.
    refused: bool,
    metrics: Option<WatchMetrics>,
    timeout: Pin<Box<Sleep>>,
    /// Fire when the server shuts down, and when the resource is replaced.
    ending: [Option<Ends>; 2],
}

/// The encoder of frames, which moves to the compute pool and back.
enum Encoder {
    Idle(Frames),
    /// A large object is being encoded on the compute pool. Yields `None` if the pool rejected or interrupted
    /// it.
    Computing(BoxFuture<'static, Option<(Frames, Option<EncodedFrame>)>>),
    /// The encoder was lost with its job, so the watch ends.
    Lost,
}

/// The result of encoding an item.
enum Step {
    Frame(EncodedFrame),
    /// The client did not request this kind of item (bookmarks).
    Skipped,
    /// The frame is being encoded on the compute pool.
    Later,
}

/// A signal and a future that waits for it.
struct Ends {
    signal: Signal,
    fired: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Ends {
    fn new(signal: Signal) -> Self {
        let waited = signal.clone();
        let fired = Box::pin(async move { waited.wait().await });
        Self { signal, fired }
    }
}

impl Stream {
    /// True if the stream must end now; otherwise registers the task to be woken when it must. If `busy`,
    /// there is data to send and the stream will be polled again anyway, so checking the signal's state
    /// suffices.
    fn is_over(&mut self, cx: &mut Context<'_>, busy: bool) -> bool {
        // Signals first: they are checked with a load, while the timer needs a poll.
        let ended = self.ending.iter_mut().flatten().fold(false, |ended, ends| {
            ended || ends.signal.fired() || (!busy && ends.fired.as_mut().poll(cx).is_ready())
        });
        ended || self.timeout.as_mut().poll(cx).is_ready()
    }

    /// Returns the next event.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<EncodedFrame>> {
        if self.refused {
            return Poll::Ready(None);
        }
        loop {
            match self.poll_computed(cx) {
                Poll::Ready(Some(Step::Frame(frame))) => return Poll::Ready(Some(frame)),
                Poll::Ready(Some(_)) => {}
                // The encoding failed: the client resumes from its last revision.
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if self.is_over(cx, false) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
            let item = match self.watch.poll_next(cx) {
                Poll::Ready(Some(item)) => item,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if self.is_over(cx, false) => return Poll::Ready(None),
                Poll::Pending => {
                    self.initializing = None;
                    return Poll::Pending;
                }
            };
            // Check the end conditions before sending, so that a busy watch ends, too.
            if self.is_over(cx, true) {
                return Poll::Ready(None);
            }
            match self.frame(item) {
                Step::Frame(_) | Step::Later if self.unencodable => return Poll::Ready(None),
                Step::Frame(frame) => return Poll::Ready(Some(frame)),
                Step::Later | Step::Skipped => {}
            }
        }
    }

    /// Returns the next event in one piece; `None` also if the next one is refused.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(frame) = ready!(self.poll_event(cx)) else {
            return Poll::Ready(None);
        };
        if let Some(small) = self.small(frame) {
            return Poll::Ready(Some(small));
        }
        let parts = std::mem::take(&mut self.parts);
        Poll::Ready(match parts.len() {
            // A WebSocket message is one piece; only objects too large to copy into a frame have several parts.
            0 | 1 => parts.into_iter().next(),
            _ => Some(parts.into_iter().collect::<Vec<_>>().concat().into()),
        })
    }

    /// Returns the next frame, joined with further available ones up to the size of a chunk.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(part) = self.parts.pop_front() {
            return Poll::Ready(Some(part));
        }
        let Some(first) = ready!(self.poll_event(cx)) else {
            return Poll::Ready(None);
        };
        let Some(first) = self.small(first) else {
            // No part if the frame was refused.
            return Poll::Ready(self.parts.pop_front());
        };
        let Some(second) = self.ready() else {
            return Poll::Ready(Some(first));
        };
        // A second available frame suggests more of them; a single frame is sent without copying it.
        let mut joined = Vec::with_capacity((first.len() + second.len()) * 2);
        joined.extend_from_slice(&first);
        joined.extend_from_slice(&second);
        // Stops at a large frame, which `ready` has moved to `parts` and which must follow what is joined.
        while joined.len() < CHUNK && self.parts.is_empty() {
            match self.ready() {
                Some(frame) => joined.extend_from_slice(&frame),
                None => break,
            }
        }
        Poll::Ready(Some(joined.into()))
    }

    fn frame(&mut self, item: WatchItem) -> Step {
        match (&item, &self.metrics) {
            (WatchItem::Initial(_), Some(m)) => m.initial.inc(),
            (WatchItem::Initial(_), None) => {}
            _ => self.initializing = None,
        }
        // Not reached: no item is taken from the watch while an earlier one is being encoded.
        let Encoder::Idle(frames) = &mut self.frames else {
            return Step::Later;
        };
        let pool = self.pool.as_ref().filter(|_| frames.is_heavy(&item));
        let Some(current) = pool.cloned() else {
            let frame = frames.encode(item);
            return self.step_of(frame);
        };
        // `Lost` until the job is stored below; nothing in between can fail.
        if let Encoder::Idle(mut frames) = std::mem::replace(&mut self.frames, Encoder::Lost) {
            let encode = async move {
                let frame = frames.encode(item);
                (frames, frame)
            };
            // The encoder moves into the job and comes back with the result: it holds state (the columns sent), and
            // order must be kept, so a watch never encodes two items at once.
            let job = async move { current.run(ENCODING, encode).await.ok() };
            self.frames = Encoder::Computing(job.boxed());
        }
        Step::Later
    }

    /// The result of a running computation, `Skipped` if none is running, or `None` if it failed.
    fn poll_computed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        let Encoder::Computing(job) = &mut self.frames else {
            return Poll::Ready(Some(Step::Skipped));
        };
        let Some((frames, frame)) = ready!(job.poll_unpin(cx)) else {
            self.frames = Encoder::Lost;
            return Poll::Ready(None);
        };
        self.frames = Encoder::Idle(frames);
        Poll::Ready(Some(self.step_of(frame)))
    }

    fn step_of(&self, frame: Option<EncodedFrame>) -> Step {
        match frame {
            Some(frame) => {
                if let Some(m) = &self.metrics {
                    m.sent.inc();
                }
                Step::Frame(frame)
            }
            None => Step::Skipped,
        }
    }

    /// Returns a frame small enough to be joined with others; larger ones are moved to `parts` or `refused`.
    fn small(&mut self, frame: EncodedFrame) -> Option<Bytes> {
        match frame {
            EncodedFrame::Own(frame) if frame.len() < CHUNK => return Some(frame.into()),
            EncodedFrame::Own(frame) => {
                let bytes = match &self.permit {
                    None => Some(frame.into()),
                    // Charged until the connection drops the bytes: a client that does not read keeps them in memory.
                    Some(permit) => permit.hold_frame(frame).map(Bytes::from_owner),
                };
                self.refused = bytes.is_none();
                self.parts.extend(bytes);
            }
            EncodedFrame::Shared(frame) if frame.len() < CHUNK => return Some(frame),
            // Not charged to the watch: the shared copy is charged to the budget once, whoever holds it.
            EncodedFrame::Shared(frame) => self.parts.push_back(frame),
            EncodedFrame::Around(head, object, tail) => {
                self.parts.extend([head.into(), object, Bytes::from_static(tail)]);
            }
        }
        None
    }

    /// The next small frame that is available without waiting.
    fn ready(&mut self) -> Option<Bytes> {
        loop {
            let item = self.watch.try_next()?;
            match self.frame(item) {
                Step::Frame(frame) => return self.small(frame),
                Step::Skipped => {}
                Step::Later => return None,
            }
        }
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        self.poll_chunk(cx)
            .map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests;
