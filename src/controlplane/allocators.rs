//! Allocators of cluster IPs ([`IpAllocator`]) and node ports ([`PortAllocator`]).
//!
//! Allocations live in memory and are rebuilt from the stored Services at start
//! ([`ServiceAllocators::mark_stored_allocations`]). Each number records its owner (`namespace/name`): a
//! release by anyone else is a no-op. Deciding what a Service needs, and recording it in the store for other
//! gateways, is left to its strategy.
//!
//! [`ServiceAllocators::mark_stored_allocations`]: super::ServiceAllocators::mark_stored_allocations

pub(crate) mod ip;
pub(crate) mod port;
pub(crate) mod range;

pub(crate) use ip::{IpAllocator, IpError, IpFamily};
pub(crate) use port::{PortAllocator, PortError};
