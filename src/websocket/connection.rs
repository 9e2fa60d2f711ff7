//! [`WebSocket`]: messages in both directions over an upgraded connection. Pings are answered while the
//! connection is read, and sent to clients that are silent.

use crate::tasks::YieldCounter;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, Stream, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tungstenite::Utf8Bytes;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

/// Interval of the pings that keep a connection alive in proxies and detect a peer that is gone.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Read buffer of a connection; the library's default of 128 KiB is too much for thousands of watches.
const READ_BUFFER: usize = 4 << 10;

/// Messages that are received before the task yields: a packet has thousands of the smallest.
const YIELD_AFTER: u32 = 64;

/// Time for the client to take the close frame.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum bytes of a message from the client, which is buffered until it is complete.
    pub(crate) message: usize,
    /// Time for the client to take a message.
    pub(crate) stall: Duration,
}

impl Limits {
    /// For connections on which clients send no messages.
    pub(crate) const LISTENER: Self = Self {
        message: 64 << 10,
        stall: Duration::from_secs(600),
    };
    /// For streams to containers: upstream's message size and idle timeout, since a user may pause a
    /// terminal.
    pub(crate) const STREAM: Self = Self {
        message: 32 << 20,
        stall: Duration::from_secs(4 * 3600),
    };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A text message; if the bytes to send are not UTF-8, a binary message is sent.
    Text(Bytes),
    /// A binary message, sent and received as it is.
    Binary(Bytes),
}

/// The client disconnected, is too slow, or violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

pub(crate) struct WebSocket(WebSocketStream<TokioIo<Upgraded>>, Limits);

/// The sending half of a connection.
pub(crate) struct Sender(
    SplitSink<WebSocketStream<TokioIo<Upgraded>>, tungstenite::Message>,
    Limits,
);

/// The receiving half of a connection.
pub(crate) struct Receiver(SplitStream<WebSocketStream<TokioIo<Upgraded>>>, YieldCounter);

impl WebSocket {
    pub(super) async fn over(io: TokioIo<Upgraded>, limits: Limits) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            // No buffer: a message must reach the client when it is sent, since none may follow for long.
            .write_buffer_size(0)
            .max_message_size(Some(limits.message))
            .max_frame_size(Some(limits.message));
        Self(
            WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await,
            limits,
        )
    }

    /// Two halves for both directions at the same time.
    pub(crate) fn split(self) -> (Sender, Receiver) {
        let (sink, stream) = self.0.split();
        (Sender(sink, self.1), Receiver(stream, YieldCounter::of(YIELD_AFTER)))
    }

    /// Sends these messages and closes the connection with code 1000. Messages from the client are ignored.
    /// Ends early if the client disconnects.
    pub(crate) async fn publish(self, mut messages: impl Stream<Item = Message> + Unpin) {
        let (mut sender, mut receiver) = self.split();
        // Reading also answers pings, and notices when the client has gone.
        let ignored = async { while receiver.next().await.is_some() {} };
        let sent = async {
            loop {
                // `next` is cancel safe: a timeout loses no message.
                let outcome = match timeout(PING_INTERVAL, messages.next()).await {
                    Ok(Some(message)) => sender.send(message).await,
                    Ok(None) => return sender.close().await,
                    Err(_) => sender.ping().await,
                };
                if outcome.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = sent => {}
            () = ignored => {}
        }
    }
}

impl Sender {
    /// Sends a message and waits until the connection has taken it.
    ///
    /// # Errors
    /// [`Closed`], also if the client does not take it in time.
    ///
    /// # Cancel safety
    /// Not cancel safe: the connection cannot be used afterwards.
    pub(crate) async fn send(&mut self, message: Message) -> Result<(), Closed> {
        let message = match message {
            Message::Binary(bytes) => tungstenite::Message::Binary(bytes),
            // Shares the bytes; only the check for UTF-8 reads them.
            Message::Text(bytes) => match Utf8Bytes::try_from(bytes.clone()) {
                Ok(text) => tungstenite::Message::Text(text),
                Err(_) => tungstenite::Message::Binary(bytes),
            },
        };
        self.put(message).await
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// [`Closed`]
    pub(crate) async fn ping(&mut self) -> Result<(), Closed> {
        self.put(tungstenite::Message::Ping(Bytes::new())).await
    }

    /// Sends a close frame with code 1000.
    pub(crate) async fn close(&mut self) {
        let normal = CloseFrame {
            code: CloseCode::Normal,
            reason: Utf8Bytes::default(),
        };
        let closing = self.0.send(tungstenite::Message::Close(Some(normal)));
        // A client that does not take it is cut off.
        let _ = timeout(CLOSE_LIMIT, closing).await;
    }

    async fn put(&mut self, message: tungstenite::Message) -> Result<(), Closed> {
        match timeout(self.1.stall, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Closed),
        }
    }
}

impl Receiver {
    /// The client's next message; `None` once it has closed the connection, and got its close frame back, or
    /// violated the protocol.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        loop {
            // Before the message: a future that is dropped here loses none.
            self.1.step().await;
            match self.0.next().await? {
                Ok(tungstenite::Message::Binary(bytes)) => return Some(Message::Binary(bytes)),
                Ok(tungstenite::Message::Text(text)) => return Some(Message::Text(text.into())),
                Ok(tungstenite::Message::Close(_)) => {
                    // The library has the answer ready, and sends it when it is read from again.
                    let _ = timeout(CLOSE_LIMIT, self.0.next()).await;
                    return None;
                }
                Err(_) => return None,
                // Pings are answered by the library.
                Ok(_) => {}
            }
        }
    }
}
