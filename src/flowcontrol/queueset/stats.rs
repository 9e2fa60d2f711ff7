//! Numbers about a queue set, for metrics and dumps.

use crate::flowcontrol::seat_seconds::SeatSeconds;

/// Numbers of a whole set: the first ones are current, the others since it was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Requests in queues.
    pub waiting: u32,
    /// The seats they wait for.
    pub seats_waiting: u64,
    /// Requests that run, without those in their additional latency.
    pub executing: u32,
    pub seats_in_use: u32,
    /// The progress meter.
    pub r: SeatSeconds,
    /// The meter's reading at the last dispatch, and the reading at which that request was due.
    pub dispatched_at: Option<(SeatSeconds, SeatSeconds)>,
    /// Requests that were let through.
    pub dispatched: u64,
    /// Requests that were rejected, including the cancelled ones.
    pub rejected: u64,
    /// Requests that left their queue before they could run.
    pub cancelled: u64,
}

/// Numbers of the requests of one flow schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowSchemaStats {
    /// Requests in queues.
    pub waiting: u32,
    /// The seats they wait for.
    pub seats_waiting: u64,
    /// Requests that run.
    pub executing: u32,
    pub seats_in_use: u32,
    /// How often the oldest request of the queue to serve did not fit the free seats.
    pub no_accommodation: u64,
}
