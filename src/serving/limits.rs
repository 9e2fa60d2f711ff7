//! What one client, and all of them, may hold.

use std::net::IpAddr;
use std::time::Duration;

/// Limits of the serving port. The defaults are upstream's where upstream has one.
#[derive(Clone, Debug)]
pub struct Limits {
    /// From accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// HTTP/1: from the first byte of a request's head to its last (for the first request: from the handshake's end).
    pub header_read: Duration,
    /// Without a request in flight, then the connection is closed gracefully.
    pub idle: Duration,
    /// After a graceful close without a request in flight, then the connection is cut.
    pub close_grace: Duration,
    /// The peer has taken none of our bytes, then the connection is cut. Not of upgraded connections. Ours: upstream
    /// waits for as long as TCP does.
    pub write_stall: Duration,
    /// Bytes of a request's head.
    pub header_bytes: u32,
    /// Number of header fields of an HTTP/1 request.
    pub header_fields: usize,
    /// HTTP/2: open streams of one connection.
    pub streams: u32,
    /// HTTP/2: receive window of a stream, and the largest frame read; the connection's window is this times `streams`.
    pub stream_window: u32,
    /// HTTP/2: a ping this often, on every connection.
    pub ping_interval: Duration,
    /// HTTP/2: a ping must be answered within this.
    pub ping_timeout: Duration,
    /// Open connections; for a further one the longest idle connection that may be evicted is closed (`serving::slots`).
    pub connections: usize,
    /// Of these, reserved for callers who have shown credentials; as long as they need fewer, nobody else takes them. At
    /// most half. Default: a quarter. Loopback has a sixteenth besides.
    pub reserved: Option<usize>,
    /// Connections of one remote address on which nobody has authenticated. Default: a quarter. Not of loopback.
    pub per_address: Option<usize>,
    /// Connections whose TLS handshake is not over. Default: a quarter, at most 4096.
    pub half_open: Option<usize>,
    /// TLS handshakes that compute at once, so that many of them leave the reactors to others in between.
    pub handshake_steps: usize,
    /// Tells connections from this machine, which are let in even where others hold all other slots.
    pub is_loopback: fn(IpAddr) -> bool,
    /// HTTP/2: how long one connection's requests and frames are worked on before other connections have their turn.
    pub turn: Duration,
    /// TCP keep-alive: idle time before the first probe.
    pub tcp_keepalive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            header_read: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            close_grace: Duration::from_secs(5),
            write_stall: Duration::from_secs(600),
            header_bytes: 1 << 20,
            header_fields: 1024,
            streams: 100,
            stream_window: 256 << 10,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            connections: connections_for(open_file_limit()),
            reserved: None,
            per_address: None,
            half_open: None,
            handshake_steps: handshake_steps(),
            is_loopback: |address| address.is_loopback(),
            turn: Duration::from_millis(1),
            tcp_keepalive: Duration::from_secs(180),
        }
    }
}

/// Three quarters of the file descriptors: the store, backends and logs need the rest.
fn connections_for(open_files: Option<usize>) -> usize {
    open_files.map_or(768, |n| n / 4 * 3).clamp(64, 1 << 16)
}

/// On half of the processors.
fn handshake_steps() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2))
}

/// The soft limit on open files, where the system tells.
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
    fn the_connection_cap_leaves_descriptors_for_the_rest() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(connections_for(parse_open_file_limit(limits)), 768);
        assert_eq!(connections_for(Some(usize::MAX)), 1 << 16);
        assert_eq!(connections_for(None), 768);
    }
}
