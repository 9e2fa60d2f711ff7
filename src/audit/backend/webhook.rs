//! The webhook sink: posts events as EventLists and retries transient errors with exponential backoff.

use super::{Sink, WriteOutcome};
use crate::audit::event::Event;
use crate::client::retry::retry;
use crate::client::{ClientConfig, FetchError, Fetcher};
use crate::tasks::Backoff;
use crate::telemetry::audit::AuditMetrics;
use crate::telemetry::clients::ClientRequestMetrics;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of one attempt. A server that never answers would otherwise hold a slot of the batch worker forever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Posts JSON to one destination. A trait so that tests can inject failures.
#[async_trait]
pub(crate) trait Post: Send + Sync + 'static {
    /// Sends once; the caller retries.
    async fn post(&self, json: Vec<u8>) -> Result<(), FetchError>;
}

struct ToUrl {
    fetcher: Fetcher,
    url: String,
}

#[async_trait]
impl Post for ToUrl {
    async fn post(&self, json: Vec<u8>) -> Result<(), FetchError> {
        self.fetcher.post(&self.url, json).await.map(drop)
    }
}

/// The webhook sink. It sends from the caller's task, so it needs no queue of its own.
pub(crate) struct Webhook {
    to: Box<dyn Post>,
    initial_backoff: Duration,
    metrics: AuditMetrics,
}

impl Webhook {
    /// Posts to the server of a kubeconfig. `initial_backoff` is the delay before the first retry.
    ///
    /// # Errors
    /// If the client configuration cannot be used.
    pub(crate) fn try_new(
        config: &ClientConfig,
        initial_backoff: Duration,
        metrics: AuditMetrics,
        counts: ClientRequestMetrics,
    ) -> Result<Self, FetchError> {
        let fetcher = Fetcher::with(config, REQUEST_TIMEOUT)?.with_metrics(counts);
        let url = config.server.clone();
        Ok(Self::to(Box::new(ToUrl { fetcher, url }), initial_backoff, metrics))
    }

    /// Posts to the given destination.
    pub(crate) fn to(to: Box<dyn Post>, initial_backoff: Duration, metrics: AuditMetrics) -> Self {
        Self {
            to,
            initial_backoff,
            metrics,
        }
    }

    async fn send(&self, events: &[Arc<Event>]) -> Result<(), FetchError> {
        let list = list(events);
        let backoff = Backoff {
            base: self.initial_backoff,
            ..Backoff::WEBHOOK
        };
        // Encoded once for all attempts; an attempt consumes its copy.
        retry(backoff, || self.to.post(list.clone())).await
    }
}

fn list(events: &[Arc<Event>]) -> Vec<u8> {
    // By hand: each event writes its own members in upstream's order, without a tree.
    let mut out = format!(
        "{{\"kind\":\"EventList\",\"apiVersion\":\"{}\",\"metadata\":{{}},\"items\":[",
        crate::audit::API_VERSION
    )
    .into_bytes();
    for (i, event) in events.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend(event.encode(false));
    }
    out.extend_from_slice(b"]}");
    out
}

impl Sink for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> WriteOutcome {
        WriteOutcome::Work(Box::pin(async move {
            let done = self.send(&events).await;
            if let Err(error) = &done {
                tracing::error!(events = events.len(), "the audit webhook failed: {error}");
                self.metrics.failed("webhook", events.len());
            }
            done.is_ok()
        }))
    }
}
