//! Watches over WebSocket: one message per event, text for JSON and binary for other media types (upstream:
//! `endpoints/handlers/watch.go`, `HandleWS`).

use crate::endpoints::call::Call;
use crate::endpoints::negotiate::Media;
use crate::request::Response;
use crate::tasks::TaskGroup;
use crate::websocket::{self, Handshake, Limits, Message};
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::request::Parts;
use http::{Uri, header};

/// The group of tasks for a watch whose client wants WebSocket.
pub(crate) fn requested(call: &Call) -> Option<TaskGroup> {
    call.upgrades
        .clone()
        .filter(|_| websocket::requested(&call.parts.headers))
}

/// Serves the events until the watch ends, one message each.
pub(crate) fn stream(head: &mut Parts, mut events: super::Stream, media: Media, tasks: &TaskGroup) -> Response {
    upgrade(head, stream::poll_fn(move |cx| events.poll_message(cx)), media, tasks)
}

/// Serves a single event, after which the connection is closed.
pub(crate) fn single(head: &mut Parts, event: Bytes, media: Media, tasks: &TaskGroup) -> Response {
    upgrade(head, stream::iter([event]), media, tasks)
}

fn upgrade(
    head: &mut Parts,
    events: impl Stream<Item = Bytes> + Unpin + Send + 'static,
    media: Media,
    tasks: &TaskGroup,
) -> Response {
    // Upstream's handler for watches insists on an origin, whichever it is, and echoes any subprotocol.
    let origin = head.headers.get(header::ORIGIN).and_then(|o| o.to_str().ok());
    let is_url = origin.is_some_and(is_request_uri);
    let mut offered = websocket::offered(&head.headers).map(str::to_owned);
    let (protocol, is_single) = (offered.next(), offered.next().is_none());
    // Ends the borrow of the head, which the handshake needs mutably.
    drop(offered);
    let handshake = match Handshake::read(head) {
        Ok(_) if !is_url => return Handshake::forbidden(),
        Ok(_) if !is_single => return Handshake::ambiguous(),
        Ok(handshake) => handshake,
        Err(refused) => return *refused,
    };
    let messages = events.map(move |event| message(event, media));
    handshake.accept(protocol.as_deref(), Limits::LISTENER, tasks, |socket| {
        socket.publish(messages)
    })
}

/// Whether Go's `url.ParseRequestURI` accepts this: a path or a URL with a scheme.
fn is_request_uri(text: &str) -> bool {
    text.starts_with('/') || text.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some())
}

/// An event without what separates it from others in a stream of bytes.
fn message(event: Bytes, media: Media) -> Message {
    /// The length in front of a protobuf event.
    const LENGTH: usize = 4;
    match media {
        // The bound is for safety only: every frame starts with its length.
        Media::Protobuf => Message::Binary(event.slice(LENGTH.min(event.len())..)),
        Media::Cbor => Message::Binary(event),
        _ => Message::Text(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_lose_their_framing() {
        let protobuf = Bytes::from_static(b"\0\0\0\x02ab");
        assert_eq!(message(protobuf, Media::Protobuf), Message::Binary("ab".into()));
        assert_eq!(message("{}\n".into(), Media::Json), Message::Text("{}\n".into()));
    }

    #[test]
    fn origins_are_urls_or_paths() {
        assert!(is_request_uri("https://example.com") && is_request_uri("/"));
        assert!(!is_request_uri("null") && !is_request_uri("") && !is_request_uri("example.com"));
    }
}
