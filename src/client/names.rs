//! Looking up the addresses of a name, once: whoever judges an address connects to that address, and not to what the name
//! leads to a moment later (CVE-2020-8562).

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// The addresses of a host, when they come.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Finds the addresses of hosts.
pub trait Names: Send + Sync + 'static {
    /// Those of this one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// As this machine's resolver finds them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|a| a.ip()).collect())
        })
    }
}
