//! Open-loop load at a constant rate: requests do not wait for earlier ones, so the latencies are those that
//! users see.

use crate::client::{Target, exchange};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// One request.
pub(super) struct Sample {
    pub(super) path: String,
    pub(super) began: Instant,
    pub(super) took: Duration,
    /// The status and the body, or the error.
    pub(super) outcome: Result<(StatusCode, Bytes), String>,
}

/// A stop flag shared by all workers.
pub(super) type Stop = Arc<AtomicBool>;

/// Starts `workers` connections, each of which requests a path every `every`, until `stop`.
pub(super) fn start(
    target: &Target,
    workers: usize,
    every: Duration,
    stop: &Stop,
    make: impl Fn(u64) -> String + Send + Sync + 'static,
) -> JoinSet<Vec<Sample>> {
    let make = Arc::new(make);
    let mut all = JoinSet::new();
    for worker in 0..workers {
        let (target, stop, make) = (target.clone(), stop.clone(), make.clone());
        all.spawn(async move {
            let mut samples = Vec::new();
            // Spread the workers over the interval.
            tokio::time::sleep(every * worker as u32 / workers as u32).await;
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            let mut sender = None;
            let mut n = worker as u64;
            while !stop.load(Ordering::Relaxed) {
                ticks.tick().await;
                let path = make(n);
                n += workers as u64;
                let began = Instant::now();
                let asking = async {
                    if sender.is_none() {
                        sender = Some(target.connect().await?);
                    }
                    let Some(open) = &mut sender else {
                        return Err("no connection".to_owned());
                    };
                    exchange(open, target.request(Method::GET, &path, Bytes::new())).await
                };
                let limit = Duration::from_secs(65);
                let outcome = tokio::time::timeout(limit, asking).await;
                let outcome = outcome.unwrap_or_else(|_| Err("no answer".to_owned()));
                if outcome.is_err() {
                    sender = None;
                }
                samples.push(Sample {
                    path,
                    began,
                    took: began.elapsed(),
                    outcome,
                });
            }
            samples
        });
    }
    all
}

/// The samples of all workers.
pub(super) async fn collect(all: JoinSet<Vec<Sample>>) -> Vec<Sample> {
    let mut samples: Vec<Sample> = all.join_all().await.into_iter().flatten().collect();
    samples.sort_by_key(|s| s.began);
    samples
}

/// A percentile of the latencies of 2xx responses, in milliseconds, and the number of other outcomes.
pub(super) fn percentile(samples: &[Sample], p: f64) -> (f64, usize) {
    let good = |s: &&Sample| matches!(&s.outcome, Ok((status, _)) if status.is_success());
    let mut times: Vec<f64> = samples
        .iter()
        .filter(good)
        .map(|s| s.took.as_secs_f64() * 1e3)
        .collect();
    times.sort_by(f64::total_cmp);
    let at = ((times.len() as f64 * p) as usize).min(times.len().saturating_sub(1));
    (times.get(at).copied().unwrap_or(f64::NAN), samples.len() - times.len())
}
