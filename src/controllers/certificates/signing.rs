//! [`SigningConfig`]: the CAs that sign certificates, and for how long.

use super::rules;
use crate::apimachinery::value::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Minimum lifetime of a certificate: a request for less gets this much (`signer.go`).
const MIN_LIFETIME: Duration = Duration::from_secs(600);

/// The CAs of `--cluster-signing-cert-file`, or those that were generated.
#[derive(Clone, Debug)]
pub(crate) struct SigningConfig {
    /// Signs certificates of clients: certificate and key file.
    pub(crate) clients: Option<(PathBuf, PathBuf)>,
    /// Signs certificates of kubelets' servers.
    pub(crate) kubelets: Option<(PathBuf, PathBuf)>,
    /// `--cluster-signing-duration`
    pub(crate) longest: Duration,
}

impl SigningConfig {
    /// The certificate and key file of a signer; `None` if it is not served.
    pub(super) fn of(&self, signer: &str) -> Option<&(PathBuf, PathBuf)> {
        match signer {
            rules::KUBELET_SERVING => self.kubelets.as_ref(),
            rules::CLIENT | rules::KUBELET_CLIENT | rules::LEGACY => self.clients.as_ref(),
            _ => None,
        }
    }

    /// The lifetime of a certificate: the requested one within [`MIN_LIFETIME`] and `longest`.
    pub(super) fn life(&self, request: &Value) -> Duration {
        let asked = request.at(&["spec", "expirationSeconds"]).as_i64();
        let asked = asked.map(|s| Duration::from_secs(u64::try_from(s).unwrap_or_default()));
        // Not `clamp`, which panics if the administrator configures less than the minimum.
        asked.map_or(self.longest, |asked| asked.max(MIN_LIFETIME).min(self.longest))
    }
}
