//! Limits on the number of watches, and on the memory held by watches whose clients do not read. Entry point:
//! [`WatchPermit`], one per watch, obtained from [`Budget::admit_watch`](super::Budget::admit_watch).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Mutex, MutexGuard};

/// One user's watches may hold at most this fraction (a quarter) of all frame bytes.
const SHARE: usize = 4;

/// Terms of a watch's selectors that are not counted.
const USUAL_TERMS: usize = 4;
/// The other terms of the selectors of all watches together. One thread compares every event with the
/// selectors of all watches of its resource, at some 20 ns per term, twice: the state before and after. Equal
/// selectors are compared once (`storage/cacher/hub`), but counted each, since all may differ.
const MAX_TERMS: usize = 32 << 10;
/// The same for the watches of one user: about 200 µs.
const MAX_TERMS_PER_USER: usize = 4 << 10;

/// Limits on the number of watches and on what they keep in memory.
#[derive(Clone, Copy, Debug)]
pub struct WatchBounds {
    /// Watches of all users together; 0 is unlimited.
    pub max_total: usize,
    /// Watches of one user; 0 is unlimited.
    pub per_user: usize,
    /// Two limits in bytes: old objects of one resource kept alive by unread watches, and encoded frames held
    /// by all watches (by one user's watches: a quarter of it).
    pub max_pinned_bytes: usize,
    /// A watch that has pending items but has not been read for this long is ended.
    pub stall_timeout: Duration,
}

impl Default for WatchBounds {
    fn default() -> Self {
        Self {
            max_total: 100_000,
            per_user: 10_000,
            max_pinned_bytes: 64 << 20,
            stall_timeout: Duration::from_secs(300),
        }
    }
}

/// The limit that refused a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// [`WatchBounds::per_user`].
    PerUser,
    /// [`WatchBounds::max_total`].
    Total,
    /// One of the limits on the terms of selectors.
    Terms,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerUser => "too many watches of this user (--max-watches-per-user), please try again later",
            Self::Total => "too many watches (--max-watches), please try again later",
            Self::Terms => "the selectors of the running watches have too many terms, please use a shorter selector",
        })
    }
}

/// Registry of open watches.
pub(super) struct WatchRegistry {
    pub(super) bounds: WatchBounds,
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    all: Counts,
    users: HashMap<Arc<str>, Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    watches: usize,
    bytes: usize,
    /// Terms of selectors beyond the usual ones.
    terms: usize,
}

/// A watch's admission; released on drop.
pub struct WatchPermit {
    registry: Arc<WatchRegistry>,
    user: Arc<str>,
    /// The counted terms of its selectors.
    terms: usize,
}

/// An encoded frame held by a watch; its bytes are accounted until it is dropped.
pub struct HeldFrame {
    frame: Vec<u8>,
    registry: Arc<WatchRegistry>,
    user: Arc<str>,
}

impl WatchRegistry {
    pub(super) fn new(bounds: WatchBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            usage: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock()
    }

    pub(super) fn admit(self: &Arc<Self>, user: &str, terms: usize, exempt: bool) -> Result<WatchPermit, TooMany> {
        let terms = terms.saturating_sub(USUAL_TERMS);
        let mut usage = self.lock();
        // Shares the user's name with the map instead of allocating it per watch.
        let (user, own) = match usage.users.get_key_value(user) {
            Some((user, own)) => (Arc::clone(user), *own),
            None => (user.into(), Counts::default()),
        };
        let is_full = |limit: usize, watches: usize| !exempt && limit > 0 && watches >= limit;
        if is_full(self.bounds.per_user, own.watches) {
            return Err(TooMany::PerUser);
        }
        if is_full(self.bounds.max_total, usage.all.watches) {
            return Err(TooMany::Total);
        }
        let too_long = own.terms + terms > MAX_TERMS_PER_USER || usage.all.terms + terms > MAX_TERMS;
        // A selector of usual length is admitted even if others have used up the total.
        if !exempt && terms > 0 && too_long {
            return Err(TooMany::Terms);
        }
        // Counted although exempt: the limits protect memory, whoever uses it.
        usage.all.add(1, terms);
        usage.users.entry(Arc::clone(&user)).or_default().add(1, terms);
        Ok(WatchPermit {
            registry: Arc::clone(self),
            user,
            terms,
        })
    }

    fn release(&self, user: &Arc<str>, released: Counts) {
        let mut usage = self.lock();
        usage.all.subtract(released);
        if let Some(own) = usage.users.get_mut(user) {
            own.subtract(released);
            // Users without watches or frames are removed, so that the map stays bounded.
            if own.watches == 0 && own.bytes == 0 {
                usage.users.remove(user);
            }
        }
    }
}

impl Counts {
    fn add(&mut self, watches: usize, terms: usize) {
        self.watches += watches;
        self.terms += terms;
    }

    fn subtract(&mut self, other: Self) {
        // Never below zero: a guard releases exactly what it was counted with.
        self.watches -= other.watches;
        self.bytes -= other.bytes;
        self.terms -= other.terms;
    }
}

impl WatchPermit {
    /// Accounts for a frame while it is held; `None` if this user's watches, or all watches, already hold too
    /// much.
    pub fn hold_frame(&self, frame: Vec<u8>) -> Option<HeldFrame> {
        let (limit, bytes) = (self.registry.bounds.max_pinned_bytes, frame.len());
        let mut usage = self.registry.lock();
        let all = usage.all.bytes + bytes;
        // Always present while the permit exists: it counts as a watch of this user.
        let own = usage.users.get_mut(&self.user)?;
        // A user that holds nothing is always allowed one frame, however large: a watch could not progress
        // otherwise.
        if own.bytes > 0 && (own.bytes + bytes > limit / SHARE || all > limit) {
            return None;
        }
        own.bytes += bytes;
        usage.all.bytes = all;
        drop(usage);
        Some(HeldFrame {
            frame,
            registry: Arc::clone(&self.registry),
            user: Arc::clone(&self.user),
        })
    }
}

impl AsRef<[u8]> for HeldFrame {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        let released = Counts {
            watches: 1,
            bytes: 0,
            terms: self.terms,
        };
        self.registry.release(&self.user, released);
    }
}

impl Drop for HeldFrame {
    fn drop(&mut self) {
        let released = Counts {
            bytes: self.frame.len(),
            ..Counts::default()
        };
        self.registry.release(&self.user, released);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_limited_per_user_and_in_total() {
        let registry = WatchRegistry::new(WatchBounds {
            max_total: 3,
            per_user: 2,
            ..WatchBounds::default()
        });
        let first = registry.admit("a", 1, false).unwrap();
        let _second = registry.admit("a", 1, false).unwrap();
        assert_eq!(registry.admit("a", 1, false).err(), Some(TooMany::PerUser));
        let _other = registry.admit("b", 1, false).unwrap();
        assert_eq!(registry.admit("c", 1, false).err(), Some(TooMany::Total));
        let _exempt = registry.admit("admin", 1, true).unwrap();
        drop(first);
        assert_eq!(
            registry.admit("c", 1, false).err(),
            Some(TooMany::Total),
            "exempt watches count toward the total"
        );
        drop(_exempt);
        assert!(registry.admit("a", 1, false).is_ok());
        drop((_second, _other));
        assert!(registry.lock().users.is_empty());
    }

    #[test]
    fn terms_of_selectors_are_limited_per_user_and_in_total() {
        let registry = WatchRegistry::new(WatchBounds::default());
        let long = USUAL_TERMS + MAX_TERMS_PER_USER;
        let first = registry.admit("a", long, false).unwrap();
        assert_eq!(registry.admit("a", USUAL_TERMS + 1, false).err(), Some(TooMany::Terms));
        let usual = registry.admit("a", USUAL_TERMS, false);
        assert!(usual.is_ok(), "selectors of usual length are not counted");
        drop(first);
        assert!(
            registry.admit("a", long, false).is_ok(),
            "the terms of ended watches are free"
        );
        assert_eq!(registry.admit("b", long + 1, false).err(), Some(TooMany::Terms));
        let users = (0..MAX_TERMS / MAX_TERMS_PER_USER).map(|i| registry.admit(&i.to_string(), long, false).unwrap());
        let all: Vec<_> = users.collect();
        assert_eq!(registry.admit("c", USUAL_TERMS + 1, false).err(), Some(TooMany::Terms));
        let exempt = registry.admit("admin", long, true);
        assert!(registry.admit("c", USUAL_TERMS, false).is_ok() && exempt.is_ok());
        drop((all, usual, exempt));
        assert_eq!(registry.lock().all.terms, 0);
    }

    #[test]
    fn frames_are_accounted_until_dropped() {
        let registry = WatchRegistry::new(WatchBounds {
            max_pinned_bytes: 400,
            ..WatchBounds::default()
        });
        let permit = registry.admit("a", 1, false).unwrap();
        let first = permit.hold_frame(vec![0; 60]).unwrap();
        assert!(permit.hold_frame(vec![0; 60]).is_none(), "one user may hold a quarter");
        assert!(registry.admit("b", 1, false).unwrap().hold_frame(vec![0; 60]).is_some());
        drop(first);
        let large = permit.hold_frame(vec![0; 1000]);
        assert!(large.is_some(), "one frame is always possible");
        drop((large, permit));
        assert!(registry.lock().users.is_empty());
        assert_eq!(registry.lock().all.bytes, 0);
    }
}
