//! Decoding of response bodies for audit events: small ones on the reactor, others on a blocking thread, few at a
//! time. Recording response objects must not allow one caller to stall all others.
//!
//! Entry points: [`recorded`] for a response in memory, [`object`] for the copy of a stream.

use super::record::Record;
use crate::audit::event::ResponseStatus;
use crate::audit::response;
use crate::request::{FromBackend, Response};
use crate::tasks::off_thread;
use bytes::Bytes;
use futures_util::future::Either;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::future::{Future, ready};
use std::sync::Arc;

/// Bodies up to this size, in bytes, are decoded on the reactor.
const SMALL: usize = 32 << 10;
/// Size in bytes up to which a body is decoded only for the Status that it may be.
const MAX_STATUS: usize = 64 << 10;
/// Estimated memory per byte of a body: the tree and its encoding.
const MEMORY_PER_BYTE: usize = 10;

/// The response, as an event records it.
pub(super) struct RecordedResponse {
    pub status: ResponseStatus,
    /// The encoded response object, if it is to be recorded.
    pub object: Option<Bytes>,
}

impl RecordedResponse {
    fn of_code(code: u16) -> Self {
        Self {
            status: ResponseStatus::of(code),
            object: None,
        }
    }
}

/// The recorded status of a response, and its object if the record wants it and the body is in memory.
///
/// # Cancel safety
/// Cancel safe.
pub(super) fn recorded(record: &Arc<Record>, response: &Response) -> impl Future<Output = RecordedResponse> + use<> {
    let code = response.status().as_u16();
    let everything = record.wants_responses();
    // For proxied responses only the code is recorded; backends have audit logs of their own.
    let worth = FromBackend::of(response).is_none() && (everything || code >= 400 || record.is_delete());
    // Errors are small, and a larger body is not decoded just to find out that it is not a Status.
    let max = if everything { response::MAX_BYTES } else { MAX_STATUS };
    let Some(bytes) = response.body().to_full().filter(|b| worth && b.len() <= max) else {
        return Either::Left(ready(RecordedResponse::of_code(code)));
    };
    if !is_costly(response.headers(), bytes.len()) {
        return Either::Left(ready(read(record, code, response.headers(), &bytes)));
    }
    let (record, headers) = (record.clone(), response.headers().clone());
    Either::Right(async move {
        let read = decoded(&record, bytes.len(), move |record| read(record, code, &headers, &bytes));
        read.await.unwrap_or_else(|| RecordedResponse::of_code(code))
    })
}

fn read(record: &Record, code: u16, headers: &HeaderMap, bytes: &[u8]) -> RecordedResponse {
    let object = response::decode(headers, bytes);
    RecordedResponse {
        status: response::status(code, object.as_ref()),
        object: object
            .filter(|_| record.wants_responses())
            .map(|o| record.trail.encoded(&o)),
    }
}

/// True if decoding would block a reactor for too long. A compressed body may be of any size.
pub(super) fn is_costly(headers: &HeaderMap, length: usize) -> bool {
    length > SMALL || headers.contains_key(CONTENT_ENCODING)
}

/// The encoded object in a body.
pub(super) fn object(record: &Record, headers: &HeaderMap, bytes: &[u8]) -> Option<Bytes> {
    response::decode(headers, bytes).map(|o| record.trail.encoded(&o))
}

/// Runs `decode` on another thread, at most a few at a time. `None` if the server is shutting down.
///
/// # Cancel safety
/// When dropped, a decoding that has started continues, without effect.
pub(super) async fn decoded<T: Send + 'static>(
    record: &Arc<Record>,
    length: usize,
    decode: impl FnOnce(&Record) -> T + Send + 'static,
) -> Option<T> {
    // Acquired before the thread: a waiting task must not occupy one.
    let permit = record.audit().response_limits().decoding_permit().await;
    let record = record.clone();
    let work = move || {
        let _permit = permit;
        decode(&record)
    };
    off_thread(length.saturating_mul(MEMORY_PER_BYTE), work).await
}
