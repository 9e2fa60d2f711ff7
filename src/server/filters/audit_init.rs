//! Gives every request an audit id, the client's or a fresh one, and says it in the answer.

use crate::request::{Answering, AuditId, Handler, Request};
use crate::server::chain::{Fact, Filter};
use http::header::{HeaderName, HeaderValue};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

struct AuditInit {
    inner: Arc<dyn Handler>,
    ids: Ids,
}

/// Version 4 UUIDs that need to be unique, not secret: a keyed hash of a counter, and no system call per request.
struct Ids {
    high: RandomState,
    low: RandomState,
    next: AtomicU64,
}

impl Ids {
    fn fresh(&self) -> uuid::Uuid {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let bits = u128::from(self.high.hash_one(n)) << 64 | u128::from(self.low.hash_one(n));
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "audit_init",
        needs: &[],
        leaves: &[Fact::AuditId],
        wrap: Box::new(|inner| {
            let ids = Ids {
                high: RandomState::new(),
                low: RandomState::new(),
                next: AtomicU64::new(0),
            };
            Arc::new(AuditInit { inner, ids })
        }),
    }
}

impl Handler for AuditInit {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let given = req.headers().get(AUDIT_ID).filter(|v| !v.is_empty()).cloned();
        let (id, mut header) = match given {
            Some(v) => (String::from_utf8_lossy(v.as_bytes()).into(), v),
            None => {
                let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
                let text: &str = self.ids.fresh().hyphenated().encode_lower(&mut buffer);
                let header = HeaderValue::from_str(text).expect("a UUID is a valid header value");
                (Arc::from(text), header)
            }
        };
        // New each time: HTTP/2's table of headers is for those that come again.
        header.set_sensitive(true);
        req.extensions_mut().insert(AuditId(id));
        let inner = self.inner.handle(req);
        Box::pin(async move {
            let mut response = inner.await;
            super::set_beside_backend(&mut response, AUDIT_ID, header);
            response
        })
    }
}
