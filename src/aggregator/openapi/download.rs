//! Downloads the OpenAPI v3 indices of backends: at once after registration and after every change, every minute after
//! success, with a growing pause after failure. The last good index stays.
//!
//! Upstream waits for a second before the first download. Who applies an object as soon as the APIService is Available
//! would then be checked against a document without its kind, so we start when the first probe does.

use super::{ROOT, RemoteIndices};
use crate::aggregator::apiservice::ApiService;
use crate::aggregator::internal::{self, OPENAPI};
use crate::aggregator::resolver::ServiceResolver;
use crate::aggregator::transports::Transports;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Str, Value};
use crate::client::Informer;
use crate::tasks::{Backoff, TaskGroup, WorkQueue};
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;

/// So that one slow backend does not hold up another's download.
const WORKERS: usize = 16;
const PERIOD: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(60),
    max: Duration::from_secs(3600),
};

/// The downloader.
pub struct Downloader {
    informer: Informer<ApiService>,
    resolver: Arc<dyn ServiceResolver>,
    transports: Arc<Transports>,
    indices: Arc<RemoteIndices>,
    queue: WorkQueue<Str>,
}

impl Downloader {
    /// A downloader that takes note of changes and does not download yet.
    pub fn new(
        informer: Informer<ApiService>,
        resolver: Arc<dyn ServiceResolver>,
        transports: Arc<Transports>,
        indices: Arc<RemoteIndices>,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let d = Arc::new(Self {
            informer: informer.clone(),
            resolver,
            transports,
            indices,
            queue: WorkQueue::new(BACKOFF, telemetry.queue("open_api_v3_aggregation_controller")),
        });
        let me = d.clone();
        informer.subscribe(move |change| match change.new {
            None => me.indices.set(&change.key.into(), None),
            Some(new) if new.service.is_some() => {
                let name: Str = change.key.into();
                me.queue.forget(&name);
                me.queue.add(name);
            }
            Some(_) => {}
        });
        d
    }

    /// Starts downloading, in `tasks`.
    pub fn start(self: &Arc<Self>, tasks: &TaskGroup) {
        for _ in 0..WORKERS {
            let me = self.clone();
            tasks.spawn("openapi worker", async move {
                while let Some(name) = me.queue.next().await {
                    match me.sync(&name).await {
                        Ok(true) => {
                            me.queue.forget(&name);
                            me.queue.add_after(name.clone(), PERIOD);
                        }
                        Ok(false) => me.queue.forget(&name),
                        Err(why) => {
                            tracing::debug!(%name, "downloading OpenAPI failed: {why}");
                            me.queue.add_rate_limited(name.clone());
                        }
                    }
                    me.queue.done(&name);
                }
            });
        }
        let (queue, stop) = (self.queue.clone(), tasks.stop_signal().clone());
        tasks.spawn("openapi queue", async move {
            stop.wait().await;
            queue.shut_down();
        });
    }

    async fn sync(&self, name: &Str) -> Result<bool, String> {
        let Some(s) = self.informer.get(name) else {
            return Ok(false);
        };
        let Some(service) = &s.service else {
            return Ok(false);
        };
        // Where nobody has probed it yet, we find out ourselves.
        if s.available.is_some() && !s.is_available() {
            return Err("the service is unavailable".into());
        }
        let transport = self.transports.of(&s)?;
        let answer = internal::get(&transport, &*self.resolver, service, ROOT, OPENAPI, &[], LIMIT).await?;
        if answer.status != 200 {
            return Err(format!("{} on {ROOT}", answer.status));
        }
        let document = json::decode(&answer.body)?;
        let paths = document.get("paths").as_object().cloned().unwrap_or_default();
        // What is not a pointer to a document is left out: clients follow these.
        let mut paths = paths;
        paths.retain(|_, v: &mut Value| v.get("serverRelativeURL").as_str().is_some());
        if self.informer.get(name).is_some() {
            self.indices.set(name, Some(paths));
        }
        Ok(true)
    }
}
