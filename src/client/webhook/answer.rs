//! Responses of webhooks, received whole ([`Received`]), and upstream's messages for error responses
//! (client-go `rest/request.go`, apimachinery `api/errors`) and for ones that break off.

use super::CallError;
use super::response::{ReadError, ResponsePermits};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::quote;
use crate::proxy::tcp;
use crate::request::body::BoxError;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use std::error::Error;
use std::io;
use std::time::Duration;

/// Maximum bytes of a body that are quoted in an error.
const SHOWN: usize = 2048;

/// A response that was received whole.
pub(super) struct Received {
    pub status: StatusCode,
    pub retry_after: Option<Duration>,
    pub content_type: Option<String>,
    pub body: Bytes,
}

impl Received {
    /// Receives a response from `url` of at most `limit` bytes.
    ///
    /// # Errors
    /// [`CallError::TooLarge`], or a transport error with upstream's message.
    pub(super) async fn read<B>(
        response: Response<B>,
        url: &str,
        limit: usize,
        permits: &ResponsePermits,
    ) -> Result<Self, CallError>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let (head, body) = response.into_parts();
        let text = |name| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        let (status, content_type) = (head.status, text(header::CONTENT_TYPE));
        // Only seconds, as client-go; a date is ignored.
        let seconds = text(header::RETRY_AFTER).and_then(|s| s.parse().ok());
        let body = permits.read(body, limit).await;
        let body = body.map_err(|e| match e {
            ReadError::TooLarge => CallError::TooLarge(url.to_owned(), limit),
            ReadError::Broken(e) => CallError::Transport(format!(
                "unexpected error when reading response body. Please retry. Original error: {}",
                broken_off(&*e.into())
            )),
        })?;
        Ok(Self {
            status,
            retry_after: seconds.map(Duration::from_secs),
            content_type,
            body,
        })
    }
}

/// The message for an error response.
pub(super) fn error_text(status: StatusCode, content_type: Option<&str>, body: &[u8]) -> String {
    // A Status in the body has its own message. Upstream defaults its kind.
    if let Ok(answer) = json::decode(body)
        && matches!(answer.str_at(&["kind"]), "" | "Status")
        && answer.str_at(&["status"]) == "Failure"
    {
        return answer.str_at(&["message"]).to_owned();
    }
    // As client-go (`isTextResponse`): only text is quoted, and a response without a type counts as text.
    let shown = match content_type {
        Some(media) if !media.trim_start().starts_with("text/") => "unknown".to_owned(),
        _ => String::from_utf8_lossy(&body[..body.len().min(SHOWN)])
            .trim()
            .to_owned(),
    };
    // The messages of apimachinery's `NewGenericServerResponse`.
    let fixed = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        // The body itself, as in upstream: it says who may not do what.
        403 => return shown,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if shown != "unknown" => return shown,
        406 => "the server was unable to respond with a content type that the client supports",
        409 => "the server reported a conflict",
        415 if shown != "unknown" => return shown,
        415 => "the server was unable to respond with a content type that the client supports",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        code if code >= 500 => {
            return format!(
                "an error on the server ({}) has prevented the request from succeeding",
                quote(&shown)
            );
        }
        code => return format!("the server responded with the status code {code} but did not return more information"),
    };
    fixed.to_owned()
}

/// Why a body ended before its end, in Go's wording.
fn broken_off(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        // hyper wraps the I/O error, which alone is what Go reports.
        if let Some(e) = cause.downcast_ref::<io::Error>() {
            return match e.kind() {
                io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
                _ => tcp::system_error("read", e),
            };
        }
        text = cause.to_string();
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_responses_have_upstreams_messages() {
        let status = br#"{"kind":"Status","status":"Failure","message":"no"}"#;
        for (code, media, body, text) in [
            (
                500,
                Some("text/plain; charset=utf-8"),
                &b"boom\n"[..],
                r#"an error on the server ("boom") has prevented the request from succeeding"#,
            ),
            (
                500,
                Some("application/json"),
                b"{}",
                r#"an error on the server ("unknown") has prevented the request from succeeding"#,
            ),
            (500, Some("application/json"), status, "no"),
            (
                404,
                None,
                b"404 page not found",
                "the server could not find the requested resource",
            ),
            (503, None, b"", "the server is currently unable to handle the request"),
            (
                302,
                None,
                b"",
                "the server responded with the status code 302 but did not return more information",
            ),
            (403, Some("text/plain"), b"go away", "go away"),
        ] {
            assert_eq!(error_text(StatusCode::from_u16(code).unwrap(), media, body), text);
        }
    }
}
