//! [`Places`]: how many connections outside of the pools there are at a time, those to kubelets, pods and endpoints.
//! Each serves one request, which may last for hours and takes no seat of priority and fairness, and a client may
//! have a hundred of them on one connection of its own.

use crate::request::UserInfo;
use crate::request::user::MASTERS;
use crate::tasks::shares::{Caller, Shares};
use std::sync::Arc;

/// Counters per row of the table of callers.
const CALLERS: u16 = 256;

/// The places, which callers share.
pub(crate) struct Places {
    limit: usize,
    shares: Shares,
}

/// One place, given back when it is dropped.
pub(crate) struct Place {
    of: Arc<Places>,
    caller: Caller,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            shares: Shares::new(CALLERS),
        })
    }

    /// Takes a place; `None` if all are taken, or too many by this caller. Administrators always get one.
    pub(crate) fn enter(self: &Arc<Self>, user: &UserInfo) -> Option<Arc<Place>> {
        let caller = self.shares.enter(self.limit, &user.name, || user.in_group(MASTERS))?;
        let of = self.clone();
        Some(Arc::new(Place { of, caller }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.shares.leave(self.caller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_places_for_others_and_gives_its_own_back() {
        let places = Places::new(40);
        let flood = UserInfo::system("flood", &[]);
        let all = || -> Vec<_> { std::iter::from_fn(|| places.enter(&flood)).collect() };
        let held = all();
        assert_eq!(held.len(), 30);
        assert!(places.enter(&UserInfo::system("quiet", &[])).is_some());
        assert!(places.enter(&UserInfo::system("flood", &[MASTERS])).is_some());
        drop(held);
        assert_eq!(all().len(), 30);
    }
}
