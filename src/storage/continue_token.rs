//! The wire form of continue tokens: unpadded base64url of
//! `{"v":"meta.k8s.io/v1","rv":<int>,"start":"<key>"}`.
//!
//! [`encode`] writes `start` relative to the list's prefix, with a leading slash, as upstream's cacher does
//! (`pkg/storage/continue.go`). Tokens are opaque to clients but may have been issued by another server, so
//! [`decode`] accepts `start` with and without the slash.

use super::{ContinueToken, Revision};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const VERSION: &str = "meta.k8s.io/v1";

/// Matches Go's `base64.RawURLEncoding`: no padding, and non-zero trailing bits are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Encodes a token for a client. `prefix` is the list's prefix below the resource's: empty or ending in a
/// slash. A token without a revision is written with `rv` -1: continue at the latest state.
pub fn encode(token: &ContinueToken, prefix: &str) -> String {
    let mut out = format!("{{\"v\":\"{VERSION}\",\"rv\":").into_bytes();
    json::encode_int(token.revision.map_or(-1, |r| r.0.cast_signed()), &mut out);
    out.extend_from_slice(b",\"start\":");
    // Without the prefix, which comes from the next request's path: a token cannot lead to another namespace.
    let below = token.start.strip_prefix(prefix).unwrap_or(&token.start);
    json::encode_str(&format!("/{below}"), &mut out);
    out.push(b'}');
    BASE64.encode(out)
}

/// Why a token is not one of this server's; the message follows `invalid continue token: ` in upstream's 400.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Not base64; Go's decoder stops at this byte.
    #[error("continue key is not valid: illegal base64 data at input byte {0}")]
    Base64(usize),
    /// Base64 of something that is not JSON.
    #[error("continue key is not valid: {0}")]
    Json(#[from] json::Error),
    /// A value of this JSON type instead of an object.
    #[error("continue key is not valid: json: cannot unmarshal {0} into Go value of type storage.continueToken")]
    NoObject(&'static str),
    /// A member of another type.
    #[error(
        "continue key is not valid: json: cannot unmarshal {found} into Go struct field continueToken.{field} of type {expected}"
    )]
    Member {
        /// The JSON type that it has.
        found: &'static str,
        /// The name of the member, and of the field in Go.
        field: &'static str,
        /// The type of the field in Go.
        expected: &'static str,
    },
    /// Written by another version.
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    Version(String),
    /// The revision is missing or 0.
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    Revision,
    /// No key to continue at.
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    NoStart,
    /// A key that leaves the prefix.
    #[error("continue key is not valid: {0}")]
    Start(String),
}

/// Decodes a client's token for a list with this prefix.
///
/// # Errors
/// The token is not one of this server's.
pub fn decode(text: &str, prefix: &str) -> Result<ContinueToken, InvalidToken> {
    let bytes = decode_base64(text).map_err(InvalidToken::Base64)?;
    let token = json::decode(&bytes)?;
    let (version, revision, start) = members(&token)?;
    // The order of the checks is upstream's `DecodeContinue`; clients see the first complaint.
    if version != VERSION {
        return Err(InvalidToken::Version(version.to_owned()));
    }
    if revision == 0 {
        return Err(InvalidToken::Revision);
    }
    if start.is_empty() {
        return Err(InvalidToken::NoStart);
    }
    let below = start.strip_prefix('/').unwrap_or(start);
    if !is_clean(below) {
        return Err(InvalidToken::Start(start.to_owned()));
    }
    Ok(ContinueToken {
        // Any negative revision means the latest state, as upstream's -1.
        revision: u64::try_from(revision).ok().map(Revision),
        start: format!("{prefix}{below}"),
    })
}

/// On failure returns the offset that Go's `CorruptInputError` reports.
fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    let legal = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    // Go's decoder skips line breaks.
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if let Some(at) = bytes.iter().position(|b| !legal(b)) {
        return Err(at);
    }
    // Every byte is legal, so only the length can be wrong; Go reports the start of the incomplete quantum.
    BASE64.decode(&bytes).map_err(|_| bytes.len() - bytes.len() % 4)
}

fn members(token: &Value) -> Result<(&str, i64, &str), InvalidToken> {
    let type_name = |v: &Value| match v {
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    };
    // Go's `json.Unmarshal` of null leaves the zero value.
    if token.is_null() {
        return Ok(("", 0, ""));
    }
    if token.as_object().is_none() {
        return Err(InvalidToken::NoObject(type_name(token)));
    }
    let wrong = |v: &Value, field, expected| InvalidToken::Member {
        found: type_name(v),
        field,
        expected,
    };
    let string = |field: &'static str| match token.get(field) {
        Value::Null => Ok(""),
        v => v.as_str().ok_or_else(|| wrong(v, field, "string")),
    };
    let revision = match token.get("rv") {
        Value::Null => 0,
        Value::Int(i) => *i,
        v => return Err(wrong(v, "rv", "int64")),
    };
    Ok((string("v")?, revision, string("start")?))
}

/// True if `path.Clean` would leave `/<key>` unchanged. Upstream rejects other keys, which could leave the
/// prefix.
fn is_clean(key: &str) -> bool {
    key.is_empty() || key.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(text: &str) -> String {
        BASE64.encode(text)
    }

    #[test]
    fn encoded_start_is_relative_with_a_leading_slash() {
        let token = ContinueToken {
            revision: Some(Revision(42)),
            start: "ns/a\0".into(),
        };
        let text = encode(&token, "ns/");
        assert_eq!(text, wire(r#"{"v":"meta.k8s.io/v1","rv":42,"start":"/a\u0000"}"#));
        assert_eq!(decode(&text, "ns/"), Ok(token));
    }

    #[test]
    fn start_without_a_slash_is_accepted() {
        let text = wire(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a\u0000"}"#);
        assert_eq!(
            decode(&text, "ns/"),
            Ok(ContinueToken {
                revision: None,
                start: "ns/a\0".into()
            })
        );
    }

    #[test]
    fn invalid_tokens_report_upstream_errors() {
        let refused = |text: &str| decode(text, "").expect_err("refused").to_string();
        assert_eq!(
            refused("a b"),
            "continue key is not valid: illegal base64 data at input byte 1"
        );
        assert_eq!(
            refused("abcde"),
            "continue key is not valid: illegal base64 data at input byte 4"
        );
        assert!(refused(&wire("{")).starts_with("continue key is not valid: "));
        for (rv, start, why) in [
            (
                0,
                "a",
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (1, "", "encoded start key empty (version meta.k8s.io/v1)"),
            (1, "a//b", "a//b"),
            (1, "/../b", "/../b"),
            (1, "a/", "a/"),
        ] {
            let text = wire(&format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"{start}"}}"#));
            assert_eq!(refused(&text), format!("continue key is not valid: {why}"));
        }
        assert_eq!(
            refused(&wire(r#"{"v":"v2","rv":1,"start":"a"}"#)),
            "continue key is not valid: server does not recognize this encoded version v2"
        );
    }

    proptest! {
        #[test]
        fn encode_then_decode_round_trips(rv in 1..i64::MAX as u64, ns in "[a-z]{1,8}", name in "[a-z0-9.-]{1,20}x") {
            let start = format!("{ns}/{name}\0");
            let token = ContinueToken { revision: Some(Revision(rv)), start };
            for prefix in [String::new(), format!("{ns}/")] {
                prop_assert_eq!(decode(&encode(&token, &prefix), &prefix), Ok(token.clone()));
            }
        }

        #[test]
        fn decode_never_panics(text in ".{0,64}") {
            let _ = decode(&text, "");
        }
    }
}
