//! The types that every layer shares about one request: its context ([`Facts`]), resolved verb and resource
//! ([`RequestInfo`]), body, caller, and the erased handler traits.
//!
//! Start at [`Handler`] for the call path and at [`Facts`] for the per-request context. Which filter fills which part
//! of the context is documented in [`crate::server::chain`]; nothing here performs I/O.

pub mod audit;
pub mod body;
pub mod context;
pub mod facts;
pub mod handler;
pub mod headers;
pub mod info;
pub mod interim;
pub mod peer;
pub mod proof;
pub mod user;

pub use audit::{AuditLevel, AuditTrail, UntilUpgradeEnds};
pub use body::Body;
pub use context::{AuditId, FromBackend, Uncounted, Warnings, WhenRead};
pub use facts::Facts;
pub use handler::{Answering, Handler, Request, Response, UnprotectedHandler};
pub use info::RequestInfo;
pub use interim::Interim;
pub use peer::{ClientCaSource, PeerCertificates, RemoteAddr, TrustAnchors};
pub use proof::{Authenticated, Authorized, Minted};
pub use user::UserInfo;
