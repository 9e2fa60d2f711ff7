//! [`ProbeRequest`]: the request that finds out whether an address has recovered; [`ProbeState`]: whether one
//! is in flight. When probes are sent is decided in `probation`.

use super::Outgoing;
use crate::request::Body;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The probe request: a GET of a path that every backend serves.
#[derive(Clone, Debug)]
pub(crate) struct ProbeRequest {
    pub target: PathAndQuery,
    /// Headers, without `Host`.
    pub headers: HeaderMap,
}

/// Whether a probe of the address is in flight.
#[derive(Default)]
pub(super) struct ProbeState(Arc<AtomicBool>);

/// Guard of the probe in flight.
pub(super) struct ProbeGuard(Arc<AtomicBool>);

impl Default for ProbeRequest {
    fn default() -> Self {
        Self {
            target: PathAndQuery::from_static("/"),
            headers: HeaderMap::new(),
        }
    }
}

impl From<ProbeRequest> for Outgoing {
    fn from(probe_request: ProbeRequest) -> Self {
        Self {
            method: Method::GET,
            target: probe_request.target,
            headers: probe_request.headers,
            body: Body::empty(),
        }
    }
}

impl ProbeState {
    /// `None` if a probe is in flight already.
    pub(super) fn begin(&self) -> Option<ProbeGuard> {
        (!self.0.swap(true, Ordering::Relaxed)).then(|| ProbeGuard(self.0.clone()))
    }
}

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
