//! Limits on the number of watches, and on the memory held by watches whose clients do not read. Entry point:
//! [`WatchPermit`], one per watch, obtained from [`Budget::admit_watch`](super::Budget::admit_watch).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Mutex, MutexGuard};

/// One user's watches may hold at most this fraction (a quarter) of all frame bytes.
const SHARE: usize = 4;

/// Limits on watches.
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
    /// The per-user limit.
    PerUser,
    /// The limit for all users.
    Total,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerUser => "too many watches of this user (--max-watches-per-user), please try again later",
            Self::Total => "too many watches (--max-watches), please try again later",
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
}

/// A watch's admission; released on drop.
pub struct WatchPermit {
    registry: Arc<WatchRegistry>,
    user: Arc<str>,
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

    pub(super) fn admit(self: &Arc<Self>, user: &str, exempt: bool) -> Result<WatchPermit, TooMany> {
        let mut usage = self.lock();
        let (user, own) = match usage.users.get_key_value(user) {
            Some((user, own)) => (Arc::clone(user), own.watches),
            None => (user.into(), 0),
        };
        let is_full = |limit: usize, watches: usize| !exempt && limit > 0 && watches >= limit;
        if is_full(self.bounds.per_user, own) {
            return Err(TooMany::PerUser);
        }
        if is_full(self.bounds.max_total, usage.all.watches) {
            return Err(TooMany::Total);
        }
        usage.all.watches += 1;
        usage.users.entry(Arc::clone(&user)).or_default().watches += 1;
        Ok(WatchPermit {
            registry: Arc::clone(self),
            user,
        })
    }

    fn release(&self, user: &Arc<str>, watches: usize, bytes: usize) {
        let mut usage = self.lock();
        usage.all.watches -= watches;
        usage.all.bytes -= bytes;
        if let Some(own) = usage.users.get_mut(user) {
            own.watches -= watches;
            own.bytes -= bytes;
            // Users without watches or frames are removed, so that the map stays bounded.
            if own.watches == 0 && own.bytes == 0 {
                usage.users.remove(user);
            }
        }
    }
}

impl WatchPermit {
    /// Accounts for a frame while it is held; `None` if this user's watches, or all watches, already hold too
    /// much.
    pub fn hold_frame(&self, frame: Vec<u8>) -> Option<HeldFrame> {
        let (limit, bytes) = (self.registry.bounds.max_pinned_bytes, frame.len());
        let mut usage = self.registry.lock();
        let all = usage.all.bytes + bytes;
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
        self.registry.release(&self.user, 1, 0);
    }
}

impl Drop for HeldFrame {
    fn drop(&mut self) {
        self.registry.release(&self.user, 0, self.frame.len());
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
        let first = registry.admit("a", false).unwrap();
        let _second = registry.admit("a", false).unwrap();
        assert_eq!(registry.admit("a", false).err(), Some(TooMany::PerUser));
        let _other = registry.admit("b", false).unwrap();
        assert_eq!(registry.admit("c", false).err(), Some(TooMany::Total));
        let _exempt = registry.admit("admin", true).unwrap();
        drop(first);
        assert_eq!(
            registry.admit("c", false).err(),
            Some(TooMany::Total),
            "exempt watches count toward the total"
        );
        drop(_exempt);
        assert!(registry.admit("a", false).is_ok());
        drop((_second, _other));
        assert!(registry.lock().users.is_empty());
    }

    #[test]
    fn frames_are_accounted_until_dropped() {
        let registry = WatchRegistry::new(WatchBounds {
            max_pinned_bytes: 400,
            ..WatchBounds::default()
        });
        let permit = registry.admit("a", false).unwrap();
        let first = permit.hold_frame(vec![0; 60]).unwrap();
        assert!(permit.hold_frame(vec![0; 60]).is_none(), "one user may hold a quarter");
        assert!(registry.admit("b", false).unwrap().hold_frame(vec![0; 60]).is_some());
        drop(first);
        let large = permit.hold_frame(vec![0; 1000]);
        assert!(large.is_some(), "one frame is always possible");
        drop((large, permit));
        assert!(registry.lock().users.is_empty());
        assert_eq!(registry.lock().all.bytes, 0);
    }
}
