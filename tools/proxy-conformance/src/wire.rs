//! HTTP/1.1 read and written byte by byte, for both ends of the gateway.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Names and values, in order and as spelled. Bytes beyond ASCII are mapped to the characters with the same
/// number.
pub type Headers = Vec<(String, String)>;

/// The limit on the length of a line.
const MAX_LINE: usize = 4 << 20;

/// The first line and the headers of a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The request line or the status line.
    pub first: String,
    /// The headers.
    pub headers: Headers,
}

/// A body, and whether it is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The received data.
    pub data: Vec<u8>,
    /// The trailers.
    pub trailers: Headers,
    /// Whether it ended according to its framing.
    pub whole: bool,
}

/// All values of a header, in order.
pub fn values<'a>(headers: &'a Headers, name: &str) -> Vec<&'a str> {
    let of_that_name = headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    of_that_name.map(|(_, v)| v.as_str()).collect()
}

async fn line(io: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut limited = AsyncReadExt::take(&mut *io, MAX_LINE as u64);
    limited.read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(line.into_iter().map(char::from).collect()))
}

/// Reads a head; `None` if the connection ends before one begins.
///
/// # Errors
/// If the connection ends within the head.
pub async fn head(io: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Head>> {
    let Some(first) = line(io).await? else { return Ok(None) };
    let headers = fields(io).await?;
    Ok(Some(Head { first, headers }))
}

async fn fields(io: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Headers> {
    let mut headers = Headers::new();
    loop {
        let line = line(io).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// Reads a body according to its headers. `until_end`: without framing headers, it extends to the end of the
/// connection.
pub async fn body(io: &mut (impl AsyncBufRead + Unpin), headers: &Headers, until_end: bool) -> Body {
    let mut body = Body::default();
    let chunked = values(headers, "transfer-encoding")
        .iter()
        .any(|v| v.to_ascii_lowercase().contains("chunked"));
    let read = if chunked {
        chunks(io, &mut body).await
    } else if let Some(length) = values(headers, "content-length").first() {
        let length = length.parse::<u64>().unwrap_or(0);
        let got = AsyncReadExt::take(&mut *io, length).read_to_end(&mut body.data).await;
        got.and_then(|n| match n as u64 == length {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    } else if until_end {
        io.read_to_end(&mut body.data).await.map(|_| ())
    } else {
        Ok(())
    };
    body.whole = read.is_ok();
    body
}

async fn chunks(io: &mut (impl AsyncBufRead + Unpin), body: &mut Body) -> io::Result<()> {
    loop {
        let size = line(io).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let size = size.split(';').next().unwrap_or("").trim();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size == 0 {
            body.trailers = fields(io).await?;
            return Ok(());
        }
        let got = AsyncReadExt::take(&mut *io, size).read_to_end(&mut body.data).await?;
        if got as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line(io).await?;
    }
}

/// Encodes a head.
pub fn encode_head(first: &str, headers: &Headers) -> Vec<u8> {
    let mut out = bytes(first);
    out.extend(b"\r\n");
    for (name, value) in headers {
        out.extend(bytes(name));
        out.extend(b": ");
        out.extend(bytes(value));
        out.extend(b"\r\n");
    }
    out.extend(b"\r\n");
    out
}

/// Encodes a chunk.
pub fn chunk(data: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", data.len()).into_bytes();
    out.extend(data);
    out.extend(b"\r\n");
    out
}

fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u8).collect()
}
