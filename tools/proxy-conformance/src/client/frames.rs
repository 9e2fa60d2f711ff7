//! HTTP/2 at the level of frames, for requests that no library would send.

use super::{Http, TIMEOUT, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// With a response; the status, if it is in HPACK's static table.
    Answered(Option<u16>),
    /// With RST_STREAM and this code.
    Reset(u32),
    /// With the connection, and the code of its GOAWAY if there was one.
    ConnectionEnded(Option<u32>),
}

/// A field of a header block: name and value, sent unmodified.
pub type Field<'a> = (&'a str, &'a str);

/// A request in frames.
#[derive(Clone, Debug, Default)]
pub struct Frames<'a> {
    /// The header block.
    pub fields: Vec<Field<'a>>,
    /// The body; `None` if the headers end the stream.
    pub data: Option<&'a [u8]>,
    /// Fields after the body.
    pub trailers: Vec<Field<'a>>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// HPACK encoding with literals only, without indexing and Huffman coding.
fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            length(text.len(), &mut out);
            out.extend(text.bytes());
        }
    }
    out
}

fn length(n: usize, out: &mut Vec<u8>) {
    if n < 127 {
        return out.push(n as u8);
    }
    out.push(127);
    let mut rest = n - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// The status in a response's header block, if it is in the static table.
fn status(block: &[u8]) -> Option<u16> {
    match block.iter().find(|b| **b & 0xe0 != 0x20)? {
        0x88 => Some(200),
        0x89 => Some(204),
        0x8a => Some(206),
        0x8b => Some(304),
        0x8c => Some(400),
        0x8d => Some(404),
        0x8e => Some(500),
        _ => None,
    }
}

/// Sends one stream and waits for its end.
///
/// # Errors
/// If there is no connection, or nothing happens before the deadline.
pub async fn send(target: &Target, request: &Frames<'_>) -> Result<StreamEnd, String> {
    let mut io = target.connect(Http::Http2).await?;
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    out.extend(frame(SETTINGS, 0, 0, &[]));
    let all = block(&request.fields);
    let last = request.data.is_none() && request.trailers.is_empty();
    let mut pieces = all.chunks(16_000).peekable();
    let mut kind = HEADERS;
    while let Some(piece) = pieces.next() {
        let mut flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        if last && kind == HEADERS {
            flags |= END_STREAM;
        }
        out.extend(frame(kind, flags, 1, piece));
        kind = CONTINUATION;
    }
    if let Some(data) = request.data {
        let flags = if request.trailers.is_empty() { END_STREAM } else { 0 };
        out.extend(frame(DATA, flags, 1, data));
    }
    if !request.trailers.is_empty() {
        let flags = END_HEADERS | END_STREAM;
        out.extend(frame(HEADERS, flags, 1, &block(&request.trailers)));
    }
    // The gateway may close the connection before everything is sent.
    let _ = io.write_all(&out).await;
    let _ = io.flush().await;
    let end = tokio::time::timeout(TIMEOUT, read(&mut io)).await;
    end.map_err(|_| "the stream does not end in time".to_owned())
}

async fn read(io: &mut tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> StreamEnd {
    let mut answered = None;
    let mut away = None;
    loop {
        let mut head = [0; 9];
        if io.read_exact(&mut head).await.is_err() {
            return StreamEnd::ConnectionEnded(away);
        }
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; size as usize];
        if io.read_exact(&mut payload).await.is_err() {
            return StreamEnd::ConnectionEnded(away);
        }
        let code = |at: usize| {
            payload
                .get(at..at + 4)
                .map_or(0, |b| b.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
        };
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        match (head[3], stream) {
            (SETTINGS, _) if head[4] & ACK == 0 => {
                let _ = io.write_all(&frame(SETTINGS, ACK, 0, &[])).await;
                let _ = io.flush().await;
            }
            (HEADERS, 1) if answered.is_none() => answered = Some(status(&payload)),
            (RST_STREAM, 1) => return answered.map_or(StreamEnd::Reset(code(0)), StreamEnd::Answered),
            (GOAWAY, _) => away = Some(code(4)),
            _ => {}
        }
        let ends = matches!(head[3], HEADERS | DATA) && stream == 1 && head[4] & END_STREAM != 0;
        if ends && let Some(status) = answered {
            return StreamEnd::Answered(status);
        }
    }
}
