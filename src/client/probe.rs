//! Health probe of a component on this machine, as upstream's component statuses use it: HTTPS without
//! verification of the certificate, one GET. Entry point: [`https`].

use super::http::{HttpClient, HttpError, Limits, root_cause};
use crate::proxy::verify::{AnyServer, Verifier};
use bytes::Bytes;
use http::{Method, Uri};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Upper limit on the size of a response.
const MAX_RESPONSE: usize = 10 << 10;

/// Why a component does not count as healthy. Messages as Go's client and upstream's prober word them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// There was no response.
    #[error("Get {url:?}: {why}")]
    Request {
        /// The URL of the probe.
        url: String,
        /// In the wording of Go's client.
        why: String,
    },
    /// The response has another code.
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
}

/// Returns the body of a 2xx or 3xx response at `path`. Gives up after 20 seconds.
///
/// # Errors
/// [`ProbeError`].
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn https(address: SocketAddr, path: &str) -> Result<String, ProbeError> {
    let url = format!("https://{address}{path}");
    let failed = |why: &dyn std::fmt::Display| ProbeError::Request {
        url: url.clone(),
        why: why.to_string(),
    };
    let uri: Uri = url.parse().map_err(|e| failed(&e))?;
    // New for each probe, as upstream disables keep-alive: a connection kept from an earlier probe would not
    // show that the port is closed by now.
    let client = client().map_err(|e| failed(&e))?;
    let response = client.send(Method::GET, uri, "", Bytes::new()).await;
    let response = response.map_err(|e| failed(&go_text(address, &e)))?;
    match response.status() {
        // A redirect counts as healthy and is not followed: upstream's prober reports it as a warning at
        // most.
        status if status.is_success() || status.is_redirection() => {
            Ok(String::from_utf8_lossy(response.body()).into_owned())
        }
        status => Err(ProbeError::Status(status.as_u16())),
    }
}

fn client() -> Result<HttpClient, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        // Unverified: the result is only displayed and decides nothing.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier {
            verdict: AnyServer,
            provider,
        }))
        .with_no_client_auth();
    let limits = Limits {
        timeout: TIMEOUT,
        max_response: MAX_RESPONSE,
    };
    Ok(HttpClient::with_tls(tls, None, limits))
}

fn go_text(address: SocketAddr, error: &HttpError) -> String {
    if let HttpError::Timeout(_) = error {
        return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned();
    }
    let cause = root_cause(error).downcast_ref::<io::Error>();
    match cause.map(io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => format!("dial tcp {address}: connect: connection refused"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::DEAD;

    #[tokio::test]
    async fn a_refused_connection_reads_as_gos_error() {
        assert_eq!(
            https(DEAD, "/healthz").await.map_err(|e| e.to_string()),
            Err(format!(
                "Get \"https://{DEAD}/healthz\": dial tcp {DEAD}: connect: connection refused"
            ))
        );
    }
}
