//! Validation of CertificateSigningRequests and of their `status` and `approval` subresources (upstream's
//! `pkg/apis/certificates/validation`).

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::Seen;
use crate::x509::CertificateRequest;
use base64::Engine as _;
use x509_parser::prelude::Pem;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn bytes(v: &Value) -> Vec<u8> {
    let text = v.as_str().unwrap_or("");
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap_or_default()
}

/// Checks the PEM request on every write, not only on create: a request stored by a release with a laxer
/// parser must not be approved or signed.
fn request(out: &mut ErrorList, v: &Value) {
    let text = v.at(&["spec", "request"]);
    if let Err(why) = CertificateRequest::from_pem(&bytes(text)) {
        let at = FieldPath::new("spec").child("request");
        out.push(FieldError::invalid(&at, text.clone(), why.to_string()));
    }
}

pub(crate) fn create(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    request(&mut out, v);
    let (at, usages) = (path.child("usages"), spec.get("usages").items());
    if usages.is_empty() {
        out.push(FieldError::required(&at, ""));
    }
    let mut seen = Seen::new();
    for (i, u) in usages.iter().enumerate() {
        if !u.as_str().is_some_and(|s| USAGES.contains(&s)) {
            out.push(FieldError::not_supported(&at.index(i), u.clone(), USAGES));
        }
        if !seen.insert(u.as_str()) {
            out.push(FieldError::duplicate(&at.index(i), u.clone()));
        }
    }
    let (signer, at) = (spec.str_at(&["signerName"]), path.child("signerName"));
    if signer == "kubernetes.io/legacy-unknown" {
        let why = "the legacy signerName is not allowed via this API version";
        out.push(FieldError::invalid(&at, signer, why));
    } else {
        signer_name(&mut out, signer, &at);
    }
    if let Some(n) = spec.get("expirationSeconds").as_i64().filter(|n| *n < 600) {
        out.push(FieldError::invalid(
            &path.child("expirationSeconds"),
            n,
            "may not specify a duration less than 600 seconds (10 minutes)",
        ));
    }
    conditions(&mut out, v);
    out
}

fn signer_name(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
        return;
    }
    let parts = text.split_once('/').filter(|(_, rest)| !rest.contains('/'));
    let Some((domain, rest)) = parts else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        out.push(FieldError::invalid(at, text, why));
        return;
    };
    for label in domain.split('.') {
        for m in dns1123_label(label) {
            out.push(FieldError::invalid(
                at,
                domain,
                format!("validating label {label:?}: {m}"),
            ));
        }
    }
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        out.push(FieldError::invalid(at, domain, why));
    }
    for m in dns1123_subdomain(rest) {
        out.push(FieldError::invalid(at, rest, m));
    }
    if domain.len() > 253 {
        out.push(FieldError::too_long(at, 253));
    }
    if text.len() > 571 {
        out.push(FieldError::too_long(at, 571));
    }
}

fn conditions(out: &mut ErrorList, v: &Value) {
    let path = FieldPath::new("status").child("conditions");
    let mut seen: Seen<&str> = Seen::new();
    for (i, c) in v.at(&["status", "conditions"]).items().iter().enumerate() {
        let at = path.index(i);
        let (kind, status) = (c.str_at(&["type"]), c.str_at(&["status"]));
        if kind.is_empty() {
            out.push(FieldError::required(&at.child("type"), ""));
        }
        let answer = matches!(kind, "Approved" | "Denied" | "Failed");
        match status {
            "" => out.push(FieldError::required(&at.child("status"), "")),
            "True" => {}
            other if answer => out.push(FieldError::not_supported(&at.child("status"), other, &["True"])),
            "False" | "Unknown" => {}
            other => out.push(FieldError::not_supported(
                &at.child("status"),
                other,
                &["False", "True", "Unknown"],
            )),
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            // Matches no condition type.
            _ => "\0",
        };
        if seen.contains(&opposite) {
            let why = "Approved and Denied conditions are mutually exclusive";
            out.push(FieldError::invalid(&path, kind, why));
        }
        if !seen.insert(kind) {
            out.push(FieldError::duplicate(&at.child("type"), kind));
        }
    }
}

fn count(v: &Value, kind: &str) -> usize {
    let all = v.at(&["status", "conditions"]).items();
    all.iter().filter(|c| c.str_at(&["type"]) == kind).count()
}

fn unchanged_conditions(out: &mut ErrorList, new: &Value, old: &Value, kinds: &[&str]) {
    let at = FieldPath::new("status").child("conditions");
    for kind in kinds {
        if count(new, kind) < count(old, kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            out.push(FieldError::forbidden(&at, why));
        }
    }
}

pub(crate) fn approval(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    request(&mut out, new);
    conditions(&mut out, new);
    unchanged_conditions(&mut out, new, old, &["Approved", "Denied", "Failed"]);
    out
}

pub(crate) fn status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    request(&mut out, new);
    conditions(&mut out, new);
    unchanged_conditions(&mut out, new, old, &["Approved", "Denied", "Failed"]);
    let at = FieldPath::new("status").child("conditions");
    for kind in ["Approved", "Denied"] {
        if count(new, kind) > count(old, kind) {
            let why = format!("updates may not add a condition of type {kind:?}");
            out.push(FieldError::forbidden(&at, why));
        }
    }
    let (now, was) = (new.at(&["status", "certificate"]), old.at(&["status", "certificate"]));
    let at = FieldPath::new("status").child("certificate");
    if now != was && !was.is_empty_value() {
        let why = "updates may not modify existing certificate content";
        out.push(FieldError::forbidden(&at, why));
    } else if now != was
        && !now.is_empty_value()
        && let Err(e) = certificate(&bytes(now))
    {
        out.push(FieldError::invalid(&at, "<certificate data>", e.to_string()));
    }
    out
}

/// Why `status.certificate` is invalid.
#[derive(Debug, thiserror::Error)]
enum InvalidCertificate {
    #[error("must contain at least one CERTIFICATE PEM block")]
    Empty,
    #[error("only CERTIFICATE PEM blocks are allowed, found {}", quote(.0))]
    OtherBlock(String),
    #[error("x509: malformed certificate")]
    Malformed,
}

fn certificate(pem: &[u8]) -> Result<(), InvalidCertificate> {
    let blocks: Vec<Pem> = Pem::iter_from_buffer(pem).filter_map(Result::ok).collect();
    if blocks.is_empty() {
        return Err(InvalidCertificate::Empty);
    }
    for b in &blocks {
        if b.label != "CERTIFICATE" {
            return Err(InvalidCertificate::OtherBlock(b.label.clone()));
        }
        if b.parse_x509().is_err() {
            return Err(InvalidCertificate::Malformed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;
    use crate::x509::testing::ORGANIZATION;

    #[test]
    fn errors_match_the_recordings() {
        let v = json!({"spec": {"request": "bm90IGEgY3Ny", "signerName": "nodomain", "usages": ["client auth", "client auth"], "expirationSeconds": 10}});
        let errors = aggregate(&create(&v));
        for want in [
            "spec.request: Invalid value: \"bm90IGEgY3Ny\": PEM block type must be CERTIFICATE REQUEST",
            "spec.usages[1]: Duplicate value: \"client auth\"",
            "spec.signerName: Invalid value: \"nodomain\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 600 seconds (10 minutes)",
        ] {
            assert!(errors.contains(want), "{errors}");
        }
    }

    #[test]
    fn signer_has_one_slash() {
        let mut out = ErrorList::new();
        signer_name(&mut out, "example.com/x/y", &FieldPath::new("spec").child("signerName"));
        assert_eq!(
            aggregate(&out),
            "spec.signerName: Invalid value: \"example.com/x/y\": must be a fully qualified domain and path of the form \
             'example.com/signer-name'"
        );
    }

    #[test]
    fn approval_conditions_are_set_once_and_only_by_approval() {
        let pem = crate::x509::testing::csr(ORGANIZATION, 0x0c, b"demo");
        let request = base64::engine::general_purpose::STANDARD.encode(pem);
        let old = json!({"spec": {"request": request}, "status": {}});
        let mut new = old.clone();
        new.set(
            &["status", "conditions"],
            json!([{"type": "Approved", "status": "True"}]),
        );
        assert_eq!(aggregate(&approval(&new, &old)), "[]");
        assert_eq!(
            aggregate(&status(&new, &old)),
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\""
        );
        assert_eq!(
            aggregate(&approval(&old, &new)),
            "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""
        );
    }

    #[test]
    fn malformed_stored_request_is_not_approved() {
        let pem = crate::x509::testing::csr(ORGANIZATION, 0x04, b"system:masters");
        let request = base64::engine::general_purpose::STANDARD.encode(pem);
        let old = json!({"spec": {"request": request}, "status": {}});
        for refused in [approval(&old, &old), status(&old, &old)] {
            assert!(aggregate(&refused).contains("an attribute of the subject is no text"));
        }
    }
}
