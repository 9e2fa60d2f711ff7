//! Leases of expiring objects, as etcd sees them.

use crate::etcd_process::{Etcd, is_there};
use crate::support::*;
use std::sync::Arc;
use std::time::Duration;
use torana::testing::storage::etcd::{self, Access, Cluster};
use torana::testing::storage::{Backend as _, Precondition, Storage};

/// A store for events, on a cluster of its own.
async fn events(lease_reuse: Duration) -> (Etcd, Arc<Cluster>, Arc<dyn Storage>) {
    let etcd = Etcd::start(1);
    let access = Access {
        servers: etcd.servers(),
        ..Access::default()
    };
    let options = etcd::Options {
        lease_reuse,
        ..etcd::Options::default()
    };
    let cluster = Cluster::connect(&access, options).await.unwrap();
    let s = cluster.resource(config("events"));
    (etcd, cluster, s)
}

async fn put(s: &Arc<dyn Storage>, key: &str, ttl: u64) {
    s.put(key, Precondition::Absent, draft("1"), Some(ttl)).await.unwrap();
}

/// The ids of all leases in etcd.
fn leases(etcd: &Etcd) -> Vec<String> {
    let output = etcd.ctl(&["lease", "list"]);
    output.lines().skip(1).map(|l| l.trim().to_owned()).collect()
}

#[test]
fn objects_with_the_same_ttl_share_a_lease_for_a_while() {
    if !is_there() {
        return;
    }
    block_on(async {
        let (etcd, _cluster, s) = events(Duration::from_secs(60)).await;
        for key in ["ns/a", "ns/b", "ns/c"] {
            put(&s, key, 3600).await;
        }
        let shared = leases(&etcd);
        assert_eq!(shared.len(), 1);
        let kept = etcd.ctl(&["lease", "timetolive", &shared[0], "--keys"]);
        assert!(kept.contains("granted with TTL(3660s)"), "none goes too early: {kept}");
        assert_eq!(kept.matches("/registry/events/ns/").count(), 3, "{kept}");
        put(&s, "ns/d", 1800).await;
        assert_eq!(leases(&etcd).len(), 2, "another TTL needs another lease");
    });
}

#[test]
fn without_reuse_each_object_has_its_own_lease() {
    if !is_there() {
        return;
    }
    block_on(async {
        let (etcd, _cluster, s) = events(Duration::ZERO).await;
        put(&s, "ns/a", 3600).await;
        put(&s, "ns/b", 3600).await;
        assert_eq!(leases(&etcd).len(), 2);
    });
}

#[test]
fn a_revoked_lease_is_not_reused() {
    if !is_there() {
        return;
    }
    block_on(async {
        let (etcd, _cluster, s) = events(Duration::from_secs(60)).await;
        put(&s, "ns/a", 3600).await;
        let before = leases(&etcd);
        etcd.ctl(&["lease", "revoke", &before[0]]);
        put(&s, "ns/b", 3600).await;
        let now = leases(&etcd);
        assert_eq!(now.len(), 1);
        assert_ne!(now, before);
        assert_eq!(
            keys(&s.list(everything()).await.unwrap().entries),
            ["ns/b"],
            "the object is deleted with its lease"
        );
    });
}
