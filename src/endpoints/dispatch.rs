//! Decides whether a verb runs on the reactor, where small requests are cheapest, or on the compute pool.
//!
//! Entry point: [`run`]. The cost of a verb depends on the bytes it processes: body, stored object and
//! response. Up to [`LIGHT`] bytes of body, and stored objects that are not [heavy](is_heavy), every verb
//! stays well below the 200 µs a reactor thread may be blocked. Anything larger, or of unknown size, becomes
//! a job of the compute pool. The reactor receives the body first, so that a slow client does not occupy a
//! place in the pool.

use super::body;
use super::call::Call;
use super::offload::{is_heavy, offload_error_status};
use super::route::Action;
use super::verbs::{self, VerbResult};
use crate::apimachinery::codec::budget::{decoded_size_limit, decoded_yaml_size_limit};
use crate::apimachinery::status::Result;
use crate::registry::resource::Backing;
use crate::request::Body;
use crate::request::body::CollectError;
use crate::tasks::compute::{self, MEMORY_PER_STORED_BYTE, Reservation};
use http_body::Body as _;
use http_body_util::BodyExt as _;

/// Bodies up to this size are decoded on the reactor.
const LIGHT: usize = 8 << 10;

/// Runs a verb on the reactor or on the compute pool.
pub(super) async fn run(action: Action, call: Call, body: Body) -> VerbResult {
    let current = match action {
        // Lists and watches offload parts of their work themselves; connections only relay bytes.
        Action::List | Action::Watch | Action::Connect => None,
        _ if is_light(action, &call, &body) => None,
        _ => compute::current().and_then(|current| Some((current.reservation()?, current))),
    };
    let Some((reservation, current)) = current else {
        return verbs::run(action, call, body).await;
    };
    let (received, reservation) = receive(body, reservation).await?;
    // The most that decoders may use, not what they usually use: clients choose the worst body.
    let decoded = match body::media_type(&call.parts.headers).ends_with("yaml") {
        // `application/yaml` and `application/apply-patch+yaml`.
        true => decoded_yaml_size_limit(received.len()),
        false => decoded_size_limit(received.len()),
    };
    let memory = decoded + live_size(&call) * MEMORY_PER_STORED_BYTE;
    let work = async move {
        let answer = verbs::run(action, call, received.into_body()).await;
        // Only now: the body is in memory until the verb has answered.
        drop(reservation);
        answer
    };
    // An estimate of the decoded tree; `work` also holds the reservation for the received bytes.
    let done = current.run(memory, work).await;
    done.unwrap_or_else(|e| Err(offload_error_status(e)))
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

/// Kinds whose cost does not depend on the size of the request: they compare the caller's permissions with
/// the granted ones, or have rules.
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

/// A received body. The pool joins its pieces: copying megabytes would hold a reactor for milliseconds.
enum Received {
    Whole(Body),
    Pieces(BodyPieces),
}

/// The bytes received so far. Frames are copied as they arrive, so that memory follows the bytes and not the
/// number of frames, nor the size of the buffers that they were read into.
#[derive(Default)]
struct BodyPieces {
    /// In order of arrival; only the last has spare capacity.
    pieces: Vec<Vec<u8>>,
    length: usize,
    /// The `Content-Length`, if any.
    announced: Option<usize>,
}

impl BodyPieces {
    /// Capacity of the first piece, in bytes. Room for the whole of a `Content-Length` is allocated once the
    /// first piece is full.
    const FIRST: usize = 16 << 10;
    /// Largest capacity of a piece of a body whose length is not known, in bytes.
    const MAX_CAPACITY: usize = 256 << 10;

    fn new(announced: Option<usize>) -> Self {
        Self {
            announced,
            ..Self::default()
        }
    }

    fn push(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let piece = match self.pieces.last_mut() {
                Some(last) if last.len() < last.capacity() => last,
                _ => self.add_piece(),
            };
            let spare = piece.capacity() - piece.len();
            let (now, later) = data.split_at(spare.min(data.len()));
            piece.extend_from_slice(now);
            self.length += now.len();
            data = later;
        }
    }

    fn add_piece(&mut self) -> &mut Vec<u8> {
        // A client may announce megabytes and send nothing, so the announced size is allocated only after a first
        // piece has arrived. Otherwise pieces double, up to a limit that bounds the slack.
        let capacity = match (self.announced, self.length) {
            (Some(n), 0) => n.clamp(1, Self::FIRST),
            (None, 0) => Self::FIRST,
            (Some(n), length) if n > length => n,
            (_, length) => length.clamp(Self::FIRST, Self::MAX_CAPACITY),
        };
        let mut piece = Vec::with_capacity(capacity);
        if capacity > self.length {
            // Room for the whole body: what has arrived, at most a first piece, moves there.
            self.pieces.drain(..).for_each(|first| piece.extend_from_slice(&first));
        }
        self.pieces.push(piece);
        self.pieces.last_mut().expect("a piece was pushed")
    }

    fn join(mut self) -> Vec<u8> {
        if self.pieces.len() == 1 {
            return self.pieces.swap_remove(0);
        }
        let mut whole = Vec::with_capacity(self.length);
        // Each piece is freed as soon as it is copied.
        self.pieces.drain(..).for_each(|piece| whole.extend_from_slice(&piece));
        whole
    }
}

impl Received {
    fn len(&self) -> usize {
        match self {
            Self::Whole(body) => body.as_full().map_or(0, <[u8]>::len),
            Self::Pieces(pieces) => pieces.length,
        }
    }

    fn into_body(self) -> Body {
        match self {
            Self::Whole(body) => body,
            Self::Pieces(pieces) => Body::full(pieces.join()),
        }
    }
}

/// Receives a body within the limit of a single body and the shared memory budget. Errors are not returned
/// here but stored in the returned body, because the order of a verb's checks determines which of several
/// errors the client sees.
async fn receive(mut body: Body, mut reservation: Reservation) -> Result<(Received, Reservation)> {
    // Already in memory, for example a request that this process makes to itself; nothing to wait for.
    if body.as_full().is_some() {
        return Ok((Received::Whole(body), reservation));
    }
    let failed = |e| Received::Whole(Body::failed(e));
    let announced = body.size_hint().exact().and_then(|n| usize::try_from(n).ok());
    // Refused by its header, before a byte is received.
    if announced.is_some_and(|n| n > body::LIMIT) {
        return Ok((failed(CollectError::TooLarge(body::LIMIT)), reservation));
    }
    let mut received = BodyPieces::new(announced);
    while let Some(frame) = body.frame().await {
        let data = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => data,
                // Trailers.
                Err(_) => continue,
            },
            Err(e) => return Ok((failed(CollectError::Read(e)), reservation)),
        };
        // Checked before copying, so that a chunked body cannot exceed the limit by more than a frame.
        if received.length + data.len() > body::LIMIT {
            return Ok((failed(CollectError::TooLarge(body::LIMIT)), reservation));
        }
        // Grows with what arrives, not with what is announced, so that idle uploads hold no budget.
        reservation.grow(data.len()).map_err(offload_error_status)?;
        received.push(&data);
    }
    Ok((Received::Pieces(received), reservation))
}

#[cfg(test)]
mod tests;
