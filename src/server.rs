//! The generic API server: what the aggregator, the core server and the extension server have in common.
//!
//! A request passes through [`chain`] (the filters, built once, in front of the whole delegation), then [`director`]
//! (which looks up its claim table and dispatches to [`container`] or [`mux`]), then a handler, or the [`delegate`]
//! behind the mux. Start reading at [`generic`], which assembles a server; [`health`] and [`lifecycle`] hold its checks
//! and its shutdown.

pub mod chain;
pub mod container;
pub mod delegate;
mod depth;
pub mod director;
pub mod filters;
pub mod generic;
pub mod health;
pub mod lifecycle;
pub mod mux;
pub mod reserved;
pub mod respond;
pub mod routes;
pub mod service;
pub mod stall;

pub use chain::ChainConfig;
pub use container::{Container, WebService};
pub use delegate::{DelegationTarget, EmptyDelegate};
pub use director::Director;
pub use generic::{GenericServer, Prepared};
pub use health::{Endpoints, HealthCheck};
pub use lifecycle::Lifecycle;
pub use mux::PathRecorderMux;
pub use service::GatewayService;
