//! A server behind the gateway that lies, stalls, floods and never finishes.

mod answers;
mod documents;
mod http2;
mod stalls;

use super::Cases;
use crate::backend::Tls;
use crate::scale::Scale;
use crate::wire::Request;
use std::io::Write;

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    answers::all(cases, scale);
    documents::all(cases, scale);
    stalls::all(cases, scale);
    http2::all(cases, scale);
}

/// The request that the gateway proxies to it.
fn things(group: &str) -> Request {
    Request::get(format!("/apis/{group}/v1/namespaces/evil/things/a?timeout=1s"))
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

/// Writes the same bytes `times` times, or until the peer closes.
fn repeat(io: &mut Tls, times: usize, bytes: &[u8]) {
    let part = bytes.repeat((16_384 / bytes.len()).max(1));
    for _ in 0..times * bytes.len() / part.len() + 1 {
        if io.write_all(&part).is_err() {
            return;
        }
    }
}

fn gzip_of_spaces(size: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let part = vec![b' '; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&part).expect("a Vec takes everything");
    }
    encoder.finish().expect("a Vec takes everything")
}
