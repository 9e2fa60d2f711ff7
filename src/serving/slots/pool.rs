//! The connections of one class, grouped by owner for fair eviction: the owner with the most connections
//! loses the one that has been idle longest. An owner with few connections keeps them, however fast another
//! one opens new ones.

use crate::serving::activity::Activity;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Maximum number of connections compared for one eviction, which bounds the time under the lock.
const COMPARED: usize = 1024;

/// The owner that a connection counts towards.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::serving) enum Owner {
    /// The remote address; for IPv6 its /64 network, because a single client usually controls a whole one.
    Address(IpAddr),
    /// The first user authenticated on the connection.
    User(Arc<str>),
}

impl Owner {
    pub(in crate::serving) fn of(address: IpAddr) -> Self {
        Self::Address(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        })
    }
}

/// The connections of one class.
#[derive(Debug, Default)]
pub(super) struct Pool {
    groups: HashMap<Owner, Group>,
    /// Owners by number of connections, largest first; ties go to the older group.
    by_size: BTreeSet<(Reverse<usize>, u64, Owner)>,
    len: usize,
}

#[derive(Debug)]
struct Group {
    /// Id of the group's first connection.
    since: u64,
    members: BTreeMap<u64, Arc<Activity>>,
}

impl Pool {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of connections of one owner.
    pub(super) fn of(&self, owner: &Owner) -> usize {
        self.groups.get(owner).map_or(0, |group| group.members.len())
    }

    /// Adds connection `id`.
    pub(super) fn insert(&mut self, id: u64, owner: &Owner, activity: Arc<Activity>) {
        let group = self.groups.entry(owner.clone()).or_insert_with(|| Group {
            since: id,
            members: BTreeMap::new(),
        });
        // A key of the set cannot change in place.
        self.by_size
            .remove(&(Reverse(group.members.len()), group.since, owner.clone()));
        group.members.insert(id, activity);
        self.by_size
            .insert((Reverse(group.members.len()), group.since, owner.clone()));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, id: u64, owner: &Owner) -> Option<Arc<Activity>> {
        let group = self.groups.get_mut(owner)?;
        let size = group.members.len();
        let activity = group.members.remove(&id)?;
        self.by_size.remove(&(Reverse(size), group.since, owner.clone()));
        if size == 1 {
            self.groups.remove(owner);
        } else {
            self.by_size.insert((Reverse(size - 1), group.since, owner.clone()));
        }
        self.len -= 1;
        Some(activity)
    }

    /// The connection to evict, among those of `owner` or else of the owners with the most connections: the
    /// one idle longest or, if all are busy, the one busy longest.
    pub(super) fn victim(&self, owner: Option<&Owner>) -> Option<u64> {
        let largest = match owner {
            Some(owner) => self.of(owner),
            None => self.by_size.first()?.0.0,
        };
        let all = self
            .by_size
            .iter()
            .take_while(|(size, ..)| owner.is_none() && size.0 == largest)
            .map(|(.., owner)| owner);
        owner
            .into_iter()
            .chain(all)
            .filter_map(|owner| self.groups.get(owner))
            .flat_map(|group| &group.members)
            // Members are ordered by age, so the oldest are compared: the longest idle one is most likely
            // among them.
            .take(COMPARED)
            .min_by_key(|(_, activity)| activity.quiet_since())
            .map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Owner {
        Owner::of(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn the_owner_with_the_most_connections_is_evicted_first() {
        let mut pool = Pool::default();
        pool.insert(1, &address(1), Activity::new());
        for id in 2..5 {
            pool.insert(id, &address(2), Activity::new());
        }
        assert_eq!(pool.victim(None), Some(2));
        assert!(pool.remove(2, &address(2)).is_some());
        assert!(pool.remove(2, &address(2)).is_none());
        assert_eq!(pool.victim(None), Some(3));
        assert_eq!(pool.victim(Some(&address(1))), Some(1));
        assert_eq!((pool.len(), pool.of(&address(2))), (3, 2));
    }

    #[test]
    fn idle_connections_are_evicted_before_older_busy_ones() {
        let mut pool = Pool::default();
        let busy = Activity::new();
        let _request = busy.request();
        pool.insert(1, &address(1), busy);
        pool.insert(2, &address(1), Activity::new());
        assert_eq!(pool.victim(None), Some(2));
        pool.remove(2, &address(1));
        assert_eq!(pool.victim(None), Some(1));
    }

    #[test]
    fn addresses_in_one_ipv6_64_share_an_owner() {
        let of = |text: &str| Owner::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
