//! The requests that the signers of Kubernetes accept (`pkg/apis/certificates/helpers.go`,
//! `certificates/signer/signer.go`). Messages are upstream's, because users read them in the request's
//! conditions.

use crate::apimachinery::value::{Str, Value};
use crate::x509::{AlternativeName, CertificateRequest};
use std::collections::BTreeSet;

pub(crate) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(crate) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(crate) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(crate) const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// Why a signer refuses a request, worded as upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("invalid usage for client certificate: {0}")]
    InvalidUsage(Str),
    #[error("missing required usage for client certificate: client auth")]
    MissingUsage,
    /// The usages are not those of the purpose: the expected ones.
    #[error("usages did not match [{0}]")]
    Usages(String),
    /// Subject alternative names of a type that is not allowed.
    #[error("{0} subjectAltNames are not allowed")]
    AlternativeName(&'static str),
    #[error("DNS or IP subjectAltName is required")]
    NoAlternativeName,
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
}

/// `spec.usages`
pub(crate) fn usages(request: &Value) -> Vec<Str> {
    let all = request.at(&["spec", "usages"]).items().iter();
    all.filter_map(Value::as_str).map(Str::from).collect()
}

/// Checks a request for a signer.
pub(crate) fn check(signer: &str, request: &CertificateRequest, usages: &[Str]) -> Result<(), Refused> {
    match signer {
        KUBELET_CLIENT => kubelet_client(request, usages),
        KUBELET_SERVING => kubelet_serving(request, usages),
        CLIENT => client(usages),
        // `legacy-unknown` has no restrictions. Custom signers are not signed here.
        _ => Ok(()),
    }
}

fn client(usages: &[Str]) -> Result<(), Refused> {
    let known = ["digital signature", "key encipherment", "client auth"];
    match usages.iter().find(|u| !known.contains(&u.as_str())) {
        Some(other) => Err(Refused::InvalidUsage(other.clone())),
        None if usages.iter().any(|u| u == "client auth") => Ok(()),
        None => Err(Refused::MissingUsage),
    }
}

fn has(request: &CertificateRequest, tag: u8) -> bool {
    request.names.iter().any(|n| n.tag == tag)
}

fn kubelet_client(request: &CertificateRequest, usages: &[Str]) -> Result<(), Refused> {
    organization(request)?;
    let refused = [
        (AlternativeName::DNS, "DNS"),
        (AlternativeName::EMAIL, "Email"),
        (AlternativeName::IP, "IP"),
        (AlternativeName::URI, "URI"),
    ];
    // The order of the checks decides which message the user reads; it is upstream's.
    none_of(request, &refused)?;
    common_name(request)?;
    exactly(usages, "client auth")
}

fn kubelet_serving(request: &CertificateRequest, usages: &[Str]) -> Result<(), Refused> {
    organization(request)?;
    if !has(request, AlternativeName::DNS) && !has(request, AlternativeName::IP) {
        return Err(Refused::NoAlternativeName);
    }
    let refused = [(AlternativeName::EMAIL, "Email"), (AlternativeName::URI, "URI")];
    none_of(request, &refused)?;
    exactly(usages, "server auth")?;
    common_name(request)
}

fn none_of(request: &CertificateRequest, refused: &[(u8, &'static str)]) -> Result<(), Refused> {
    let found = refused.iter().find(|(tag, _)| has(request, *tag));
    found.map_or(Ok(()), |(_, name)| Err(Refused::AlternativeName(name)))
}

fn organization(request: &CertificateRequest) -> Result<(), Refused> {
    match request.subject.organizations() {
        [only] if only == "system:nodes" => Ok(()),
        _ => Err(Refused::Organization),
    }
}

fn common_name(request: &CertificateRequest) -> Result<(), Refused> {
    match request.subject.common_name().starts_with("system:node:") {
        true => Ok(()),
        false => Err(Refused::CommonName),
    }
}

/// Requires the usages to be `purpose` and `digital signature`, optionally with `key encipherment` (RSA keys).
fn exactly(usages: &[Str], purpose: &str) -> Result<(), Refused> {
    let usages: BTreeSet<&str> = usages.iter().map(Str::as_str).collect();
    let others = BTreeSet::from(["digital signature", purpose]);
    let mut rsa = others.clone();
    rsa.insert("key encipherment");
    match usages == others || usages == rsa {
        true => Ok(()),
        false => {
            // Upstream lists the larger set, sorted.
            let wanted: Vec<&str> = rsa.into_iter().collect();
            Err(Refused::Usages(wanted.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::testing::{attribute, name, request};

    const NAMES: &[u8] = &[0x55, 0x1d, 0x11];

    /// A request of `system:node:<name>`, with alternative names.
    fn node(common_name: &str, organization: &str, names: &[(u8, &[u8])]) -> CertificateRequest {
        let subject = name(&[
            attribute(&[0x55, 0x04, 0x0a], 0x0c, organization.as_bytes()),
            attribute(&[0x55, 0x04, 0x03], 0x0c, common_name.as_bytes()),
        ]);
        let all: Vec<u8> = names
            .iter()
            .flat_map(|(tag, value)| crate::x509::testing::tlv(*tag, value))
            .collect();
        let attributes = match names {
            [] => Vec::new(),
            _ => crate::x509::testing::extension_request(&[(NAMES, &crate::x509::testing::tlv(0x30, &all))]),
        };
        let pem = crate::x509::pem::encode("CERTIFICATE REQUEST", &request(&subject, &attributes));
        CertificateRequest::from_pem(pem.as_bytes()).expect("it is well-formed")
    }

    fn all(usages: &[&str]) -> Vec<Str> {
        usages.iter().map(|u| Str::from(*u)).collect()
    }

    #[test]
    fn kubelet_requests_are_checked_for_usages_and_names() {
        let (client, serving) = (
            all(&["digital signature", "client auth"]),
            all(&["digital signature", "key encipherment", "server auth"]),
        );
        let dns: (u8, &[u8]) = (AlternativeName::DNS, b"n");
        let uri: (u8, &[u8]) = (AlternativeName::URI, b"spiffe://n");
        let good = node("system:node:n", "system:nodes", &[]);
        assert_eq!(check(KUBELET_CLIENT, &good, &client), Ok(()));
        assert_eq!(
            check(KUBELET_CLIENT, &good, &serving).unwrap_err().to_string(),
            "usages did not match [client auth digital signature key encipherment]"
        );
        let refused = |signer: &str, r: &CertificateRequest, u: &[Str]| check(signer, r, u).unwrap_err().to_string();
        let other = node("system:node:n", "system:masters", &[]);
        assert_eq!(
            refused(KUBELET_CLIENT, &other, &client),
            "subject organization is not system:nodes"
        );
        let other = node("admin", "system:nodes", &[]);
        assert_eq!(
            refused(KUBELET_CLIENT, &other, &client),
            "subject common name does not begin with system:node:"
        );
        let named = node("system:node:n", "system:nodes", &[dns]);
        assert_eq!(
            refused(KUBELET_CLIENT, &named, &client),
            "DNS subjectAltNames are not allowed"
        );
        assert_eq!(check(KUBELET_SERVING, &named, &serving), Ok(()));
        assert_eq!(
            refused(KUBELET_SERVING, &good, &serving),
            "DNS or IP subjectAltName is required"
        );
        let named = node("system:node:n", "system:nodes", &[dns, uri]);
        assert_eq!(
            refused(KUBELET_SERVING, &named, &serving),
            "URI subjectAltNames are not allowed"
        );
    }

    #[test]
    fn client_requests_need_client_usages() {
        let anybody = node("x", "y", &[]);
        assert_eq!(
            check(CLIENT, &anybody, &all(&["client auth", "key encipherment"])),
            Ok(())
        );
        assert_eq!(
            check(CLIENT, &anybody, &all(&["client auth", "server auth"]))
                .unwrap_err()
                .to_string(),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            check(CLIENT, &anybody, &all(&["digital signature"]))
                .unwrap_err()
                .to_string(),
            "missing required usage for client certificate: client auth"
        );
        assert_eq!(check(LEGACY, &anybody, &all(&["server auth"])), Ok(()));
    }
}
