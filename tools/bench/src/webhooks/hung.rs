//! The latency of other kinds beside a webhook that hangs.
//!
//! Both sides carry the same load: Secrets are created at a fixed rate, with the hung webhook configured or
//! not, while ConfigMaps are read, or created, as fast as the connections allow. The two sides alternate in
//! short windows, and which is first alternates too, so that both see the same machine and the same store.
//! The percentiles are those of all windows of a side.

use super::{MAPS, SECRETS, Webhook, remove};
use crate::client::{Load, exchange, load};
use crate::gateway::{Gateway, config_map};
use crate::report::Report;
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Windows of each side.
const WINDOWS: usize = 12;
const WINDOW: Duration = Duration::from_millis(2500);
/// Connections and streams of the measured load.
const CONNECTIONS: (usize, usize) = (2, 2);
/// Clients that create Secrets, each at most once per period, which is longer than the webhook's timeout.
const CLIENTS: u32 = 16;
const PERIOD: Duration = Duration::from_millis(1250);

/// Times of one side, in µs.
#[derive(Default)]
struct Side {
    times: Vec<u32>,
    failures: u64,
}

impl Side {
    fn add(&mut self, l: Load) {
        self.times.extend(l.times);
        self.failures += l.failures;
    }

    fn p99(&mut self) -> f64 {
        self.times.sort_unstable();
        let at = self.times.len() * 99 / 100;
        self.times.get(at).map_or(0.0, |t| f64::from(*t))
    }
}

/// Measures reads and creates of ConfigMaps beside creates of Secrets.
pub(super) async fn run(g: &Gateway, webhook: &Webhook, serial: &Arc<AtomicU64>, r: &mut Report) -> Result<(), String> {
    let read: Bytes = config_map(0);
    let existing = serde_json::from_slice::<serde_json::Value>(&read).map_err(|e| e.to_string())?;
    let name = existing["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let path = format!("{MAPS}/{name}");
    measure(g, webhook, serial, "reads", r, move |_| {
        (Method::GET, path.clone(), Bytes::new())
    })
    .await?;
    let next = serial.clone();
    let create = move |_| {
        let i = next.fetch_add(1, Ordering::Relaxed);
        (Method::POST, MAPS.to_owned(), config_map(i))
    };
    measure(g, webhook, serial, "creates", r, create).await
}

async fn measure<F>(
    g: &Gateway,
    webhook: &Webhook,
    serial: &Arc<AtomicU64>,
    what: &str,
    r: &mut Report,
    make: F,
) -> Result<(), String>
where
    F: Fn(u64) -> (Method, String, Bytes) + Clone + Send + Sync + 'static,
{
    let (mut quiet, mut beside) = (Side::default(), Side::default());
    for window in 0..WINDOWS {
        for hangs in [window % 2 == 0, window % 2 == 1] {
            if hangs {
                webhook.configure(g, "hung", "hang", "secrets").await?;
            }
            let until = Instant::now() + WINDOW;
            let (connections, streams) = CONNECTIONS;
            let measured = load(&g.target, connections, streams, WINDOW, 0, make.clone());
            let (l, secrets) = tokio::join!(measured, create_secrets(g, serial, until));
            secrets?;
            if hangs {
                remove(g, "hung").await?;
                beside.add(l?);
            } else {
                quiet.add(l?);
            }
        }
    }
    let (without, with) = (quiet.p99(), beside.p99());
    let how = format!(
        "p99 {without:.0} µs of {} without, {with:.0} µs of {} with; {} failures",
        quiet.times.len(),
        beside.times.len(),
        quiet.failures + beside.failures
    );
    let what = format!("p99 of {what} of another kind beside a hung webhook");
    r.row(&what, with / without.max(1.0), "× without", 1.2, &how);
    Ok(())
}

/// Creates Secrets until then, at the same rate whether or not each waits for the hung webhook.
async fn create_secrets(g: &Gateway, serial: &Arc<AtomicU64>, until: Instant) -> Result<(), String> {
    let connected = g.target.connect().await?;
    let start = Instant::now();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (mut sender, target, serial) = (connected.clone(), g.target.clone(), serial.clone());
        let mut next = start + PERIOD * client / CLIENTS;
        clients.push(tokio::spawn(async move {
            while next < until {
                sleep_until(next).await;
                let name = format!("s-{}", serial.fetch_add(1, Ordering::Relaxed));
                let secret = json!({"metadata": {"name": name}}).to_string();
                let (code, _) = exchange(&mut sender, target.request(Method::POST, SECRETS, secret.into())).await?;
                if !code.is_success() {
                    return Err(format!("a Secret beside the hung webhook: {code}"));
                }
                next += PERIOD;
            }
            Ok(())
        }));
    }
    for client in clients {
        client.await.map_err(|e| e.to_string())??;
    }
    Ok(())
}
