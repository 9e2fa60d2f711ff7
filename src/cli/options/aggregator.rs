//! The flags of the aggregator and its backends.

use super::{UsageError, Values, count, pair};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub(crate) struct AggregatorOptions {
    /// `--proxy-client-cert-file`, `--proxy-client-key-file`; absent for the generated pair.
    pub proxy_client: Option<(PathBuf, PathBuf)>,
    /// `--enable-aggregator-routing`.
    pub route_by_endpoint: bool,
    /// `--aggregator-reject-forwarding-redirect`.
    pub reject_redirects: bool,
    /// `--aggregator-keep-discovery`.
    pub keeps_discovery: bool,
    /// `--backend-socket-dirs`.
    pub socket_dirs: Vec<PathBuf>,
    /// `--backend-max-requests`; 0 for half of `--max-requests-inflight`.
    pub max_requests: usize,
    /// `--backend-max-watches`; 0 for no limit.
    pub max_watches: usize,
    /// `--backend-max-connections`, per address.
    pub max_connections: usize,
    /// `--backend-max-waiting`: maximum number of requests waiting for a connection, per address.
    pub max_waiting: usize,
    /// `--backend-answer-isolation`.
    pub isolate_answers: bool,
    /// `--aggregator-max-discovery-bytes`.
    pub max_discovery_bytes: usize,
    /// `--aggregator-max-openapi-bytes`.
    pub max_openapi_bytes: usize,
}

impl AggregatorOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let dirs = values.list("backend-socket-dirs");
        let socket_dirs: Vec<PathBuf> = dirs.into_iter().filter(|d| !d.is_empty()).map(PathBuf::from).collect();
        // A relative path would depend on where the process was started, and the directory is a security
        // boundary.
        if let Some(dir) = socket_dirs.iter().find(|d| !d.is_absolute()) {
            let why = format!("--backend-socket-dirs: {} is not an absolute path", dir.display());
            return Err(UsageError::new(why));
        }
        // Zero would not mean "no limit" here but that no backend is ever reached.
        let at_least_one = |flag: &str| match count(values, flag)? {
            0 => Err(UsageError::new(format!("--{flag} must be at least 1"))),
            n => Ok(n),
        };
        Ok(Self {
            proxy_client: pair(values, "proxy-client-cert-file", "proxy-client-key-file")?,
            route_by_endpoint: values.bool("enable-aggregator-routing")?,
            reject_redirects: values.bool("aggregator-reject-forwarding-redirect")?,
            keeps_discovery: values.bool("aggregator-keep-discovery")?,
            socket_dirs,
            max_requests: count(values, "backend-max-requests")?,
            max_watches: count(values, "backend-max-watches")?,
            max_connections: at_least_one("backend-max-connections")?,
            max_waiting: at_least_one("backend-max-waiting")?,
            isolate_answers: values.bool("backend-answer-isolation")?,
            max_discovery_bytes: at_least_one("aggregator-max-discovery-bytes")?,
            max_openapi_bytes: at_least_one("aggregator-max-openapi-bytes")?,
        })
    }
}
