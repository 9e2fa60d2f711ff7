//! Rules that apply to all proxies of this gateway and to every backend. Entry point: [`ProxyPolicy`].

use super::headers::{Special, origin};
use super::hops::{HOPS, Hops};
use crate::apimachinery::status::Status;
use http::HeaderMap;
use std::sync::Arc;

/// Loop detection and browser isolation for proxied requests.
#[derive(Clone, Debug)]
pub(crate) struct ProxyPolicy {
    /// The identity of this gateway for loop detection.
    pub hops: Arc<Hops>,
    /// `--backend-response-isolation`: responses of backends cannot act for the gateway's origin in browsers.
    pub isolate: bool,
}

impl Default for ProxyPolicy {
    fn default() -> Self {
        Self {
            hops: Arc::default(),
            isolate: true,
        }
    }
}

impl ProxyPolicy {
    /// Appends this gateway to the hops of a request.
    ///
    /// # Errors
    /// 508 if the request loops.
    pub(crate) fn pass(&self, headers: &mut HeaderMap) -> Result<(), Status> {
        match self.hops.next_value(headers)? {
            Some(onward) => drop(headers.insert(HOPS, onward)),
            // Removed rather than passed on: what is left consists of invalid IDs only.
            None => drop(headers.remove(HOPS)),
        }
        Ok(())
    }

    /// Removes response headers that a backend may not send; returns the flags of the remaining ones.
    pub(crate) fn clean_answer(&self, special: Special, headers: &mut HeaderMap) -> Special {
        let rest = special.clean_response(headers);
        if rest.origin && self.isolate {
            origin::strip(headers);
        }
        rest
    }

    /// The same for the response to an upgrade, whose other headers are passed on unchanged.
    pub(crate) fn clean_upgrade(&self, headers: &mut HeaderMap) {
        if self.isolate {
            origin::strip(headers);
        }
    }

    /// Confines a response with a body that a browser might render. Returns false if no browser would, in
    /// which case there are no links to rewrite either.
    pub(crate) fn confine(&self, headers: &mut HeaderMap) -> bool {
        match self.isolate {
            true => origin::confine(headers),
            false => !origin::is_inert(headers),
        }
    }
}
