//! Upstream options of an APIService beyond TLS: explicit target addresses and timeouts, and the
//! [`Transport`] methods that depend on them.

use super::{Transport, balance, host, weighted};
use crate::proxy::dial::{self, Offer};
use crate::proxy::io::Connection;
use crate::proxy::target::{Target, Timeouts};
use crate::proxy::tcp::DialError;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Options that the annotations of an APIService set for its backend, beside TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct UpstreamOptions {
    /// Explicit addresses, if the backend is not a Service.
    pub target: Option<Arc<Target>>,
    /// Time limits for the backend.
    pub timeouts: Timeouts,
}

impl Transport {
    /// Sets the upstream options.
    #[must_use]
    pub(crate) fn with_options(mut self, options: UpstreamOptions) -> Self {
        self.options = options;
        self
    }

    /// Whether `authority` is an address of this gateway itself, and which. A Unix socket never is.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn find_own_address(&self, authority: &str) -> Option<SocketAddr> {
        // Only the URL of a Unix socket contains a slash.
        match authority.contains('/') {
            true => None,
            false => self.outbound.find_own_address(authority).await,
        }
    }

    /// Time limits for the backend.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.options.timeouts
    }

    /// The host name that is sent to the backend at this address: the one of [`Transport::with_host_name`],
    /// else the address itself, or the configured server name for a Unix socket, whose path should not be
    /// disclosed.
    pub(crate) fn host_name<'a>(&'a self, address: &'a str) -> &'a str {
        if let Some(name) = &self.host_name {
            return name;
        }
        match &self.options.target {
            Some(target) if address.contains('/') => &target.server_name,
            _ => address,
        }
    }

    /// Like [`Transport::choose`], avoiding `not` if there are other addresses.
    pub(super) fn choose_but<'a>(&self, endpoints: &'a [Arc<str>], not: Option<&str>) -> &'a Arc<str> {
        // Relaxed: the number only has to vary.
        let counter = self.choices.fetch_add(1, Ordering::Relaxed);
        match &self.options.target {
            // Weights belong to positions in the whole list; a shortened one has none.
            Some(target) if target.addresses.len() == endpoints.len() => {
                &endpoints[weighted::choose(target, &self.lock(), counter, not)]
            }
            _ => balance::choose(endpoints, &self.lock(), counter, not),
        }
    }

    /// Records a response timeout as a failure of the address, as a reported error would be.
    pub(crate) fn record_timeout(&self, address: &str, why: &str) {
        // Cloned, so that the lock of all addresses is free while the failure is recorded.
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
    pub(crate) async fn dial_http1(&self, authority: &str) -> Result<TokioIo<Connection>, DialError> {
        let socket = self
            .options
            .target
            .as_ref()
            .and_then(|t| t.endpoint(authority)?.socket.as_ref());
        let dialing = async {
            match socket {
                Some(socket) => dial::dial_socket(socket, &self.tls, Offer::Http1, &self.outbound).await,
                // As upstream's, upgrades bypass the egress proxy.
                None => dial::dial_directly(authority, &self.tls, Offer::Http1, &self.outbound).await,
            }
        };
        let dialed = host::with_connect_timeout(self.options.timeouts.connect, authority, dialing).await?;
        Ok(TokioIo::new(dialed.io))
    }
}
