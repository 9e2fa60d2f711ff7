//! Recovery of ejected addresses: the gateway probes them out of band, never with client traffic, so no
//! client waits for an address that still hangs.
//!
//! Entry points: [`Host::probe_if_due`] when a request would have used the address,
//! [`Transport::probe_if_due`] from the availability check. The states and durations are described in
//! `health`.

use super::host::{Host, NoConnection};
use super::probe::ProbeRequest;
use super::{Outgoing, Transport, exchange};
use crate::proxy::tcp::DialError;
use crate::request::body::BoxError;
use http::Method;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a probe: the same as that of the availability check of an APIService.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper limit on the size of a probe's response.
const MAX_RESPONSE: usize = 16 << 20;

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Dial(DialError),
    #[error("no connection is free")]
    Full,
    /// The request or the response was cut off; in Go's wording.
    #[error("{0}")]
    Exchange(String),
    #[error(transparent)]
    Body(#[from] BoxError),
    #[error("no answer to a probe")]
    Timeout,
}

impl Host {
    /// Starts a probe in the background if the address is on probation and none is in flight. Called when a
    /// request would have been sent here, so that unused addresses are not probed.
    pub(super) fn probe_if_due(self: &Arc<Self>) {
        if self.health.is_on_probation() {
            self.spawn_probe();
        }
    }

    /// Starts a probe in the background unless one is in flight.
    fn spawn_probe(self: &Arc<Self>) {
        let Some(guard) = self.probe_state.begin() else { return };
        let host = self.clone();
        self.tasks
            .spawn_until_stopped("probe of an ejected backend", async move {
                let outcome = tokio::time::timeout(PROBE_TIMEOUT, host.send_probe()).await;
                match outcome.unwrap_or(Err(ProbeError::Timeout)) {
                    Ok(()) => host.health.succeeded(),
                    Err(e) => host.health.failed(&e.to_string()),
                }
                // Released after the outcome is recorded, so that no other probe begins on the state before
                // it.
                drop(guard);
            });
    }

    /// Sends the probe. Any complete response counts as alive, with any status.
    async fn send_probe(self: &Arc<Self>) -> Result<(), ProbeError> {
        let lease = self.checkout(false).await.map_err(|why| match why {
            NoConnection::Dial(e) => ProbeError::Dial(e),
            NoConnection::Full => ProbeError::Full,
        })?;
        let out = Outgoing::from(ProbeRequest::clone(&self.probe_request));
        // Not recorded for a replay: it has no body, and a probe is not retried.
        let response = exchange(self, lease, out, None, None).await;
        let status = response.as_ref().ok().map(|a| a.status().as_u16());
        if let Some(counts) = &self.counts {
            counts.sent(Method::GET.as_str(), self.authority.as_str(), status);
        }
        let body = response
            .map_err(|failure| ProbeError::Exchange(failure.text))?
            .into_body();
        // Read to its end: a backend that hangs after the head has not recovered.
        http_body_util::Limited::new(body, MAX_RESPONSE).collect().await?;
        Ok(())
    }
}

impl Transport {
    /// Probes those of these addresses whose last request failed, unless they are ejected at present. Detects
    /// recovery, or further failure, also without client traffic.
    pub(crate) fn probe_if_due(&self, addresses: &[Arc<str>]) {
        // Cloned out, so that no task is spawned under the lock that every request takes.
        let known: Vec<Arc<Host>> = {
            let hosts = self.lock();
            addresses.iter().filter_map(|a| hosts.get(a).cloned()).collect()
        };
        for host in known {
            if host.health.failures() > 0 && host.health.is_not_ejected() {
                host.spawn_probe();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::{Backend, Pki, Still, raw_backend, response, transport};
    use crate::proxy::transport::{SendError, Transport};
    use crate::request::Body;
    use crate::tasks::Signal;
    use http::HeaderMap;
    use http::uri::PathAndQuery;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    const H2: &[&[u8]] = &[b"h2"];

    fn request(method: Method) -> Outgoing {
        Outgoing {
            method,
            target: PathAndQuery::from_static("/x"),
            headers: HeaderMap::new(),
            body: Body::empty(),
        }
    }

    type Sent = tokio::task::JoinHandle<(Result<u16, SendError>, Duration)>;

    /// Sends a request to `first`, or to an address that is chosen; returns its outcome and duration.
    fn send(t: &Arc<Transport>, all: &[Arc<str>], first: Option<usize>, method: Method) -> Sent {
        let (t, all, since) = (t.clone(), all.to_vec(), Instant::now());
        tokio::spawn(async move {
            let first = first.map_or_else(|| t.choose(&all), |i| &all[i]).clone();
            let got = t.send_to(&all, &first, request(method).into(), None).await;
            (got.map(|a| a.status().as_u16()), since.elapsed())
        })
    }

    /// Sends ten requests a second for a minute and asserts that each is answered before any (paused) time
    /// passes.
    async fn nobody_waits(clock: &Still, t: &Arc<Transport>, all: &[Arc<str>]) {
        for _ in 0..600 {
            let sent = send(t, all, None, Method::GET);
            clock
                .until("an answer", || async { sent.is_finished().then_some(()) })
                .await;
            assert_eq!(sent.await.unwrap(), (Ok(200), Duration::ZERO));
            clock.pass(Duration::from_millis(100)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_for_an_ejected_address_that_still_hangs() {
        let clock = Still::new();
        let pki = Pki::new(&["ext.ns.svc"], H2);
        let alive = Backend::http(&pki, 100, |_| async { response(200, "ok") }).await;
        // Three ways to hang: only the TCP backlog accepts, connections are accepted, requests are accepted.
        let stopped = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = raw_backend(&pki, |stream| async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await;
        let read = Backend::http(&pki, 100, |_| std::future::pending()).await;
        let hung = [
            stopped.local_addr().unwrap().to_string(),
            taken.authority.clone(),
            read.authority.clone(),
        ];
        for hung in hung {
            let t = transport(&pki.ca_pem).unwrap();
            let all: [Arc<str>; 2] = [hung.as_str().into(), alive.authority.as_str().into()];
            t.host(&all[0]).unwrap().health.ping_missed("no answer to a ping");
            nobody_waits(&clock, &t, &all).await;
            let state = t.endpoints().into_iter().find(|e| *e.address == *hung).unwrap();
            // Probes fail after 1 s, then 2, 4, 8 and 16 s after the previous one.
            assert!(state.failures_in_a_row >= 3 + 4 && state.was_ejected, "{state:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_answers_a_probe_is_used_again() {
        let clock = Still::new();
        let pki = Pki::new(&["ext.ns.svc"], H2);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let back = Backend::http(&pki, 100, move |r| {
            count.fetch_add(usize::from(r.uri().path() == "/x"), Ordering::Relaxed);
            async { response(503, "") }
        })
        .await;
        let alive = Backend::http(&pki, 100, |_| async { response(200, "ok") }).await;
        let t = transport(&pki.ca_pem).unwrap();
        let all: [Arc<str>; 2] = [back.authority.as_str().into(), alive.authority.as_str().into()];
        let host = t.host(&all[0]).unwrap();
        host.health.ping_missed("no answer to a ping");
        clock.pass(Duration::from_secs(10)).await;
        assert_eq!(back.connections.load(Ordering::Relaxed), 0, "unused, so not probed");
        let sent = send(&t, &all, None, Method::GET);
        let well = || async { (!host.health.was_ejected()).then_some(()) };
        clock.until("its answer", well).await;
        assert_eq!(sent.await.unwrap().0, Ok(200));
        assert_eq!(asked.load(Ordering::Relaxed), 0, "not probed with a client's request");
        for _ in 0..20 {
            send(&t, &all, None, Method::GET).await.unwrap().0.unwrap();
        }
        assert!(asked.load(Ordering::Relaxed) > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_on_a_silent_connection_ends_though_its_transport_is_gone() {
        let clock = Still::new();
        let pki = Pki::new(&["ext.ns.svc"], H2);
        let received = Signal::new("the head");
        let until = received.clone();
        let silent = raw_backend(&pki, move |stream| {
            let until = until.clone();
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let (_, mut respond) = connection.accept().await.unwrap().unwrap();
                let _sending = respond.send_response(http::Response::new(()), false).unwrap();
                // Driven until the head has arrived; then the connection stays open, but nobody reads from it.
                tokio::select! {
                    _ = connection.accept() => {}
                    () = until.wait() => std::future::pending().await,
                }
            }
        })
        .await;
        let t = transport(&pki.ca_pem).unwrap();
        let all: [Arc<str>; 1] = [silent.authority.as_str().into()];
        let watch = t.send_to(&all, &all[0], request(Method::GET).into(), None).await;
        let body = watch.unwrap().into_body();
        received.fire();
        drop(t);
        let watching = tokio::spawn(body.collect());
        for _ in 0..10 {
            clock.pass(Duration::from_secs(1)).await;
        }
        clock
            .until("its end", || async { watching.is_finished().then_some(()) })
            .await;
        assert!(watching.await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn idempotent_requests_leave_a_silent_connection() {
        let clock = Still::new();
        let pki = Pki::new(&["ext.ns.svc"], H2);
        let taken = Arc::new(AtomicBool::new(false));
        let tell = taken.clone();
        let silent = raw_backend(&pki, move |stream| {
            let tell = tell.clone();
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let first = connection.accept().await;
                tell.store(true, Ordering::Relaxed);
                // The connection stays open, but nobody reads from it any more.
                std::future::pending::<()>().await;
                drop(first);
            }
        })
        .await;
        let posts = Arc::new(AtomicUsize::new(0));
        let count = posts.clone();
        let alive = Backend::http(&pki, 100, move |r| {
            count.fetch_add(usize::from(r.method() == Method::POST), Ordering::Relaxed);
            async { response(200, "ok") }
        })
        .await;
        let t = transport(&pki.ca_pem).unwrap();
        let all: [Arc<str>; 2] = [silent.authority.as_str().into(), alive.authority.as_str().into()];
        let methods = [Method::GET, Method::HEAD, Method::POST];
        let [get, head, post] = methods.map(|m| send(&t, &all, Some(0), m));
        clock
            .until("a request", || async { taken.load(Ordering::Relaxed).then_some(()) })
            .await;
        clock.settle().await;
        // Pings count as missed from the fourth tick without a byte; the first ticks may still have seen one.
        for _ in 0..6 {
            clock.pass(Duration::from_secs(1)).await;
        }
        for sent in [get, head] {
            clock
                .until("an answer", || async { sent.is_finished().then_some(()) })
                .await;
            assert_eq!(sent.await.unwrap().0, Ok(200));
        }
        assert!(!post.is_finished(), "its response may still arrive");
        for _ in 0..5 {
            clock.pass(Duration::from_secs(1)).await;
        }
        clock
            .until("its end", || async { post.is_finished().then_some(()) })
            .await;
        let (outcome, _) = post.await.unwrap();
        assert!(matches!(outcome, Err(SendError::Exchange(_))), "{outcome:?}");
        assert_eq!(posts.load(Ordering::Relaxed), 0, "it may have been processed already");
    }
}
