//! The aggregator: one API out of this server's own groups and those of others, named by APIService objects.
//!
//! [`proxy`] carries requests to backends; [`resolver`] knows where backends are; [`registration`] keeps the routes,
//! [`availability`] the conditions, [`discovery`] and [`openapi`] the documents, [`autoregister`] our own APIServices.
//! Entry point: [`Aggregator::install`].

pub mod apiservice;
pub mod autoregister;
pub mod availability;
pub mod discovery;
pub mod documents;
mod figures;
pub mod freshness;
pub mod internal;
pub mod ledger;
pub mod openapi;
pub mod proxy;
pub mod references;
pub mod registration;
pub mod resolver;
pub mod shelf;
pub mod status;
pub mod transports;
pub mod writer;

mod build;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use apiservice::{ApiService, Condition, ServiceReference};
pub use build::{Aggregator, Config};
pub use documents::DocumentLimits;
pub use ledger::Budget;
pub use proxy::transport::Bounds;
pub use resolver::{ClusterResolver, ResolveError, ServiceIndex, ServiceResolver};
pub use writer::ApiServiceWriter;
