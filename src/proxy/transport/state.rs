//! [`EndpointState`]: the state of one address, for status pages.

use crate::apimachinery::value::Value;
use crate::json;
use crate::telemetry::short_duration;
use std::time::Duration;

/// State of one address, for the status page.
#[derive(Clone, Debug)]
pub(crate) struct EndpointState {
    /// `host:port`, or the URL of a Unix socket.
    pub address: String,
    /// Requests in flight, watches included.
    pub under_way: usize,
    pub http2_connections: usize,
    /// Streams in use on the HTTP/2 connections.
    pub http2_streams: usize,
    pub idle_http1_connections: usize,
    /// All connections, including those that are being established.
    pub connections: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// A shared dial is in progress.
    pub dialing: bool,
    /// Failed requests since the last successful one.
    pub failures_in_a_row: u32,
    /// It was ejected, and no request has succeeded since.
    pub was_ejected: bool,
    /// Remaining time of the current ejection.
    pub ejected_for: Option<Duration>,
    /// Why the last failed request failed.
    pub last_failure: Option<String>,
}

impl EndpointState {
    /// The entry of this address in status documents.
    pub(crate) fn document(&self) -> Value {
        let state = match (self.ejected_for, self.failures_in_a_row) {
            (Some(_), _) => "Ejected",
            (None, 0) => "Good",
            (None, _) if self.was_ejected => "Probation",
            (None, _) => "Failing",
        };
        let mut v = json!({
            "address": (self.address.as_str()),
            "state": state,
            "underWay": (self.under_way as i64),
            "http2Connections": (self.http2_connections as i64),
            "http2Streams": (self.http2_streams as i64),
            "idleHTTP1Connections": (self.idle_http1_connections as i64),
            "failuresInARow": (i64::from(self.failures_in_a_row))
        });
        if self.dialing {
            v.set(&["dialing"], true);
        }
        if let Some(left) = self.ejected_for {
            v.set(&["ejectedFor"], short_duration(left));
        }
        if let Some(why) = self.last_failure.as_ref().filter(|_| self.failures_in_a_row > 0) {
            v.set(&["lastFailure"], why.as_str());
        }
        v
    }
}
