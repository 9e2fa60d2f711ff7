//! Metrics of requests that this gateway makes itself: webhooks, probes, and discovery and OpenAPI of
//! backends. Proxied requests are not included.

use super::counters;
use prometheus::{IntCounterVec, Registry};

/// `rest_client_requests_total{code,host,method}`.
#[derive(Clone, Debug)]
pub struct ClientRequestMetrics(IntCounterVec);

impl ClientRequestMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self(counters(
            registry,
            "rest_client_requests_total",
            "Requests that this server made itself, by status code, method and host.",
            &["code", "host", "method"],
        ))
    }

    /// Records a request; `code` is `None` if there was no response.
    pub fn sent(&self, method: &str, host: &str, code: Option<u16>) {
        let code = code.map_or_else(|| "<error>".to_owned(), |c| c.to_string());
        self.0.with_label_values(&[code.as_str(), host, method]).inc();
    }

    /// Creates the series of a host at zero, so that it is present before the first request.
    pub fn expect(&self, host: &str) {
        self.0.with_label_values(&["200", host, "GET"]);
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::Telemetry;

    #[test]
    fn requests_are_counted_by_status_code() {
        let t = Telemetry::new();
        t.client_requests.expect("a:1");
        t.client_requests.sent("GET", "b:1", Some(503));
        t.client_requests.sent("POST", "b:1", None);
        let text = String::from_utf8(t.text()).unwrap();
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"a:1\",method=\"GET\"} 0",
            "rest_client_requests_total{code=\"503\",host=\"b:1\",method=\"GET\"} 1",
            "rest_client_requests_total{code=\"<error>\",host=\"b:1\",method=\"POST\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
