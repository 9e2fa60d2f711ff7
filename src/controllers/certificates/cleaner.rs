//! Deletes old certificate signing requests (upstream's `certificates/cleaner`): computes when each expires, and
//! leaves the deletion to [`expiry`](crate::controllers::expiry).

use super::GROUP;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::controllers::expiry::{self, Expiring, Loop};
use crate::controllers::term::Term;
use crate::storage::Entry;
use ::time::OffsetDateTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::LazyLock;
use std::time::Duration;

/// Retention of a request that was denied or signed.
const ANSWERED: Duration = Duration::from_secs(3600);
/// Retention of a request that is pending or not signed yet.
const WAITING: Duration = Duration::from_secs(24 * 3600);

static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.creationTimestamp",
        "metadata.uid",
        "status.{conditions,certificate}",
    ])
});

#[derive(Debug, PartialEq, Eq)]
struct Request {
    uid: Str,
    expires: Option<OffsetDateTime>,
}

impl Request {
    fn from_entry(entry: &Entry) -> Self {
        let parts = entry.decode_parts(&PARTS);
        Self {
            uid: parts.uid().into(),
            expires: expires(&parts),
        }
    }
}

/// When a request is deleted.
fn expires(request: &Value) -> Option<OffsetDateTime> {
    let certificate = request.str_at(&["status", "certificate"]);
    let conditions = request.at(&["status", "conditions"]).items();
    // Only requests without any condition count as pending. With others than the known ones a request stays,
    // as upstream.
    if conditions.is_empty() {
        let created = time::parse(request.meta("creationTimestamp")).ok()?;
        return created.checked_add(WAITING.try_into().ok()?);
    }
    let after = |condition: &Value| {
        let kept = match (condition.str_at(&["type"]), certificate) {
            ("Denied" | "Failed", _) => ANSWERED,
            ("Approved", "") => WAITING,
            ("Approved", _) => ANSWERED,
            _ => return None,
        };
        let updated = time::parse(condition.str_at(&["lastUpdateTime"])).ok()?;
        updated.checked_add(kept.try_into().ok()?)
    };
    let approved = conditions.iter().any(|c| c.str_at(&["type"]) == "Approved");
    let ended = approved.then(|| end_of(certificate)).flatten();
    // The earliest: upstream deletes when any of its rules applies.
    conditions.iter().filter_map(after).chain(ended).min()
}

/// When a certificate ends.
fn end_of(certificate: &str) -> Option<OffsetDateTime> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let der = CertificateDer::from_pem_slice(&STANDARD.decode(certificate).ok()?).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    OffsetDateTime::from_unix_timestamp(parsed.validity().not_after.timestamp()).ok()
}

impl Expiring for Request {
    fn expires(&self) -> Option<OffsetDateTime> {
        self.expires
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

pub(crate) fn start(term: &Term) {
    let requests = Loop {
        queue: "certificate_cleaner",
        group: GROUP,
        resource: "certificatesigningrequests",
        service_account: "certificate-controller",
        policy: "Background",
    };
    expiry::start(term, requests, Request::from_entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn requests_are_kept_for_their_retention_time() {
        let expires = |conditions: Value, certificate: &str| {
            let mut request = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
            request.set(&["status", "conditions"], conditions);
            request.set(&["status", "certificate"], certificate);
            expires(&request).map(time::format)
        };
        let condition = |kind: &str| json!([{"type": kind, "lastUpdateTime": "2026-01-01T10:00:00Z"}]);
        assert_eq!(expires(json!([]), "").as_deref(), Some("2026-01-02T00:00:00Z"));
        for kind in ["Denied", "Failed"] {
            assert_eq!(expires(condition(kind), "").as_deref(), Some("2026-01-01T11:00:00Z"));
        }
        assert_eq!(
            expires(condition("Approved"), "").as_deref(),
            Some("2026-01-02T10:00:00Z")
        );
        assert_eq!(
            expires(condition("Approved"), "AAAA").as_deref(),
            Some("2026-01-01T11:00:00Z")
        );
        assert_eq!(expires(json!([{"type": "Approved"}]), ""), None, "without a time");
    }
}
