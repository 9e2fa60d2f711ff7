//! The aggregator: one API out of this server's own groups and those of others, named by APIService objects.
//!
//! [`proxy`] carries requests to backends; [`resolver`] knows where backends are; [`apiservice`] is the parsed object.

pub mod apiservice;
pub mod proxy;
pub mod resolver;

pub use apiservice::{ApiService, Condition, ServiceReference};
pub use resolver::{ClusterResolver, ResolveError, ServiceIndex, ServiceResolver};

#[cfg(test)]
mod testing;
