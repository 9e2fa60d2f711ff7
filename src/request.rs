//! The types that every layer shares about one request: its context ([`RequestContext`]), resolved verb and resource
//! ([`RequestInfo`]), body, caller, and the erased handler traits.
//!
//! Start at [`Handler`] for the call path and at [`RequestContext`] for the per-request context. Which filter fills
//! which part of the context is documented in [`crate::server::chain`]; nothing here performs I/O.

pub mod audit;
pub mod body;
pub mod context;
pub mod handler;
pub mod headers;
pub mod info;
pub mod informational;
pub mod markers;
pub mod peer;
pub mod percent;
pub mod proof;
pub mod user;

pub use audit::{AuditLevel, AuditTrail, UntilUpgradeEnds};
pub use body::Body;
pub use context::RequestContext;
pub use handler::{Handler, Request, Response, ResponseFuture, UnprotectedHandler};
pub use info::RequestInfo;
pub use informational::InformationalSender;
pub use markers::{AuditId, FromBackend, Initializing, NotInRequestMetrics, OnDemandBody, Warnings};
pub use peer::{ClientCaSource, PeerCertificates, RemoteAddr, TrustAnchors};
pub use proof::{Authenticated, Authorized, Minted};
pub use user::UserInfo;
