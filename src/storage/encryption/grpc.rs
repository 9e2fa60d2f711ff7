//! One gRPC call to a plugin on a Unix socket. Calls are rare (a status each minute, a key now and then), so each has a
//! connection of its own, which is all there is to reconnecting.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// gRPC's names of outcomes, by number.
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
/// Longest answer of a plugin.
const LONGEST: usize = 4 << 20;

/// Connects; `/@name` is an abstract socket.
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
/// In gRPC's words, as Go prints them.
///
/// # Cancel safety
/// The plugin may or may not have seen the request.
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
            // The window is the whole stream's: giving it back cannot fail while the stream lives.
            let _ = received.flow_control().release_capacity(chunk.len());
            data.extend_from_slice(&chunk);
            if data.len() > LONGEST {
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
    // The exchange first: once it has its answer, the connection is of no interest.
    tokio::select! {
        biased;
        answer = &mut talk => answer,
        // What had come by then is there to be read.
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
