//! Scripted backends over HTTP/2.

use super::faulty_stream::FaultyStream;
use super::{Assignment, Event, Part, Peer, ReceivedRequest, Script, State, StreamAction};
use crate::wire::{self, Headers};
use ::h2::server::{Connection, SendResponse};
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub(super) async fn serve(line: FaultyStream, peer: Peer, state: Arc<State>) {
    let mut builder = ::h2::server::Builder::new();
    builder.max_concurrent_streams(100).initial_window_size(1 << 20);
    let Ok(mut connection): Result<Connection<FaultyStream, Bytes>, _> = builder.handshake(line).await else {
        return;
    };
    let away = Arc::new(Notify::new());
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            next = connection.accept() => {
                let Some(Ok((request, respond))) = next else { return };
                streams.spawn(stream(request, respond, peer.clone(), state.clone(), away.clone()));
            }
            () = away.notified() => connection.graceful_shutdown(),
        }
    }
}

async fn stream(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    peer: Peer,
    state: Arc<State>,
    away: Arc<Notify>,
) {
    let (head, mut body) = request.into_parts();
    let mut received = ReceivedRequest {
        version: 2,
        method: head.method.to_string(),
        target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        authority: head.uri.authority().map(ToString::to_string).unwrap_or_default(),
        headers: listed(&head.headers),
        certified: peer.certified,
        server_name: peer.server_name.to_string(),
        connection: peer.number,
        ..ReceivedRequest::default()
    };
    if received.is_own_request() {
        let document = state.document(&received);
        let script = Script {
            status: document.status,
            headers: document.headers,
            body: vec![Part::Data(document.body.into_bytes())],
            ..Script::default()
        };
        let _ = answer(&mut respond, &script, "GET", None).await;
        return;
    }
    let assignment = state.assignment(&received);
    let script = assignment.script.clone();
    if script.reads_body {
        received.body = read(&mut body).await;
        if !received.body.whole {
            assignment.tell(Event::Request(Box::new(received)));
            assignment.tell(Event::ClientDisconnected);
            return;
        }
    }
    let method = received.method.clone();
    assignment.tell(Event::Request(Box::new(received)));
    if !script.delay.is_zero() {
        tokio::time::sleep(script.delay).await;
    }
    for early in &script.early {
        if let Ok(early) = Response::builder().status(*early).header("x-early", *early).body(()) {
            let _ = respond.send_informational(early);
        }
    }
    peer.begin(&script, &state);
    match script.stream_action {
        Some(StreamAction::Refuse) => return respond.send_reset(Reason::REFUSED_STREAM),
        Some(StreamAction::Break) => return respond.send_reset(Reason::INTERNAL_ERROR),
        Some(StreamAction::GoAway) => away.notify_one(),
        None => {}
    }
    let _ = answer(&mut respond, &script, &method, Some(&assignment)).await;
    if script.fault.is_some() {
        // GOAWAY produces further bytes, so the planned fault occurs on this connection at the latest now.
        away.notify_one();
    }
}

fn listed(headers: &HeaderMap) -> Headers {
    let text = |v: &HeaderValue| v.as_bytes().iter().copied().map(char::from).collect();
    headers.iter().map(|(n, v)| (n.to_string(), text(v))).collect()
}

async fn read(body: &mut RecvStream) -> wire::Body {
    let mut all = wire::Body::default();
    while let Some(next) = body.data().await {
        let Ok(data) = next else { return all };
        let _ = body.flow_control().release_capacity(data.len());
        all.data.extend_from_slice(&data);
    }
    match body.trailers().await {
        Ok(trailers) => {
            all.trailers = trailers.as_ref().map(listed).unwrap_or_default();
            all.whole = true;
        }
        Err(_) => all.whole = false,
    }
    all
}

fn map(headers: &Headers) -> HeaderMap {
    let pairs = headers.iter().filter_map(|(n, v)| {
        let name = HeaderName::from_bytes(n.to_ascii_lowercase().as_bytes()).ok()?;
        let value: Vec<u8> = v.chars().map(|c| c as u8).collect();
        Some((name, HeaderValue::from_bytes(&value).ok()?))
    });
    let mut out = HeaderMap::new();
    for (name, value) in pairs {
        out.append(name, value);
    }
    out
}

async fn answer(
    respond: &mut SendResponse<Bytes>,
    script: &Script,
    method: &str,
    assignment: Option<&Assignment>,
) -> Result<(), ::h2::Error> {
    let mut head = Response::new(());
    *head.status_mut() = http::StatusCode::from_u16(script.status).unwrap_or_default();
    let announced = script.headers.iter().cloned().chain(script.announcement());
    *head.headers_mut() = map(&announced.collect());
    // These headers are forbidden in HTTP/2.
    for name in ["connection", "transfer-encoding", "keep-alive", "upgrade"] {
        head.headers_mut().remove(name);
    }
    let known = script.framing == super::Framing::Length && !head.headers().contains_key("content-length");
    if known && script.trailers.is_empty() {
        head.headers_mut().insert("content-length", script.length().into());
    }
    let bodiless = method == "HEAD" || script.framing == super::Framing::Bodiless;
    let mut stream = respond.send_response(head, bodiless)?;
    if bodiless {
        return Ok(());
    }
    for part in &script.body {
        match part {
            Part::Data(data) => send(&mut stream, data.clone().into()).await?,
            Part::Wait(time) => tokio::time::sleep(*time).await,
            Part::Gate => {
                let Some(assignment) = assignment else { continue };
                tokio::select! {
                    opened = assignment.gate.acquire() => if let Ok(permit) = opened { permit.forget() },
                    _ = std::future::poll_fn(|cx| stream.poll_reset(cx)) => {
                        assignment.tell(Event::ClientDisconnected);
                        return Ok(());
                    }
                }
            }
        }
    }
    if script.trailers.is_empty() {
        stream.send_data(Bytes::new(), true)
    } else {
        stream.send_trailers(map(&script.trailers))
    }
}

async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), ::h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(n)) => stream.send_data(data.split_to(n.min(data.len())), false)?,
            Some(Err(e)) => return Err(e),
            None => return Ok(()),
        }
    }
    Ok(())
}
