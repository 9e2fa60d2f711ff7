//! What is known about a request, carried as typed values, and the erased shapes rooms meet through.

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
pub use proof::{Authenticated, Authorized};
pub use user::UserInfo;
