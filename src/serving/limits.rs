//! Limits of the serving port: timeouts, sizes, and numbers of connections. They are enforced by
//! [`Server`](super::Server).

use std::net::IpAddr;
use std::time::Duration;

/// Limits of the serving port. Defaults are upstream's wherever upstream has such a limit.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Time from accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// HTTP/1: time to read a request's head, from its first byte (for the first request: from the end of the
    /// handshake).
    pub header_read: Duration,
    /// Time without a request in flight after which the connection is closed gracefully.
    pub idle: Duration,
    /// Time without a request in flight after which a gracefully closing connection is cut.
    pub close_grace: Duration,
    /// Shutdown: time that a new connection still has to finish its handshake, and then to send its first
    /// request. A connection that was accepted is served, because its client cannot know that the server is
    /// about to end.
    pub first_request: Duration,
    /// Time without the peer accepting any of our bytes after which the connection is cut. Does not apply to
    /// upgraded connections. Upstream has no such limit and waits for TCP to fail.
    pub write_stall: Duration,
    /// Maximum size of a request's head in bytes.
    pub header_bytes: u32,
    /// Maximum number of header fields of an HTTP/1 request.
    pub header_fields: usize,
    /// HTTP/2: maximum number of concurrent streams per connection.
    pub streams: u32,
    /// HTTP/2: receive window of a stream in bytes, and the largest frame accepted. The connection's window
    /// is this times `streams`.
    pub stream_window: u32,
    /// HTTP/2: time of silence after which a ping is sent.
    pub ping_interval: Duration,
    /// HTTP/2: time within which a ping must be answered.
    pub ping_timeout: Duration,
    /// Maximum number of open connections. Beyond it a new connection evicts an idle one (`serving::slots`).
    pub max_connections: usize,
    /// Number of those reserved for authenticated callers: nobody else is given these slots. At most half of
    /// all; default a quarter. Loopback has a sixteenth of its own.
    pub reserved_connections: Option<usize>,
    /// Maximum number of unauthenticated connections per remote address, loopback excepted. Default: a
    /// quarter of all.
    pub max_per_address: Option<usize>,
    /// Maximum number of connections in the TLS handshake. Default: a quarter of all, at most 4096.
    pub max_half_open: Option<usize>,
    /// Number of TLS handshakes that may compute at the same time, which keeps worker threads free for
    /// requests.
    pub concurrent_handshakes: usize,
    /// Recognises connections from this machine. They have slots of their own when others hold all the rest.
    pub is_loopback: fn(IpAddr) -> bool,
    /// HTTP/2: time budget of one connection before it yields to others.
    pub yield_after: Duration,
    /// TCP keep-alive: idle time before the first probe.
    pub tcp_keepalive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            // This and `idle` are upstream's (`secure_serving.go`): just below its
            // `requestTimeoutUpperBound`, and equal to the idle timeout of Go's clients, so that neither side
            // closes much earlier.
            header_read: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            close_grace: Duration::from_secs(5),
            first_request: Duration::from_millis(500),
            write_stall: Duration::from_secs(600),
            header_bytes: 1 << 20,
            header_fields: 1024,
            // Upstream lowered its HTTP/2 default to 100 against floods of cancelled streams
            // (CVE-2023-44487).
            streams: 100,
            // Upstream's `resourceBody99Percentile`: 99 of 100 request bodies fit into one window.
            stream_window: 256 << 10,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            max_connections: connections_for(open_file_limit()),
            reserved_connections: None,
            max_per_address: None,
            max_half_open: None,
            concurrent_handshakes: concurrent_handshakes(),
            is_loopback: |address| address.is_loopback(),
            yield_after: Duration::from_millis(1),
            // Upstream's `defaultKeepAlivePeriod`.
            tcp_keepalive: Duration::from_secs(180),
        }
    }
}

/// Three quarters of the open-file limit; the store, backends and logs need the rest.
fn connections_for(open_files: Option<usize>) -> usize {
    open_files.map_or(768, |n| n / 4 * 3).clamp(64, 1 << 16)
}

/// Half of the cores, rounded up.
fn concurrent_handshakes() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2))
}

/// The soft limit on open files, if the system reports it.
fn open_file_limit() -> Option<usize> {
    parse_open_file_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn parse_open_file_limit(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        n => n.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limit_is_three_quarters_of_open_files() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(connections_for(parse_open_file_limit(limits)), 768);
        assert_eq!(connections_for(Some(usize::MAX)), 1 << 16);
        assert_eq!(connections_for(None), 768);
    }
}
