//! The flags for connections to kubelets.

use super::{UsageError, Values, file, pair};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct KubeletOptions {
    /// `--kubelet-certificate-authority`; if absent, kubelets are not verified.
    pub certificate_authority: Option<PathBuf>,
    /// `--kubelet-client-certificate` and `--kubelet-client-key`.
    pub client: Option<(PathBuf, PathBuf)>,
    /// `--kubelet-preferred-address-types`
    pub preferred_address_types: Vec<String>,
    /// `--kubelet-port`
    pub port: u16,
    /// `--kubelet-timeout`
    pub timeout: Duration,
}

impl KubeletOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        const PORT: &str = "kubelet-port";
        let port = values.int(PORT)?;
        Ok(Self {
            certificate_authority: file(values, "kubelet-certificate-authority"),
            client: pair(values, "kubelet-client-certificate", "kubelet-client-key")?,
            preferred_address_types: values.list("kubelet-preferred-address-types"),
            port: u16::try_from(port).map_err(|_| UsageError::invalid(PORT, &port.to_string(), "expected a port"))?,
            timeout: values.duration("kubelet-timeout")?,
        })
    }
}
