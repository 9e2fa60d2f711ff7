//! Connections of one class, grouped by their owner, so that eviction is fair: the owner with the most connections
//! loses the one that has been idle longest. An owner with few connections keeps them, however fast another one opens
//! new ones.

use crate::serving::connection::Activity;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Connections that one eviction compares at most.
const COMPARED: usize = 1024;

/// Whom a connection is counted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::serving) enum Owner {
    /// A remote address; of IPv6 the /64 network, which one client has at its disposal.
    Address(IpAddr),
    /// The user who authenticated first on the connection.
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

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Pool {
    groups: HashMap<Owner, Group>,
    /// The largest first; of equally large ones the one that was there first.
    by_size: BTreeSet<(Reverse<usize>, u64, Owner)>,
    len: usize,
}

#[derive(Debug)]
struct Group {
    /// The number of its first connection.
    since: u64,
    members: BTreeMap<u64, Arc<Activity>>,
}

impl Pool {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Connections of one owner.
    pub(super) fn of(&self, owner: &Owner) -> usize {
        self.groups.get(owner).map_or(0, |group| group.members.len())
    }

    /// Adds connection `id`.
    pub(super) fn insert(&mut self, id: u64, owner: &Owner, activity: Arc<Activity>) {
        let group = self.groups.entry(owner.clone()).or_insert_with(|| Group {
            since: id,
            members: BTreeMap::new(),
        });
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

    /// Who gives way: of the owners with the most connections, or of `owner`, the connection that has been idle
    /// longest; where all are busy, the one that has been so longest.
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
    fn the_owner_with_the_most_connections_loses_one() {
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
    fn a_busy_connection_outlives_an_idle_one_that_is_younger() {
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
    fn addresses_of_one_ipv6_network_are_one_owner() {
        let of = |text: &str| Owner::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
