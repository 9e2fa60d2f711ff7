//! `exec` and `attach` over WebSocket (`v5.channel.k8s.io`) towards kubelets that speak SPDY only, as
//! upstream's `apiserver/pkg/util/proxy/streamtranslator.go` with the client of
//! `client-go/tools/remotecommand`.
//!
//! Entry point: [`answer`]. Three loops run side by side, so that neither direction waits for the other: from
//! the client, to the kubelet, and back. Each holds one message at a time.

use super::outcome::{self, Version};
use crate::apimachinery::status::Status;
use crate::proxy::backend::{self, Backend, Upgraded};
use crate::proxy::spdy::{self, Decoder, Encoder, Frame};
use crate::request::{Body, Request, Response};
use crate::tasks::{TaskGroup, YieldCounter};
use crate::websocket::{self, Handshake, Limits, Message, PING_INTERVAL, Receiver, Sender, WebSocket};
use bytes::{Bytes, BytesMut};
use http::{Uri, header};
use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// The protocol with half-close, the only one that is translated.
const V5: &str = "v5.channel.k8s.io";

/// Interval of the pings to the kubelet (upstream: 5 s).
const KUBELET_PING: Duration = Duration::from_secs(5);

/// Time for the kubelet to accept the streams.
const ACCEPT_LIMIT: Duration = Duration::from_secs(30);

/// Frames of a kubelet that are handled before the task yields: a packet has thousands of the smallest.
const YIELD_AFTER: u32 = 64;

/// Channels of the WebSocket protocol.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Followed by the channel that the client closes.
const CLOSE: u8 = 255;

/// The streams that the client asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

impl Streams {
    /// The channels to open at the kubelet, in the order in which its clients open them.
    fn channels(self) -> impl Iterator<Item = (u8, &'static str)> {
        [
            (ERROR, "error", true),
            (STDIN, "stdin", self.stdin),
            (STDOUT, "stdout", self.stdout),
            // A terminal merges both outputs: with one, kubelets accept no stream for stderr.
            (STDERR, "stderr", self.stderr && !self.tty),
            (RESIZE, "resize", self.tty),
        ]
        .into_iter()
        .filter_map(|(channel, name, wanted)| wanted.then_some((channel, name)))
    }

    /// The channel of the first message, which tells the client that the connection is established: the
    /// lowest one that the server writes.
    fn first(self) -> u8 {
        match self {
            Self { stdout: true, .. } => STDOUT,
            Self { stderr: true, .. } => STDERR,
            _ => ERROR,
        }
    }
}

/// The id of a channel's stream: clients use odd ones, each greater than that of the stream opened before.
const fn id(channel: u8) -> u32 {
    match channel {
        ERROR => 1,
        STDIN => 3,
        STDOUT => 5,
        STDERR => 7,
        _ => 9,
    }
}

/// Where to connect to.
pub(super) struct Destination {
    pub(crate) kubelet: Backend,
    pub(crate) target: Uri,
}

/// Whether the client offers the protocol that is translated.
pub(super) fn applies(req: &Request) -> bool {
    websocket::requested(req.headers()) && websocket::offered(req.headers()).any(|offered| offered == V5)
}

/// Upgrades the client's connection and translates until either side ends.
pub(super) fn answer(req: Request, streams: Streams, to: Destination, tasks: &TaskGroup) -> Response {
    let (mut head, _) = req.into_parts();
    let owner = tasks.clone();
    match Handshake::read(&mut head) {
        Ok(handshake) => handshake.accept(Some(V5), Limits::STREAM, tasks, async move |socket: WebSocket| {
            run(socket, streams, to, owner).await;
        }),
        Err(refused) => *refused,
    }
}

/// Owns `to`, which holds the connection's place to the end.
async fn run(socket: WebSocket, streams: Streams, to: Destination, tasks: TaskGroup) {
    let (mut sender, receiver) = socket.split();
    // Before the kubelet is dialled, as upstream: if it cannot be reached, the error goes to the error
    // channel of an established connection.
    if sender.send(message(streams.first(), &[])).await.is_err() {
        return;
    }
    let status = match connect(&to, &tasks).await {
        Ok((io, version)) => match session(io, streams, &mut sender, receiver).await {
            Ok(message) => outcome::exit_status(version, &message),
            // Nobody is left to receive a status.
            Err(Ended::Client) => return,
            Err(Ended::Kubelet(why)) => Status::internal(why).to_value(),
        },
        Err(e) => Status::internal(e.to_string()).to_value(),
    };
    if sender.send(message(ERROR, &outcome::encoded(&status))).await.is_ok() {
        sender.close().await;
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    Message::Binary([&[channel], bytes].concat().into())
}

/// Why the kubelet could not be connected to; messages as upstream words them.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    /// The upgrade request could not be sent, or got no response.
    #[error("error sending request: Post {url:?}: {why}")]
    Unsent { url: String, why: String },
    /// The kubelet refused the upgrade, with this message.
    #[error("unable to upgrade connection: {0}")]
    Refused(String),
}

/// Requests the upgrade from the kubelet.
async fn connect(
    to: &Destination,
    tasks: &TaskGroup,
) -> Result<(impl AsyncRead + AsyncWrite + use<>, Version), ConnectError> {
    let mut request = http::Request::post(to.target.clone())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        // Both as Go's client sends them: its default agent, and the length of a POST without a body.
        .header(header::USER_AGENT, "Go-http-client/1.1")
        .header(header::CONTENT_LENGTH, "0");
    for version in Version::OFFERED {
        request = request.header(outcome::PROTOCOL, version);
    }
    let unsent = |why: String| ConnectError::Unsent {
        url: format!("https://{}{}", to.kubelet.authority, to.target),
        why,
    };
    let request = request.body(Body::empty()).map_err(|e| unsent(e.to_string()))?;
    match backend::switch(&to.kubelet, request, tasks).await {
        Ok(Upgraded::Switched(headers, io)) => Ok((io, Version::chosen(&headers))),
        Ok(Upgraded::Refused(response)) => {
            let body = Body::stream(response.into_body());
            let text = outcome::start_of(body, outcome::MAX_REFUSAL).await;
            Err(ConnectError::Refused(text.map_or_else(
                |_| "unable to read error from server response".to_owned(),
                |text| outcome::refusal(&text),
            )))
        }
        Err(e) => Err(unsent(e.to_string())),
    }
}

/// Why a session ended without a result.
enum Ended {
    /// The client is gone: the connection to the kubelet closes.
    Client,
    Kubelet(String),
}

/// A frame for the kubelet: its head, and data.
type Outgoing = ([u8; 8], Bytes);

/// Runs the streams until those from the kubelet have ended. Returns the bytes of the error stream.
async fn session(
    io: impl AsyncRead + AsyncWrite,
    streams: Streams,
    sender: &mut Sender,
    receiver: Receiver,
) -> Result<Vec<u8>, Ended> {
    let (read, mut write) = tokio::io::split(io);
    let mut encoder = Encoder::default();
    let mut opening = BytesMut::new();
    for (channel, name) in streams.channels() {
        opening.extend_from_slice(&encoder.open(id(channel), "streamtype", name));
    }
    write
        .write_all(&opening)
        .await
        .map_err(|e| Ended::Kubelet(e.to_string()))?;
    // Room for one frame: while the kubelet takes no input, the client's socket is not read either, and TCP
    // slows it down.
    let (data, outgoing) = mpsc::channel(1);
    // A kubelet that sends more pings than it takes answers gets none.
    let (pongs, answers) = mpsc::channel(8);
    let (accepted, ready) = watch::channel(false);
    tokio::select! {
        // The first branch to end ends the session. None is polled again afterwards, so their cancel safety
        // does not matter.
        () = from_client(receiver, streams, data, ready) => Err(Ended::Client),
        never = to_kubelet(&mut write, outgoing, answers) => match never {},
        said = from_kubelet(read, streams, sender, pongs, accepted) => said,
    }
}

/// Takes the client's messages apart. Ends when the client leaves or violates the protocol.
async fn from_client(
    mut receiver: Receiver,
    streams: Streams,
    data: mpsc::Sender<Outgoing>,
    mut ready: watch::Receiver<bool>,
) {
    let mut is_stdin_open = streams.stdin;
    while let Some(Message::Binary(mut bytes) | Message::Text(mut bytes)) = receiver.next().await {
        if bytes.is_empty() {
            continue;
        }
        let payload = bytes.split_off(1);
        let (channel, is_last) = match (bytes[0], payload.as_ref()) {
            (CLOSE, [closed @ STDIN..=RESIZE]) => (*closed, true),
            // A close names exactly one channel; anything else violates the protocol.
            (CLOSE, _) => return,
            (channel, _) => (channel, false),
        };
        let is_open = match channel {
            STDIN => is_stdin_open,
            RESIZE => streams.tty && !is_last,
            _ => false,
        };
        if !is_open {
            continue;
        }
        // Kubelets read input only once all streams exist. They answer within the time limit or the session
        // ends.
        if ready.wait_for(|ready| *ready).await.is_err() {
            // The reading side ends the session, and knows why.
            return pending().await;
        }
        // The payload of a close is the channel's number, not data: it becomes an empty frame with the FIN
        // flag.
        let mut rest = if is_last { Bytes::new() } else { payload };
        is_stdin_open &= !(channel == STDIN && is_last);
        loop {
            let piece = rest.split_to(rest.len().min(spdy::PIECE));
            let head = spdy::data(id(channel), piece.len(), is_last);
            // The writer never ends before the session does.
            if data.send((head, piece)).await.is_err() {
                return pending().await;
            }
            if rest.is_empty() {
                break;
            }
        }
    }
}

/// Writes data, answers to pings, and pings of our own. A failure is left to the reading side, which reports
/// it.
async fn to_kubelet(
    write: &mut (impl AsyncWrite + Unpin),
    mut data: mpsc::Receiver<Outgoing>,
    mut pongs: mpsc::Receiver<u32>,
) -> std::convert::Infallible {
    let mut pings = tokio::time::interval(KUBELET_PING);
    let mut number = 1u32;
    loop {
        let written = tokio::select! {
            Some((head, bytes)) = data.recv() => match write.write_all(&head).await {
                Ok(()) => write.write_all(&bytes).await,
                failed => failed,
            },
            Some(id) = pongs.recv() => write.write_all(&spdy::ping(id)).await,
            _ = pings.tick() => {
                // A client's ping ids are odd; the reader tells answers from the kubelet's own pings by that.
                number = number.wrapping_add(2);
                write.write_all(&spdy::ping(number)).await
            }
        };
        let flushed = match written {
            Ok(()) => write.flush().await,
            failed => failed,
        };
        if flushed.is_err() {
            return pending().await;
        }
    }
}

/// Passes output on until all of it has ended, and collects the error stream.
async fn from_kubelet(
    mut read: impl AsyncRead + Unpin,
    streams: Streams,
    sender: &mut Sender,
    pongs: mpsc::Sender<u32>,
    accepted: watch::Sender<bool>,
) -> Result<Vec<u8>, Ended> {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::with_capacity(spdy::PIECE));
    let mut unaccepted: BTreeSet<u32> = streams.channels().map(|(channel, _)| id(channel)).collect();
    let mut open: BTreeSet<u32> = unaccepted.clone();
    // Only streams that the kubelet writes keep the session open; input may stay open to the end.
    open.retain(|open| ![id(STDIN), id(RESIZE)].contains(open));
    let mut said = Vec::new();
    let until = tokio::time::Instant::now() + ACCEPT_LIMIT;
    let mut yields = YieldCounter::of(YIELD_AFTER);
    while !open.is_empty() {
        yields.step().await;
        let Some(frame) = decoder.next(&mut input).map_err(|e| Ended::Kubelet(e.to_string()))? else {
            input.reserve(spdy::PIECE);
            // Once the streams are accepted, silence is normal: it only triggers a ping of the client, which
            // fails if the client is gone.
            let limit = if unaccepted.is_empty() {
                PING_INTERVAL
            } else {
                until.saturating_duration_since(tokio::time::Instant::now())
            };
            match timeout(limit, read.read_buf(&mut input)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0)) => break,
                Ok(Err(e)) => return Err(Ended::Kubelet(e.to_string())),
                // The message of spdystream's `ErrTimeout`.
                Err(_) if !unaccepted.is_empty() => return Err(Ended::Kubelet("Timeout occurred".to_owned())),
                Err(_) => sender.ping().await.map_err(|_| Ended::Client)?,
            }
            continue;
        };
        match frame {
            Frame::Accepted(stream) => {
                unaccepted.remove(&stream);
                if unaccepted.is_empty() {
                    accepted.send_replace(true);
                }
            }
            Frame::Data(stream, bytes) if stream == id(ERROR) => {
                // Cannot underflow: at most `room` bytes are added. The excess is dropped, because output may
                // still follow.
                let room = outcome::MAX_REFUSAL - said.len();
                said.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Frame::Data(stream, bytes) => {
                let channel = [STDOUT, STDERR].into_iter().find(|c| id(*c) == stream);
                if let Some(channel) = channel.filter(|_| open.contains(&stream)) {
                    let sent = sender.send(message(channel, &bytes)).await;
                    sent.map_err(|_| Ended::Client)?;
                }
            }
            Frame::Ended(stream) => {
                open.remove(&stream);
            }
            // Even ids are the kubelet's own; odd ones are answers to ours.
            Frame::Ping(id) if id % 2 == 0 => drop(pongs.try_send(id)),
            Frame::Ping(_) => {}
            Frame::GoAway => break,
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_opened_in_the_order_of_their_ids() {
        let all = Streams {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
        };
        for streams in [all, Streams { tty: true, ..all }] {
            let ids: Vec<u32> = streams.channels().map(|(channel, _)| id(channel)).collect();
            assert!(
                ids.iter().all(|id| id % 2 == 1) && ids.is_sorted_by(|a, b| a < b),
                "{ids:?}"
            );
        }
    }
}
