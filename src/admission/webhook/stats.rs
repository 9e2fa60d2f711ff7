//! Statistics of the calls of each webhook, for `/debug/admission` and `torana status`.

use super::config::{FailurePolicy, Hook};
use super::failure::Failure;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::client::webhook::Webhook;
use crate::json;
use crate::sync::Mutex;
use crate::telemetry::{Latencies, short_duration};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum length of a failure's message in characters. It comes from the webhook.
const TEXT: usize = 1024;

/// The calls of one webhook since the server started. Survives changes of its configuration.
#[derive(Default)]
pub(super) struct Stats {
    latencies: Latencies,
    admitted: AtomicU64,
    refused: AtomicU64,
    failed_open: AtomicU64,
    failed_closed: AtomicU64,
    /// Start of the present series of failures, and the message of the last one; `None` after a success.
    failing: Mutex<Option<(String, String)>>,
}

impl Stats {
    /// Records a call of `hook`.
    pub(crate) fn record<T>(&self, hook: &Hook, took: Duration, outcome: &Result<T, Failure>) {
        self.latencies.count(took);
        let counter = match outcome {
            Ok(_) => &self.admitted,
            Err(Failure::Denied(_) | Failure::Internal(_)) => &self.refused,
            Err(Failure::Call { .. }) => match hook.failure_policy {
                FailurePolicy::Ignore => &self.failed_open,
                FailurePolicy::Fail => &self.failed_closed,
            },
        };
        // The counters are independent of each other; a status page may be off by the calls in progress.
        counter.fetch_add(1, Ordering::Relaxed);
        let mut failing = self.failing.lock();
        *failing = match outcome {
            Err(Failure::Call { why, .. }) => {
                // The start of the series is kept, the message is that of the latest failure.
                let since = failing.take().map_or_else(time::now, |(since, _)| since);
                Some((since, why.chars().take(TEXT).collect()))
            }
            // A refusal is an answer, so the webhook works.
            _ => None,
        };
    }

    /// The entry of `hook` in the status document. `connection` is `None` until the first call.
    pub(crate) fn document(&self, hook: &Hook, connection: Option<&Webhook>) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = [&self.admitted, &self.refused, &self.failed_open, &self.failed_closed].map(count);
        let mut v = json!({
            "name": (hook.name.as_str()),
            "configuration": (hook.configuration.as_str()),
            "failurePolicy": (match hook.failure_policy { FailurePolicy::Fail => "Fail", FailurePolicy::Ignore => "Ignore" }),
            "calls": (counts.iter().sum::<u64>()),
            "refused": (counts[1]),
            "failedOpen": (counts[2]),
            "failedClosed": (counts[3]),
        });
        if let Ok(client) = &hook.client {
            v.set(&["url"], client.target.url());
        }
        if let Some(connection) = connection {
            v.set(&["connection"], connection.status());
        }
        if let Some([p50, _, p99]) = self.latencies.percentiles() {
            v.set(&["latency", "p50"], short_duration(p50));
            v.set(&["latency", "p99"], short_duration(p99));
        }
        let failing = self.failing.lock().clone();
        if let Some((since, why)) = failing {
            v.set(&["hint"], hint(&why));
            v.set(&["failingSince"], since);
            v.set(&["message"], why);
        }
        v
    }
}

/// A hint at the likely cause.
fn hint(why: &str) -> &'static str {
    let known = [
        (
            "connection refused",
            "nothing listens at its address: are its pods running?",
        ),
        ("no endpoints available", "its Service has no ready pods"),
        (
            "no service port",
            "its Service does not have the port of clientConfig.service.port",
        ),
        ("not found", "its Service does not exist"),
        (
            "x509",
            "its certificate cannot be verified: compare caBundle and the names in the certificate",
        ),
        ("unable to load root certificates", "caBundle has no certificate"),
        (
            "deadline exceeded",
            "it does not answer in time: look at its load and at timeoutSeconds",
        ),
        (
            "too many calls",
            "it is too slow for the number of requests that it has to judge",
        ),
        ("invalid webhook response", "it returns an invalid review"),
    ];
    // In order: "not found" also occurs in other messages, so more specific parts come first.
    let found = known.iter().find(|(part, _)| why.contains(part));
    found.map_or("look at its log", |(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::webhook::config::Configuration;

    #[test]
    fn failures_last_until_a_call_succeeds() {
        let configuration =
            json!({"metadata": {"name": "c"}, "webhooks": [{"name": "h.x.io", "failurePolicy": "Ignore"}]});
        let hook = Configuration::parse(&configuration).hooks.remove(0);
        let stats = Stats::default();
        let failed = |why: &str| Err::<(), _>(Failure::unusable(why.to_owned()));
        stats.record(&hook, Duration::from_millis(3), &failed("dial tcp: connection refused"));
        stats.record(&hook, Duration::from_millis(3), &failed("context deadline exceeded"));
        let shown = stats.document(&hook, None);
        assert_eq!(shown.get("failedOpen").as_i64(), Some(2));
        assert_eq!(shown.str_at(&["message"]), "context deadline exceeded");
        assert!(shown.str_at(&["hint"]).starts_with("it does not answer in time"));
        stats.record(&hook, Duration::from_millis(1), &Ok(()));
        let shown = stats.document(&hook, None);
        assert_eq!((shown.get("calls").as_i64(), shown.str_at(&["message"])), (Some(3), ""));
        assert!(!shown.str_at(&["latency", "p99"]).is_empty());
    }
}
