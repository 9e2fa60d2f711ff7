//! Loop detection: each gateway appends its instance ID to `X-Torana-Hops` on requests that come from another
//! gateway or proxy and on its own probes, and rejects a request that already carries its own ID.
//!
//! A request that comes directly from a client is forwarded without the header, so that backends see exactly
//! what kube-aggregator would send. A gateway that is its own backend is detected by its probes; a client's
//! request that returns while still in flight is recognised by its audit ID, which gateways preserve.
//!
//! Clients may send the header, too. They gain nothing: a request that names this gateway, or too many, is
//! rejected, and no header can remove the ID that this gateway appends.
//!
//! Entry points: [`Hops::next_value`] for requests that carry the header, [`Hops::first`] for all others.

use crate::apimachinery::status::Status;
use crate::sync::{Mutex, MutexGuard};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Instance IDs of the gateways that have forwarded the request, in order.
pub(crate) const HOPS: HeaderName = HeaderName::from_static("x-torana-hops");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Limit of gateways that a request may pass.
pub(crate) const MAX_HOPS: usize = 16;
/// Longest ID considered; longer ones are not from a gateway.
const MAX_ID_LENGTH: usize = 64;

/// The identity of this gateway instance in the header.
#[derive(Clone, Debug)]
pub(crate) struct Hops {
    id: String,
    own: HeaderValue,
    in_flight: Arc<InFlight>,
}

/// Requests in flight to backends, by a hash of audit ID and handler.
#[derive(Debug, Default)]
struct InFlight {
    hasher: RandomState,
    requests: Mutex<HashSet<u64>>,
}

/// Guard of a request in flight to a backend.
pub(crate) struct InFlightGuard(Arc<InFlight>, u64);

impl InFlight {
    fn requests(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.requests.lock()
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.requests().remove(&self.1);
    }
}

impl Default for Hops {
    fn default() -> Self {
        Self::new()
    }
}

impl Hops {
    /// Creates an instance with a random ID.
    pub(crate) fn new() -> Self {
        Self::named(&uuid::Uuid::new_v4().simple().to_string())
    }

    /// Creates an instance with this ID, which consists of letters and digits.
    pub(crate) fn named(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            own: HeaderValue::from_str(id).expect("an id is letters and digits"),
            in_flight: Arc::default(),
        }
    }

    /// The header value for the gateway's own probes.
    pub(crate) fn own(&self) -> &HeaderValue {
        &self.own
    }

    /// The header value to send on for a request that has no `X-Torana-Hops`; `None` if it comes directly
    /// from a client. A proxy is recognised by `X-Forwarded-For` together with the audit ID, which gateways
    /// send on.
    pub(crate) fn first(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        // Clients seldom send both headers, and gain nothing if they do.
        (headers.contains_key(FORWARDED_FOR) && headers.contains_key(AUDIT_ID)).then(|| self.own.clone())
    }

    /// Registers a request in flight to the backend of `handler`; `None` if one with
    /// this audit ID is in flight already.
    pub(crate) fn begin(&self, audit_id: &HeaderValue, handler: usize) -> Option<InFlightGuard> {
        // Hashed with a random key, so that clients cannot provoke collisions.
        let key = self.in_flight.hasher.hash_one((audit_id.as_bytes(), handler));
        let is_new = self.in_flight.requests().insert(key);
        // A rejected duplicate gets no guard, which would remove the entry of the first request when dropped.
        is_new.then(|| InFlightGuard(self.in_flight.clone(), key))
    }

    /// The 508 status for a request that returned while it was in flight.
    pub(crate) fn loop_detected(&self) -> Status {
        let id = &self.id;
        let message = format!("loop detected: the request has passed this gateway before: {id} -> {id}");
        Status::new(508, "LoopDetected", message)
    }

    /// The header value to send on for a request with these headers.
    ///
    /// # Errors
    /// 508 with the path, if the request has passed this gateway before or has passed too many.
    pub(crate) fn next_value(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Status> {
        // Invalid IDs are ignored rather than rejected. The others are echoed in the message and sent on, so
        // they must be harmless.
        let is_id = |id: &&str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            !id.is_empty() && id.len() <= MAX_ID_LENGTH && id.bytes().all(plain)
        };
        let values = headers.get_all(HOPS).iter().filter_map(|v| v.to_str().ok());
        // Far more than gateways append: those that are no IDs cost time, too.
        let named = values.flat_map(|v| v.split(',')).take(1024);
        let ids = named.map(str::trim).filter(is_id);
        // Taking one more than the limit is enough to detect an excess, and bounds the work and the message.
        let before: Vec<&str> = ids.take(MAX_HOPS + 1).collect();
        let path = || [before.as_slice(), &[self.id.as_str()]].concat().join(" -> ");
        if before.contains(&self.id.as_str()) {
            let message = format!("loop detected: the request has passed this gateway before: {}", path());
            return Err(Status::new(508, "LoopDetected", message));
        }
        if before.len() >= MAX_HOPS {
            let message = format!("loop detected: the request has passed {MAX_HOPS} gateways: {}", path());
            return Err(Status::new(508, "LoopDetected", message));
        }
        if before.is_empty() {
            return Ok(self.first(headers));
        }
        let all = format!("{}, {}", before.join(", "), self.id);
        Ok(Some(
            HeaderValue::try_from(all).expect("ids are letters, digits and dashes"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carrying(values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|v| (HOPS, HeaderValue::from_str(v).unwrap()))
            .collect()
    }

    #[test]
    fn a_returning_request_is_rejected_with_its_path() {
        let a = Hops::named("a");
        assert_eq!(a.next_value(&carrying(&["b, c", "d"])).unwrap().unwrap(), "b, c, d, a");
        let refused = a.next_value(&carrying(&["b,a", "c"])).unwrap_err();
        assert_eq!((refused.code, refused.reason), (508, "LoopDetected"));
        assert!(
            refused.message.ends_with("before: b -> a -> c -> a"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn the_number_of_gateways_is_bounded_and_invalid_ids_are_ignored() {
        let a = Hops::named("a");
        let many = |n: usize| (0..n).map(|i| format!("g{i}")).collect::<Vec<_>>().join(",");
        assert!(a.next_value(&carrying(&[&many(MAX_HOPS - 1)])).is_ok());
        let refused = a.next_value(&carrying(&[&many(100_000)])).unwrap_err();
        assert!(
            refused.code == 508 && refused.message.len() < 300,
            "{}",
            refused.message
        );
        let junk = carrying(&["b<script>, ,c", &"x".repeat(MAX_ID_LENGTH + 1)]);
        assert_eq!(a.next_value(&junk).unwrap().unwrap(), "c, a");
    }

    #[test]
    fn an_audit_id_is_in_flight_once_per_backend() {
        let a = Hops::named("a");
        let id = HeaderValue::from_static("1");
        let passing = a.begin(&id, 1).unwrap();
        assert!(a.begin(&id, 1).is_none());
        assert!(a.begin(&id, 2).is_some(), "another backend");
        drop(passing);
        assert!(a.begin(&id, 1).is_some());
    }

    #[test]
    fn only_requests_from_proxies_are_marked() {
        let a = Hops::named("a");
        let mut headers = HeaderMap::new();
        headers.insert(AUDIT_ID, HeaderValue::from_static("1"));
        assert_eq!(a.next_value(&headers).unwrap(), None);
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("127.0.0.1"));
        assert_eq!(a.next_value(&headers).unwrap().unwrap(), "a");
    }
}
