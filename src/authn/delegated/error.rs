//! Errors of delegated authentication.

use crate::authn::NoRandomNumbers;
use crate::client::ClientError;
use crate::pki::certs::CertError;

/// Why an extension server cannot authenticate its callers.
#[derive(Debug, thiserror::Error)]
pub enum DelegatedError {
    /// The server's own user lacks a right.
    #[error(
        "ConfigMap kube-system/extension-apiserver-authentication may not be read; bind this server's user to the role \
         kube-system/extension-apiserver-authentication-reader ({0})"
    )]
    Forbidden(#[source] ClientError),
    /// The core API server could not be asked.
    #[error("ConfigMap kube-system/extension-apiserver-authentication cannot be read: {0}")]
    Unreadable(#[source] ClientError),
    /// The core API server published something else than a configuration.
    #[error("ConfigMap kube-system/extension-apiserver-authentication cannot be used: {0}")]
    Unusable(#[source] ConfigurationError),
    /// The results of reviews cannot be cached.
    #[error(transparent)]
    Cache(#[from] NoRandomNumbers),
}

/// An error in the published configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The key's value is not a list.
    #[error("{0}: expected a JSON list of strings")]
    NoList(String),
    /// The key's value contains something else than header names.
    #[error("{key}: {name:?} is not a valid header name")]
    HeaderName {
        /// The key in the ConfigMap `extension-apiserver-authentication`.
        key: String,
        /// The entry of its list that is not a header name.
        name: String,
    },
    /// A CA bundle cannot be used.
    #[error(transparent)]
    Authority(#[from] CertError),
}
