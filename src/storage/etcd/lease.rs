//! [`Leases`]: leases for objects with a time to live. Objects created within a short window with equal time
//! to live share a lease, up to a number, so that a stream of Events needs few leases (upstream:
//! `pkg/storage/etcd3/lease_manager.go`).

use super::client::Members;
use crate::storage::Error;
use crate::telemetry::StorageMetrics;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Maximum number of objects per lease.
const OBJECTS: u32 = 1000;
/// A shared lease may exceed the requested time to live by this fraction.
const PART: f64 = 0.05;

struct Shared {
    id: i64,
    ttl: u64,
    until: Instant,
    objects: u32,
}

pub(super) struct Leases {
    window: Duration,
    last: Mutex<Option<Shared>>,
    /// The last lease that etcd reported as unknown.
    lost: AtomicI64,
}

impl Leases {
    /// `window` is `--lease-reuse-duration-seconds`.
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            window,
            last: Mutex::new(None),
            lost: AtomicI64::new(0),
        }
    }

    /// Returns a lease that lives for at least `ttl` seconds from now.
    pub(crate) async fn take(&self, members: &Members, ttl: u64, metrics: &StorageMetrics) -> Result<i64, Error> {
        // etcd refuses a lease of zero seconds.
        let ttl = ttl.max(1);
        // Held across the grant, so that concurrent creates share the new lease.
        let mut last = self.last.lock().await;
        let lost = self.lost.load(Ordering::Acquire);
        if let Some(lease) = &mut *last
            && lease.ttl == ttl
            // A lease that etcd reported as unknown may still be the shared one here.
            && lease.id != lost
            && lease.objects < OBJECTS
            && Instant::now() < lease.until
        {
            lease.objects += 1;
            return Ok(lease.id);
        }
        let window = self.window.min(Duration::from_secs_f64(ttl as f64 * PART));
        // Measured from before the grant: the lease's time starts at etcd, at some moment during the call.
        let requested = Instant::now();
        // Longer by the window, so that the last object that joins still lives for its full time.
        let seconds = (ttl + window.as_secs()).cast_signed();
        let granted = members
            .call(|client| async move { client.lease_client().grant(seconds, None).await })
            .await?;
        if let Some(before) = &*last {
            metrics.lease_used(before.objects);
        }
        *last = Some(Shared {
            id: granted.id(),
            ttl,
            until: requested + Duration::from_secs(window.as_secs()),
            objects: 1,
        });
        Ok(granted.id())
    }

    /// Stops a lease from being reused.
    pub(crate) fn forget(&self, id: i64) {
        // One id suffices: only the last lease is ever reused.
        self.lost.store(id, Ordering::Release);
    }
}
