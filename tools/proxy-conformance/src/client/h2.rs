//! Requests over HTTP/2.

use super::{Http, Request, RequestBody, Response, Target};
use crate::wire::{self, Headers};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

fn map(headers: &Headers) -> Result<HeaderMap, String> {
    let mut out = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).map_err(|e| e.to_string())?;
        let value: Vec<u8> = value.chars().map(|c| c as u8).collect();
        out.append(name, HeaderValue::from_bytes(&value).map_err(|e| e.to_string())?);
    }
    Ok(out)
}

fn listed(headers: &HeaderMap) -> Headers {
    let text = |v: &HeaderValue| v.as_bytes().iter().copied().map(char::from).collect();
    headers.iter().map(|(n, v)| (n.to_string(), text(v))).collect()
}

pub(super) async fn exchange(target: &Target, request: &Request) -> Result<Response, String> {
    let io = target.connect(Http::Http2).await?;
    let (sender, connection) = ::h2::client::handshake(io).await.map_err(|e| e.to_string())?;
    // Whichever finishes first. The connection only finishes first if it fails.
    let mut connection = pin!(connection);
    let mut exchange = pin!(over(sender, target, request));
    poll_fn(|cx| {
        if let Poll::Ready(done) = exchange.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        let _ = connection.as_mut().poll(cx);
        exchange.as_mut().poll(cx)
    })
    .await
}

async fn over(
    sender: ::h2::client::SendRequest<Bytes>,
    target: &Target,
    request: &Request,
) -> Result<Response, String> {
    let mut sender = sender.ready().await.map_err(|e| e.to_string())?;
    let mut head = http::Request::builder()
        .method(request.method.as_str())
        .uri(format!("https://{}{}", target.authority, request.target))
        .body(())
        .map_err(|e| e.to_string())?;
    let mut headers = target.credentials();
    headers.extend(request.headers.iter().cloned());
    if let RequestBody::Sized(data) = &request.body {
        headers.push(("content-length".into(), data.len().to_string()));
    }
    if let RequestBody::Chunked(_, trailers) = &request.body
        && !trailers.is_empty()
    {
        let names: Vec<&str> = trailers.iter().map(|(n, _)| n.as_str()).collect();
        headers.push(("trailer".into(), names.join(", ")));
    }
    *head.headers_mut() = map(&headers)?;
    let bodiless = matches!(request.body, RequestBody::None);
    let (mut pending, mut stream) = sender.send_request(head, bodiless).map_err(|e| e.to_string())?;
    // The response may arrive, and the stream close, before everything is sent.
    match &request.body {
        RequestBody::None => {}
        RequestBody::Sized(data) => {
            let _ = stream.send_data(data.clone().into(), true);
        }
        RequestBody::Chunked(pieces, trailers) => {
            for piece in pieces {
                let _ = stream.send_data(piece.clone().into(), false);
            }
            if trailers.is_empty() {
                let _ = stream.send_data(Bytes::new(), true);
            } else {
                let _ = stream.send_trailers(map(trailers)?);
            }
        }
    }
    let mut response = Response::default();
    let received = poll_fn(|cx| {
        while let Poll::Ready(Some(Ok(early))) = pending.poll_informational(cx) {
            response.early.push(early.status().as_u16());
        }
        std::pin::Pin::new(&mut pending).poll(cx)
    });
    let (head, mut body) = received.await.map_err(|e| format!("no response: {e}"))?.into_parts();
    response.status = head.status.as_u16();
    response.headers = listed(&head.headers);
    let mut all = wire::Body::default();
    while let Some(next) = body.data().await {
        let Ok(data) = next else {
            response.body = all;
            return Ok(response);
        };
        let _ = body.flow_control().release_capacity(data.len());
        all.data.extend_from_slice(&data);
    }
    if let Ok(trailers) = body.trailers().await {
        all.trailers = trailers.as_ref().map(listed).unwrap_or_default();
        all.whole = true;
    }
    response.body = all;
    Ok(response)
}
