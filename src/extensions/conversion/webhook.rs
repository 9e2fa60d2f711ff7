//! The strategy `Webhook`: encodes reviews, calls the webhook and accepts its objects. Their contents are left to
//! `review`.

use super::review::{self, Unacceptable};
use crate::apimachinery::codec::json;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::names;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::client::webhook::ReviewVersion;
use crate::client::webhook::{Call, CallError, Limits, Webhook};
use crate::registry::converting::{Conversion, Converting, KindVersion, NotConverted};
use crate::tasks::compute;
use crate::telemetry::conversion::{ConversionFailure, ConversionMetrics};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bounds on the use of one webhook. Waiting callers hold the objects that they want converted.
pub(super) const LIMITS: Limits = Limits {
    calls: 16,
    waiting: 256,
};
/// Upstream's timeout of a conversion call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A review with this many bytes of objects, or this many objects, is followed by another. Large lists then
/// need several calls, which share the work between the webhook's replicas and bound the memory for its
/// response.
const REVIEW_BYTES: usize = 2 << 20;
const REVIEW_OBJECTS: usize = 1000;
/// Reviews of one list that are sent at the same time.
const REVIEWS: usize = 4;
/// Limits of a response, relative to the size of the request: converted objects are of similar size.
const RESPONSE_FACTOR: usize = 4;
const RESPONSE_BYTES: usize = 1 << 20;
/// Responses from this size on are decoded on the compute pool.
const LARGE: usize = 32 << 10;
/// Approximate bytes that decoding allocates, per byte of the response.
const MEMORY_PER_BYTE: usize = 8;
/// A call longer than this, plus this per object, is logged as slow; the numbers are those of upstream's traces.
const SLOW_MS: u64 = 50;
const SLOW_MS_PER_OBJECT: u64 = 8;

/// Converts objects by calling a webhook.
pub(super) struct WebhookConversion {
    /// `None` if the webhook accepts no review version that we support.
    pub review_version: Option<ReviewVersion>,
    pub caller: Arc<Caller>,
}

/// The webhook of a definition.
pub(super) struct Caller {
    /// The name of the definition.
    pub definition: String,
    pub webhook: Arc<Webhook>,
    pub metrics: ConversionMetrics,
}

/// A call to the webhook with at most [`REVIEW_OBJECTS`] of the objects to convert.
struct Review {
    caller: Arc<Caller>,
    version: ReviewVersion,
    uid: String,
    body: Bytes,
    objects: Vec<Value>,
    /// `apiVersion` of the result.
    desired: String,
}

impl Conversion for WebhookConversion {
    fn convert(&self, objects: Vec<Value>, to: &KindVersion) -> Converting {
        let Some(version) = self.review_version else {
            return Converting::Done(Err(NotConverted("no supported conversion review versions".to_owned())));
        };
        let reviews = reviews(&self.caller, version, objects, &to.api_version);
        Converting::Pending(Box::pin(async move {
            // Lazy futures: no call starts before it is polled, which bounds the calls in flight.
            let calls = stream::iter(reviews.into_iter().map(Review::call));
            // `buffered` keeps the order of the list, which clients rely on.
            let converted: Vec<Vec<Value>> = calls.buffered(REVIEWS).try_collect().await?;
            Ok(converted.into_iter().flatten().collect())
        }))
    }

    fn asks_others(&self) -> bool {
        true
    }

    /// Webhooks may change labels and annotations.
    fn keeps_labels(&self) -> bool {
        false
    }
}

/// Distributes objects over reviews.
fn reviews(caller: &Arc<Caller>, version: ReviewVersion, objects: Vec<Value>, desired: &str) -> Vec<Review> {
    let mut reviews = Vec::new();
    let (mut chunk, mut encoded, mut size) = (Vec::new(), Vec::new(), 0);
    let mut finish = |objects: Vec<Value>, encoded: Vec<Vec<u8>>| {
        let uid = names::uid();
        reviews.push(Review {
            caller: caller.clone(),
            version,
            body: review::request(version, &uid, desired, &encoded).into(),
            uid,
            objects,
            desired: desired.to_owned(),
        });
    };
    for object in objects {
        // Encoded once, for the size and for the request.
        let bytes = json::to_vec(&object);
        // Checked before adding: a single object larger than the limit still gets a review of its own.
        if !chunk.is_empty() && (size + bytes.len() > REVIEW_BYTES || chunk.len() == REVIEW_OBJECTS) {
            finish(std::mem::take(&mut chunk), std::mem::take(&mut encoded));
            size = 0;
        }
        size += bytes.len();
        chunk.push(object);
        encoded.push(bytes);
    }
    if !chunk.is_empty() {
        finish(chunk, encoded);
    }
    reviews
}

impl Review {
    async fn call(self) -> Result<Vec<Value>, NotConverted> {
        let began = Instant::now();
        let caller = self.caller.clone();
        // Reviews are never empty, so the index is safe.
        let (count, first) = (self.objects.len(), &self.objects[0]);
        let version_of =
            |api_version: &str| GroupVersion::parse(api_version).map_or_else(String::new, |gv| gv.version.to_string());
        let (from, to) = (version_of(first.api_version()), version_of(&self.desired));
        let what = gvk(first);
        let outcome = self.exchange(&what).await;
        let took = began.elapsed();
        let failure = outcome.as_ref().err().map(|(failure, _)| *failure);
        let definition = &caller.definition;
        caller.metrics.called(definition, &from, &to, took, failure);
        if took > Duration::from_millis(SLOW_MS + SLOW_MS_PER_OBJECT * count as u64) {
            tracing::info!(%definition, %to, objects = count, ?took, "a conversion webhook is slow");
        }
        outcome.map_err(|(_, why)| NotConverted(why))
    }

    async fn exchange(self, what: &str) -> Result<Vec<Value>, (ConversionFailure, String)> {
        let failed = |why: String| {
            let text = format!("conversion webhook for {what} failed: {why}");
            (ConversionFailure::Call, text)
        };
        // Grows with the request, so that a webhook cannot make us buffer an unbounded response.
        let max_response = RESPONSE_BYTES + RESPONSE_FACTOR * self.body.len();
        let called = self.caller.webhook.post(Call {
            body: self.body.clone(),
            timeout: TIMEOUT,
            max_response,
        });
        let body = called.await.map_err(|e| failed(call_error(&e)))?;
        let (size, what) = (body.len(), what.to_owned());
        let read = move || self.read(&body, &what);
        if size < LARGE {
            return read();
        }
        // Decoding megabytes on a reactor thread would delay every other connection.
        let read = compute::offload(size * MEMORY_PER_BYTE, async move { read() }).await;
        read.unwrap_or_else(|e| Err(failed(format!("{e:?}"))))
    }

    /// The objects of a response.
    fn read(self, body: &[u8], what: &str) -> Result<Vec<Value>, (ConversionFailure, String)> {
        let converted = review::converted_objects(self.version, &self.uid, body).map_err(|why| {
            let text = format!("conversion webhook for {what} failed: {why}");
            (ConversionFailure::Call, text)
        })?;
        let (got, wanted) = (converted.len(), self.objects.len());
        // Checked before pairing, since `zip` would silently drop the rest.
        if got != wanted {
            let text = format!("conversion webhook for {what} returned {got} objects, expected {wanted}");
            return Err((ConversionFailure::Partial, text));
        }
        let pairs = self.objects.iter().zip(converted).enumerate();
        let accepted = pairs.map(|(i, (original, converted))| {
            review::accept(original, converted, &self.desired).map_err(|why| {
                let text = refusal(&gvk(original), &why, i, wanted > 1);
                (ConversionFailure::InvalidObject, text)
            })
        });
        accepted.collect()
    }
}

/// Upstream words it differently for one object and for one of several.
fn refusal(what: &str, why: &Unacceptable, index: usize, of_several: bool) -> String {
    let (kind, why) = match (why, of_several) {
        // As upstream, without the webhook.
        (Unacceptable::Undecodable(why), false) => return why.clone(),
        (Unacceptable::Undecodable(why) | Unacceptable::Type(why) | Unacceptable::Identity(why), true) => {
            (format!("invalid converted object at index {index}"), why)
        }
        (Unacceptable::Metadata(why), true) => (format!("invalid metadata in object at index {index}"), why),
        (Unacceptable::Metadata(why), false) => ("invalid metadata".to_owned(), why),
        (Unacceptable::Type(why), false) => ("invalid object at index 0".to_owned(), why),
        (Unacceptable::Identity(why), false) => ("invalid object".to_owned(), why),
    };
    format!("conversion webhook for {what} returned {kind}: {why}")
}

/// `group/version, Kind=Kind`, as Go prints it.
fn gvk(object: &Value) -> String {
    format!("{}, Kind={}", object.api_version(), object.str_at(&["kind"]))
}

fn call_error(error: &CallError) -> String {
    match error {
        // Upstream's client has a timeout of its own here, which adds to the text.
        CallError::Timeout(_) => format!("{error} (Client.Timeout exceeded while awaiting headers)"),
        _ => error.to_string(),
    }
}
