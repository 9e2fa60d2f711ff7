//! Metrics of requests that this gateway makes itself: webhooks, probes, and discovery and OpenAPI of
//! backends. Proxied requests are not included.

use super::counters;
use crate::sync::Mutex;
use prometheus::{IntCounter, IntCounterVec, Registry};
use std::collections::HashMap;
use std::sync::Arc;

/// Hosts per generation. Pods and APIServices come and go, and backends' addresses with them.
const MAX_HOSTS: usize = 512;
/// Series per host; backends choose their status codes. Further ones are counted as `other`.
const MAX_SERIES: usize = 32;
const OTHER: &str = "other";

/// `rest_client_requests_total{code,host,method}`. Hosts that are no longer used lose their series.
#[derive(Clone, Debug)]
pub struct ClientRequestMetrics {
    requests: IntCounterVec,
    hosts: Arc<Mutex<Hosts>>,
}

/// The series of one host: codes and methods.
type HostSeries = Vec<(String, String)>;

/// The hosts that have series, in two generations: when as many as the limit have been used since the last time, those
/// that have not are forgotten.
#[derive(Debug, Default)]
struct Hosts {
    used: HashMap<String, HostSeries>,
    before: HashMap<String, HostSeries>,
}

impl ClientRequestMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            requests: counters(
                registry,
                "rest_client_requests_total",
                "Requests that this server made itself, by status code, method and host.",
                &["code", "host", "method"],
            ),
            hosts: Arc::default(),
        }
    }

    /// Records a request; `code` is `None` if there was no response.
    pub fn sent(&self, method: &str, host: &str, code: Option<u16>) {
        let code = code.map_or_else(|| "<error>".to_owned(), |c| c.to_string());
        self.series(&code, host, method).inc();
    }

    /// Creates the series of a host at zero, so that it is present before the first request.
    pub fn expect(&self, host: &str) {
        self.series("200", host, "GET");
    }

    fn series(&self, code: &str, host: &str, method: &str) -> IntCounter {
        // Held to the end: a series that is created after its host was forgotten would never be removed.
        let mut hosts = self.hosts.lock();
        if !hosts.used.contains_key(host) {
            if hosts.used.len() >= MAX_HOSTS {
                let used = std::mem::take(&mut hosts.used);
                for (host, series) in std::mem::replace(&mut hosts.before, used) {
                    for (code, method) in series {
                        // Cannot fail: every recorded series was created.
                        let _ = self.requests.remove_label_values(&[&code, &host, &method]);
                    }
                }
            }
            // A host of the previous generation moves to this one, and its series survive.
            let known = hosts.before.remove(host).unwrap_or_default();
            hosts.used.insert(host.to_owned(), known);
        }
        let all = hosts.used.entry(host.to_owned()).or_default();
        let is_known = |code: &str, all: &HostSeries| all.iter().any(|(c, m)| c == code && m == method);
        let code = match is_known(code, all) || all.len() < MAX_SERIES {
            // `other` itself may exceed the limit, by one series per method.
            true => code,
            false => OTHER,
        };
        if !is_known(code, all) {
            all.push((code.to_owned(), method.to_owned()));
        }
        self.requests.with_label_values(&[code, host, method])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn series_are_bounded_by_the_hosts_in_use() {
        let t = Telemetry::new();
        for i in 0..5 * MAX_HOSTS {
            t.client_requests.sent("GET", &format!("pod{i}:1"), Some(200));
            t.client_requests.sent("GET", "busy:1", Some(200));
        }
        for code in 100..1000 {
            t.client_requests.sent("GET", "odd:1", Some(code));
        }
        let text = String::from_utf8(t.text()).unwrap();
        let series = |host: &str| text.lines().filter(|l| l.contains(host)).count();
        assert!(series("host=\"pod") <= 2 * MAX_HOSTS, "{}", series("host=\"pod"));
        let busy = format!("host=\"busy:1\",method=\"GET\"}} {}", 5 * MAX_HOSTS);
        assert!(text.contains(&busy), "a host in use keeps its count");
        assert_eq!(series("host=\"odd:1\""), MAX_SERIES + 1);
    }

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
