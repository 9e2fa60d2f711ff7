//! Validation of CertificateSigningRequests and of their `status` and `approval` subresources (upstream's
//! `pkg/apis/certificates/validation`).

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::Seen;
use crate::x509::CertificateRequest;
use base64::Engine as _;
use x509_parser::prelude::{Pem, parse_x509_certificate};

// Sorted: errors list the supported values in this order.
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
    // Decoding cannot fail for objects from a client: the codec has checked `[]byte` fields. Empty input is
    // refused by the parsers below.
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
    for (i, u) in usages.iter().enumerate() {
        if !u.as_str().is_some_and(|s| USAGES.contains(&s)) {
            out.push(FieldError::not_supported(&at.index(i), u.clone(), USAGES));
        }
    }
    // Independent of the check above: an unknown usage may be a duplicate too.
    let mut seen = Seen::new();
    for (i, u) in usages.iter().enumerate() {
        if !seen.insert(u.as_str()) {
            out.push(FieldError::duplicate_enum(&at.index(i), u.clone()));
        }
    }
    let (signer, at) = (spec.str_at(&["signerName"]), path.child("signerName"));
    // v1beta1 clients got this signer by default; v1 requires a choice.
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
    conditions(&mut out, v, &Value::Null);
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
    if domain.len() > 253 {
        out.push(FieldError::too_long(at, 253));
    }
    labels(out, domain, dns1123_label, at);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        out.push(FieldError::invalid(at, domain, why));
    }
    // By label as well: the path as a whole may be longer than a subdomain.
    labels(out, rest, dns1123_subdomain, at);
    // Upstream's sum: a domain of 253, a slash, and a path of a subdomain and a label (253 + 1 + 63).
    if text.len() > 571 {
        out.push(FieldError::too_long(at, 571));
    }
}

/// Checks what is between the dots of a signer's domain or path. Only the first invalid label is reported, as upstream.
fn labels(out: &mut ErrorList, part: &str, rule: fn(&str) -> Vec<String>, at: &FieldPath) {
    let mut checked = part.split('.').map(|label| (label, rule(label)));
    let Some((label, messages)) = checked.find(|(_, messages)| !messages.is_empty()) else {
        return;
    };
    for m in messages {
        let why = format!("validating label {}: {m}", quote(label));
        out.push(FieldError::invalid(at, part, why));
    }
}

fn kinds(v: &Value) -> impl Iterator<Item = &str> {
    let all = v.at(&["status", "conditions"]).items();
    all.iter().map(|c| c.str_at(&["type"]))
}

/// Checks the conditions. As upstream, a rule about types that the stored conditions break is not applied: objects of
/// before the rule must still be approvable.
fn conditions(out: &mut ErrorList, v: &Value, old: &Value) {
    let path = FieldPath::new("status").child("conditions");
    let had = |kind: &str| kinds(old).any(|k| k == kind);
    let (had_both, had_unnamed) = (had("Approved") && had("Denied"), had(""));
    let mut before: Seen<&str> = Seen::new();
    let had_duplicates = kinds(old).any(|kind| !before.insert(kind));
    let mut seen: Seen<&str> = Seen::new();
    for (i, c) in v.at(&["status", "conditions"]).items().iter().enumerate() {
        let at = path.index(i);
        let (kind, status) = (c.str_at(&["type"]), c.str_at(&["status"]));
        if kind.is_empty() && !had_unnamed {
            out.push(FieldError::required(&at.child("type"), ""));
        }
        let answer = matches!(kind, "Approved" | "Denied" | "Failed");
        match status {
            "" => out.push(FieldError::required(&at.child("status"), "")),
            // These conditions record a decision; to withdraw one is not supported.
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
        if seen.contains(&opposite) && !had_both {
            let why = "Approved and Denied conditions are mutually exclusive";
            out.push(FieldError::invalid(&path, kind, why));
        }
        if !seen.insert(kind) && !had_duplicates {
            out.push(FieldError::duplicate_enum(&at.child("type"), kind));
        }
    }
}

fn count(v: &Value, kind: &str) -> usize {
    kinds(v).filter(|k| *k == kind).count()
}

fn unchanged_conditions(out: &mut ErrorList, new: &Value, old: &Value, kinds: &[&str]) {
    let at = FieldPath::new("status").child("conditions");
    for kind in kinds {
        // Counts suffice: fewer means that one is gone, even if a stored object has several of the type.
        if count(new, kind) < count(old, kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            out.push(FieldError::forbidden(&at, why));
        }
    }
}

pub(crate) fn approval(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    request(&mut out, new);
    conditions(&mut out, new, old);
    unchanged_conditions(&mut out, new, old, &["Approved", "Denied", "Failed"]);
    out
}

pub(crate) fn status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    request(&mut out, new);
    conditions(&mut out, new, old);
    let (now, was) = (new.at(&["status", "certificate"]), old.at(&["status", "certificate"]));
    let certificate_at = FieldPath::new("status").child("certificate");
    let is_valid = |v: &Value| v.is_empty_value() || certificate(&bytes(v)).is_ok();
    // An invalid one that is stored already may be replaced by another: it was written before there was this rule.
    if now != was
        && !now.is_empty_value()
        && let Err(e) = certificate(&bytes(now))
        && is_valid(was)
    {
        // A placeholder instead of the value keeps the certificate out of messages and logs.
        out.push(FieldError::invalid(
            &certificate_at,
            "<certificate data>",
            e.to_string(),
        ));
    }
    unchanged_conditions(&mut out, new, old, &["Approved", "Denied", "Failed"]);
    let at = FieldPath::new("status").child("conditions");
    // Approval has its own subresource and permission, so a signer must not be able to grant it here.
    for kind in ["Approved", "Denied"] {
        if count(new, kind) > count(old, kind) {
            let why = format!("updates may not add a condition of type {kind:?}");
            out.push(FieldError::forbidden(&at, why));
        }
    }
    // Clients may already use the issued certificate.
    if now != was && !was.is_empty_value() {
        let why = "updates may not modify existing certificate content";
        out.push(FieldError::forbidden(&certificate_at, why));
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
    #[error("no PEM block headers are permitted")]
    Headers,
    #[error("found CERTIFICATE PEM block containing 0 certificates")]
    EmptyBlock,
    #[error("x509: malformed certificate")]
    Malformed,
}

fn certificate(pem: &[u8]) -> Result<(), InvalidCertificate> {
    no_headers(pem)?;
    let blocks: Vec<Pem> = Pem::iter_from_buffer(pem).filter_map(Result::ok).collect();
    if blocks.is_empty() {
        return Err(InvalidCertificate::Empty);
    }
    for b in &blocks {
        if b.label != "CERTIFICATE" {
            return Err(InvalidCertificate::OtherBlock(b.label.clone()));
        }
        let mut rest = b.contents.as_slice();
        if rest.is_empty() {
            return Err(InvalidCertificate::EmptyBlock);
        }
        // As in Go, a block may hold several certificates, but nothing after them.
        while !rest.is_empty() {
            (rest, _) = parse_x509_certificate(rest).map_err(|_| InvalidCertificate::Malformed)?;
        }
    }
    Ok(())
}

/// Refuses blocks with headers, which our PEM parser would skip as invalid.
fn no_headers(pem: &[u8]) -> Result<(), InvalidCertificate> {
    let text = String::from_utf8_lossy(pem);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let label = line.trim_end().strip_prefix("-----BEGIN ");
        let label = label.and_then(|l| l.strip_suffix("-----"));
        // A header is a key and a value with a colon between them, which base64 does not contain.
        let has_header = lines.peek().is_some_and(|next| next.contains(':'));
        match label {
            Some("CERTIFICATE") if has_header => return Err(InvalidCertificate::Headers),
            Some(other) if has_header => return Err(InvalidCertificate::OtherBlock(other.to_owned())),
            _ => {}
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
    fn repeated_usages_are_reported_after_unknown_ones() {
        let v = json!({"spec": {"usages": ["a&b", "a&b"]}});
        let errors = create(&v);
        let of_usages = errors.iter().filter(|e| e.field.starts_with("spec.usages"));
        let texts: Vec<String> = of_usages.map(|e| format!("{} {}", e.field, e.body())).collect();
        assert!(texts[0].starts_with("spec.usages[0] Unsupported value: \"a\\u0026b\": supported values: \"any\""));
        assert!(texts[1].starts_with("spec.usages[1] Unsupported value"));
        assert_eq!(texts[2], "spec.usages[1] Duplicate value: \"a\\u0026b\"");
    }

    #[test]
    fn a_certificate_that_replaces_another_is_checked_too() {
        let block = |body: &str| {
            let pem = format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n");
            base64::engine::general_purpose::STANDARD.encode(pem)
        };
        let with = |certificate: Option<String>| {
            let mut v = json!({"status": {}});
            if let Some(text) = certificate {
                v.set(&["status", "certificate"], text);
            }
            v
        };
        let about = |new: &Value, old: &Value| {
            let found = status(new, old).into_iter().filter(|e| e.field == "status.certificate");
            found.map(|e| e.body()).collect::<Vec<_>>()
        };
        let (first, second) = (with(Some(block("MAA=\n"))), with(Some(block("MAAA\n"))));
        let invalid = "Invalid value: \"<certificate data>\": x509: malformed certificate";
        let fixed = "Forbidden: updates may not modify existing certificate content";
        assert_eq!(about(&first, &with(None)), [invalid]);
        // The stored one is invalid, too.
        assert_eq!(about(&second, &first), [fixed]);
        assert_eq!(about(&first, &first), [""; 0]);
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
    fn the_first_invalid_label_of_a_signers_domain_and_path_is_reported() {
        let details = |name: &str| {
            let mut out = ErrorList::new();
            signer_name(&mut out, name, &FieldPath::new("s"));
            out.iter().map(|e| e.detail.clone()).collect::<Vec<_>>()
        };
        let found = details("A.B/x.C.D");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("validating label \"A\": a lowercase RFC 1123 label"));
        assert!(found[1].starts_with("validating label \"C\": a lowercase RFC 1123 subdomain"));
        // The length of the domain comes first. That of the path is limited label by label.
        let found = details(&format!("{}A/x", "a.".repeat(127)));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("validating label \"A\""));
        assert_eq!(details(&format!("a.b/{}c", "c.".repeat(150))), [""; 0]);
    }

    #[test]
    fn certificate_blocks_have_no_headers_and_are_not_empty() {
        for (label, body, want) in [
            ("CERTIFICATE", "a: b\n\nMAA=\n", "no PEM block headers are permitted"),
            (
                "RSA PRIVATE KEY",
                "Proc-Type: 4,ENCRYPTED\n\nMAA=\n",
                "only CERTIFICATE PEM blocks are allowed, found \"RSA PRIVATE KEY\"",
            ),
            (
                "CERTIFICATE",
                "",
                "found CERTIFICATE PEM block containing 0 certificates",
            ),
            ("CERTIFICATE", "MAA=\n", "x509: malformed certificate"),
        ] {
            let pem = format!("-----BEGIN {label}-----\n{body}-----END {label}-----\n");
            assert_eq!(certificate(pem.as_bytes()).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn rules_that_stored_conditions_break_are_not_applied() {
        let mut old = json!({});
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"},
            {"type": "", "status": "True"}, {"type": "", "status": "True"}]);
        old.set(&["status", "conditions"], both);
        let errors = |old: &Value, new: &Value| {
            let mut out = ErrorList::new();
            conditions(&mut out, new, old);
            out.len()
        };
        assert_eq!(errors(&old, &old), 0);
        // Two types are missing, one is repeated, and two exclude each other.
        assert_eq!(errors(&Value::Null, &old), 4);
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
            assert!(aggregate(&refused).contains("an attribute of the subject is not a string"));
        }
    }
}
