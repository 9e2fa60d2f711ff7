//! Events as EventLists, posted to somebody else; what may help is tried again, with growing pauses.

use super::{Sink, Write};
use crate::audit::event::Event;
use crate::client::{ClientConfig, FetchError, Fetcher};
use crate::telemetry::audit::AuditMetrics;
use crate::telemetry::clients::ClientRequestMetrics;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Tries, in all.
const TRIES: u32 = 5;

/// Posts JSON.
#[async_trait]
pub trait Post: Send + Sync + 'static {
    /// Once.
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

/// The sink.
pub struct Webhook {
    to: Box<dyn Post>,
    initial_backoff: Duration,
    metrics: AuditMetrics,
}

impl Webhook {
    /// The server of a kubeconfig; the first pause between tries is `initial_backoff`.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn try_new(
        config: &ClientConfig,
        initial_backoff: Duration,
        metrics: AuditMetrics,
        counts: ClientRequestMetrics,
    ) -> Result<Self, String> {
        let fetcher = Fetcher::with(config, PATIENCE).map_err(|e| e.what)?.counting(counts);
        let url = config.server.clone();
        Ok(Self::to(Box::new(ToUrl { fetcher, url }), initial_backoff, metrics))
    }

    /// Somebody who takes JSON.
    pub fn to(to: Box<dyn Post>, initial_backoff: Duration, metrics: AuditMetrics) -> Self {
        Self {
            to,
            initial_backoff,
            metrics,
        }
    }

    async fn send(&self, events: &[Arc<Event>]) -> Result<(), FetchError> {
        let list = list(events);
        let mut wait = self.initial_backoff;
        for _ in 1..TRIES {
            match self.to.post(list.clone()).await {
                Err(error) if error.transient => {
                    let pause = error.retry_after.map_or_else(|| jittered(wait), Duration::from_secs);
                    tracing::debug!(?pause, "the audit webhook is tried again: {error}");
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
            wait += wait / 2;
        }
        self.to.post(list).await
    }
}

/// Up to a fifth longer, so that servers that failed together do not come back together.
fn jittered(wait: Duration) -> Duration {
    let mut byte = [0u8];
    // Without a random number the pauses are merely alike.
    let _ = aws_lc_rs::rand::fill(&mut byte);
    wait + wait / 5 * u32::from(byte[0]) / 255
}

fn list(events: &[Arc<Event>]) -> Vec<u8> {
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

    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> Write {
        Write::Work(Box::pin(async move {
            let done = self.send(&events).await;
            if let Err(error) = &done {
                tracing::error!(events = events.len(), "the audit webhook failed: {error}");
                self.metrics.failed("webhook", events.len());
            }
            done.is_ok()
        }))
    }
}
