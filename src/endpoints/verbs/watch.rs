//! Watches: a stream of events, lines of JSON or protobuf with the length in front. Frames of plain objects are made once and shared by all watchers.

mod frames;

use super::super::call::Call;
use super::super::group_version::Answer;
use super::super::negotiate::{Offer, Transform};
use super::super::options::ListQuery;
use super::super::options::list::min_revision;
use super::super::respond;
use super::super::respond::table::Include;
use crate::apimachinery::FieldSelector;
use crate::apimachinery::status::{Result, Status};
use crate::request::Body;
use crate::request::context::Ending;
use crate::storage::{MinRevision, Watch, WatchItem, WatchOptions};
use crate::tasks::Signal;
use crate::telemetry::WatchMetrics;
use bytes::Bytes;
use frames::{Form, Frames};
use http_body::Frame;
use http_body_util::StreamBody;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Events that are ready are joined into chunks of about this size.
const CHUNK: usize = 64 * 1024;

pub(crate) async fn watch(call: Call) -> Answer {
    let resource = call.resource().clone();
    if !resource.verbs.has(crate::registry::Verbs::WATCH) {
        return Err(Status::method_not_supported(&resource.group_resource(), "watch"));
    }
    let negotiated = call.negotiate(Offer::Events)?;
    let mut query = ListQuery::parse(&call.query, &resource, !call.route.watch_path)?;
    fix_name(&call, &mut query)?;
    let form = match negotiated.transform {
        Transform::None => Form::Object,
        Transform::Partial(version) | Transform::PartialList(version) => Form::Partial(version),
        Transform::Table(version) => Form::Table(version, Include::parse(&call.query)?),
    };
    let timeout = query
        .timeout_seconds
        .map_or_else(|| spread(call.min_request_timeout), Duration::from_secs);
    let until = Instant::now() + timeout;
    let options = options(&call, &query, until)?;
    let (media, content_type) = (negotiated.media, negotiated.media.stream_type());
    let frames = Frames::new(
        resource,
        media,
        form,
        query.bookmarks,
        query.initial_events == Some(true),
    );
    let watch = match call.store().watch(options).await {
        Ok(w) => w,
        // What is no longer kept is said in the stream: clients list anew on this event, not on a 410.
        Err(s) if s.code == 410 => return Ok(respond::bytes(200, content_type, Body::full(frames::error(&s, media)))),
        Err(s) => return Err(s),
    };
    let stream = Stream {
        watch,
        frames,
        timeout: Box::pin(tokio::time::sleep(timeout)),
        metrics: call.watch_metrics.clone(),
        ending: call.parts.extensions.get::<Ending>().map(|e| e.0.clone()),
    };
    let chunks = futures_util::stream::unfold(stream, |mut s| async move {
        let chunk = s.chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(chunk)), s))
    });
    Ok(respond::bytes(200, content_type, Body::stream(StreamBody::new(chunks))))
}

/// A random time between one and two of these, so that watches do not all end together.
fn spread(minimum: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    minimum.mul_f64(1.0 + f64::from(random) / f64::from(u32::MAX))
}

/// `/watch/…/<name>`: the path's name is a field selector, which the query's must not contradict.
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
    query.fields = FieldSelector::exact("metadata.name", name);
    Ok(())
}

fn options(call: &Call, query: &ListQuery, until: Instant) -> Result<WatchOptions> {
    let (prefix, single) = query.prefix(call.resource(), &call.cx.namespace);
    let min = min_revision(&query.version).map_err(Status::raw_error)?;
    let (since, initial) = match (min, query.initial_events) {
        (min, Some(true)) => (None, Some(min)),
        (MinRevision::AtLeast(r), _) => (Some(r), None),
        (_, Some(false)) => (None, None),
        (min, None) => (None, Some(min)),
    };
    Ok(WatchOptions {
        prefix,
        single,
        predicate: query.predicate(),
        since,
        initial,
        bookmarks: query.bookmarks,
        until: Some(until),
    })
}

struct Stream {
    watch: Box<dyn Watch>,
    frames: Frames,
    metrics: Option<WatchMetrics>,
    timeout: Pin<Box<Sleep>>,
    ending: Option<Signal>,
}

impl Stream {
    /// The next bytes; `None`: the stream ends.
    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            let ending = self.ending.as_ref();
            let ended = async {
                match ending {
                    Some(signal) => signal.wait().await,
                    None => std::future::pending().await,
                }
            };
            // The ends come first, so that a busy watch ends, too.
            let item = tokio::select! {
                biased;
                () = ended => None,
                () = self.timeout.as_mut() => None,
                item = self.watch.next() => item,
            }?;
            let Some(first) = self.frame(item) else {
                continue;
            };
            let Some(second) = self.ready() else {
                return Some(first);
            };
            let mut joined = Vec::with_capacity((first.len() + second.len()) * 2);
            joined.extend_from_slice(&first);
            joined.extend_from_slice(&second);
            while joined.len() < CHUNK {
                match self.ready() {
                    Some(frame) => joined.extend_from_slice(&frame),
                    None => break,
                }
            }
            return Some(joined.into());
        }
    }

    fn frame(&mut self, item: WatchItem) -> Option<Bytes> {
        let initial = matches!(item, WatchItem::Initial(_));
        let frame = self.frames.make(item);
        if let Some(m) = &self.metrics {
            if initial {
                m.initial.inc();
            }
            if frame.is_some() {
                m.sent.inc();
            }
        }
        frame
    }

    /// The frame of an item that is there already.
    fn ready(&mut self) -> Option<Bytes> {
        loop {
            let item = self.watch.try_next()?;
            if let Some(frame) = self.frame(item) {
                return Some(frame);
            }
        }
    }
}
