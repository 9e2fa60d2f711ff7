//! Name lookup for callers that check addresses. They connect to the address they have checked, instead of
//! resolving the name a second time, which could give another one (CVE-2020-8562).

use super::lookups::{self, LookupError};
use super::tcp::DIAL_TIMEOUT;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use tokio::time::Instant;

pub(crate) type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupError>> + Send + 'a>>;

pub(crate) trait Resolver: Send + Sync + 'static {
    /// The addresses of this host.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// The resolver of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemResolver;

impl Resolver for SystemResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let found = lookups::system().find(host, Instant::now() + DIAL_TIMEOUT).await?;
            Ok(found.into_iter().map(|a| a.ip()).collect())
        })
    }
}
