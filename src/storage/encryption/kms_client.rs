//! The generated gRPC client of a KMS plugin, on the plugin's Unix socket: [`connect`]. Errors are formatted
//! as Go's client prints them, since they appear in health checks and metrics.

use crate::storage::kms_error::KmsError;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use api::key_management_service_client::KeyManagementServiceClient;
pub(super) use api::{DecryptRequest, EncryptRequest, StatusRequest};

#[expect(unreachable_pub, reason = "the generator writes `pub`")]
mod api {
    tonic::include_proto!("v2");
}

/// A client of one plugin. Clones share its connection, which is opened on first use and again after it is
/// lost.
pub(super) type Client = KeyManagementServiceClient<Channel>;

/// A client of the plugin at `socket`; `/@name` is an abstract socket. Call it within the runtime that will
/// use it.
pub(super) fn connect(socket: &str) -> Client {
    let socket: Arc<str> = socket.into();
    // Cloned per connection: the connector reconnects after every loss.
    let connector = tower::service_fn(move |_: http::Uri| {
        let socket = socket.clone();
        async move {
            let stream = open(&socket).await;
            let failed = |e| io::Error::other(format!("connection error: dial unix {socket}: {e}"));
            stream.map(TokioIo::new).map_err(failed)
        }
    });
    // The host is only the authority of the requests, which Go's client calls by this name as well.
    let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
    KeyManagementServiceClient::new(channel)
}

async fn open(socket: &str) -> io::Result<UnixStream> {
    let Some(name) = socket.strip_prefix("/@") else {
        return UnixStream::connect(Path::new(socket)).await;
    };
    let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    // Tokio requires it.
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// The message of a response that arrives within `timeout`.
///
/// # Errors
/// [`KmsError::Rpc`]
///
/// # Cancel safety
/// Not cancel safe: the plugin may or may not have received the request.
pub(super) async fn message<T>(
    timeout: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, KmsError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(error(&status)),
        // Worded as Go's context error.
        Err(_) => Err(rpc_error(Code::DeadlineExceeded, "context deadline exceeded")),
    }
}

fn error(status: &Status) -> KmsError {
    let Some(mut cause) = status.source() else {
        return rpc_error(status.code(), status.message());
    };
    // The plugin did not send this status: the connection failed.
    while let Some(source) = cause.source() {
        cause = source;
    }
    // tonic reports a failed connection as Unknown, Go as Unavailable.
    let code = match status.code() {
        Code::Unknown => Code::Unavailable,
        code => code,
    };
    rpc_error(code, cause)
}

fn rpc_error(code: Code, description: impl ToString) -> KmsError {
    let code = match code {
        Code::Cancelled => "Canceled".to_owned(),
        // The variants have the names of Go's constants.
        code => format!("{code:?}"),
    };
    KmsError::Rpc {
        code,
        description: description.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_are_formatted_as_in_go() {
        let mut client = connect("/nowhere/kms");
        let refused = message(Duration::from_secs(10), client.status(StatusRequest {})).await;
        let late = message::<()>(Duration::ZERO, std::future::pending()).await;
        for (error, text) in [
            (
                refused.unwrap_err(),
                "rpc error: code = Unavailable desc = connection error: dial unix /nowhere/kms: No such file or \
                 directory (os error 2)",
            ),
            (
                late.unwrap_err(),
                "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            ),
            (
                error(&Status::cancelled("gone")),
                "rpc error: code = Canceled desc = gone",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
