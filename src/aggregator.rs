//! The aggregator: serves one API composed of this server's own groups and those of extension API servers,
//! which APIService objects register.
//!
//! Entry point: [`Aggregator::install`]. [`proxy`] forwards requests to backends, which [`resolver`] locates.
//! Controllers follow the APIServices: [`registration`] maintains routes, [`availability`] conditions,
//! [`discovery`] and [`openapi`] the aggregated documents, [`autoregister`] the APIServices of groups served
//! in this process. The HTTP client side (connections, header rules, tunnels) is in [`crate::client`].

pub(crate) mod apiservice;
pub(crate) mod autoregister;
pub(crate) mod availability;
pub(crate) mod backend_stats;
mod dependent_index;
pub(crate) mod discovery;
pub(crate) mod disk_cache;
pub(crate) mod documents;
mod metrics;
pub(crate) mod openapi;
pub(crate) mod own_requests;
pub(crate) mod proxy;
mod reference_users;
pub(crate) mod references;
pub(crate) mod registration;
pub(crate) mod resolver;
pub(crate) mod status;
pub(crate) mod sync_status;
pub(crate) mod transports;
pub(crate) mod writer;

mod build;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use apiservice::Condition;
pub(crate) use apiservice::ServiceReference;
pub(crate) use backend_stats::BackendLimits;
pub(crate) use build::{Aggregator, Config};
pub(crate) use documents::DocumentLimits;
pub(crate) use resolver::ServiceResolver;
#[cfg(test)]
pub(crate) use writer::ApiServiceWriter;
