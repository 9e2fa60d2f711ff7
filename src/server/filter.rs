//! The contract of a filter of the handler chain: [`Filter`], and the [`FilterSpec`] by which it declares
//! what it reads from the request context and what it sets there. The filters are in
//! [`filters`](super::filters), their order in [`chain`](super::chain).

use crate::request::{Request, Response};

/// A filter together with the filters inside it.
///
/// A filter inspects the request, passes it on, and wraps the future that it gets back to act on the response
/// (`filters::amend`). `async` blocks are avoided because each of them would store the inner future twice.
/// The request is passed by reference and stays in place until the innermost filter, or one that has to wait,
/// takes it.
pub(crate) trait Filter: Send + Sync + 'static {
    /// The needs of this filter and those inside it: [`FilterSpec::around`]. The chain has none, or it does
    /// not compile.
    const UNMET: Unmet;

    /// Handles the request. Implementations take it out of `req`; the caller must not use what is left
    /// behind.
    ///
    /// # Cancel safety
    /// The future is dropped when the client disconnects.
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, Self>;
}

/// Parts of the request context ([`RequestContext`](crate::request::RequestContext)) that filters need or
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextField {
    /// `audit_id`
    AuditId,
    /// `paths_incomplete`
    PathsIncomplete,
    /// `received`
    Received,
    /// `info`
    RequestInfo,
    /// `deadline`
    Deadline,
    /// `warnings`
    Warnings,
    /// `caller`
    Caller,
}

/// The fields of the request context that a filter reads, and those that it sets for the filters inside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterSpec {
    /// The parts of the request context that it reads.
    pub needs: &'static [ContextField],
    /// The parts of the request context that it sets.
    pub sets: &'static [ContextField],
}

/// The needs of nested filters that none of them meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmet(u32);

impl Unmet {
    pub(crate) const NONE: Self = Self(0);

    /// True if nothing is missing.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl FilterSpec {
    /// The unmet needs of this filter around others with the unmet needs `inner`.
    pub(crate) const fn around(&self, inner: Unmet) -> Unmet {
        // A filter's own needs are added after its sets are subtracted: it cannot meet its own needs.
        Unmet((inner.0 & !bits(self.sets)) | bits(self.needs))
    }
}

// One bit per field; `const fn` has no iterators.
const fn bits(fields: &[ContextField]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < fields.len() {
        bits |= 1 << fields[at] as u32;
        at += 1;
    }
    bits
}
