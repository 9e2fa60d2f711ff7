//! References to certificates stored as objects: `secret/<namespace>/<name>` and
//! `configmap/<namespace>/<name>/<key>`.

use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain};
use std::fmt;

/// A Secret or ConfigMap, and a key in its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Kind of the object.
    pub source: Source,
    /// `<namespace>/<name>`, which is its storage key.
    pub object: Box<str>,
    /// The key in its data; for a key pair, that of the certificate.
    pub key: Box<str>,
}

/// Kind of a referenced object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Holds CA certificates or a key pair.
    Secret,
    /// Holds CA certificates, never a key pair.
    ConfigMap,
}

/// Why a reference is invalid. The message states the required form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidReference {
    /// It does not refer to CA certificates.
    #[error(
        "must be configmap/<namespace>/<name> or secret/<namespace>/<name>, with /<key> behind it where the key is not ca.crt"
    )]
    Roots,
    /// It does not refer to a key pair.
    #[error("must be secret/<namespace>/<name>, a Secret of the type kubernetes.io/tls")]
    Pair,
}

impl Reference {
    /// Parses a reference to CA certificates: a ConfigMap or Secret, with the default key `ca.crt`.
    pub(super) fn of_roots(value: &str) -> Result<Self, InvalidReference> {
        Self::read(value, "ca.crt", true).ok_or(InvalidReference::Roots)
    }

    /// Parses a reference to a key pair: a Secret of the type `kubernetes.io/tls`.
    pub(super) fn of_pair(value: &str) -> Result<Self, InvalidReference> {
        // The type of the Secret fixes both keys, so that none can be named.
        Self::read(value, "tls.crt", false)
            .filter(|r| r.source == Source::Secret)
            .ok_or(InvalidReference::Pair)
    }

    fn read(value: &str, usual: &str, may_name_key: bool) -> Option<Self> {
        let parts: Vec<&str> = value.split('/').collect();
        let (kind, namespace, name, key) = match *parts.as_slice() {
            [kind, namespace, name] => (kind, namespace, name, usual),
            [kind, namespace, name, key] if may_name_key && !key.is_empty() => (kind, namespace, name, key),
            _ => return None,
        };
        let source = match kind {
            "secret" => Source::Secret,
            "configmap" => Source::ConfigMap,
            _ => return None,
        };
        // No object can have another name: a typing mistake is reported as one, not as an object that is missing.
        let named = dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty();
        named.then(|| Self {
            source,
            object: format!("{namespace}/{name}").into(),
            key: key.into(),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.source {
            Source::Secret => "secret",
            Source::ConfigMap => "configmap",
        };
        write!(f, "{kind} {:?}", self.object)
    }
}
