//! The generic API server: what the aggregator, the core server and the extension server have in common.
//!
//! A request meets them in this order: [`chain`] (the filters, built once, at the head of the delegation) →
//! [`director`] (claim table → [`container`] or [`mux`]) → a handler, or the [`delegate`] behind the mux.
//! [`generic`] puts one server together; [`health`] and [`lifecycle`] are its vital signs.

pub mod chain;
pub mod container;
pub mod delegate;
mod depth;
pub mod director;
pub mod filters;
pub mod generic;
pub mod health;
pub mod lifecycle;
pub mod loopback;
pub mod mux;
pub mod reserved;
pub mod respond;
pub mod routes;
pub mod stall;

pub use chain::ChainConfig;
pub use container::{Container, WebService};
pub use delegate::{DelegationTarget, EmptyDelegate};
pub use director::Director;
pub use generic::{GenericServer, Prepared};
pub use health::{Endpoints, HealthCheck};
pub use lifecycle::Lifecycle;
pub use mux::PathRecorderMux;
