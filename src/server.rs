//! The generic API server: what the aggregator, the core server and the extension server have in common.
//!
//! A request passes through [`chain`] (the filters, built once, in front of the whole delegation), then
//! [`director`] (which looks up its claim table and dispatches to [`container`] or [`mux`]), then a handler,
//! or the [`delegate`] behind the mux. Start reading at [`generic`], which assembles a server; [`health`] and
//! [`lifecycle`] hold its checks and its shutdown.

pub(crate) mod chain;
pub(crate) mod container;
pub(crate) mod delegate;
mod depth;
pub(crate) mod director;
pub(crate) mod filter;
pub(crate) mod filters;
pub(crate) mod generic;
pub(crate) mod health;
pub(crate) mod lifecycle;
pub(crate) mod mux;
mod not_found;
pub(crate) mod page;
pub(crate) mod request_labels;
pub(crate) mod reserved;
pub(crate) mod respond;
pub(crate) mod routes;
pub(crate) mod service;
pub(crate) mod stall;

pub(crate) use chain::ChainConfig;
#[cfg(test)]
pub(crate) use delegate::DelegationTarget;
pub(crate) use delegate::EmptyDelegate;
pub(crate) use generic::{GenericServer, Prepared};
pub(crate) use health::{Endpoints, HealthCheck};
pub(crate) use lifecycle::Lifecycle;
pub use service::GatewayService;
