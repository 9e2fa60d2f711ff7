//! What all that passes requests on does alike, whoever is at the other end.

use super::headers::{Special, origin};
use super::hops::{HOPS, Hops};
use crate::apimachinery::status::Status;
use http::HeaderMap;
use std::sync::Arc;

/// How this gateway passes requests on.
#[derive(Clone, Debug)]
pub struct ProxyPolicy {
    /// This gateway's name among others.
    pub hops: Arc<Hops>,
    /// `--backend-answer-isolation`: backends' answers do not act for the gateway's origin in browsers.
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
    /// Notes on a request that it has passed here.
    ///
    /// # Errors
    /// 508: it has before.
    pub fn pass(&self, headers: &mut HeaderMap) -> Result<(), Status> {
        match self.hops.onward(headers)? {
            Some(onward) => drop(headers.insert(HOPS, onward)),
            None => drop(headers.remove(HOPS)),
        }
        Ok(())
    }

    /// Takes from a backend's answer what is not the backend's to say, and says what was there of the rest.
    pub fn clean_answer(&self, special: Special, headers: &mut HeaderMap) -> Special {
        let rest = special.clean_response(headers);
        if rest.origin && self.isolate {
            origin::strip(headers);
        }
        rest
    }

    /// The same for the answer to an upgrade, which otherwise travels as it is.
    pub fn clean_upgrade(&self, headers: &mut HeaderMap) {
        if self.isolate {
            origin::strip(headers);
        }
    }

    /// Confines an answer with a body that a browser might show as a page. False: no browser would, so that there are no
    /// links to rewrite in it either.
    pub fn confine(&self, headers: &mut HeaderMap) -> bool {
        match self.isolate {
            true => origin::confine(headers),
            false => !origin::is_inert(headers),
        }
    }
}
