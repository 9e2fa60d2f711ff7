//! Per-connection cache of a certificate chain's verification result, so that signatures are not verified on
//! every request.
//!
//! The key is the address of the chain's allocation, which lives as long as its connection. Each entry holds
//! a weak reference, which keeps the allocator from reusing the address. Entries of closed connections are
//! swept when a shard grows.

use super::{CertificateDer, Untrusted, X509Certificate, not_after, parse};
use crate::request::TrustAnchors;
use crate::sync::Mutex;
use crate::tasks::off_thread;
use rustls::pki_types::TrustAnchor;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;

type Chain = Vec<CertificateDer<'static>>;
type Verify<T> = dyn Fn(&Unverified<'_>) -> T + Send + Sync;

// Enough that the I/O threads rarely meet on a lock, which each request takes.
const SHARDS: usize = 16;
const LIFETIME: Duration = Duration::from_secs(60);
/// Chains of more bytes are verified off the reactor. A handshake accepts 64 KiB, whose names take milliseconds to
/// parse; usual chains have a few KiB.
const MAX_IN_PLACE: usize = 16 << 10;
/// Large chains that are verified at once. Anybody may send one, and the threads have other work.
const LARGE_AT_ONCE: usize = 2;

/// A chain to verify, and against what.
pub(crate) struct Unverified<'a> {
    /// At least the leaf, which is the first.
    pub(crate) chain: &'a [CertificateDer<'static>],
    /// The leaf, parsed once for all its readers.
    pub(crate) leaf: Result<X509Certificate<'a>, Untrusted>,
    pub(crate) roots: &'a [TrustAnchor<'static>],
    pub(crate) now: SystemTime,
}

pub(crate) struct Memo<T> {
    verify: Arc<Verify<T>>,
    shards: [Mutex<Shard<T>>; SHARDS],
    large: Arc<Semaphore>,
}

struct Shard<T> {
    known: HashMap<usize, Entry<T>>,
    sweep_at: usize,
}

struct Entry<T> {
    /// Keeps the allocation, and thus the address, reserved; never upgraded.
    chain: Weak<Chain>,
    ca: Arc<dyn TrustAnchors>,
    verified: Verified<T>,
}

/// A result, and when it holds.
struct Verified<T> {
    from: SystemTime,
    until: SystemTime,
    value: T,
}

impl<T: Clone + Send + 'static> Memo<T> {
    /// A cache of the results of `verify`.
    pub(crate) fn new(verify: impl Fn(&Unverified<'_>) -> T + Send + Sync + 'static) -> Self {
        Self {
            verify: Arc::new(verify),
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    known: HashMap::new(),
                    sweep_at: 64,
                })
            }),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        }
    }

    /// The result for a chain; `None` for a large one that is not cached, which only [`get`](Self::get) verifies.
    pub(crate) fn get_sync(&self, chain: &Arc<Chain>, ca: &Arc<dyn TrustAnchors>) -> Option<T> {
        if let Some(known) = self.cached(chain, ca) {
            return Some(known);
        }
        if chain.iter().map(|der| der.len()).sum::<usize>() > MAX_IN_PLACE {
            return None;
        }
        // Without the lock: verifying takes long. Two requests may both do it, with the same result.
        Some(self.insert(chain, ca, verified(&*self.verify, chain, &**ca)))
    }

    /// The result for a chain. `None` if it cannot be had because the process is ending.
    pub(crate) async fn get(&self, chain: &Arc<Chain>, ca: &Arc<dyn TrustAnchors>) -> Option<T> {
        if let Some(known) = self.get_sync(chain, ca) {
            return Some(known);
        }
        let permit = self.large.clone().acquire_owned().await.ok()?;
        // Another request of the connection may have waited for the same chain.
        if let Some(known) = self.cached(chain, ca) {
            return Some(known);
        }
        let (verify, of, against) = (self.verify.clone(), chain.clone(), ca.clone());
        let found = off_thread(0, move || {
            let found = verified(&*verify, &of, &*against);
            // Held by the work, which continues when its request is dropped.
            drop(permit);
            found
        });
        Some(self.insert(chain, ca, found.await?))
    }

    fn cached(&self, chain: &Arc<Chain>, ca: &Arc<dyn TrustAnchors>) -> Option<T> {
        let shard = self.shard(chain).lock();
        let entry = shard.known.get(&key(chain))?;
        // The entry holds its CA, so the address cannot be that of a newer pool: a reload invalidates all entries.
        let same = Arc::as_ptr(&entry.ca).addr() == Arc::as_ptr(ca).addr();
        let of = &entry.verified;
        // `from` guards against a clock that was set back.
        let current = same && (of.from..of.until).contains(&SystemTime::now());
        current.then(|| of.value.clone())
    }

    /// Remembers a result, which replaces an earlier one for the same chain, and returns its value.
    fn insert(&self, chain: &Arc<Chain>, ca: &Arc<dyn TrustAnchors>, verified: Verified<T>) -> T {
        let value = verified.value.clone();
        let mut shard = self.shard(chain).lock();
        if shard.known.len() >= shard.sweep_at {
            // Amortised constant: the next sweep waits until the map has doubled.
            shard.known.retain(|_, k| k.chain.strong_count() > 0);
            shard.sweep_at = 64.max(shard.known.len() * 2);
        }
        shard.known.insert(
            key(chain),
            Entry {
                chain: Arc::downgrade(chain),
                ca: ca.clone(),
                verified,
            },
        );
        value
    }

    fn shard(&self, chain: &Arc<Chain>) -> &Mutex<Shard<T>> {
        // Allocations are aligned, so the low bits of the address carry no information.
        &self.shards[(key(chain) >> 6) % SHARDS]
    }
}

fn key(chain: &Arc<Chain>) -> usize {
    Arc::as_ptr(chain).addr()
}

fn verified<T>(verify: &Verify<T>, chain: &[CertificateDer<'static>], ca: &dyn TrustAnchors) -> Verified<T> {
    let now = SystemTime::now();
    let of = Unverified {
        chain,
        leaf: parse(&chain[0]),
        roots: ca.roots(),
        now,
    };
    let value = verify(&of);
    let leaf = of.leaf.as_ref().ok().and_then(not_after);
    let above = chain[1..].iter().filter_map(|der| not_after(&parse(der).ok()?));
    // An expired certificate is not cached; verifying it again is cheap because the dates are checked first.
    let until = above.chain(leaf).fold(now + LIFETIME, SystemTime::min);
    Verified {
        from: now,
        until,
        value,
    }
}
