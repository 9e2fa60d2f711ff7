//! Access to a cluster: user names and passwords, client certificates; and compaction coordinated between
//! gateways.

use crate::etcd_process::{Etcd, certificates, is_there};
use crate::support::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::testing::storage::etcd::{self, Access, Cluster, ConnectError};
use torana::testing::storage::{Backend as _, MinRevision};

async fn connect(access: &Access) -> Arc<Cluster> {
    Cluster::connect(access, etcd::Options::default()).await.unwrap()
}

/// Connects as one who is not let in: there is no need to try for long.
async fn refused(access: &Access) -> Result<Arc<Cluster>, ConnectError> {
    let options = etcd::Options {
        connect_timeout: Duration::from_secs(3),
        ..etcd::Options::default()
    };
    Cluster::connect(access, options).await
}

#[test]
fn an_invalidated_token_is_renewed() {
    if !is_there() {
        return;
    }
    block_on(async {
        let mut etcd = Etcd::start(1);
        for args in [
            &["user", "add", "root:secret"][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            etcd.ctl(args);
        }
        let mut access = Access {
            servers: etcd.servers(),
            user: Some(("root".to_owned(), "wrong".to_owned())),
            ..Access::default()
        };
        assert!(refused(&access).await.is_err(), "a wrong password is refused");
        access.user = Some(("root".to_owned(), "secret".to_owned()));
        let one = connect(&access).await;
        let s = one.resource(config("configmaps"));
        let made = create(&s, "ns/a", "1").await;
        // Tokens are kept in the member's memory, so a restart invalidates them.
        etcd.restart(0);
        let until = Instant::now() + Duration::from_secs(60);
        let made = loop {
            match s.get("ns/a", MinRevision::Latest).await {
                Ok(found) => break found.filter(|e| e.revision == made.revision).unwrap(),
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
        };
        let mut w = s.watch(from_now()).await.unwrap();
        let changed = update(&s, &made, "2").await;
        let event = tokio::time::timeout(Duration::from_secs(30), next(&mut w)).await;
        assert_eq!(event.unwrap(), format!("MODIFIED ns/a@{}", changed.revision.0));
    });
}

#[test]
fn mutual_tls_with_etcd_is_verified_on_both_sides() {
    if !is_there() {
        return;
    }
    // Installs the process-wide crypto provider, as `main` does; fails if another test was faster.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        certificates(dir.path());
        let etcd = Etcd::start_secure(dir.path());
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        let access = Access {
            servers: etcd.servers(),
            ca: Some(read("ca.crt")),
            identity: Some((read("client.crt"), read("client.key"))),
            user: None,
        };
        let one = connect(&access).await;
        let s = one.resource(config("configmaps"));
        create(&s, "ns/a", "1").await;
        assert_eq!(s.list(everything()).await.unwrap().entries.len(), 1);
        let nobody = Access {
            identity: None,
            ..access.clone()
        };
        assert!(
            refused(&nobody).await.is_err(),
            "a connection without a certificate is refused"
        );
        let other = tempfile::tempdir().unwrap();
        certificates(other.path());
        let stranger = Access {
            ca: Some(std::fs::read(other.path().join("ca.crt")).unwrap()),
            ..access
        };
        assert!(
            refused(&stranger).await.is_err(),
            "a member with a certificate of another CA is refused"
        );
    });
}

#[test]
fn gateways_coordinate_compaction_and_keep_an_interval_of_history() {
    if !is_there() {
        return;
    }
    block_on(async {
        let etcd = Etcd::start(1);
        let access = Access {
            servers: etcd.servers(),
            ..Access::default()
        };
        let options = etcd::Options {
            compaction_interval: Duration::from_millis(300),
            ..etcd::Options::default()
        };
        let gateways = [
            Cluster::connect(&access, options.clone()).await.unwrap(),
            Cluster::connect(&access, options).await.unwrap(),
        ];
        let s = gateways[0].resource(config("configmaps"));
        let first = create(&s, "ns/a", "1").await;
        let changed = update(&s, &first, "2").await;
        let until = Instant::now() + Duration::from_secs(30);
        // The state before the update can be read from etcd until it is compacted.
        loop {
            let old = etcd.try_ctl(&[
                "get",
                "/registry/configmaps/ns/a",
                &format!("--rev={}", first.revision.0),
            ]);
            match old {
                Err(why) if why.contains("compacted") => break,
                _ => assert!(Instant::now() < until, "nothing has been compacted after a minute"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let now = s.get("ns/a", MinRevision::Latest).await.unwrap().unwrap();
        assert_eq!(now.revision, changed.revision);
        assert!(
            etcd.ctl(&["get", "compact_rev_key", "--print-value-only"])
                .trim()
                .parse::<u64>()
                .is_ok()
        );
    });
}
