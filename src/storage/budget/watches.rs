//! Limits on the number of watches, and on the memory held by watches whose clients do not read. Entry point:
//! [`WatchPlace`], one per watch, obtained from [`Budget::admit_watch`](super::Budget::admit_watch).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One user's watches may hold at most this fraction (a quarter) of all frame bytes.
const SHARE: usize = 4;

/// Limits on watches.
#[derive(Clone, Copy, Debug)]
pub struct WatchBounds {
    /// Watches of all users together; 0 is unlimited.
    pub all: usize,
    /// Watches of one user; 0 is unlimited.
    pub per_user: usize,
    /// Two limits in bytes: old objects of one resource kept alive by unread watches, and encoded frames held by all
    /// watches (by one user's watches: a quarter of it).
    pub pinned: usize,
    /// A watch that has pending items but has not been read for this long is ended.
    pub stall: Duration,
}

impl Default for WatchBounds {
    fn default() -> Self {
        Self {
            all: 100_000,
            per_user: 10_000,
            pinned: 64 << 20,
            stall: Duration::from_secs(300),
        }
    }
}

/// Which limit refused a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// The per-user limit.
    OfUser,
    /// The limit for all users.
    InAll,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfUser => "too many watches of this user (--max-watches-per-user), please try again later",
            Self::InAll => "too many watches (--max-watches), please try again later",
        })
    }
}

/// Registry of open watches.
pub(super) struct Places {
    pub(super) bounds: WatchBounds,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: Part,
    users: HashMap<Arc<str>, Part>,
}

#[derive(Clone, Copy, Default)]
struct Part {
    watches: usize,
    bytes: usize,
}

/// A watch's admission; released on drop.
pub struct WatchPlace {
    places: Arc<Places>,
    user: Arc<str>,
}

/// An encoded frame held by a watch; its bytes are accounted until it is dropped.
pub struct Held {
    frame: Vec<u8>,
    places: Arc<Places>,
    user: Arc<str>,
}

impl Places {
    pub(super) fn new(bounds: WatchBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            taken: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admit(self: &Arc<Self>, user: &str, exempt: bool) -> Result<WatchPlace, TooMany> {
        let mut taken = self.lock();
        let (user, own) = match taken.users.get_key_value(user) {
            Some((user, own)) => (Arc::clone(user), own.watches),
            None => (user.into(), 0),
        };
        let is_full = |limit: usize, watches: usize| !exempt && limit > 0 && watches >= limit;
        if is_full(self.bounds.per_user, own) {
            return Err(TooMany::OfUser);
        }
        if is_full(self.bounds.all, taken.all.watches) {
            return Err(TooMany::InAll);
        }
        taken.all.watches += 1;
        taken.users.entry(Arc::clone(&user)).or_default().watches += 1;
        Ok(WatchPlace {
            places: Arc::clone(self),
            user,
        })
    }

    fn give_back(&self, user: &Arc<str>, watches: usize, bytes: usize) {
        let mut taken = self.lock();
        taken.all.watches -= watches;
        taken.all.bytes -= bytes;
        if let Some(own) = taken.users.get_mut(user) {
            own.watches -= watches;
            own.bytes -= bytes;
            // Users without watches or frames are removed, so that the map stays bounded.
            if own.watches == 0 && own.bytes == 0 {
                taken.users.remove(user);
            }
        }
    }
}

impl WatchPlace {
    /// Accounts for a frame while it is held; `None` if this user's watches, or all watches, already hold too much.
    pub fn hold(&self, frame: Vec<u8>) -> Option<Held> {
        let (limit, bytes) = (self.places.bounds.pinned, frame.len());
        let mut taken = self.places.lock();
        let all = taken.all.bytes + bytes;
        let own = taken.users.get_mut(&self.user)?;
        // A user that holds nothing is always allowed one frame, however large: a watch could not progress otherwise.
        if own.bytes > 0 && (own.bytes + bytes > limit / SHARE || all > limit) {
            return None;
        }
        own.bytes += bytes;
        taken.all.bytes = all;
        drop(taken);
        Some(Held {
            frame,
            places: Arc::clone(&self.places),
            user: Arc::clone(&self.user),
        })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        self.places.give_back(&self.user, 1, 0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.places.give_back(&self.user, 0, self.frame.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_limited_per_user_and_in_total() {
        let places = Places::new(WatchBounds {
            all: 3,
            per_user: 2,
            ..WatchBounds::default()
        });
        let first = places.admit("a", false).unwrap();
        let _second = places.admit("a", false).unwrap();
        assert_eq!(places.admit("a", false).err(), Some(TooMany::OfUser));
        let _other = places.admit("b", false).unwrap();
        assert_eq!(places.admit("c", false).err(), Some(TooMany::InAll));
        let _exempt = places.admit("admin", true).unwrap();
        drop(first);
        assert_eq!(
            places.admit("c", false).err(),
            Some(TooMany::InAll),
            "exempt watches count toward the total"
        );
        drop(_exempt);
        assert!(places.admit("a", false).is_ok());
        drop((_second, _other));
        assert!(places.lock().users.is_empty());
    }

    #[test]
    fn frames_are_accounted_until_dropped() {
        let places = Places::new(WatchBounds {
            pinned: 400,
            ..WatchBounds::default()
        });
        let place = places.admit("a", false).unwrap();
        let first = place.hold(vec![0; 60]).unwrap();
        assert!(place.hold(vec![0; 60]).is_none(), "one user may hold a quarter");
        assert!(places.admit("b", false).unwrap().hold(vec![0; 60]).is_some());
        drop(first);
        let large = place.hold(vec![0; 1000]);
        assert!(large.is_some(), "one frame is always possible");
        drop((large, place));
        assert!(places.lock().users.is_empty());
        assert_eq!(places.lock().all.bytes, 0);
    }
}
