//! Cluster IPs and node ports: which are taken, by whom.
//!
//! What is taken is known from the stored Services alone: it is read once at start ([`ServiceNumbers::adopt`]) and kept
//! in memory. Every taken number knows its owner (`namespace/name`), so giving back what another object holds does nothing.
//!
//! [`ServiceNumbers::adopt`]: super::ServiceNumbers::adopt

pub mod band;
pub mod ip;
pub mod port;

pub use ip::{Family, IpError, IpRange};
pub use port::PortRange;
