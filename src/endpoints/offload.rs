//! Decides whether a verb runs on the reactor, where small requests are cheapest, or on the compute pool.
//!
//! Entry point: [`run`]. The cost of a verb depends on the bytes it processes: body, stored object and response. Up
//! to [`LIGHT`] bytes of body and [`LIVE`] bytes of stored object, every verb stays well below the 200 µs a reactor
//! thread may be blocked. Anything larger, or of unknown size, becomes a job of the compute pool. The reactor
//! receives the body first, so that a slow client does not occupy a place in the pool.

use super::call::Call;
use super::group_version::VerbResult;
use super::route::Action;
use super::{body, verbs};
use crate::apimachinery::codec::budget::decoded_size_limit;
use crate::apimachinery::status::{Result, Status};
use crate::registry::resource::Backing;
use crate::request::Body;
use crate::request::body::CollectError;
use crate::tasks::compute::{self, Error, Reservation};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::future::Future;

/// Bodies up to this size are decoded on the reactor.
const LIGHT: usize = 8 << 10;
/// Stored objects up to this size are decoded on the reactor.
const LIVE: usize = 32 << 10;
/// Estimated memory per byte of a stored object: the tree, its encoding, and the object it is compared with.
const MEMORY_PER_STORED_BYTE: usize = 8;

/// Runs a verb on the reactor or on the compute pool.
pub(super) async fn run(action: Action, call: Call, body: Body) -> VerbResult {
    let current = match action {
        // Lists and watches offload parts of their work themselves; connections only relay bytes.
        Action::List | Action::Watch | Action::Connect => None,
        _ if is_light(action, &call, &body) => None,
        _ => compute::current().and_then(|current| current.pool()),
    };
    let Some((pool, flow)) = current else {
        return verbs::run(action, call, body).await;
    };
    let (received, reservation) = receive(body, pool.reservation(flow)).await?;
    // `application/yaml` and `application/apply-patch+yaml`.
    let is_yaml = body::media_type(&call.parts.headers).ends_with("yaml");
    // What the decoders may use at most, and not what they usually use: clients choose the worst body.
    let memory = decoded_size_limit(received.len(), is_yaml) + live_size(&call) * MEMORY_PER_STORED_BYTE;
    let work = async move {
        let answer = verbs::run(action, call, received.into_body()).await;
        drop(reservation);
        answer
    };
    let done = pool.run(flow, memory, work).await;
    done.unwrap_or_else(|e| Err(offload_error_status(e)))
}

/// Runs part of a verb on the current pool, or in place if there is none.
pub(super) async fn run_offloaded<T: Send + 'static>(
    memory: usize,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    compute::offload(memory, work)
        .await
        .unwrap_or_else(|e| Err(offload_error_status(e)))
}

/// True if processing this many stored bytes would block a reactor thread for too long.
pub(super) fn is_heavy(stored: usize) -> bool {
    stored > LIVE
}

/// The Status for a computation that was rejected or interrupted.
pub(super) fn offload_error_status(error: Error) -> Status {
    match error {
        Error::Full => Status::too_many_requests("too many requests, please try again later", 1),
        Error::Interrupted => {
            let mut s = Status::new(
                504,
                "Timeout",
                "Timeout: request did not complete within requested timeout - context deadline exceeded",
            );
            s.details_mut();
            s
        }
    }
}

fn is_light(action: Action, call: &Call, body: &Body) -> bool {
    let small = || body.size_hint().exact().is_some_and(|n| n <= LIGHT as u64);
    match action {
        // Processes any number of objects.
        Action::DeleteCollection => false,
        // The stored bytes are the response, or the verb checks their size after reading them.
        Action::Get => call.subresource().is_empty() || !is_heavy(live_size(call)),
        Action::Create if call.subresource().is_empty() => small() && !is_costly(call),
        _ => small() && !is_costly(call) && !is_heavy(live_size(call)),
    }
}

/// Kinds whose cost does not depend on the size of the request: they compare the caller's permissions with the
/// granted ones, or have rules.
fn is_costly(call: &Call) -> bool {
    let resource = call.resource();
    let reviews = matches!(resource.backing, Backing::CreateOnly(_));
    resource.gvr.group == "rbac.authorization.k8s.io"
        || (reviews && resource.kind == "SelfSubjectRulesReview")
        || resource.strategy.rules().costly_validation
}

/// The size of the object addressed by the call, as far as it is known without waiting.
fn live_size(call: &Call) -> usize {
    if call.name().is_empty() {
        return 0;
    }
    let key = call.resource().key(&call.route.namespace, call.name());
    call.store().storage().peek_size(&key)
}

/// A received body. The pool joins its chunks: copying megabytes would hold a reactor for milliseconds.
enum Received {
    Whole(Body),
    Chunks(Chunks),
}

#[derive(Default)]
struct Chunks {
    /// In order of arrival. Small chunks are joined, because a chunk keeps the whole buffer alive that it was read
    /// into.
    chunks: Vec<Bytes>,
    small: Vec<u8>,
    length: usize,
}

impl Chunks {
    /// Chunks below this size, in bytes, are copied, so that memory follows the bytes received and not the number of
    /// frames.
    const SMALL: usize = 4 << 10;
    /// Small chunks are joined to about this size, in bytes.
    const JOINED: usize = 16 << 10;

    fn push(&mut self, chunk: Bytes) {
        self.length += chunk.len();
        if chunk.len() < Self::SMALL {
            self.small.extend_from_slice(&chunk);
            if self.small.len() < Self::JOINED {
                return;
            }
            self.flush();
        } else {
            self.flush();
            self.chunks.push(chunk);
        }
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push(std::mem::take(&mut self.small).into());
        }
    }

    fn join(mut self) -> Vec<u8> {
        self.flush();
        let mut whole = Vec::with_capacity(self.length);
        // Each chunk is freed as soon as it is copied.
        self.chunks.drain(..).for_each(|chunk| whole.extend_from_slice(&chunk));
        whole
    }
}

impl Received {
    fn len(&self) -> usize {
        match self {
            Self::Whole(body) => body.as_full().map_or(0, <[u8]>::len),
            Self::Chunks(chunks) => chunks.length,
        }
    }

    fn into_body(self) -> Body {
        match self {
            Self::Whole(body) => body,
            Self::Chunks(chunks) => Body::full(chunks.join()),
        }
    }
}

/// Receives a body within the limit of a single body and the shared memory budget. Errors are not returned here but
/// stored in the returned body, because the order of a verb's checks determines which of several errors the client
/// sees.
async fn receive(mut body: Body, mut reservation: Reservation) -> Result<(Received, Reservation)> {
    if body.as_full().is_some() {
        return Ok((Received::Whole(body), reservation));
    }
    let failed = |e| Received::Whole(Body::failed(e));
    let announced = body.size_hint().exact().and_then(|n| usize::try_from(n).ok());
    if announced.is_some_and(|n| n > body::LIMIT) {
        return Ok((failed(CollectError::TooLarge(body::LIMIT)), reservation));
    }
    let mut received = Chunks::default();
    while let Some(frame) = body.frame().await {
        let data = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            Err(e) => return Ok((failed(CollectError::Read(e)), reservation)),
        };
        if received.length + data.len() > body::LIMIT {
            return Ok((failed(CollectError::TooLarge(body::LIMIT)), reservation));
        }
        reservation.grow(data.len()).map_err(offload_error_status)?;
        received.push(data);
    }
    Ok((Received::Chunks(received), reservation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::compute::{ComputePool, Config};
    use crate::telemetry::Telemetry;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    fn chunks(sizes: &[usize]) -> Body {
        let frames: Vec<_> = sizes
            .iter()
            .map(|n| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; *n]))))
            .collect();
        Body::stream(StreamBody::new(stream::iter(frames)))
    }

    fn pool(body_bytes_per_flow: usize) -> (ComputePool, Telemetry) {
        let telemetry = Telemetry::new();
        let config = Config {
            body_bytes_per_flow,
            ..Config::default()
        };
        (
            ComputePool::start(config, telemetry.compute.clone()).unwrap(),
            telemetry,
        )
    }

    #[tokio::test]
    async fn chunked_bodies_are_received_completely() {
        let (pool, _) = pool(1 << 20);
        let (body, _reservation) = receive(chunks(&[10_000, 1, 20_000]), pool.reservation(pool.flow("a")))
            .await
            .unwrap();
        assert_eq!(body.into_body().as_full().map(<[u8]>::len), Some(30_001));
    }

    #[tokio::test]
    async fn small_bodies_with_a_length_are_received() {
        use http_body_util::{BodyExt as _, Full};
        let announced = Full::new(Bytes::from_static(b"{}")).map_err(|e| -> std::io::Error { match e {} });
        let (pool, _) = pool(1 << 20);
        let (body, _reservation) = receive(Body::stream(announced), pool.reservation(pool.flow("a")))
            .await
            .unwrap();
        assert_eq!(body.into_body().as_full().map(<[u8]>::len), Some(2));
    }

    #[tokio::test]
    async fn chunks_are_joined_in_order() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let sizes = [1, 5_000, 2, 3, 20_000, 4_095, 4_096, 4_000, 4_000, 4_000, 4_000, 4_000];
        let mut chunks = Chunks::default();
        let mut at = 0;
        for size in sizes {
            chunks.push(Bytes::copy_from_slice(&bytes[at..at + size]));
            at += size;
        }
        assert_eq!(chunks.join(), &bytes[..at]);
    }

    #[tokio::test]
    async fn oversized_bodies_fail_on_read() {
        let (pool, _) = pool(16 << 20);
        let (body, _reservation) = receive(chunks(&[body::LIMIT, 1]), pool.reservation(pool.flow("a")))
            .await
            .unwrap();
        assert_eq!(body::read(body.into_body()).await.unwrap_err().code, 413);
    }

    #[tokio::test]
    async fn bodies_of_one_caller_share_a_limit() {
        let (pool, telemetry) = pool(50_000);
        let reservation = |user| pool.reservation(pool.flow(user));
        let first = receive(chunks(&[40_000]), reservation("a")).await.unwrap();
        let refused = receive(chunks(&[40_000]), reservation("a")).await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after()), (429, 1));
        assert!(
            receive(chunks(&[40_000]), reservation("b")).await.is_ok(),
            "another caller has its own limit"
        );
        drop(first);
        assert!(receive(chunks(&[40_000]), reservation("a")).await.is_ok());
        let text = String::from_utf8(telemetry.text()).unwrap();
        assert!(text.contains("torana_request_body_bytes 0\n"), "all memory is released");
    }
}
