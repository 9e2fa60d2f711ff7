//! Backends.

use super::{UsageError, Values, pair};
use std::path::PathBuf;

/// Aggregator flags.
#[derive(Clone, Debug)]
pub struct AggregatorOptions {
    /// `--proxy-client-cert-file`, `--proxy-client-key-file`; absent: the generated pair.
    pub proxy_client: Option<(PathBuf, PathBuf)>,
    /// `--enable-aggregator-routing`.
    pub route_by_endpoint: bool,
    /// `--aggregator-reject-forwarding-redirect`.
    pub reject_redirects: bool,
    /// `--backend-socket-dirs`.
    pub socket_dirs: Vec<PathBuf>,
}

impl AggregatorOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let dirs = values.list("backend-socket-dirs");
        let socket_dirs: Vec<PathBuf> = dirs.into_iter().filter(|d| !d.is_empty()).map(PathBuf::from).collect();
        if let Some(dir) = socket_dirs.iter().find(|d| !d.is_absolute()) {
            let why = format!("--backend-socket-dirs: {} is not an absolute path", dir.display());
            return Err(UsageError::new(why));
        }
        Ok(Self {
            proxy_client: pair(values, "proxy-client-cert-file", "proxy-client-key-file")?,
            route_by_endpoint: values.bool("enable-aggregator-routing")?,
            reject_redirects: values.bool("aggregator-reject-forwarding-redirect")?,
            socket_dirs,
        })
    }
}
