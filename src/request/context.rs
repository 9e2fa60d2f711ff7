//! [`RequestContext`]: the request context, a single value in the request's extensions. The connection and
//! the filters write to it; inner filters and handlers read it.

use super::audit::{AuditTrail, UntilUpgradeEnds};
use super::info::RequestInfo;
use super::markers::{AuditId, Initializing, Warnings};
use super::peer::{ConnectionCache, PeerCertificates, RemoteAddr};
use super::proof::Authenticated;
use super::user::UserInfo;
use crate::tasks::Signal;
use crate::tasks::compute::RunnableJobs;
use http::Extensions;
use http::request::{Parts, Request};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The request context. Each field is absent until the filter that sets it has run; `crate::server::chain`
/// lists who sets what.
#[derive(Clone, Default)]
// One value and not one extension per field: each insertion into the extensions would box and hash again.
pub struct RequestContext {
    /// Address of the peer, from the connection.
    pub remote: Option<RemoteAddr>,
    /// The certificate chain from the TLS handshake; `None` if the client presented none.
    pub certificates: Option<PeerCertificates>,
    /// Values cached for the lifetime of the connection.
    pub connection: Option<ConnectionCache>,
    /// The identity of a request that this process makes to itself. It stands for credentials: nothing that
    /// arrives over a connection can set it.
    pub in_process: Option<Arc<UserInfo>>,
    /// HTTP/2 stream id; `None` on HTTP/1.
    pub stream: Option<u32>,
    /// The id that correlates log lines, audit events and the audit events of backends.
    pub audit_id: Option<AuditId>,
    /// True if the request arrived before every path was installed: unknown paths then answer 503 instead of
    /// 404.
    pub paths_incomplete: bool,
    /// When the request's head was read.
    pub received: Option<Instant>,
    /// The resolved verb and resource.
    pub info: Option<Arc<RequestInfo>>,
    /// When a request that is not long-running times out; `None`: no limit.
    pub deadline: Option<Instant>,
    /// On long-running requests: fires at shutdown, when streams should end at the next event boundary.
    pub ending: Option<Signal>,
    /// Collects the warnings for `Warning` headers.
    pub warnings: Option<Warnings>,
    /// Audit annotations contributed by the authenticator (key, value).
    pub authn_annotations: Vec<(&'static str, String)>,
    /// How long authentication took, for the audit log.
    pub authentication_took: Duration,
    /// The authenticated caller, after impersonation.
    pub caller: Option<Authenticated>,
    /// Hash of the flow that priority and fairness assigned the request to; `None` if it took no part.
    pub flow: Option<u64>,
    /// Counts the request's jobs on the compute pool. The request keeps its seats while there are any.
    pub(crate) runnable: Option<RunnableJobs>,
    /// On watches: to be dropped when the initial events have been sent, or the request goes to another
    /// server.
    pub initializing: Option<Initializing>,
    /// Collects the parts that handlers add to the request's audit event.
    pub audit: Option<AuditTrail>,
    /// On upgrade requests: guards to hold until the upgraded connection ends.
    pub until_upgrade_ends: Option<UntilUpgradeEnds>,
}

/// Anything with extensions that hold [`RequestContext`]: a request, or its head.
pub trait HasExtensions {
    /// The extensions to read from.
    fn extensions(&self) -> &Extensions;
    /// The extensions to write to.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

impl<B> HasExtensions for Request<B> {
    fn extensions(&self) -> &Extensions {
        Self::extensions(self)
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        Self::extensions_mut(self)
    }
}

impl HasExtensions for Parts {
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// The empty context that [`RequestContext::of`] returns for a request without one, as in tests. Shared, so that
/// readers need no `Option`.
static NONE: LazyLock<RequestContext> = LazyLock::new(RequestContext::default);

impl RequestContext {
    /// The request's context; empty if none was set.
    pub fn of(request: &impl HasExtensions) -> &Self {
        match request.extensions().get() {
            Some(context) => context,
            None => &NONE,
        }
    }

    /// The request's context for writing; created if absent.
    pub fn of_mut(request: &mut impl HasExtensions) -> &mut Self {
        request.extensions_mut().get_or_insert_default()
    }
}

impl RequestInfo {
    /// The value stored by the request-info filter, if it has run.
    pub fn of(req: &super::Request) -> Option<&Arc<Self>> {
        RequestContext::of(req).info.as_ref()
    }
}
