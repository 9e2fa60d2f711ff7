//! Request limits: [`MaxInFlight`] bounds concurrency, [`FlowSchemas`] classifies requests by FlowSchema and priority
//! level. Classification is reported in headers and metrics; it does not queue or limit.

pub mod classify;
pub mod max_in_flight;

pub use classify::{Flow, FlowSchemas};
pub use max_in_flight::{MaxInFlight, RequestClass};
