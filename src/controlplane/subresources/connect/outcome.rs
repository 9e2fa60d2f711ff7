//! The outcome of a command: converts the message that a kubelet sends on the error stream to the Status
//! that clients of `v5.channel.k8s.io` get.

use crate::api::json;
use crate::apimachinery::codec;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::request::Body;
use http::{HeaderMap, HeaderName};
use http_body_util::BodyExt as _;

/// The header that negotiates the version of the streaming protocol.
pub(super) const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Maximum length in bytes of an error message of a kubelet.
pub(super) const MAX_REFUSAL: usize = 64 << 10;

/// The start of a kubelet's message, at most this long. The rest is dropped: it must not hide the start.
///
/// # Errors
/// The connection broke.
pub(super) async fn start_of(mut message: Body, limit: usize) -> Result<Vec<u8>, <Body as http_body::Body>::Error> {
    let mut text = Vec::new();
    while text.len() < limit
        && let Some(frame) = message.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            text.extend_from_slice(&data[..data.len().min(limit - text.len())]);
        }
    }
    Ok(text)
}

/// The streaming protocol of a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Version 4 and later: the outcome is a Status in JSON.
    Status,
    /// Earlier versions: an error is plain text.
    Text,
}

impl Version {
    /// The versions that are offered, best first. As upstream's executor, version 1 is left out: it loses the
    /// end of input.
    pub(crate) const OFFERED: [&str; 4] = [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
        "v3.channel.k8s.io",
        "v2.channel.k8s.io",
    ];

    /// The protocol that the kubelet chose.
    pub(crate) fn chosen(headers: &HeaderMap) -> Self {
        match headers.get(PROTOCOL).map(|version| version.as_bytes()) {
            Some(b"v5.channel.k8s.io" | b"v4.channel.k8s.io") => Self::Status,
            _ => Self::Text,
        }
    }
}

/// The Status for the message on the error stream; an empty one means success.
pub(super) fn exit_status(version: Version, message: &[u8]) -> Value {
    // Built anew, so that no other member of the kubelet's Status reaches the client.
    let success = || crate::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if message.is_empty() {
        return success();
    }
    let text = String::from_utf8_lossy(message);
    let failed = |why: String| Status::internal(why).to_value();
    if version == Version::Text {
        return failed(format!("error executing remote command: {text}"));
    }
    let status = match codec::json::decode(message) {
        Ok(status) => status,
        Err(e) => return failed(format!("error stream protocol error: {e} in {text:?}")),
    };
    match status.str_at(&["status"]) {
        "Success" => success(),
        "Failure" if status.str_at(&["reason"]) == "NonZeroExitCode" => {
            exit_code(&status).unwrap_or_else(|e| failed(e.to_string()))
        }
        "Failure" => failed(status.str_at(&["message"]).to_owned()),
        _ => failed("error stream protocol error: unknown error".to_owned()),
    }
}

/// Why no exit code can be read from a status that reports one; messages as upstream words them.
#[derive(Debug, thiserror::Error)]
enum NoExitCode {
    #[error("error stream protocol error: details must be set")]
    NoDetails,
    #[error("error stream protocol error: no ExitCode cause given")]
    NoCause,
    #[error("error stream protocol error: invalid exit code value {0:?}")]
    Invalid(String),
}

fn exit_code(status: &Value) -> Result<Value, NoExitCode> {
    if status.get("details").is_null() {
        return Err(NoExitCode::NoDetails);
    }
    let causes = status.at(&["details", "causes"]).items();
    let Some(cause) = causes.iter().find(|cause| cause.str_at(&["reason"]) == "ExitCode") else {
        return Err(NoExitCode::NoCause);
    };
    let text = cause.str_at(&["message"]);
    // A byte: exit codes of processes end at 255.
    let Ok(code) = text.parse::<u8>() else {
        return Err(NoExitCode::Invalid(text.to_owned()));
    };
    Ok(crate::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": (format!("command terminated with non-zero exit code: command terminated with exit code {code}")),
        "details": {"causes": [{"reason": "ExitCode", "message": (code.to_string())}]}
    }))
}

/// A Status as upstream writes it here: without its kind.
pub(super) fn encoded(status: &Value) -> Vec<u8> {
    const KIND: &[u8] = br#"{"kind":"Status","apiVersion":"v1","#;
    let bytes = json::to_vec(status);
    bytes
        // Cut off the text, because the encoder always writes the kind of a Status.
        .strip_prefix(KIND)
        .map_or_else(|| bytes.clone(), |rest| [b"{", rest].concat())
}

/// The message of a kubelet's response that refuses an upgrade (`upgradeErrorMessage` in
/// `streaming/pkg/httpstream/spdy`).
pub(super) fn refusal(body: &[u8]) -> String {
    let document = codec::json::decode(body).unwrap_or(Value::Null);
    let text = String::from_utf8_lossy(body);
    let candidates = [document.str_at(&["message"]), document.str_at(&["error"]), &*text];
    let first = candidates.into_iter().map(str::trim).find(|text| !text.is_empty());
    first.unwrap_or("empty server response").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(version: Version, message: &str) -> String {
        String::from_utf8(encoded(&exit_status(version, message.as_bytes()))).unwrap()
    }

    #[test]
    fn exit_codes_and_successes_become_a_status() {
        for message in ["", r#"{"metadata":{},"status":"Success"}"#] {
            assert_eq!(text(Version::Status, message), r#"{"metadata":{},"status":"Success"}"#);
        }
        let message = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(
            text(Version::Status, message),
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
        );
    }

    #[test]
    fn other_failures_are_internal_errors() {
        for (version, sent, message) in [
            (Version::Text, "gone", "error executing remote command: gone"),
            (
                Version::Status,
                r#"{"status":"Failure","message":"no shell"}"#,
                "no shell",
            ),
            (Version::Status, "{}", "error stream protocol error: unknown error"),
            (
                Version::Status,
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                "error stream protocol error: details must be set",
            ),
        ] {
            let status = exit_status(version, sent.as_bytes());
            assert_eq!(
                status.str_at(&["message"]),
                format!("Internal error occurred: {message}")
            );
            assert_eq!(status.get("code").as_i64(), Some(500));
        }
    }

    #[tokio::test]
    async fn the_start_of_a_long_message_is_kept() {
        let pieces = ["ab", "cdef", "g"]
            .map(|s| Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(s))));
        let body = Body::stream(http_body_util::StreamBody::new(futures_util::stream::iter(pieces)));
        assert_eq!(start_of(body, 4).await.unwrap(), b"abcd");
        assert_eq!(start_of(Body::empty(), 4).await.unwrap(), b"");
    }

    #[test]
    fn refusals_are_read_from_a_status_or_text() {
        assert_eq!(refusal(br#"{"message":" no "}"#), "no");
        assert_eq!(refusal(b"not found\n"), "not found");
        assert_eq!(refusal(b" "), "empty server response");
    }
}
