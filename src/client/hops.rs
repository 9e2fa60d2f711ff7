//! Loops of gateways: each gateway adds its instance id to the `X-Torana-Hops` of what it passes on for another gateway or
//! proxy, and of its own probes, and refuses a request that carries its own id already.
//!
//! A request that comes directly from a client is passed on without the header, so that a backend sees exactly what
//! kube-aggregator would send it. A gateway that is its own backend is found by its probes; a client's request that comes back
//! while it is under way is known by its audit id, which gateways pass on.
//!
//! A client may write the header, too. It gains nothing: its own request is refused where it names this gateway or too many,
//! and no header can take away the id that this gateway adds.

use crate::apimachinery::status::Status;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};

/// The instance ids of the gateways that have passed a request on, first to last.
pub const HOPS: HeaderName = HeaderName::from_static("x-torana-hops");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Most gateways that a request may pass.
pub const MOST_HOPS: usize = 16;
/// Longest id that is looked at; longer ones were not written by a gateway.
const LONGEST_ID: usize = 64;

/// This gateway, as the header names it.
#[derive(Clone, Debug)]
pub struct Hops {
    id: String,
    own: HeaderValue,
    under_way: Arc<UnderWay>,
}

/// Requests that wait for a backend, by a hash of their audit id and of what they ask for.
#[derive(Debug, Default)]
struct UnderWay {
    hasher: RandomState,
    requests: Mutex<HashSet<u64>>,
}

/// A request that waits for a backend; dropped, it does not any more.
pub struct Passing(Arc<UnderWay>, u64);

impl UnderWay {
    fn requests(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.requests.lock().expect("no code panics while holding this lock")
    }
}

impl Drop for Passing {
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
    /// An instance of its own: the id is random.
    pub fn new() -> Self {
        Self::named(&uuid::Uuid::new_v4().simple().to_string())
    }

    /// An instance with this id, of letters and digits.
    pub fn named(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            own: HeaderValue::from_str(id).expect("an id is letters and digits"),
            under_way: Arc::default(),
        }
    }

    /// What a probe of this gateway's own carries.
    pub fn own(&self) -> &HeaderValue {
        &self.own
    }

    /// What a request carries on that came with these headers, none of them `X-Torana-Hops`; `None`: it comes directly
    /// from a client. Proxies name the client they act for, and gateways pass on the audit id as well.
    pub fn first(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        (headers.contains_key(FORWARDED_FOR) && headers.contains_key(AUDIT_ID)).then(|| self.own.clone())
    }

    /// Notes that a request waits for the backend of `handler`; `None`: one with this audit id does already.
    pub fn begin(&self, audit_id: &HeaderValue, handler: usize) -> Option<Passing> {
        let key = self.under_way.hasher.hash_one((audit_id.as_bytes(), handler));
        let is_new = self.under_way.requests().insert(key);
        is_new.then(|| Passing(self.under_way.clone(), key))
    }

    /// 508 of a request that came back while it was under way.
    pub fn came_back(&self) -> Status {
        let id = &self.id;
        let message = format!("loop detected: the request has passed this gateway before: {id} -> {id}");
        Status::new(508, "LoopDetected", message)
    }

    /// What a request carries on that came with these headers.
    ///
    /// # Errors
    /// 508 with the path: it has been here before, or has passed too many gateways.
    pub fn onward(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Status> {
        let is_id = |id: &&str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(plain)
        };
        let values = headers.get_all(HOPS).iter().filter_map(|v| v.to_str().ok());
        let ids = values.flat_map(|v| v.split(',')).map(str::trim).filter(is_id);
        // One more than may be there tells that there are too many, however many there are.
        let before: Vec<&str> = ids.take(MOST_HOPS + 1).collect();
        let path = || [before.as_slice(), &[self.id.as_str()]].concat().join(" -> ");
        if before.contains(&self.id.as_str()) {
            let message = format!("loop detected: the request has passed this gateway before: {}", path());
            return Err(Status::new(508, "LoopDetected", message));
        }
        if before.len() >= MOST_HOPS {
            let message = format!("loop detected: the request has passed {MOST_HOPS} gateways: {}", path());
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
    fn a_request_that_was_here_before_is_refused_with_its_path() {
        let a = Hops::named("a");
        assert_eq!(a.onward(&carrying(&["b, c", "d"])).unwrap().unwrap(), "b, c, d, a");
        let refused = a.onward(&carrying(&["b,a", "c"])).unwrap_err();
        assert_eq!((refused.code, refused.reason), (508, "LoopDetected"));
        assert!(
            refused.message.ends_with("before: b -> a -> c -> a"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn the_number_of_gateways_is_bounded_and_what_is_no_id_is_left_out() {
        let a = Hops::named("a");
        let many = |n: usize| (0..n).map(|i| format!("g{i}")).collect::<Vec<_>>().join(",");
        assert!(a.onward(&carrying(&[&many(MOST_HOPS - 1)])).is_ok());
        let refused = a.onward(&carrying(&[&many(100_000)])).unwrap_err();
        assert!(
            refused.code == 508 && refused.message.len() < 300,
            "{}",
            refused.message
        );
        let junk = carrying(&["b<script>, ,c", &"x".repeat(LONGEST_ID + 1)]);
        assert_eq!(a.onward(&junk).unwrap().unwrap(), "c, a");
    }

    #[test]
    fn a_request_is_under_way_once_for_each_backend() {
        let a = Hops::named("a");
        let id = HeaderValue::from_static("1");
        let passing = a.begin(&id, 1).unwrap();
        assert!(a.begin(&id, 1).is_none());
        assert!(a.begin(&id, 2).is_some(), "another backend");
        drop(passing);
        assert!(a.begin(&id, 1).is_some());
    }

    #[test]
    fn only_what_came_through_a_proxy_is_marked() {
        let a = Hops::named("a");
        let mut headers = HeaderMap::new();
        headers.insert(AUDIT_ID, HeaderValue::from_static("1"));
        assert_eq!(a.onward(&headers).unwrap(), None);
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("127.0.0.1"));
        assert_eq!(a.onward(&headers).unwrap().unwrap(), "a");
    }
}
