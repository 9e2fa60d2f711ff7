//! Single requests to configured https URLs, such as identity providers and webhooks. Entry points:
//! [`Fetcher::get`] and [`Fetcher::post`].
//!
//! Failures are classified here as transient or permanent; sending is left to `http`.

use super::http::{HttpClient, HttpError, Limits};
use super::kubeconfig::ClientConfig;
use super::retry::{Retry, Retryable};
use crate::telemetry::clients::ClientRequestMetrics;
use bytes::Bytes;
use http::uri::Scheme;
use http::{Method, StatusCode, Uri, header};
use std::fmt;
use std::time::Duration;

/// Upper limit on the size of a response. Key sets, discovery documents and reviews take a few kilobytes. The
/// limit matters because unauthenticated callers can trigger as many concurrent requests to a webhook as they
/// have connections.
const MAX_RESPONSE: usize = 512 << 10;

/// Why a fetch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// One line.
    pub what: String,
    /// Whether a retry may help.
    pub transient: bool,
    /// The server's `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for FetchError {}

impl Retryable for FetchError {
    fn retry(&self) -> Retry {
        match self.retry_after {
            // First: Retry-After does not make a refusal worth repeating.
            _ if !self.transient => Retry::No,
            Some(seconds) => Retry::After(Duration::from_secs(seconds)),
            None => Retry::Backoff,
        }
    }
}

/// Sends requests with one set of trust anchors and credentials.
pub(crate) struct Fetcher {
    http: HttpClient,
    counts: Option<ClientRequestMetrics>,
}

fn permanent(what: impl fmt::Display) -> FetchError {
    FetchError {
        what: what.to_string(),
        transient: false,
        retry_after: None,
    }
}

fn transient(what: impl fmt::Display) -> FetchError {
    FetchError {
        transient: true,
        ..permanent(what)
    }
}

impl Fetcher {
    /// Trusts the CA certificates of `ca_pem`, or those of the system. A response must arrive within
    /// `timeout`.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub(crate) fn try_new(ca_pem: Option<&[u8]>, timeout: Duration) -> Result<Self, FetchError> {
        let config = ClientConfig {
            // A client without a server of its own: each request names its URL.
            server: String::new(),
            ca_pem: ca_pem.map(<[u8]>::to_vec),
            tls_server_name: None,
            client_identity: None,
            token: None,
            token_file: None,
        };
        Self::with(&config, timeout)
    }

    /// Uses the trust anchors and credentials of a kubeconfig.
    ///
    /// # Errors
    /// A certificate, key, token or name cannot be used.
    pub(crate) fn with(config: &ClientConfig, timeout: Duration) -> Result<Self, FetchError> {
        let limits = Limits {
            timeout,
            max_response: MAX_RESPONSE,
        };
        Ok(Self {
            http: HttpClient::try_new(config, limits).map_err(permanent)?,
            counts: None,
        })
    }

    /// Records the requests in these metrics.
    #[must_use]
    pub(crate) fn with_metrics(mut self, counts: ClientRequestMetrics) -> Self {
        self.counts = Some(counts);
        self
    }

    /// Sends a GET and returns the body.
    ///
    /// # Errors
    /// [`FetchError`], also for every status that is not a success.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn get(&self, url: &str) -> Result<Bytes, FetchError> {
        self.request(Method::GET, url, Bytes::new()).await
    }

    /// Sends a POST with a JSON body and returns the body of the response.
    ///
    /// # Errors
    /// [`FetchError`], also for every status that is not a success.
    ///
    /// # Cancel safety
    /// The server may have processed the request even if the future is dropped.
    pub(crate) async fn post(&self, url: &str, json: Vec<u8>) -> Result<Bytes, FetchError> {
        self.request(Method::POST, url, json.into()).await
    }

    async fn request(&self, method: Method, url: &str, body: Bytes) -> Result<Bytes, FetchError> {
        let uri: Uri = url.parse().map_err(|e| permanent(format!("{url}: {e}")))?;
        // The connector would refuse it, too, but its error would count as transient and be retried.
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Err(permanent(format!("{url}: not an https URL")));
        }
        let host = uri.authority().map_or_else(String::new, ToString::to_string);
        let response = self.http.send(method.clone(), uri, "application/json", body).await;
        if let Some(counts) = &self.counts {
            let status = match &response {
                Ok(response) => Some(response.status()),
                Err(HttpError::Body(status, _)) => Some(*status),
                Err(_) => None,
            };
            counts.sent(method.as_str(), &host, status.map(|s| s.as_u16()));
        }
        let response = response.map_err(|e| transient(format!("{url}: {e}")))?;
        let (status, retry_after) = (response.status(), response.headers().get(header::RETRY_AFTER));
        if status.is_success() {
            return Ok(response.into_body());
        }
        // Shortened: it ends up in logs, and may be an HTML page.
        let shown = String::from_utf8_lossy(&response.body()[..response.body().len().min(256)]);
        Err(FetchError {
            what: format!("{url}: {status}: {}", shown.trim()),
            transient: status.is_server_error() || (status == StatusCode::TOO_MANY_REQUESTS && retry_after.is_some()),
            // A date instead of seconds is ignored, as by client-go.
            retry_after: retry_after.and_then(|v| v.to_str().ok()?.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing;
    use crate::telemetry::Telemetry;

    #[tokio::test]
    async fn redirects_are_not_followed_and_every_request_is_counted() {
        let moved = "HTTP/1.1 302 Found\r\nLocation: https://localhost:1/\r\nContent-Length: 0\r\n\r\n";
        let server = testing::serve(|_, _| moved.to_owned()).await;
        let (ca, host) = (server.certificate, server.host);
        let telemetry = Telemetry::new();
        let fetcher = Fetcher::try_new(Some(ca.as_bytes()), Duration::from_secs(10)).unwrap();
        let fetcher = fetcher.with_metrics(telemetry.client_requests.clone());
        let refused = fetcher.get(&format!("https://{host}/keys")).await.unwrap_err();
        assert!(refused.what.contains("302") && !refused.transient, "{refused}");
        let unreachable = fetcher.get("https://localhost:1/keys").await.unwrap_err();
        assert!(unreachable.transient, "{unreachable}");
        let text = String::from_utf8(telemetry.text()).unwrap();
        for line in [
            format!("rest_client_requests_total{{code=\"302\",host=\"{host}\",method=\"GET\"}} 1"),
            "rest_client_requests_total{code=\"<error>\",host=\"localhost:1\",method=\"GET\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
