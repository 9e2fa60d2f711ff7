//! Allocators of cluster IPs ([`IpRange`]) and node ports ([`PortRange`]).
//!
//! Allocations live in memory only and are rebuilt from the stored Services at start ([`ServiceNumbers::adopt`]), so
//! there is no allocation bitmap to keep consistent. Each number records its owner (`namespace/name`): a release by
//! anyone else is a no-op. Deciding what a Service needs is left to its strategy.
//!
//! [`ServiceNumbers::adopt`]: super::ServiceNumbers::adopt

pub mod band;
pub mod ip;
pub mod port;

pub use ip::{Family, IpError, IpRange};
pub use port::PortRange;
