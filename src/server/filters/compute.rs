//! Runs the inner filters within the compute pool, in the queue of the request's flow, and reports polls that
//! block a runtime thread for too long.

use crate::request::{Authenticated, Request, RequestContext, RequestInfo, Response, UserInfo};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::stall::StallDetector;
use crate::tasks::compute::{ComputePool, Within};
use futures_util::future::Either;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(crate) struct Compute<F> {
    inner: F,
    pool: Option<ComputePool>,
    stalls: StallDetector,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo, ContextField::Caller],
    sets: &[],
};

impl<F> Compute<F> {
    /// Wraps `inner`. Without a pool, computations run in place.
    pub(crate) fn new(inner: F, pool: Option<ComputePool>, stalls: StallDetector) -> Self {
        Self { inner, pool, stalls }
    }
}

impl<F: Filter> Filter for Compute<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let info = super::info(req);
        let context = RequestContext::of(req);
        // Copied out, because the inner filters may take the request out of `req`.
        let (flow, runnable) = (context.flow, context.runnable.clone());
        let caller = context.caller.as_ref().map(Authenticated::user).cloned();
        let name = caller.as_ref().map_or("", |user| &user.name);
        // Building the future may already do work, so it is timed like a poll.
        let begun = self.stalls.begin();
        let inner = self.inner.handle(req);
        let inner = match &self.pool {
            Some(pool) => {
                // CPU time is shared by the flows that share seats; a request without one belongs to its
                // user.
                let flow = flow.map_or_else(|| pool.flow(name), |flow| pool.flow(flow));
                // `Either`, so that neither case needs a box.
                Either::Left(pool.within_request(flow, runnable, inner))
            }
            None => Either::Right(inner),
        };
        self.stalls.end(begun, || (&info, name));
        MeasuredFuture {
            inner,
            stalls: &self.stalls,
            info,
            caller,
        }
    }
}

type Inner<F> = Either<Within<F>, F>;

pin_project! {
    struct MeasuredFuture<'s, F> {
        #[pin]
        inner: Inner<F>,
        stalls: &'s StallDetector,
        info: Arc<RequestInfo>,
        caller: Option<Arc<UserInfo>>,
    }
}

impl<F: Future<Output = Response>> Future for MeasuredFuture<'_, F> {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let this = self.project();
        let begun = this.stalls.begin();
        let polled = this.inner.poll(cx);
        let name = this.caller.as_ref().map_or("", |user| &user.name);
        this.stalls.end(begun, || (&*this.info, name));
        polled
    }
}
