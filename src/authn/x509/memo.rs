//! Per-connection cache of a certificate chain's verification result, so that signatures are not verified on
//! every request.
//!
//! The key is the address of the chain's allocation, which lives as long as its connection. Each entry holds
//! a weak reference, which keeps the allocator from reusing the address. Entries of closed connections are
//! swept when a shard grows.

use super::{CertificateDer, not_after};
use crate::request::TrustAnchors;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

type Chain = Vec<CertificateDer<'static>>;

// Enough that the I/O threads rarely meet on a lock, which each request takes.
const SHARDS: usize = 16;
const LIFETIME: Duration = Duration::from_secs(60);

pub(crate) struct Memo<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
}

struct Shard<T> {
    known: HashMap<usize, Entry<T>>,
    sweep_at: usize,
}

struct Entry<T> {
    /// Keeps the allocation, and thus the address, reserved; never upgraded.
    chain: Weak<Chain>,
    ca: Arc<dyn TrustAnchors>,
    from: SystemTime,
    until: SystemTime,
    value: T,
}

impl<T: Clone> Memo<T> {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    known: HashMap::new(),
                    sweep_at: 64,
                })
            }),
        }
    }

    pub(crate) fn get_or_compute(
        &self,
        chain: &Arc<Chain>,
        ca: &Arc<dyn TrustAnchors>,
        compute: impl FnOnce(SystemTime) -> T,
    ) -> T {
        let now = SystemTime::now();
        let key = Arc::as_ptr(chain).addr();
        // Allocations are aligned, so the low bits of the address carry no information.
        let shard = &self.shards[(key >> 6) % SHARDS];
        if let Some(k) = shard.lock().known.get(&key)
            // The entry holds its CA, so the address cannot be that of a newer pool: a reload invalidates all
            // entries.
            && Arc::as_ptr(&k.ca).addr() == Arc::as_ptr(ca).addr()
            // `from` guards against a clock that was set back.
            && (k.from..k.until).contains(&now)
        {
            return k.value.clone();
        }
        // Without the lock: verifying takes long. Two requests may both do it, with the same result.
        let value = compute(now);
        let end = chain.iter().filter_map(not_after).min();
        // An expired certificate is not cached; verifying it again is cheap because the dates are checked
        // first.
        let until = end.map_or(now + LIFETIME, |end| end.min(now + LIFETIME));
        // A second result for the same chain simply replaces the first.
        let mut shard = shard.lock();
        if shard.known.len() >= shard.sweep_at {
            // Amortised constant: the next sweep waits until the map has doubled.
            shard.known.retain(|_, k| k.chain.strong_count() > 0);
            shard.sweep_at = 64.max(shard.known.len() * 2);
        }
        shard.known.insert(
            key,
            Entry {
                chain: Arc::downgrade(chain),
                ca: ca.clone(),
                from: now,
                until,
                value: value.clone(),
            },
        );
        value
    }
}
