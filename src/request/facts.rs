//! What is known about a request beside its head and body: one value in its extensions, in which the connection and the
//! filters leave what they find out for those inside.

use super::audit::{AuditTrail, UntilUpgradeEnds};
use super::context::{AuditId, Warnings};
use super::info::RequestInfo;
use super::peer::{ConnectionCache, PeerCertificates, RemoteAddr};
use super::proof::Authenticated;
use crate::tasks::Signal;
use http::Extensions;
use http::request::{Parts, Request};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// The facts. Each is absent until its filter has run; [`crate::server::chain`] says which filter leaves which.
#[derive(Clone, Default)]
pub struct Facts {
    /// The client's end of the connection.
    pub remote: Option<RemoteAddr>,
    /// What the client presented in the handshake; absent where it presented nothing.
    pub certificates: Option<PeerCertificates>,
    /// What is remembered with the connection.
    pub connection: Option<ConnectionCache>,
    /// The stream of the connection that the request came on, where it has streams (HTTP/2).
    pub stream: Option<u32>,
    /// The id that ties log lines, audit events and backends' audit events together.
    pub audit_id: Option<AuditId>,
    /// The request entered before every path was installed: unknown paths are then 503, not 404.
    pub paths_incomplete: bool,
    /// When the request's head had been read.
    pub received: Option<Instant>,
    /// What is asked for.
    pub info: Option<Arc<RequestInfo>>,
    /// When a request that is not long-running must have been answered. Absent: no limit.
    pub deadline: Option<Instant>,
    /// On long-running requests: when it fires, the server is going down and streams should end at the next event border.
    pub ending: Option<Signal>,
    /// Where texts for `Warning` headers go.
    pub warnings: Option<Warnings>,
    /// What the credentials had to say to the audit event.
    pub credential_notes: Vec<(&'static str, String)>,
    /// Who calls (after impersonation).
    pub caller: Option<Authenticated>,
    /// What those who serve the request leave for its audit event.
    pub audit: Option<AuditTrail>,
    /// On requests for an upgrade: what must stay alive until the upgraded connection ends.
    pub until_upgrade_ends: Option<UntilUpgradeEnds>,
}

/// A request, or its head.
pub trait Carrier {
    /// The extensions.
    fn extensions(&self) -> &Extensions;
    /// The extensions, to be changed.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

impl<B> Carrier for Request<B> {
    fn extensions(&self) -> &Extensions {
        Self::extensions(self)
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        Self::extensions_mut(self)
    }
}

impl Carrier for Parts {
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// Nothing is known.
static NONE: LazyLock<Facts> = LazyLock::new(Facts::default);

impl Facts {
    /// What is known about a request.
    pub fn of(carrier: &impl Carrier) -> &Self {
        match carrier.extensions().get() {
            Some(facts) => facts,
            None => &NONE,
        }
    }

    /// The same, to be changed.
    pub fn of_mut(carrier: &mut impl Carrier) -> &mut Self {
        carrier.extensions_mut().get_or_insert_default()
    }
}
