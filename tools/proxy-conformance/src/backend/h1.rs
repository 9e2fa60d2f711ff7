//! Scripted backends over HTTP/1.1.

use super::faulty_stream::FaultyStream;
use super::{Assignment, Event, Framing, Part, Peer, ReceivedRequest, Script, State};
use crate::wire::{self, Head, values};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

type Io = BufReader<FaultyStream>;

pub(super) async fn serve(line: FaultyStream, peer: Peer, state: Arc<State>) {
    let mut io = BufReader::new(line);
    while let Ok(Some(head)) = wire::head(&mut io).await {
        match request(&mut io, head, &peer, &state).await {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
    if peer.plan.is_quiet() {
        let _ = io.shutdown().await;
    }
}

/// Handles one request. Returns false when the connection is finished.
async fn request(io: &mut Io, head: Head, peer: &Peer, state: &Arc<State>) -> io::Result<bool> {
    let mut words = head.first.splitn(3, ' ');
    let mut received = ReceivedRequest {
        version: 1,
        method: words.next().unwrap_or("").to_owned(),
        target: words.next().unwrap_or("").to_owned(),
        authority: values(&head.headers, "host").join(" and "),
        headers: head.headers,
        certified: peer.certified,
        server_name: peer.server_name.to_string(),
        connection: peer.number,
        ..ReceivedRequest::default()
    };
    if received.is_own_request() {
        received.body = wire::body(io, &received.headers, false).await;
        let document = state.document(&received);
        let script = Script {
            status: document.status,
            headers: document.headers,
            body: vec![Part::Data(document.body.into_bytes())],
            ..Script::default()
        };
        io.write_all(&answer_head(&script, &received.method)).await?;
        return parts(io, &script, &received.method, None).await;
    }
    let assignment = state.assignment(&received);
    let script = assignment.script.clone();
    let asks_first = values(&received.headers, "expect")
        .iter()
        .any(|v| v.eq_ignore_ascii_case("100-continue"));
    if script.reads_body {
        if asks_first {
            io.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            io.flush().await?;
        }
        received.body = wire::body(io, &received.headers, false).await;
        if !received.body.whole {
            assignment.tell(Event::Request(Box::new(received)));
            assignment.tell(Event::ClientDisconnected);
            return Ok(false);
        }
    }
    let method = received.method.clone();
    assignment.tell(Event::Request(Box::new(received)));
    if !script.delay.is_zero() {
        tokio::time::sleep(script.delay).await;
    }
    for early in &script.early {
        let line = format!("HTTP/1.1 {early} {}\r\nX-Early: {early}\r\n\r\n", reason(*early));
        io.write_all(line.as_bytes()).await?;
        io.flush().await?;
    }
    // The fault counts bytes of the final response, so it is armed after the informational ones.
    peer.begin(&script, state);
    if let Some(raw) = &script.raw {
        io.write_all(raw).await?;
        io.flush().await?;
        return Ok(false);
    }
    if let Some(first) = &script.upgrade {
        return echo(io, &script, first, &assignment).await;
    }
    io.write_all(&answer_head(&script, &method)).await?;
    io.flush().await?;
    parts(io, &script, &method, Some(&assignment)).await
}

fn answer_head(script: &Script, method: &str) -> Vec<u8> {
    let mut headers = script.headers.clone();
    let says = |name: &str| !values(&script.headers, name).is_empty();
    match script.framing {
        Framing::Length if !says("content-length") => {
            headers.push(("Content-Length".into(), script.length().to_string()));
        }
        Framing::Chunked => headers.push(("Transfer-Encoding".into(), "chunked".into())),
        Framing::Close if method != "HEAD" => headers.push(("Connection".into(), "close".into())),
        _ => {}
    }
    headers.extend(script.announcement());
    wire::encode_head(
        &format!("HTTP/1.1 {} {}", script.status, reason(script.status)),
        &headers,
    )
}

async fn parts(io: &mut Io, script: &Script, method: &str, assignment: Option<&Assignment>) -> io::Result<bool> {
    let bodiless = method == "HEAD" || script.framing == Framing::Bodiless;
    let chunked = script.framing == Framing::Chunked;
    for part in &script.body {
        match part {
            Part::Data(_) if bodiless => {}
            Part::Data(data) if chunked => io.write_all(&wire::chunk(data)).await?,
            Part::Data(data) => io.write_all(data).await?,
            Part::Wait(time) => tokio::time::sleep(*time).await,
            Part::Gate => {
                let Some(assignment) = assignment else { continue };
                let mut byte = [0];
                tokio::select! {
                    opened = assignment.gate.acquire() => opened.map_err(io::Error::other)?.forget(),
                    // Reading notices that the peer has disconnected while the response is held back.
                    _ = io.read(&mut byte) => {
                        assignment.tell(Event::ClientDisconnected);
                        return Ok(false);
                    }
                }
            }
        }
        io.flush().await?;
    }
    if chunked && !bodiless {
        let mut end = b"0\r\n".to_vec();
        for (name, value) in &script.trailers {
            end.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        end.extend(b"\r\n");
        io.write_all(&end).await?;
    }
    io.flush().await?;
    Ok(script.framing != Framing::Close && script.fault.is_none())
}

async fn echo(io: &mut Io, script: &Script, first: &[u8], assignment: &Assignment) -> io::Result<bool> {
    io.write_all(&wire::encode_head("HTTP/1.1 101 Switching Protocols", &script.headers))
        .await?;
    io.write_all(first).await?;
    io.flush().await?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match io.read(&mut buffer).await {
            Ok(0) | Err(_) => {
                assignment.tell(Event::ClientDisconnected);
                return Ok(false);
            }
            // Echoed streams end from this side when the client sends "bye".
            Ok(n) if &buffer[..n] == b"bye" => return Ok(false),
            Ok(n) => {
                io.write_all(&buffer[..n]).await?;
                io.flush().await?;
            }
        }
    }
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|s| s.canonical_reason())
        .unwrap_or("Status")
}
