//! A minimal gRPC client for KMS plugins on a Unix socket: [`call`]. Calls are rare (a status check every 20 seconds,
//! now and then a key), so each opens its own connection and no reconnect logic is needed.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// Names of the gRPC status codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
/// Maximum response size, in bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Connects to a socket; `/@name` is an abstract socket.
async fn connect(socket: &str) -> std::io::Result<UnixStream> {
    let Some(name) = socket.strip_prefix("/@") else {
        return UnixStream::connect(Path::new(socket)).await;
    };
    let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Calls `/v2.KeyManagementService/<method>`.
///
/// # Errors
/// An error formatted as Go's gRPC client prints it.
///
/// # Cancel safety
/// Not cancel safe: the plugin may or may not have received the request.
pub(super) async fn call(socket: &str, method: &str, message: &[u8], timeout: Duration) -> Result<Bytes, String> {
    match tokio::time::timeout(timeout, exchange(socket, method, message)).await {
        Ok(answer) => answer,
        Err(_) => Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()),
    }
}

fn unavailable(e: impl std::fmt::Display) -> String {
    format!("rpc error: code = Unavailable desc = {e}")
}

async fn exchange(socket: &str, method: &str, message: &[u8]) -> Result<Bytes, String> {
    let stream = connect(socket).await;
    let stream = stream.map_err(|e| unavailable(format_args!("connection error: dial unix {socket}: {e}")))?;
    let (sender, connection) = h2::client::handshake(stream).await.map_err(unavailable)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost/v2.KeyManagementService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(unavailable)?;
    let mut body = BytesMut::with_capacity(message.len() + 5);
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).map_err(unavailable)?);
    body.put_slice(message);
    let talk = async {
        let mut sender = sender.ready().await.map_err(unavailable)?;
        let (answer, mut send) = sender.send_request(request, false).map_err(unavailable)?;
        send.send_data(body.freeze(), true).map_err(unavailable)?;
        let (head, mut received) = answer.await.map_err(unavailable)?.into_parts();
        let mut data = BytesMut::new();
        while let Some(chunk) = received.data().await {
            let chunk = chunk.map_err(unavailable)?;
            // Fails only if the stream has ended, when flow control no longer matters.
            let _ = received.flow_control().release_capacity(chunk.len());
            data.extend_from_slice(&chunk);
            if data.len() > MAX_MESSAGE_BYTES {
                return Err("rpc error: code = ResourceExhausted desc = the answer is too long".to_owned());
            }
        }
        let trailers = received.trailers().await.map_err(unavailable)?;
        let end = trailers.unwrap_or(head.headers);
        status(&end)?;
        let length = data.get(1..5).and_then(|l| l.try_into().ok()).map(u32::from_be_bytes);
        let length = length.and_then(|l| usize::try_from(l).ok()).unwrap_or(0);
        let data = data.freeze();
        if data.first() != Some(&0) || data.len() != length + 5 {
            return Err("rpc error: code = Internal desc = the answer is no message".to_owned());
        }
        Ok(data.slice(5..))
    };
    let mut talk = std::pin::pin!(talk);
    // The exchange is polled first: once it has its response, the connection does not matter.
    tokio::select! {
        biased;
        answer = &mut talk => answer,
        // The connection has ended; data received before that can still be read.
        _ = connection => talk.await,
    }
}

fn status(end: &HeaderMap) -> Result<(), String> {
    let text = |name| end.get(name).and_then(|v| v.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        code => {
            let message = text("grpc-message").unwrap_or_default();
            let number = code.and_then(|c| c.parse::<usize>().ok());
            let name = number.and_then(|n| CODES.get(n)).unwrap_or(&"Unknown");
            Err(format!("rpc error: code = {name} desc = {message}"))
        }
    }
}
