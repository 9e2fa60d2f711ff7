//! Health probe of a component on this machine, as upstream's component statuses use it: HTTPS without verification of
//! the certificate, one GET. Entry point: [`https`].

use super::verify::{AnyServer, Verifier};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Upper limit on the size of a response.
const MAX_RESPONSE: usize = 10 << 10;

/// Returns the body of a 2xx or 3xx response at `path`. Gives up after 20 seconds.
///
/// # Errors
/// The transport error in the wording of Go's client, or the code of any other response.
///
/// # Cancel safety
/// Cancel safe.
pub async fn https(address: SocketAddr, path: &str) -> Result<String, String> {
    let asked = format!("Get \"https://{address}{path}\"");
    match tokio::time::timeout(TIMEOUT, ask(address, path)).await {
        Err(_) => Err(format!(
            "{asked}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
        Ok(Err(Refusal::Transport(why))) => Err(format!("{asked}: {why}")),
        Ok(Err(Refusal::Answer(code))) => Err(format!("HTTP probe failed with statuscode: {code}")),
        Ok(Ok(body)) => Ok(body),
    }
}

enum Refusal {
    Transport(String),
    Answer(u16),
}

fn lost(e: impl std::fmt::Display) -> Refusal {
    Refusal::Transport(e.to_string())
}

async fn ask(address: SocketAddr, path: &str) -> Result<String, Refusal> {
    let tcp = TcpStream::connect(address).await.map_err(|e| {
        let why = match e.kind() {
            ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => e.to_string(),
        };
        lost(format!("dial tcp {address}: connect: {why}"))
    })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(lost)?
        // Unverified: the result is only displayed and decides nothing.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier {
            verdict: AnyServer,
            provider,
        }))
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
    let tls = connector.connect(address.ip().into(), tcp).await.map_err(lost)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
        .await
        .map_err(lost)?;
    let request = http::Request::get(path)
        .header(http::header::HOST, address.to_string())
        .body(Empty::<bytes::Bytes>::new())
        .map_err(lost)?;
    let response = async {
        let response = sender.send_request(request).await.map_err(lost)?;
        let well = response.status().is_success() || response.status().is_redirection();
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_RESPONSE)
            .collect()
            .await
            .map_err(lost)?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if well { Ok(body) } else { Err(Refusal::Answer(code)) }
    };
    // The response may be complete when the connection ends; a premature end shows as an error of the response.
    tokio::pin!(response);
    tokio::select! {
        biased;
        response = &mut response => response,
        _ = connection => response.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_connection_reads_as_gos_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(
            https(address, "/healthz").await,
            Err(format!(
                "Get \"https://{address}/healthz\": dial tcp {address}: connect: connection refused"
            ))
        );
    }
}
