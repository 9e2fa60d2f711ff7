//! gzip compression of large responses. Like upstream, uses level 1 and only reacts to a bare `gzip` in
//! `Accept-Encoding`.
//!
//! Entry point: [`maybe`].

use crate::request::body::BoxError;
use crate::request::{Body, OnDemandBody, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, VARY};
use http_body::{Body as _, Frame};
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Responses up to this many bytes are not compressed (upstream: `defaultGzipThresholdBytes` in
/// `endpoints/handlers/responsewriters/writers.go`).
pub(crate) const THRESHOLD: u64 = 128 * 1024;

/// True if the client accepts gzip.
pub(crate) fn accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    values
        .filter_map(|v| v.to_str().ok())
        // `gzip;q=1` does not match, as upstream.
        .any(|v| v.split(',').any(|t| t.trim() == "gzip"))
}

/// Compresses the response if it is large and the client accepts it.
pub(crate) fn maybe(response: Response, headers: &HeaderMap) -> Response {
    let hint = response.body().size_hint();
    if hint.lower() <= THRESHOLD || !accepted(headers) {
        return response;
    }
    always(response)
}

/// Compresses the response while it is sent; the work is done on the compute pool.
pub(crate) fn always(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    // The compressed length is known only at the end.
    head.headers.remove(CONTENT_LENGTH);
    let body = Gzip {
        inner: body,
        encoder: Some(GzEncoder::new(Vec::with_capacity(16 * 1024), Compression::new(1))),
    };
    head.extensions.insert(OnDemandBody);
    Response::from_parts(head, Body::stream(body).computed())
}

struct Gzip {
    inner: Body,
    /// Taken once the gzip trailer has been written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl http_body::Body for Gzip {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let Some(encoder) = self.encoder.as_mut() else {
                return Poll::Ready(None);
            };
            // Small outputs of the encoder are collected, so that a frame is worth its overhead.
            if encoder.get_ref().len() >= 8 * 1024 {
                let ready = std::mem::take(encoder.get_mut());
                return Poll::Ready(Some(Ok(Frame::data(ready.into()))));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers are dropped: the bodies compressed here have none.
                    let (Ok(data), Some(encoder)) = (frame.into_data(), self.encoder.as_mut()) else {
                        continue;
                    };
                    encoder.write_all(&data)?;
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    let rest = self.encoder.take().map(GzEncoder::finish).transpose()?;
                    return Poll::Ready(rest.map(|r| Ok(Frame::data(r.into()))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn headers(encoding: &str) -> HeaderMap {
        let mut h = HeaderMap::new();
        h.insert(ACCEPT_ENCODING, encoding.parse().unwrap());
        h
    }

    #[tokio::test]
    async fn large_responses_are_compressed() {
        let plain = b"0123456789abcdef".repeat(20_000);
        let r = maybe(Response::new(Body::full(plain.clone())), &headers("br, gzip"));
        assert_eq!(r.headers()[CONTENT_ENCODING], "gzip");
        let packed = r.into_body().collect(1 << 20).await.unwrap();
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
        assert_eq!(out, plain);
    }

    #[test]
    fn small_responses_and_other_clients_are_not_compressed() {
        let r = maybe(Response::new(Body::full("x")), &headers("gzip"));
        assert!(!r.headers().contains_key(CONTENT_ENCODING));
        let big = vec![0; 200_000];
        let r = maybe(Response::new(Body::full(big)), &headers("gzip;q=1"));
        assert!(!r.headers().contains_key(CONTENT_ENCODING));
    }
}
