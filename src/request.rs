//! The types that every layer shares about one request: its context ([`RequestContext`]), resolved verb and
//! resource ([`RequestInfo`]), body, caller, and the erased handler traits.
//!
//! Start at [`Handler`] for the call path and at [`RequestContext`] for the per-request context.
//! [`crate::server::chain`] documents which filter fills which part of the context. Nothing here opens a
//! connection.

pub(crate) mod accept;
pub(crate) mod audit;
pub(crate) mod body;
pub(crate) mod context;
pub(crate) mod go_url;
pub(crate) mod h2_body;
pub(crate) mod handler;
pub(crate) mod headers;
pub(crate) mod info;
pub(crate) mod informational;
pub(crate) mod markers;
pub(crate) mod peer;
pub(crate) mod percent;
pub(crate) mod proof;
pub(crate) mod user;

pub(crate) use audit::{AuditLevel, AuditTrail, UntilUpgradeEnds};
pub use body::Body;
pub use context::RequestContext;
pub(crate) use handler::{Handler, ResponseFuture, UnprotectedHandler};
pub use handler::{Request, Response};
pub use info::RequestInfo;
pub(crate) use informational::InformationalSender;
pub use markers::Warnings;
pub(crate) use markers::{AuditId, FromBackend, Initializing, NotInRequestMetrics, OnDemandBody};
pub use peer::{ClientCaSource, RemoteAddr, TrustAnchors};
pub(crate) use proof::{Authenticated, Authorized, Minted};
pub use user::UserInfo;
