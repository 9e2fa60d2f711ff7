//! Reads against a real etcd: how many progress requests they cause, as etcd counts them, and when old
//! revisions expire. With the timing rules of `progress.rs`, the counts show that no read waits for an
//! interval.

use super::feed::etcd_process::{self, Etcd};
use super::{Access, Cluster, Options};
use crate::storage::backend::Backend;
use crate::storage::{
    Draft, Error, ListOptions, MinRevision, Precondition, ResourceConfig, Revision, Storage, VersionMatch,
};
use futures_util::FutureExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 20;

struct Two {
    etcd: Etcd,
    cluster: Arc<Cluster>,
    maps: Arc<dyn Storage>,
    /// Its writes do not appear on the watch of `maps`.
    secrets: Arc<dyn Storage>,
}

async fn start() -> Two {
    start_with(Options::default()).await
}

async fn start_with(options: Options) -> Two {
    let etcd = Etcd::start(1);
    let access = Access {
        servers: etcd.servers(),
        ..Access::default()
    };
    let options = Options {
        trust_progress: Some(true),
        // Longer than any test: a request that is repeated because the machine is busy would be counted.
        progress_retry: Duration::from_secs(600),
        freshness_wait: Duration::from_secs(60),
        ..options
    };
    let cluster = Cluster::connect(&access, options).await.expect("it answers");
    let store = |plural: &str| {
        cluster.resource(ResourceConfig {
            prefix: format!("/registry/{plural}/"),
            fields: None,
            compressed: false,
        })
    };
    let (maps, secrets) = (store("configmaps"), store("secrets"));
    for store in [&maps, &secrets] {
        let from_cache = |version| ListOptions {
            version: VersionMatch::NotOlderThan(version),
            ..ListOptions::latest("")
        };
        store.list(from_cache(MinRevision::Any)).await.expect("loaded");
        // The cache is loaded, so this comes as an event. etcd answers no progress requests of a watch before
        // it has sent all earlier events.
        put(store, "ns/first").await;
        let acknowledged = MinRevision::AtLeast(store.last_change());
        store.list(from_cache(acknowledged)).await.expect("served");
    }
    Two {
        etcd,
        cluster,
        maps,
        secrets,
    }
}

async fn put(store: &Arc<dyn Storage>, key: &str) {
    let draft = Draft::new(&crate::json!({"kind": "Thing", "metadata": {"name": "a"}}), vec![]);
    let put = store.put(key, Precondition::Absent, draft, None).await;
    put.expect("written");
}

#[tokio::test]
async fn own_writes_are_read_without_progress_requests() {
    if !etcd_process::is_there() {
        return;
    }
    let two = start().await;
    let before = two.etcd.watch_messages();
    for i in 0..ROUNDS {
        put(&two.secrets, &format!("ns/s{i}")).await;
        put(&two.maps, &format!("ns/m{i}")).await;
        let acknowledged = MinRevision::AtLeast(two.maps.last_change());
        let options = ListOptions {
            version: VersionMatch::NotOlderThan(acknowledged),
            ..ListOptions::latest("ns")
        };
        let list = two.maps.list(options).await.expect("served");
        assert_eq!(list.entries.len() as u64, i + 2);
    }
    assert_eq!(two.etcd.watch_messages() - before, 0);
    two.cluster.shutdown();
}

#[tokio::test]
async fn consistent_list_causes_one_progress_request() {
    if !etcd_process::is_there() {
        return;
    }
    let two = start().await;
    let before = two.etcd.watch_messages();
    for i in 0..ROUNDS {
        put(&two.secrets, &format!("ns/s{i}")).await;
        let list = two.maps.list(ListOptions::latest("")).await.expect("served");
        assert!(list.revision >= two.secrets.last_change());
    }
    assert_eq!(two.etcd.watch_messages() - before, ROUNDS);
    two.cluster.shutdown();
}

#[tokio::test]
async fn concurrent_consistent_lists_share_progress_requests() {
    if !etcd_process::is_there() {
        return;
    }
    let two = start().await;
    let before = two.etcd.watch_messages();
    put(&two.secrets, "ns/s").await;
    let lists = (0..ROUNDS).map(|_| two.maps.list(ListOptions::latest("")));
    for list in futures_util::future::join_all(lists).await {
        assert!(list.expect("served").revision >= two.secrets.last_change());
    }
    let asked = two.etcd.watch_messages() - before;
    assert!((1..=2).contains(&asked), "{asked} requests for {ROUNDS} lists");
    two.cluster.shutdown();
}

#[tokio::test]
async fn continue_tokens_of_a_quiet_resource_expire_with_compaction() {
    if !etcd_process::is_there() {
        return;
    }
    let options = Options {
        compaction_interval: Duration::from_millis(300),
        ..Options::default()
    };
    let two = start_with(options).await;
    put(&two.maps, "ns/second").await;
    let page = |token| ListOptions {
        limit: 1,
        token,
        ..ListOptions::latest("")
    };
    let first = two.maps.list(page(None)).await.expect("served");
    let until = Instant::now() + Duration::from_secs(60);
    let oldest = loop {
        // Other resources change: this one stays the same, and its cache knows the state of every revision.
        let key = format!("ns/{}", two.cluster.revision().0);
        put(&two.secrets, &key).await;
        match two.maps.list(page(first.next.clone())).await {
            Err(Error::Compacted(oldest)) => break oldest,
            Err(other) => panic!("{other:?}"),
            Ok(_) => assert!(Instant::now() < until, "the token does not expire"),
        }
    };
    assert!(oldest > first.revision);
    let exact = ListOptions {
        version: VersionMatch::Exact(first.revision),
        ..ListOptions::latest("")
    };
    assert!(matches!(two.maps.list(exact).await, Err(Error::Compacted(_))));
    two.cluster.shutdown();
}

#[tokio::test]
async fn reads_of_any_state_show_own_writes() {
    if !etcd_process::is_there() {
        return;
    }
    let two = start().await;
    for i in 0..200 {
        let key = format!("ns/own{i}");
        put(&two.maps, &key).await;
        let read = two.maps.get(&key, MinRevision::Any).await.expect("served");
        assert!(read.is_some(), "{key}");
        let options = ListOptions {
            version: VersionMatch::NotOlderThan(MinRevision::Any),
            ..ListOptions::latest(&key)
        };
        put(&two.maps, &format!("{key}/listed")).await;
        assert_eq!(two.maps.list(options).await.expect("served").entries.len(), 1, "{key}");
    }
    two.cluster.shutdown();
}

#[tokio::test]
async fn overdue_event_does_not_delay_reads() {
    if !etcd_process::is_there() {
        return;
    }
    let two = start().await;
    let resource = two.cluster.resources.lock()["/registry/configmaps/"].clone();
    // A write whose event never comes.
    resource.wrote(Revision(u64::MAX));
    assert!(two.maps.get("ns/first", MinRevision::Any).now_or_never().is_none());
    let until = Instant::now() + Duration::from_secs(60);
    while !resource.overdue.load(Ordering::Acquire) {
        assert!(Instant::now() < until, "the missing event was not noticed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let read = two.maps.get("ns/first", MinRevision::Any).now_or_never();
    assert!(read.expect("no wait").expect("served").is_some());
    two.cluster.shutdown();
}
