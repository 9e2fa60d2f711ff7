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
}

impl AggregatorOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        Ok(Self {
            proxy_client: pair(values, "proxy-client-cert-file", "proxy-client-key-file")?,
            route_by_endpoint: values.bool("enable-aggregator-routing")?,
            reject_redirects: values.bool("aggregator-reject-forwarding-redirect")?,
        })
    }
}
