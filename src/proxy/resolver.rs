//! Name lookup for callers that check addresses. They connect to the address they have checked, instead of
//! resolving the name a second time, which could give another one (CVE-2020-8562).

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// A pending lookup.
pub(crate) type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves host names.
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
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|a| a.ip()).collect())
        })
    }
}
