//! HTTP/2 at the level of frames, including frames that no library would send.

use crate::wire::{Deadline, Tls};
use std::io::{self, Read, Write};
use std::time::Instant;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The client's end of a connection.
pub(crate) struct Connection {
    pub io: Tls,
}

/// Encodes one frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is small");
    let mut out = Vec::with_capacity(9 + payload.len());
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.push(kind);
    out.push(flags);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Encodes an HPACK integer with a seven-bit prefix.
fn length(n: usize, out: &mut Vec<u8>) {
    if n < 127 {
        out.push(n as u8);
        return;
    }
    out.push(127);
    let mut rest = n - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// Encodes a literal header field without Huffman coding; adds it to the peer's dynamic table if `indexed`.
pub(crate) fn field(name: &str, value: &str, indexed: bool, out: &mut Vec<u8>) {
    out.push(if indexed { 0x40 } else { 0 });
    length(name.len(), out);
    out.extend_from_slice(name.as_bytes());
    length(value.len(), out);
    out.extend_from_slice(value.as_bytes());
}

/// The header block of a request.
pub(crate) fn block(method: &str, path: &str, token: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    field(":method", method, false, &mut out);
    field(":scheme", "https", false, &mut out);
    field(":path", path, false, &mut out);
    field(":authority", "localhost", false, &mut out);
    if !token.is_empty() {
        field("authorization", &format!("Bearer {token}"), false, &mut out);
    }
    for (name, value) in more {
        field(name, value, false, &mut out);
    }
    out
}

impl Connection {
    pub(crate) fn open(mut io: Tls) -> io::Result<Self> {
        io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        io.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        io.flush()?;
        Ok(Self { io })
    }

    /// Sends bytes. Returns false if the peer has closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.io.write_all(bytes).and_then(|()| self.io.flush()).is_ok()
    }

    /// Reads the next frame: its type, flags, stream and payload.
    pub(crate) fn read(&mut self, until: Instant) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.io.expire_at(until)?;
        self.io.read_exact(&mut head)?;
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; size];
        self.io.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Ok((head[3], head[4], stream, payload))
    }

    /// Reads until the stream or the connection has ended. Returns whether that happened in time.
    pub(crate) fn until_end_of(&mut self, stream: u32, until: Instant) -> bool {
        loop {
            match self.read(until) {
                Ok((SETTINGS, 0, ..)) => drop(self.send(&frame(SETTINGS, 1, 0, &[]))),
                Ok((DATA | HEADERS, flags, s, _)) if s == stream && flags & END_STREAM != 0 => return true,
                Ok((RST_STREAM, _, s, _)) if s == stream => return true,
                Ok((GOAWAY, ..)) => return true,
                Ok(_) => {}
                Err(e) => return !matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            }
        }
    }
}
