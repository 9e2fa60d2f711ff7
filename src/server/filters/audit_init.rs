//! Assigns each request an audit id, the client's or a new one, and returns it in the `Audit-ID` header
//! (upstream's `k8s.io/apiserver/pkg/endpoints/filters/audit_init.go`).

use super::amend::amended;
use crate::request::{AuditId, Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use http::header::{HeaderName, HeaderValue};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The filter that assigns audit ids.
pub(crate) struct AuditInit<F> {
    inner: F,
    ids: Ids,
}

/// Generator of version 4 UUIDs. They must be unique but need not be secret, so they are a keyed hash of a
/// counter, which needs no system call per request.
struct Ids {
    high: RandomState,
    low: RandomState,
    next: AtomicU64,
}

impl Ids {
    fn fresh(&self) -> uuid::Uuid {
        // Only the counter's own atomicity matters: no two requests get the same number.
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let bits = u128::from(self.high.hash_one(n)) << 64 | u128::from(self.low.hash_one(n));
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}

impl<F> AuditInit<F> {
    /// Wraps `inner`.
    pub(crate) fn new(inner: F) -> Self {
        let ids = Ids {
            high: RandomState::new(),
            low: RandomState::new(),
            next: AtomicU64::new(0),
        };
        Self { inner, ids }
    }
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[],
    sets: &[ContextField::AuditId],
};

impl<F: Filter> Filter for AuditInit<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        // A client's id is kept: an aggregating server sends its own, so that the events of both can be correlated.
        let given = req.headers().get(AUDIT_ID).filter(|v| !v.is_empty()).cloned();
        let id = AuditId::from(given.unwrap_or_else(|| {
            let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
            let text: &str = self.ids.fresh().hyphenated().encode_lower(&mut buffer);
            HeaderValue::from_str(text).expect("a UUID is a valid header value")
        }));
        let header = id.header().clone();
        RequestContext::of_mut(req).audit_id = Some(id);
        amended(self.inner.handle(req), |response| {
            super::prepend_header(response, AUDIT_ID, header);
        })
    }
}
