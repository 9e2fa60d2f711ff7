//! [`BootstrapToken`]: the content of a Secret with a bootstrap token.

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::controllers::expiry::until;
use crate::storage::Entry;
use ::time::OffsetDateTime;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::fmt;
use std::sync::LazyLock;

const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Storage key prefix of the Secrets with bootstrap tokens; their name is fixed by upstream.
pub(crate) const BOOTSTRAP_TOKENS: &str = "kube-system/bootstrap-token-";

#[derive(PartialEq, Eq)]
pub(crate) struct BootstrapToken {
    pub uid: Str,
    pub id: Str,
    secret: Vec<u8>,
    /// May sign the ConfigMap `cluster-info`.
    pub signs: bool,
    /// `None` if it never expires. An expiration that cannot be parsed counts as passed.
    pub expires: Option<OffsetDateTime>,
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand, so that the secret never gets into a log.
        f.debug_struct("BootstrapToken")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.{name,uid}", "type", "data"]));

impl BootstrapToken {
    /// The token of a Secret; `None` if it is another Secret.
    pub(crate) fn from_entry(entry: &Entry) -> Option<Self> {
        let is_token = entry.field("type") == Some(TYPE) && entry.key.starts_with(BOOTSTRAP_TOKENS);
        is_token.then(|| Self::from_value(&entry.decode_parts(&PARTS)))?
    }

    fn from_value(secret: &Value) -> Option<Self> {
        let data = |key: &str| STANDARD.decode(secret.str_at(&["data", key])).unwrap_or_default();
        // Not UTF-8 is present but unparsable, which must not count as absent: fail closed.
        let expires = String::from_utf8(data("expiration")).unwrap_or_else(|_| "?".to_owned());
        let expires = (!expires.is_empty()).then(|| time::parse(&expires).unwrap_or(OffsetDateTime::UNIX_EPOCH));
        let (id, key) = (data("token-id"), data("token-secret"));
        let plain = id.len() == 6 && id.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let id = String::from_utf8(id).unwrap_or_default();
        let named = secret.name().strip_prefix("bootstrap-token-") == Some(&id);
        (secret.str_at(&["type"]) == TYPE).then(|| Self {
            uid: secret.uid().into(),
            signs: plain && named && !key.is_empty() && data("usage-bootstrap-signing") == b"true",
            id: id.into(),
            secret: key,
            expires,
        })
    }

    /// True unless it has expired.
    pub(crate) fn is_valid(&self) -> bool {
        self.expires.is_none_or(|at| !until(at).is_zero())
    }

    /// The detached signature (JWS) of a text.
    pub(crate) fn sign(&self, text: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.id));
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(text));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let tag = hmac::sign(&key, signed.as_bytes());
        // Detached: the payload is the ConfigMap's `kubeconfig`, so it is not repeated.
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn token(more: &[(&str, &str)]) -> BootstrapToken {
        let mut secret =
            json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token"});
        let known = [("token-id", "abcdef"), ("token-secret", "0123456789abcdef")];
        for (key, value) in known.iter().chain(more) {
            secret.set(&["data", key], STANDARD.encode(value));
        }
        BootstrapToken::from_value(&secret).expect("it is a token")
    }

    #[test]
    fn tokens_sign_only_with_the_usage_and_expire() {
        let signing = ("usage-bootstrap-signing", "true");
        assert!(token(&[signing]).signs && !token(&[]).signs);
        assert!(
            !token(&[signing, ("token-id", "other1")]).signs,
            "it is another token's Secret"
        );
        assert!(token(&[]).is_valid() && token(&[("expiration", "2100-01-01T00:00:00Z")]).is_valid());
        assert!(!token(&[("expiration", "2020-01-01T00:00:00Z")]).is_valid());
        assert!(!token(&[("expiration", "tomorrow")]).is_valid());
        assert!(!format!("{:?}", token(&[])).contains("0123"));
    }

    /// The signature that go-jose computes, as kubeadm checks it.
    #[test]
    fn signatures_are_detached() {
        let signature = token(&[]).sign("Hello from Kubernetes!");
        let parts: Vec<&str> = signature.split('.').collect();
        assert_eq!((parts.len(), parts[1]), (3, ""));
        let header = URL_SAFE_NO_PAD.decode(parts[0]).expect("it is base64");
        assert_eq!(header, br#"{"alg":"HS256","kid":"abcdef"}"#);
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let text = format!("{}.{}", parts[0], URL_SAFE_NO_PAD.encode("Hello from Kubernetes!"));
        let tag = URL_SAFE_NO_PAD.decode(parts[2]).expect("it is base64");
        assert!(hmac::verify(&key, text.as_bytes(), &tag).is_ok());
    }
}
