//! Maintains the Lease that announces this server as alive, `kube-system/apiserver-<hash of the host name>`,
//! and deletes the expired Leases of other servers (upstream's
//! `pkg/controlplane/controller/{apiserverleasegc,leaderelection}` and
//! `k8s.io/component-helpers/apimachinery/lease`).
//!
//! Start at [`spawn`], which renews the Lease, and [`spawn_garbage_collector`]. Readers of the Leases, such as
//! peer proxies, are left to others.

use super::super::ControlPlane;
use super::{MANAGER, change, create_if_missing, find, report};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::apimachinery::{names, time};
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::DeleteOptions;
use crate::tasks::TaskGroup;
use ::time::OffsetDateTime;
use aws_lc_rs::digest;
use data_encoding::BASE32_NOPAD;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
const HOST_NAME: &str = "kubernetes.io/hostname";
/// How long a server counts as alive after a renewal, in seconds.
const DURATION: i64 = 3600;
const RENEW: Duration = Duration::from_secs(10);
/// Interval between attempts after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between deletions of expired Leases.
const COLLECT: Duration = Duration::from_secs(3600);

/// Keeps the Lease of this host until `group` stops, and then deletes it. One of an earlier process is
/// replaced, so that its holder is this one.
pub(crate) fn spawn(group: &TaskGroup, plane: Arc<ControlPlane>, host_name: &str) -> bool {
    let lease = Lease::of(host_name);
    let stop = group.stop_signal().clone();
    // Not `spawn_until_stopped`: the Lease is deleted after the stop signal.
    group.spawn("identity lease", async move {
        let store = plane.store("coordination.k8s.io", "leases");
        // Set only by a successful deletion: a failed one is repeated before the first renewal.
        let mut replaced = false;
        loop {
            let kept = async {
                if !replaced {
                    lease.delete(store).await?;
                    replaced = true;
                }
                lease.renew(store).await
            };
            let next = match kept.await {
                Ok(()) => RENEW,
                Err(error) => {
                    // Only debug: a single missed renewal is harmless, as the Lease is valid for an hour.
                    tracing::debug!(%error, lease = lease.name, "the identity lease cannot be renewed");
                    RETRY
                }
            };
            // Biased towards stopping.
            tokio::select! {
                biased;
                () = stop.wait() => break,
                () = tokio::time::sleep(next) => {}
            }
        }
        // So that others need not wait an hour to see that this server is gone.
        report("deleting the identity lease", lease.delete(store).await);
    })
}

/// Deletes expired Leases of servers once an hour.
pub(crate) fn spawn_garbage_collector(group: &TaskGroup, plane: Arc<ControlPlane>) -> bool {
    group.spawn_until_stopped("identity lease garbage collector", async move {
        loop {
            let outcome = collect(&plane, OffsetDateTime::now_utc()).await;
            report("deleting expired identity leases", outcome);
            tokio::time::sleep(COLLECT).await;
        }
    })
}

async fn collect(plane: &ControlPlane, now: OffsetDateTime) -> Result<()> {
    let store = plane.store("coordination.k8s.io", "leases");
    let mut outcome = Ok(());
    for entry in store.list_entries(NAMESPACE).await? {
        if entry.label(IDENTITY.0) != Some(IDENTITY.1) {
            continue;
        }
        let lease = entry.decode();
        if !is_expired(&lease, now) {
            continue;
        }
        // The preconditions spare one that was renewed or recreated since the list.
        let options = DeleteOptions {
            uid: Some(lease.uid().to_owned()),
            resource_version: Some(entry.revision.0.to_string()),
            ..DeleteOptions::default()
        };
        match store.delete(&Context::system(NAMESPACE), lease.name(), &options).await {
            // Deleted or renewed since the list: not a failure.
            Err(e) if !matches!(e.code, 404 | 409) => outcome = outcome.and(Err(e)),
            _ => {}
        }
    }
    outcome
}

/// Whether the holder stopped renewing. A Lease without a time or a duration counts as expired.
fn is_expired(lease: &Value, now: OffsetDateTime) -> bool {
    let renewed = time::parse_micro(lease.str_at(&["spec", "renewTime"]));
    let duration = lease.at(&["spec", "leaseDurationSeconds"]).as_i64();
    match (renewed, duration) {
        (Ok(renewed), Some(seconds)) => renewed.unix_timestamp().saturating_add(seconds) < now.unix_timestamp(),
        _ => true,
    }
}

async fn delete(store: &Store, name: &str) -> Result<()> {
    match store.delete_by_name(&Context::system(NAMESPACE), name).await {
        Ok(_) => Ok(()),
        // There is none at a first start, or another server's collector was faster.
        Err(e) if e.code == 404 => Ok(()),
        Err(e) => Err(e),
    }
}

/// The Lease of this process.
struct Lease {
    name: String,
    holder: String,
    host_name: String,
}

impl Lease {
    fn of(host_name: &str) -> Self {
        let name = name(host_name);
        Self {
            // A new one for each process: a restart is another holder of the same Lease.
            holder: format!("{name}_{}", names::uid()),
            name,
            host_name: host_name.to_owned(),
        }
    }

    async fn renew(&self, store: &Store) -> Result<()> {
        let now = time::format_micro(OffsetDateTime::now_utc());
        let Some(live) = find(store, NAMESPACE, &self.name).await? else {
            let object = crate::json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": (self.name.as_str()), "namespace": NAMESPACE, "labels": {
                    (IDENTITY.0): (IDENTITY.1), HOST_NAME: (self.host_name.as_str())}},
                "spec": {"holderIdentity": (self.holder.as_str()), "leaseDurationSeconds": DURATION, "renewTime": now},
            });
            return create_if_missing(store, object, MANAGER).await;
        };
        // Only the time: the rest of the Lease was written when this process created it.
        change(store, &live, MANAGER, |lease| {
            lease.set(&["spec", "renewTime"], now.as_str());
        })
        .await
    }

    async fn delete(&self, store: &Store) -> Result<()> {
        delete(store, &self.name).await
    }
}

/// `apiserver-` and a hash of the host name, each part of the hash's input with its length in two bytes
/// before it.
fn name(host_name: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [host_name, IDENTITY.1] {
        // The length prefix keeps pairs such as `ab`, `c` and `a`, `bc` apart. Host names never reach the
        // cap.
        context.update(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        context.update(part.as_bytes());
    }
    let hash = BASE32_NOPAD.encode(&context.finish().as_ref()[..16]);
    format!("apiserver-{}", hash.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::tests::running;

    #[test]
    fn the_name_is_a_hash_of_the_host_name() {
        // sha256 of 0x0001 "a" 0x000e "kube-apiserver", computed by Python's hashlib.
        assert_eq!(name("a"), "apiserver-2tpgmlbwcz6wvzejdfn7mej2p4");
    }

    #[test]
    fn a_lease_expires_an_hour_after_its_renewal() {
        let now = OffsetDateTime::from_unix_timestamp(10_000).unwrap();
        let lease = |renewed: i64| {
            let at = OffsetDateTime::from_unix_timestamp(renewed).unwrap();
            crate::json!({"spec": {"leaseDurationSeconds": DURATION, "renewTime": (time::format_micro(at))}})
        };
        assert!(!is_expired(&lease(6400), now));
        assert!(is_expired(&lease(6399), now));
        assert!(is_expired(&crate::json!({"spec": {}}), now));
    }

    #[tokio::test]
    async fn the_lease_is_renewed_and_expired_ones_are_deleted() {
        let r = running();
        let store = r.plane.store("coordination.k8s.io", "leases");
        let (mine, other) = (Lease::of("a"), Lease::of("b"));
        mine.renew(store).await.unwrap();
        let first = store.get_value(NAMESPACE, &mine.name).await.unwrap();
        assert_eq!(first.label(HOST_NAME), Some("a"));
        assert_eq!(first.str_at(&["spec", "holderIdentity"]), mine.holder);
        mine.renew(store).await.unwrap();
        let renewed = store.get_value(NAMESPACE, &mine.name).await.unwrap();
        assert_ne!(
            first.str_at(&["spec", "renewTime"]),
            renewed.str_at(&["spec", "renewTime"])
        );

        other.renew(store).await.unwrap();
        let live = store.get_value(NAMESPACE, &other.name).await.unwrap();
        change(store, &live, MANAGER, |lease| {
            lease.set(&["spec", "renewTime"], "2020-01-01T00:00:00.000000Z");
        })
        .await
        .unwrap();
        collect(&r.plane, OffsetDateTime::now_utc()).await.unwrap();
        assert!(find(store, NAMESPACE, &other.name).await.unwrap().is_none());
        mine.delete(store).await.unwrap();
        assert!(find(store, NAMESPACE, &mine.name).await.unwrap().is_none());
        mine.delete(store).await.unwrap();
    }
}
