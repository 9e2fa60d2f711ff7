//! What is known about the other end of the connection.

use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// The chain the client presented, its own certificate first. The client has proven to hold the key; nobody has yet
/// verified the chain. Absent where the client presented none.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<Vec<CertificateDer<'static>>>);
