//! The clients of a flood: they keep requests in flight, and count the outcomes.

use super::{Flood, OBJECTS};
use crate::aggregation::paced::Stop;
use crate::client::{Sender, Target, exchange, explained};
use crate::gateway::config_map;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// Requests in flight per connection.
const STREAMS: usize = 100;

/// The outcomes of the flood's requests.
#[derive(Default)]
pub(super) struct Answers {
    served: AtomicU64,
    /// Responses with 429.
    refused: AtomicU64,
    /// Everything else, by its code or error.
    failed: Mutex<BTreeMap<String, u64>>,
}

impl Answers {
    fn count(&self, outcome: &Result<u16, String>) {
        let add = |n: &AtomicU64| {
            n.fetch_add(1, Ordering::Relaxed);
        };
        let failure = match outcome {
            Ok(429) => return add(&self.refused),
            Ok(status) if *status < 300 => return add(&self.served),
            Ok(status) => format!("status {status}"),
            Err(e) => e.clone(),
        };
        if let Ok(mut failed) = self.failed.lock() {
            *failed.entry(failure).or_default() += 1;
        }
    }

    /// The text for a row's note.
    pub(super) fn describe(&self) -> String {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let failed = self.failed.lock().map(|f| f.clone()).unwrap_or_default();
        let kinds: Vec<String> = failed.iter().map(|(what, n)| format!("{n} × {what}")).collect();
        format!(
            "{} served, {} refused with 429, {} failed{}{}",
            count(&self.served),
            count(&self.refused),
            failed.values().sum::<u64>(),
            if kinds.is_empty() { "" } else { ": " },
            kinds.join(", ")
        )
    }
}

/// A connection that its streams share, and that is replaced when it has ended.
struct Connection {
    target: Target,
    current: tokio::sync::Mutex<Sender>,
}

impl Connection {
    async fn open(target: &Target) -> Result<Arc<Self>, String> {
        let current = tokio::sync::Mutex::new(target.connect().await?);
        let target = target.clone();
        Ok(Arc::new(Self { target, current }))
    }

    async fn sender(&self) -> Result<Sender, String> {
        let mut current = self.current.lock().await;
        if current.is_closed() {
            *current = self.target.connect().await?;
        }
        Ok(current.clone())
    }
}

/// One request of the flood; of a watch, until its first event.
async fn send(target: &Target, flood: &Flood, n: u64, sender: &mut Sender) -> Result<u16, String> {
    let body = match flood.method {
        // A name that no other request has.
        Method::POST => config_map(OBJECTS + n),
        _ => Bytes::new(),
    };
    let request = target.request(flood.method.clone(), flood.path, body);
    if !flood.path.contains("watch=1") {
        return Ok(exchange(sender, request).await?.0.as_u16());
    }
    sender.ready().await.map_err(explained)?;
    let response = sender.send_request(request).await.map_err(explained)?;
    let status = response.status().as_u16();
    let _ = response.into_body().frame().await;
    Ok(status)
}

/// Sends until `stop`. Each request in flight is followed by the next one as soon as it is answered.
pub(super) async fn keep_sending(
    target: Target,
    flood: Arc<Flood>,
    serial: Arc<AtomicU64>,
    stop: Stop,
    answers: Arc<Answers>,
) {
    let mut workers = JoinSet::new();
    for _ in 0..flood.in_flight.div_ceil(STREAMS) {
        let connection = match Connection::open(&target).await {
            Ok(connection) => connection,
            Err(e) => {
                answers.count(&Err(e));
                continue;
            }
        };
        for _ in 0..STREAMS.min(flood.in_flight) {
            let (connection, flood) = (connection.clone(), flood.clone());
            let (serial, stop, answers) = (serial.clone(), stop.clone(), answers.clone());
            workers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let n = serial.fetch_add(1, Ordering::Relaxed);
                    let outcome = match connection.sender().await {
                        Ok(mut sender) => send(&connection.target, &flood, n, &mut sender).await,
                        Err(e) => Err(e),
                    };
                    answers.count(&outcome);
                }
            });
        }
    }
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Requests in flight end with their connections.
    workers.shutdown().await;
}

/// Runs the flood in a thread of low priority.
pub(super) fn in_own_thread(work: impl Future<Output = ()> + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        // On Linux this is the priority of the thread alone.
        let _ = rustix::process::setpriority_process(None, 10);
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            runtime.block_on(work);
        }
    })
}
