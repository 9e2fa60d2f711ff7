//! What an APIService says about the way to its backend, and what follows from it.

use super::super::dial::{self, DialError, Offer};
use super::{Transport, balance, host, ranked};
use crate::client::io::Wire;
use crate::client::target::{Target, Timeouts};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an APIService says about the way to its backend, beside TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Where it leads, when it is to no Service.
    pub target: Option<Arc<Target>>,
    /// How long the backend may take.
    pub timeouts: Timeouts,
}

impl Transport {
    /// By another way than that to a Service.
    #[must_use]
    pub fn by(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    /// The address of `authority` that is this gateway's own, where one is. A socket is not.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leads_home(&self, authority: &str) -> Option<SocketAddr> {
        match authority.contains('/') {
            true => None,
            false => self.outbound.leads_home(authority).await,
        }
    }

    /// How long the backend may take.
    pub fn timeouts(&self) -> &Timeouts {
        &self.way.timeouts
    }

    /// What a backend at this address is told as the host: the address, but for sockets, whose path is nobody's business.
    pub fn host_name<'a>(&'a self, address: &'a str) -> &'a str {
        match &self.way.target {
            Some(target) if address.contains('/') => &target.server_name,
            _ => address,
        }
    }

    /// As [`Transport::choose`], and not this one where there are others.
    pub(super) fn choose_but<'a>(&self, endpoints: &'a [Arc<str>], not: Option<&str>) -> &'a Arc<str> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match &self.way.target {
            Some(target) if target.addresses.len() == endpoints.len() => {
                &endpoints[ranked::choose(target, &self.lock(), turn, not)]
            }
            _ => balance::choose(endpoints, &self.lock(), turn, not),
        }
    }

    /// Nothing came from an address for longer than it may take: it counts as a failure, as one that is told does.
    pub fn unanswered(&self, address: &str, why: &str) {
        let host = self.lock().get(address).cloned();
        if let Some(host) = host {
            host.health.failed(why);
        }
    }

    /// A connection of its own for an upgrade.
    ///
    /// # Errors
    /// [`DialError`].
    ///
    /// # Cancel safety
    /// When dropped, the attempt ends.
    pub async fn dial_http1(&self, authority: &str) -> Result<TokioIo<Wire>, DialError> {
        let socket = self
            .way
            .target
            .as_ref()
            .and_then(|t| t.place(authority)?.socket.as_ref());
        let dialing = async {
            match socket {
                Some(socket) => dial::dial_socket(socket, &self.tls, Offer::Http1, &self.outbound).await,
                // Upgrades go straight, as upstream's do.
                None => dial::dial_straight(authority, &self.tls, Offer::Http1, &self.outbound).await,
            }
        };
        let dialed = host::within(self.way.timeouts.connect, authority, dialing).await?;
        Ok(TokioIo::new(dialed.io))
    }
}
