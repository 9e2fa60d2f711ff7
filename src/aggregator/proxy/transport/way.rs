//! Upstream options of an APIService beyond TLS: explicit target addresses and timeouts, and the [`Transport`] methods
//! that depend on them.

use super::super::dial::{self, DialError, Offer};
use super::{Transport, balance, host, ranked};
use crate::client::io::Wire;
use crate::client::target::{Target, Timeouts};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Options that the annotations of an APIService set for its backend, beside TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Explicit addresses, if the backend is not a Service.
    pub target: Option<Arc<Target>>,
    /// Time limits for the backend.
    pub timeouts: Timeouts,
}

impl Transport {
    /// Sets the upstream options.
    #[must_use]
    pub fn by(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    /// Whether `authority` is an address of this gateway itself, and which. A Unix socket never is.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leads_home(&self, authority: &str) -> Option<SocketAddr> {
        match authority.contains('/') {
            true => None,
            false => self.outbound.leads_home(authority).await,
        }
    }

    /// Time limits for the backend.
    pub fn timeouts(&self) -> &Timeouts {
        &self.way.timeouts
    }

    /// The host name that is sent to the backend at this address: the address itself, or the configured server name for
    /// a Unix socket, whose path should not be disclosed.
    pub fn host_name<'a>(&'a self, address: &'a str) -> &'a str {
        match &self.way.target {
            Some(target) if address.contains('/') => &target.server_name,
            _ => address,
        }
    }

    /// Like [`Transport::choose`], avoiding `not` if there are other addresses.
    pub(super) fn choose_but<'a>(&self, endpoints: &'a [Arc<str>], not: Option<&str>) -> &'a Arc<str> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match &self.way.target {
            Some(target) if target.addresses.len() == endpoints.len() => {
                &endpoints[ranked::choose(target, &self.lock(), turn, not)]
            }
            _ => balance::choose(endpoints, &self.lock(), turn, not),
        }
    }

    /// Records a response timeout as a failure of the address, as a reported error would be.
    pub fn unanswered(&self, address: &str, why: &str) {
        let host = self.lock().get(address).cloned();
        if let Some(host) = host {
            host.health.failed(why);
        }
    }

    /// Dials a dedicated HTTP/1.1 connection for an upgrade.
    ///
    /// # Errors
    /// [`DialError`].
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future aborts the attempt.
    pub async fn dial_http1(&self, authority: &str) -> Result<TokioIo<Wire>, DialError> {
        let socket = self
            .way
            .target
            .as_ref()
            .and_then(|t| t.place(authority)?.socket.as_ref());
        let dialing = async {
            match socket {
                Some(socket) => dial::dial_socket(socket, &self.tls, Offer::Http1, &self.outbound).await,
                // As upstream's, upgrades bypass the egress proxy.
                None => dial::dial_straight(authority, &self.tls, Offer::Http1, &self.outbound).await,
            }
        };
        let dialed = host::within(self.way.timeouts.connect, authority, dialing).await?;
        Ok(TokioIo::new(dialed.io))
    }
}
