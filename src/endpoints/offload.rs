//! Decides where a verb is computed: on the reactor, where a small request costs least, or on the compute pool.
//!
//! A verb's time follows the bytes it looks at: the body, the stored object, the answer. Up to [`LIGHT`] bytes of body and
//! [`LIVE`] bytes of stored object, every verb stays well below the 200 µs that a reactor may be held. Beyond that, and
//! where the size is not known before, the verb is a job of the pool; its body is received by the reactor first, so that a
//! slow client occupies no place in the pool.

use super::call::Call;
use super::group_version::Answer;
use super::route::Action;
use super::{body, verbs};
use crate::apimachinery::status::{Result, Status};
use crate::registry::resource::Backing;
use crate::request::Body;
use crate::request::body::CollectError;
use crate::tasks::compute::{self, Error, Reservation};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::future::Future;

/// Bodies up to this size are decoded where they arrive.
const LIGHT: usize = 8 << 10;
/// Stored objects up to this size are decoded where they are asked for.
const LIVE: usize = 32 << 10;
/// How much memory decoding takes, by byte: the tree, its encoded form, and what is compared with it.
const MEMORY_PER_BYTE: usize = 8;

/// Runs a verb.
pub(super) async fn run(action: Action, call: Call, body: Body) -> Answer {
    let current = match action {
        // A list, and a watch, decide for themselves what they offload; a connection carries bytes.
        Action::List | Action::Watch | Action::Connect => None,
        _ if is_light(action, &call, &body) => None,
        _ => compute::current().and_then(|current| current.pool()),
    };
    let Some((pool, flow)) = current else {
        return verbs::run(action, call, body).await;
    };
    let (body, reservation) = receive(body, pool.reservation(flow)).await?;
    let bytes = body.as_full().map_or(0, <[u8]>::len) + live_size(&call);
    let work = async move {
        let answer = verbs::run(action, call, body).await;
        drop(reservation);
        answer
    };
    let done = pool.run(flow, bytes * MEMORY_PER_BYTE, work).await;
    done.unwrap_or_else(|e| Err(refused(e)))
}

/// Runs a part of a verb on the current pool, or in place where there is none.
pub(super) async fn here_or_there<T: Send + 'static>(
    memory: usize,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    compute::offload(memory, work).await.unwrap_or_else(|e| Err(refused(e)))
}

/// True where looking at that many stored bytes may not be done on a reactor.
pub(super) fn is_heavy(stored: usize) -> bool {
    stored > LIVE
}

/// What the client reads where a computation was not done.
pub(super) fn refused(error: Error) -> Status {
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
        // Looks at one object after the other.
        Action::DeleteCollection => false,
        // What is stored is the answer, or the verb looks at its size when it has it.
        Action::Get => call.subresource().is_empty() || !is_heavy(live_size(call)),
        Action::Create if call.subresource().is_empty() => small() && !is_costly(call),
        _ => small() && !is_costly(call) && !is_heavy(live_size(call)),
    }
}

/// Kinds whose cost does not follow the size of the request: what the caller may do is compared with what is granted.
fn is_costly(call: &Call) -> bool {
    let resource = call.resource();
    let reviews = matches!(resource.backing, Backing::Answered(_));
    resource.gvr.group == "rbac.authorization.k8s.io" || (reviews && resource.kind == "SelfSubjectRulesReview")
}

/// Bytes of the object that the call is about, as far as they are known without waiting.
fn live_size(call: &Call) -> usize {
    if call.name().is_empty() {
        return 0;
    }
    let key = call.resource().key(&call.route.namespace, call.name());
    call.store().storage().peek_size(&key)
}

/// Receives a body within the limit of one body and the memory of all. What is wrong with it is said by the body that
/// comes back, when the verb reads it: the order of a verb's checks decides which of several errors a client reads.
async fn receive(mut body: Body, mut reservation: Reservation) -> Result<(Body, Reservation)> {
    if body.as_full().is_some() {
        return Ok((body, reservation));
    }
    let announced = body.size_hint().exact().and_then(|n| usize::try_from(n).ok());
    if announced.is_some_and(|n| n > body::LIMIT) {
        return Ok((Body::failed(CollectError::TooLarge(body::LIMIT)), reservation));
    }
    let mut received: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            Err(e) => return Ok((Body::failed(CollectError::Read(e)), reservation)),
        };
        let length = received.len() + data.len();
        if length > body::LIMIT {
            return Ok((Body::failed(CollectError::TooLarge(body::LIMIT)), reservation));
        }
        if length > received.capacity() {
            // Doubled, but never beyond what was announced: what is reserved is what is occupied.
            let room = (received.capacity() * 2)
                .max(LIGHT)
                .min(announced.unwrap_or(body::LIMIT))
                .max(length);
            reservation.grow(room - received.capacity()).map_err(refused)?;
            received.reserve_exact(room - received.len());
        }
        received.extend_from_slice(&data);
    }
    Ok((Body::full(received), reservation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::compute::{ComputePool, Config};
    use crate::telemetry::Telemetry;
    use bytes::Bytes;
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

    fn pool(bodies_of_one_flow: usize) -> (ComputePool, Telemetry) {
        let telemetry = Telemetry::new();
        let config = Config {
            bodies_of_one_flow,
            ..Config::default()
        };
        (
            ComputePool::start(config, telemetry.compute.clone()).unwrap(),
            telemetry,
        )
    }

    #[tokio::test]
    async fn a_body_is_received_whole() {
        let (pool, _) = pool(1 << 20);
        let (body, _reservation) = receive(chunks(&[10_000, 1, 20_000]), pool.reservation(pool.flow("a")))
            .await
            .unwrap();
        assert_eq!(body.as_full().map(<[u8]>::len), Some(30_001));
    }

    #[tokio::test]
    async fn a_small_body_of_announced_length_is_received() {
        use http_body_util::{BodyExt as _, Full};
        let announced = Full::new(Bytes::from_static(b"{}")).map_err(|e| -> std::io::Error { match e {} });
        let (pool, _) = pool(1 << 20);
        let (body, _reservation) = receive(Body::stream(announced), pool.reservation(pool.flow("a")))
            .await
            .unwrap();
        assert_eq!(body.as_full().map(<[u8]>::len), Some(2));
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_fails_when_it_is_read() {
        let (pool, _) = pool(16 << 20);
        let (body, _reservation) = receive(chunks(&[body::LIMIT, 1]), pool.reservation(pool.flow("a")))
            .await
            .unwrap();
        assert_eq!(body::read(body).await.unwrap_err().code, 413);
    }

    #[tokio::test]
    async fn bodies_of_one_caller_are_bounded_together() {
        let (pool, telemetry) = pool(50_000);
        let reservation = |user| pool.reservation(pool.flow(user));
        let first = receive(chunks(&[40_000]), reservation("a")).await.unwrap();
        let refused = receive(chunks(&[40_000]), reservation("a")).await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after()), (429, 1));
        assert!(
            receive(chunks(&[40_000]), reservation("b")).await.is_ok(),
            "of another caller"
        );
        drop(first);
        assert!(receive(chunks(&[40_000]), reservation("a")).await.is_ok());
        let text = String::from_utf8(telemetry.text()).unwrap();
        assert!(text.contains("torana_request_body_bytes 0\n"), "all is given back");
    }
}
