//! The aggregator: serves one API composed of this server's own groups and those of extension API servers, which
//! APIService objects register.
//!
//! Entry point: [`Aggregator::install`]. [`proxy`] forwards requests to backends, which [`resolver`] locates.
//! Controllers follow the APIServices: [`registration`] maintains routes, [`availability`] conditions, [`discovery`]
//! and [`openapi`] the aggregated documents, [`autoregister`] the APIServices of groups served in this process. The
//! HTTP client side (connections, header rules, tunnels) is in [`crate::client`].

pub mod apiservice;
pub mod autoregister;
pub mod availability;
pub mod backend_stats;
pub mod discovery;
pub mod disk_cache;
pub mod documents;
mod metrics;
pub mod openapi;
pub mod own_requests;
pub mod proxy;
pub mod references;
pub mod registration;
pub mod resolver;
pub mod status;
pub mod sync_status;
pub mod transports;
pub mod writer;

mod build;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use apiservice::{ApiService, Condition, ServiceReference};
pub use backend_stats::BackendLimits;
pub use build::{Aggregator, Config};
pub use documents::DocumentLimits;
pub use proxy::transport::ConnectionLimits;
pub use resolver::{ClusterResolver, ResolveError, ServiceIndex, ServiceResolver};
pub use writer::ApiServiceWriter;
