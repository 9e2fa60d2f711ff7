//! Power-of-two-choices load balancing over the addresses of one backend.
//!
//! [`choose`] picks an address by the outcomes that `health` records. Weighted targets are chosen in
//! `weighted`.

use super::exchange::Failure;
use super::host::{Host, Lease, NoConnection};
use super::{DialError, Outgoing};
use crate::tasks::Signal;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a connection when the request could go to another address instead.
const CHECKOUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Picks the less busy of two random addresses. `not`, and addresses that are ejected or on probation, are
/// used only if there is no other. A drawn address that is on probation gets a background probe.
pub(super) fn choose<'a>(
    endpoints: &'a [Arc<str>],
    hosts: &HashMap<Arc<str>, Arc<Host>>,
    counter: u64,
    not: Option<&str>,
) -> &'a Arc<str> {
    let allowed = |e: &Arc<str>| not != Some(&**e);
    let usable = |e: &Arc<str>| allowed(e) && hosts.get(e).is_none_or(|h| !h.health.was_ejected());
    let load = |e: &Arc<str>| hosts.get(e).map_or(0, |h| h.in_flight.now());
    let n = endpoints.len();
    let drawn = splitmix64(counter);
    // The two halves of one draw serve as two independent ones.
    let (a, b) = (drawn as usize % n, (drawn >> 32) as usize % (n - 1).max(1));
    // `b` is drawn from n - 1 values and shifted past `a`, so that the two differ.
    let b = (b + usize::from(b >= a)) % n;
    for drawn in [a, b].map(|i| hosts.get(&endpoints[i])).into_iter().flatten() {
        drawn.probe_if_due();
    }
    // Skip unusable addresses by walking on from the drawn index.
    let from = |start: usize| (0..n).map(move |i| &endpoints[(start + i) % n]);
    let Some(first) = from(a).find(|e| usable(e)) else {
        // Last resorts, in this order: an address on probation, any other than `not`, `not` itself.
        let not_ejected = |e: &&Arc<str>| allowed(e) && hosts.get(*e).is_none_or(|h| h.health.is_not_ejected());
        let any = || from(a).find(|e| allowed(e)).unwrap_or(&endpoints[a]);
        return from(a).find(not_ejected).unwrap_or_else(any);
    };
    match from(b).find(|e| usable(e) && *e != first) {
        // A tie keeps the first draw, which is uniform over the addresses.
        Some(second) if load(second) < load(first) => second,
        _ => first,
    }
}

/// SplitMix64: spreads consecutive numbers over all 64 bits. Cheaper than a random number, and tests can
/// repeat it.
pub(super) fn splitmix64(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Checks out a connection. If there are `others` to try, gives up after [`CHECKOUT_TIMEOUT`].
pub(super) async fn checkout(host: &Arc<Host>, others: bool, bounded: bool) -> Result<Lease, NoConnection> {
    if !others {
        return host.checkout(bounded).await;
    }
    match tokio::time::timeout(CHECKOUT_TIMEOUT, host.checkout(bounded)).await {
        Ok(outcome) => outcome,
        // Go's message for a dial that timed out.
        Err(_) => Err(DialError(format!("dial tcp {}: i/o timeout", host.address)).into()),
    }
}

/// Awaits `sending`, but fails early when its connection misses a ping.
pub(super) async fn unless_ping_missed<T>(
    ping_missed: Signal,
    sending: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    // Biased: a response that is already there wins over the ping.
    tokio::select! {
        biased;
        outcome = sending => outcome,
        () = ping_missed.wait() => Err(Failure::ping_missed()),
    }
}

/// Corrects `X-Forwarded-Host` of a request that goes to another address than the one it was written for.
pub(super) fn set_forwarded_host(host: &Host, out: &mut Outgoing) {
    if let Some(there) = out.headers.get_mut("x-forwarded-host") {
        *there = host.value.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::{Backend, Pki, ReservedPort, response, transport};
    use http::uri::PathAndQuery;
    use http::{HeaderMap, Method};

    #[tokio::test(start_paused = true)]
    async fn requests_of_an_ejected_address_spread_over_the_others() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let t = transport(&pki.ca_pem).unwrap();
        let all: Vec<Arc<str>> = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(Into::into).to_vec();
        let bad = t.host(&all[1]).unwrap();
        bad.health.ping_missed("no answer to a ping");
        let mut held = Vec::new();
        for _ in 0..300 {
            let chosen = t.choose(&all);
            assert_ne!(*chosen, all[1]);
            // Held, so that the load of the others keeps growing.
            held.push(t.host(chosen).unwrap().in_flight.enter());
        }
        let [a, c] = [0, 2].map(|i: usize| t.host(&all[i]).unwrap().in_flight.now());
        assert!(a.abs_diff(c) < 60, "{a} and {c}");
        // The ejection has elapsed, but it receives no requests before it has answered a probe.
        tokio::time::advance(Duration::from_millis(1100)).await;
        let tried = |n: usize| (0..n).filter(|_| *t.choose(&all) == all[1]).count();
        assert_eq!(tried(300), 0);
        bad.health.succeeded();
        assert!(tried(300) > 100, "it is the least busy");
    }

    #[test]
    fn draws_reach_every_address() {
        let all: Vec<Arc<str>> = ["a:1", "b:1", "c:1", "d:1"].map(Into::into).to_vec();
        let mut seen = std::collections::BTreeMap::new();
        for counter in 0..4000 {
            *seen
                .entry(choose(&all, &HashMap::new(), counter, None).clone())
                .or_insert(0) += 1;
            assert_ne!(&**choose(&all, &HashMap::new(), counter, Some("b:1")), "b:1");
        }
        assert!(seen.len() == 4 && seen.values().all(|n| *n > 800), "{seen:?}");
    }

    #[tokio::test]
    async fn connected_ejected_and_used_addresses_are_not_evicted() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let backend = Backend::http(&pki, 100, |_| async { response(200, "ok") }).await;
        let t = transport(&pki.ca_pem).unwrap();
        let connected: [Arc<str>; 1] = [backend.authority.as_str().into()];
        let out = Outgoing {
            method: Method::GET,
            target: PathAndQuery::from_static("/x"),
            headers: HeaderMap::new(),
            body: crate::request::Body::empty(),
        };
        // Its connection stays in the pool.
        drop(t.send_to(&connected, &connected[0], out.into(), None).await.unwrap());
        t.host("ejected:1").unwrap().health.ping_missed("no answer to a ping");
        let in_use = t.host("used:1").unwrap();
        for port in 1..1000 {
            t.host(&format!("unused:{port}")).unwrap();
        }
        let known: Vec<String> = t.endpoints().into_iter().map(|e| e.address).collect();
        assert!(known.len() <= crate::proxy::transport::MAX_HOSTS, "{known:?}");
        for wanted in [backend.authority.as_str(), "ejected:1", &*in_use.address] {
            assert!(known.iter().any(|k| k == wanted), "{wanted}: {known:?}");
        }
    }

    #[tokio::test]
    async fn a_dead_address_fails_no_request_and_is_ejected() {
        let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
        let alive = Backend::http(&pki, 100, |_| async { response(200, "ok") }).await;
        let dead = ReservedPort::new();
        let gone = format!("127.0.0.1:{}", dead.number());
        let t = transport(&pki.ca_pem).unwrap();
        let all: Vec<Arc<str>> = vec![gone.as_str().into(), alive.authority.as_str().into()];
        for _ in 0..50 {
            let out = Outgoing {
                method: Method::POST,
                target: PathAndQuery::from_static("/x"),
                headers: HeaderMap::new(),
                body: crate::request::Body::full("body"),
            };
            let first = t.choose(&all).clone();
            assert_eq!(t.send_to(&all, &first, out.into(), None).await.unwrap().status(), 200);
        }
        let state = t.endpoints().into_iter().find(|e| e.address == gone).unwrap();
        // On a busy machine the requests take longer than the first ejection: the address may be on probation.
        assert!(state.was_ejected && state.failures_in_a_row < 10, "{state:?}");
    }
}
