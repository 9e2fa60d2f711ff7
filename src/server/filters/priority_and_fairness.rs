//! Gives each request a place in its priority level, or lets it wait for one, and adds the flow schema and
//! priority level to responses (upstream's `k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go`).
//!
//! A request holds its place until its response has been sent; a watch holds it while it initializes.
//! Long-running requests other than watches take no part.

use super::amend::amended;
use super::hold;
use crate::flowcontrol::watch_tracker::Registered;
use crate::flowcontrol::{Entered, FlowController, Permit, RequestClass, TooMany, Uids};
use crate::request::{Authenticated, Initializing, Request, RequestContext, RequestInfo, Response, ResponseFuture};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::request_labels::request_labels;
use crate::server::respond;
use crate::telemetry::Telemetry;
use crate::telemetry::request_parts::Part;
use futures_util::FutureExt as _;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, RETRY_AFTER};
use prometheus::IntGauge;
use std::sync::Arc;
use std::time::Duration;

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Upper bound of the wait, even if the request's deadline is later.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl hold::Guard for Seat {}
impl hold::Guard for Registered {}

/// The priority and fairness filter.
pub(crate) struct PriorityAndFairness<F> {
    inner: F,
    /// `None` disables the filter.
    controller: Option<Arc<FlowController>>,
    /// `--request-timeout`: the base of the waiting time of watches, which have no deadline.
    request_timeout: Duration,
    read_only: Gauges,
    mutating: Gauges,
    telemetry: Telemetry,
}

/// Requests of one kind.
struct Gauges {
    running: IntGauge,
    waiting: IntGauge,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[
        ContextField::RequestInfo,
        ContextField::Received,
        ContextField::Deadline,
        ContextField::Caller,
    ],
    sets: &[],
};

/// What a request holds until its response is sent.
struct Seat {
    _permit: Permit,
    _running: Counted,
}

/// Counts in a gauge until it is dropped.
struct Counted(IntGauge);

impl Counted {
    fn start(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The work left when the response is there.
#[derive(Default)]
struct Finish {
    uids: Option<Arc<Uids>>,
    seat: Option<Seat>,
    watch: Option<Registered>,
}

impl Finish {
    fn apply(self, response: &mut Response) {
        if let Some(seat) = self.seat {
            hold::until_sent(response, seat);
        }
        if let Some(watch) = self.watch {
            hold::until_sent(response, watch);
        }
        if let Some(uids) = self.uids {
            super::prepend_header(response, FLOW_SCHEMA, uids.schema.clone());
            super::prepend_header(response, PRIORITY_LEVEL, uids.level.clone());
        }
    }
}

impl<F> PriorityAndFairness<F> {
    /// Wraps `inner`.
    pub(crate) fn new(
        inner: F,
        controller: Option<Arc<FlowController>>,
        request_timeout: Duration,
        telemetry: Telemetry,
    ) -> Self {
        let gauges = |kind| Gauges {
            running: telemetry.inflight.with_label_values(&[kind]),
            waiting: telemetry.inqueue.with_label_values(&[kind]),
        };
        Self {
            inner,
            controller,
            request_timeout,
            read_only: gauges("readOnly"),
            mutating: gauges("mutating"),
            telemetry,
        }
    }

    /// Enters a request that takes part.
    fn enter(&self, req: &Request) -> Option<Entered> {
        let controller = self.controller.as_ref()?;
        let context = RequestContext::of(req);
        let info = context.info.as_ref()?;
        // Exec, logs and proxies have no known end, and no phase of initialization that could bound their seat.
        if info.is_long_running() && info.verb != "watch" {
            return None;
        }
        // A request without a caller cannot be classified; the chain always sets one before.
        let user = context.caller.as_ref().map(Authenticated::user)?;
        Some(controller.enter(user, info, req.uri().query().unwrap_or("")))
    }

    fn gauges(&self, info: &RequestInfo) -> &Gauges {
        match RequestClass::of(&info.verb) {
            RequestClass::ReadOnly => &self.read_only,
            RequestClass::Mutating => &self.mutating,
        }
    }

    /// Lets an admitted request execute.
    fn begin(&self, req: &mut Request, permit: Permit, finish: &mut Finish) {
        let info = super::info(req);
        RequestContext::of_mut(req).runnable = permit.runnable_jobs();
        let seat = Seat {
            _permit: permit,
            _running: Counted::start(&self.gauges(&info).running),
        };
        if info.verb == "watch" {
            let query = req.uri().query().unwrap_or("");
            finish.watch = self.controller.as_ref().and_then(|c| c.register_watch(&info, query));
            // The seat moves into the context: the watch itself gives it back after its initial events.
            RequestContext::of_mut(req).initializing = Some(Initializing::holding(seat));
        } else {
            finish.seat = Some(seat);
        }
    }

    /// A quarter of the request's time, counted from its receipt.
    fn waits_until(&self, context: &RequestContext) -> tokio::time::Instant {
        let now = tokio::time::Instant::now().into_std();
        let received = context.received.unwrap_or(now);
        let time = context.deadline.map_or(self.request_timeout, |deadline| {
            deadline.saturating_duration_since(received)
        });
        // As upstream's `getRequestWaitContext`: the rest of the time is left for executing the request.
        (received + (time / 4).min(MAX_WAIT)).into()
    }

    fn refusal(&self, info: &RequestInfo, why: TooMany, finish: Finish) -> Response {
        let labels = request_labels(info, false);
        self.telemetry.requests.terminated(&labels, 429);
        let mut r = respond::error_text(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests, please try again later.",
        );
        r.headers_mut().insert(RETRY_AFTER, why.retry_after.into());
        finish.apply(&mut r);
        r
    }
}

impl<F: Filter> Filter for PriorityAndFairness<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let mut finish = Finish::default();
        if let Some(entered) = self.enter(req) {
            // Also for a refusal: the headers tell the client which level is full.
            finish.uids = Some(entered.uids);
            let context = RequestContext::of_mut(req);
            context.flow = Some(entered.flow);
            match entered.admission {
                Ok(permit) if permit.is_waiting() => {
                    // Only the request is kept while it waits: its headers are shrunk, because thousands may wait.
                    let waiting = Waiting {
                        _queued: Counted::start(&self.gauges(&super::info(req)).waiting),
                        req: compact(std::mem::take(req)),
                        permit,
                        finish,
                    };
                    // The guard of the queue counter and the request share one allocation; see `Waiting`.
                    return self.wait(Box::new(waiting)).boxed();
                }
                Ok(permit) => self.begin(req, permit, &mut finish),
                Err(why) => {
                    let refusal = self.refusal(&super::info(req), why, finish);
                    return super::ready(refusal);
                }
            }
        }
        // Boxed, so that the futures of the outer filters have no room for it while a request waits.
        amended(self.inner.handle(req), |response| finish.apply(response)).boxed()
    }
}

/// A request in a queue, in one allocation: an `async` block would reserve space for it twice, and more for
/// what comes after the wait.
struct Waiting {
    req: Request,
    permit: Permit,
    finish: Finish,
    _queued: Counted,
}

/// The same request in less memory: its map of headers has room for more of them, and for those that the
/// filters before this one have removed.
fn compact(mut req: Request) -> Request {
    let mut roomy = std::mem::take(req.headers_mut());
    let mut headers = HeaderMap::with_capacity(roomy.len());
    let mut last = None;
    for (name, value) in roomy.drain() {
        // Only the first value of a name comes with it.
        last = name.or(last);
        if let Some(name) = &last {
            headers.append(name.clone(), value);
        }
    }
    *req.headers_mut() = headers;
    req
}

impl<F: Filter> PriorityAndFairness<F> {
    /// Waits for seats. A client that goes away drops this, and with it the place in the queue.
    async fn wait(&self, mut waiting: Box<Waiting>) -> Response {
        let until = self.waits_until(RequestContext::of(&waiting.req));
        let since = tokio::time::Instant::now();
        let dispatched = tokio::time::timeout_at(until, waiting.permit.dispatched()).await;
        if let Some(audit) = &RequestContext::of(&waiting.req).audit {
            audit.took(Part::QueueWait, since.elapsed());
        }
        self.go_on(waiting, dispatched.is_ok()).await
    }

    fn go_on(&self, waiting: Box<Waiting>, dispatched: bool) -> ResponseFuture<'_> {
        let Waiting {
            mut req,
            permit,
            mut finish,
            _queued: queued,
        } = *waiting;
        // Before the request begins, so that it is never counted both as waiting and as running.
        drop(queued);
        if !dispatched {
            return super::ready(self.refusal(&super::info(&req), permit.give_up(), finish));
        }
        self.begin(&mut req, permit, &mut finish);
        let inner = self.inner.handle(&mut req);
        Box::pin(amended(inner, |response| finish.apply(response)))
    }
}
