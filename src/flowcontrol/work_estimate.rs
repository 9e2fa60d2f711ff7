//! How many seats a request occupies, and for how long after its end ([`WorkEstimate`]) (upstream's
//! `k8s.io/apiserver/pkg/util/flowcontrol/request`). Start at [`estimate`].
//!
//! ```text
//! list, watch with initial events   one seat per 100 kB that are in memory at once
//! create, update, patch, delete     one seat; with 10 or more interested watches, one per 10 for 5 ms
//! everything else                   one seat
//! ```

use super::seat_seconds::SeatSeconds;
use crate::request::RequestInfo;
use crate::request::info::pairs;
use std::time::Duration;

/// Upstream's `bytesPerSeat` in `list_work_estimator.go`.
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache is streamed, so it does not hold all its objects at once.
const CACHED_LIST_BYTES: u64 = 1_000_000;
/// The size of an object whose size is unknown: the largest that etcd accepts.
const MAX_OBJECT_BYTES: u64 = 1_500_000;
const MAX_LIST_SEATS: u32 = 100;
const MAX_WRITE_SEATS: u32 = 10;
const WATCHES_PER_SEAT: u32 = 10;
/// The time in which a tenth of a seat delivers an event to one watch.
const EVENT: Duration = Duration::from_millis(5);

/// The seats of a request over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkEstimate {
    /// Seats while the request executes.
    pub initial_seats: u32,
    /// Seats after that, for the additional latency.
    pub final_seats: u32,
    /// How long seats stay occupied after the response. The client does not wait for it.
    pub additional_latency: Duration,
}

/// The stored objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredObjects {
    /// How many there are.
    pub count: u64,
    /// Their average size; 0 if unknown.
    pub average_bytes: u64,
}

/// Counts and sizes of stored objects.
pub trait ObjectCounts: Send + Sync {
    /// `None` for resources that are not stored here, such as a backend's.
    fn stored(&self, group: &str, resource: &str) -> Option<StoredObjects>;
}

/// The inputs of an estimate besides the request.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// Sizes of lists.
    pub objects: &'a dyn ObjectCounts,
    /// Number of watches that would receive the event of a write.
    pub watches: u32,
    /// The level's own limit of seats per request, if it has one.
    pub max_seats: Option<u32>,
    /// True if lists without a resourceVersion are served from the cache.
    pub consistent_reads_from_cache: bool,
}

impl WorkEstimate {
    /// The usual request.
    pub(crate) const ONE_SEAT: Self = Self::seats(1);

    /// That many seats and no additional latency.
    pub(crate) const fn seats(seats: u32) -> Self {
        Self {
            initial_seats: seats,
            final_seats: 0,
            additional_latency: Duration::ZERO,
        }
    }

    /// The seats that are occupied during both phases: seats do not change hands between them.
    pub(crate) fn max_seats(&self) -> u32 {
        self.initial_seats.max(self.final_seats)
    }

    /// The work after the response.
    pub(crate) fn final_work(&self) -> SeatSeconds {
        SeatSeconds::of(f64::from(self.final_seats), self.additional_latency)
    }

    /// The same work on at most that many final seats.
    #[must_use]
    pub(crate) fn narrowed_to(&self, seats: u32) -> Self {
        Self {
            final_seats: seats,
            additional_latency: self.final_work().spread_over(seats),
            ..*self
        }
    }
}

/// True for requests whose estimate depends on the number of interested watches.
pub(crate) fn is_write(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "create" | "update" | "patch" | "delete")
}

/// Estimates a request. `query` is its raw query string.
pub(crate) fn estimate(info: &RequestInfo, query: &str, around: &Surroundings<'_>) -> WorkEstimate {
    match info.verb.as_str() {
        "list" | "watch" => WorkEstimate::seats(list(info, query, around)),
        _ if is_write(info) => write(info, around),
        _ => WorkEstimate::ONE_SEAT,
    }
}

fn write(info: &RequestInfo, around: &Surroundings<'_>) -> WorkEstimate {
    // A token is not a stored object and causes no watch events.
    let token = info.resource == "serviceaccounts" && info.subresource == "token";
    if token || around.watches < WATCHES_PER_SEAT {
        return WorkEstimate::ONE_SEAT;
    }
    let whole = WorkEstimate {
        initial_seats: 1,
        final_seats: around.watches.div_ceil(WATCHES_PER_SEAT),
        additional_latency: EVENT,
    };
    // A wide request blocks the others until enough seats are free. A narrow and longer one does not.
    let widest = around.max_seats.map_or(MAX_WRITE_SEATS, |max| max.min(MAX_WRITE_SEATS));
    whole.narrowed_to(whole.final_seats.min(widest))
}

/// The parameters of a list that its cost depends on.
#[derive(Default)]
struct ListParameters {
    version: String,
    version_match: String,
    continues: bool,
    limit: u64,
    initial_events: bool,
    /// A numeric parameter does not parse, so the request is about to be rejected.
    invalid: bool,
}

impl ListParameters {
    fn parse(query: &str) -> Self {
        let mut found = Self::default();
        for (key, value) in pairs(query) {
            match &*key {
                "resourceVersion" => found.version = value.into_owned(),
                "resourceVersionMatch" => found.version_match = value.into_owned(),
                "continue" => found.continues = !value.is_empty(),
                "limit" => match value.parse::<i64>() {
                    Ok(limit) => found.limit = limit.max(0) as u64,
                    Err(_) => found.invalid = true,
                },
                "timeoutSeconds" => found.invalid |= value.parse::<i64>().is_err(),
                "sendInitialEvents" => found.initial_events = !matches!(&*value, "0" | "false"),
                _ => {}
            }
        }
        found
    }

    /// Upstream's rule for which lists the watch cache serves.
    fn is_from_cache(&self, consistent_reads: bool) -> bool {
        match self.version_match.as_str() {
            "NotOlderThan" => true,
            "" => match self.version.as_str() {
                // A continue token pins a revision, which the cache may no longer have.
                _ if self.continues => false,
                "" => consistent_reads,
                version => self.limit == 0 || version == "0",
            },
            _ => false,
        }
    }
}

fn list(info: &RequestInfo, query: &str, around: &Surroundings<'_>) -> u32 {
    let widest = around.max_seats.map_or(MAX_LIST_SEATS, |max| max.min(MAX_LIST_SEATS));
    let parameters = ListParameters::parse(query);
    if parameters.invalid {
        return widest;
    }
    let watch = info.verb == "watch";
    let starts_with_state = parameters.initial_events || matches!(parameters.version.as_str(), "" | "0");
    if watch && !starts_with_state {
        // A watch that resumes replays only the events since its revision.
        return 1;
    }
    let Some(stored) = around.objects.stored(&info.api_group, &info.resource) else {
        return 1;
    };
    let from_cache = watch || parameters.is_from_cache(around.consistent_reads_from_cache);
    // A list from the cache is charged by its page, too, although it scans all objects.
    let page = match parameters.limit {
        0 => stored.count,
        limit => limit.min(stored.count),
    };
    let selective = !info.field_selector.is_empty() || !info.label_selector.is_empty();
    let loaded = if !info.name.is_empty() {
        1
    } else if selective && !from_cache {
        // Pages are loaded until enough objects match.
        page.max(stored.count / 2)
    } else {
        page
    };
    let size = match stored.average_bytes {
        0 if stored.count > 0 => MAX_OBJECT_BYTES,
        size => size,
    };
    let mut bytes = loaded.saturating_mul(size);
    if from_cache {
        bytes = bytes.min(CACHED_LIST_BYTES);
    }
    let seats = bytes.div_ceil(BYTES_PER_SEAT).min(u64::from(u32::MAX)) as u32;
    // A level whose limit is 0 has no limit of its own, so `widest` is at least 1.
    seats.clamp(1, widest.max(1))
}

#[cfg(test)]
mod tests;
