//! [`Election`]: which process runs the loops. It uses the Lease with which kube-controller-managers elect
//! their leader, `kube-system/kube-controller-manager`.
//!
//! ```text
//! spec.holderIdentity   annotation HOLDER   who runs the loops
//! a manager's           any                 the manager, until its lease expires
//! empty                 a gateway's         that gateway, until its lease expires
//! empty                 empty               no process: any gateway may take over
//! ```
//!
//! A gateway names itself only in the annotation. To a manager the Lease then looks released, so a manager
//! that is started takes it over at once, and the gateway, which follows the Lease, stops its loops. Every
//! change is conditional on the resourceVersion. As in client-go's `leaderelection`, no clock of another
//! machine is relied on: a lease expires when it has not changed for its duration.

use super::loopback::{Failure, Loopback, Path};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::json;
use crate::request::Handler;
use crate::storage::{Entry, Error, MinRevision, Revision, Storage, WatchItem, WatchOptions};
use crate::tasks::Backoff;
use ::time::OffsetDateTime;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-controller-manager";
const KEY: &str = "kube-system/kube-controller-manager";
/// Annotation of the Lease with the gateway that runs the loops.
const HOLDER: &str = "torana.dev/controllers";
/// Seconds without a change after which a lease has expired; upstream's default.
const DURATION: u32 = 15;
const RENEW: Duration = Duration::from_secs(5);
/// Time after the last renewal at which the loops stop. Less than [`DURATION`], after which another gateway may
/// start them.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Delay before a failed read or write is repeated.
const RETRY: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_secs(2));

/// Takes part in the election for one gateway.
pub(crate) struct Election {
    leases: Arc<dyn Storage>,
    api: Loopback,
    identity: String,
    /// Whether other gateways serve the same store, so that the lease has to be renewed.
    contended: bool,
    /// Revision of the lease that was last seen, and when it was first seen.
    seen: Option<(Revision, Instant)>,
}

/// Proof that this gateway was elected.
pub(crate) struct Leadership {
    renewed: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Holder<'a> {
    Manager(&'a str),
    Gateway(&'a str),
    Nobody,
}

fn holder(lease: &Value) -> Holder<'_> {
    let manager = lease.str_at(&["spec", "holderIdentity"]);
    match (manager, lease.annotation(HOLDER).unwrap_or_default()) {
        ("", "") => Holder::Nobody,
        ("", gateway) => Holder::Gateway(gateway),
        (manager, _) => Holder::Manager(manager),
    }
}

/// The lease as `identity` acquires or renews it.
fn held(live: Option<&Value>, identity: &str, now: OffsetDateTime) -> Value {
    let new = || json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME, "namespace": NAMESPACE}});
    let mut lease = live.cloned().unwrap_or_else(new);
    let renewed = holder(&lease) == Holder::Gateway(identity);
    let now = time::format_micro(now);
    if !renewed {
        let transitions = lease.at(&["spec", "leaseTransitions"]).as_i64().unwrap_or(0);
        // Creating the lease is not a transition, as in client-go.
        let transitions = transitions + i64::from(live.is_some());
        lease.set(&["spec", "leaseTransitions"], transitions);
        lease.set(&["spec", "acquireTime"], now.as_str());
    }
    // A manager whose lease has expired: an empty holder lets the next manager take over at once.
    lease.unset(&["spec", "holderIdentity"]);
    lease.set(&["spec", "leaseDurationSeconds"], i64::from(DURATION));
    lease.set(&["spec", "renewTime"], now);
    lease.set(&["metadata", "annotations", HOLDER], identity);
    lease
}

impl Election {
    pub(crate) fn new(leases: Arc<dyn Storage>, handler: &Arc<dyn Handler>, identity: String, contended: bool) -> Self {
        Self {
            leases,
            api: Loopback::manager(handler, "leader-election"),
            identity,
            contended,
            seen: None,
        }
    }

    /// Waits until this gateway is elected.
    ///
    /// # Cancel safety
    /// Cancel safe. If a write was in progress, the next call finds it.
    pub(crate) async fn elected(&mut self) -> Leadership {
        let mut delays = RETRY.delays();
        loop {
            // From before the write, as in `renew`.
            let renewed = Instant::now();
            match self.acquire().await {
                Ok(None) => return Leadership { renewed },
                Ok(Some((revision, expiry))) => {
                    delays.reset();
                    // Either leads to another look at the lease.
                    tokio::select! {
                        () = self.changed(revision) => {}
                        () = tokio::time::sleep_until(expiry) => {}
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the lease of the control loops cannot be acquired");
                    tokio::time::sleep(delays.next_delay()).await;
                }
            }
        }
    }

    /// Waits until this gateway has to stop its loops.
    ///
    /// # Cancel safety
    /// Cancel safe, as [`Self::elected`].
    pub(crate) async fn lost(&mut self, leadership: &mut Leadership) {
        let mut delays = RETRY.delays();
        loop {
            let deadline = leadership.renewed + RENEW_DEADLINE;
            let attempt = self.renew(leadership);
            // A store that does not answer must not keep the loops running while another gateway takes over.
            let done = match self.contended {
                true => tokio::time::timeout_at(deadline, attempt).await,
                false => Ok(attempt.await),
            };
            match done {
                Ok(Ok(None)) => return,
                Ok(Ok(Some(revision))) => {
                    delays.reset();
                    // Either leads to another look at the lease.
                    tokio::select! {
                        () = self.changed(revision) => {}
                        () = tokio::time::sleep_until(leadership.renewed + RENEW), if self.contended => {}
                    }
                }
                Ok(Err(_)) if !self.contended || Instant::now() < deadline => {
                    tokio::time::sleep(delays.next_delay()).await;
                }
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!("the lease of the control loops could not be renewed");
                    return;
                }
            }
        }
    }

    /// Looks at the lease, and renews it if that is due. Returns its revision before that; `None` if another process
    /// runs the loops.
    async fn renew(&self, leadership: &mut Leadership) -> Result<Option<Revision>, Failure> {
        let entry = self.read().await?;
        let live = entry.as_ref().map(|e| e.decode());
        let ours = live
            .as_ref()
            .is_some_and(|l| holder(l) == Holder::Gateway(&self.identity));
        // A lease without a holder, or none at all, is taken again below instead of stopping the loops.
        if !ours && live.as_ref().is_some_and(|l| holder(l) != Holder::Nobody) {
            return Ok(None);
        }
        // Without other gateways nobody waits for the lease to expire, and renewing it would write to the store all day.
        if !ours || (self.contended && leadership.renewed.elapsed() >= RENEW) {
            // From before the write: others count the lease's duration from when they see it.
            let now = Instant::now();
            self.write(live.as_ref()).await?;
            leadership.renewed = now;
        }
        Ok(Some(entry.map_or_else(|| self.leases.revision(), |e| e.revision)))
    }

    /// Lets another gateway take over at once. Errors are ignored: the lease expires.
    pub(crate) async fn release(&mut self) {
        let Ok(Some(entry)) = self.read().await else { return };
        let mut lease = entry.decode();
        if holder(&lease) == Holder::Gateway(&self.identity) {
            lease.unset(&["metadata", "annotations", HOLDER]);
            // Conditional on the resourceVersion: a manager that took over meanwhile is not disturbed.
            let _ = self.api.replace(path().name(NAME), &lease).await;
        }
    }

    /// Acquires the lease if it is free. Otherwise returns its revision and when it expires.
    async fn acquire(&mut self) -> Result<Option<(Revision, Instant)>, Failure> {
        let entry = self.read().await?;
        let live = entry.as_ref().map(|e| e.decode());
        if let (Some(entry), Some(lease)) = (&entry, &live) {
            let since = match self.seen {
                Some((revision, since)) if revision == entry.revision => since,
                _ => Instant::now(),
            };
            self.seen = Some((entry.revision, since));
            let seconds = lease.at(&["spec", "leaseDurationSeconds"]).as_i64();
            let seconds = seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(DURATION.into());
            let expiry = since + Duration::from_secs(seconds);
            // Our own lease of an earlier run is free at once: waiting for it would delay the loops after a restart.
            let free = match holder(lease) {
                Holder::Nobody => true,
                Holder::Gateway(other) if other == self.identity => true,
                Holder::Gateway(_) | Holder::Manager(_) => expiry <= Instant::now(),
            };
            if !free {
                return Ok(Some((entry.revision, expiry)));
            }
        }
        self.write(live.as_ref()).await.map(|()| None)
    }

    async fn read(&self) -> Result<Option<Arc<Entry>>, Error> {
        self.leases.get(KEY, MinRevision::Latest).await
    }

    async fn write(&self, live: Option<&Value>) -> Result<(), Failure> {
        let lease = held(live, &self.identity, OffsetDateTime::now_utc());
        match live {
            Some(_) => self.api.replace(path().name(NAME), &lease).await,
            None => self.api.create(path(), &lease).await,
        }
    }

    /// Waits until the lease changes after this revision, or can no longer be followed from there.
    async fn changed(&self, since: Revision) {
        let options = WatchOptions {
            since: Some(since),
            ..WatchOptions::one(KEY)
        };
        if let Ok(mut watch) = self.leases.watch(options).await {
            loop {
                match watch.next().await {
                    Some(WatchItem::Change(..)) => return,
                    Some(WatchItem::Initial(_) | WatchItem::Bookmark { .. }) => {}
                    Some(WatchItem::Failed(_)) | None => break,
                }
            }
        }
        // The watch failed: without a pause, the callers' loops would spin.
        tokio::time::sleep(RETRY.base).await;
    }
}

fn path() -> Path<'static> {
    Path::of("coordination.k8s.io", "v1", NAMESPACE, "leases")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::MemoryStorage;
    use crate::request::{Request, Response};
    use async_trait::async_trait;

    struct Hung;

    #[async_trait]
    impl Handler for Hung {
        async fn handle(&self, _: Request) -> Response {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_whose_store_hangs_stops_its_loops_before_its_lease_expires() {
        let leases = MemoryStorage::new();
        leases.set(KEY, &held(None, "a", OffsetDateTime::UNIX_EPOCH));
        let handler: Arc<dyn Handler> = Arc::new(Hung);
        let mut election = Election::new(leases, &handler, "a".to_owned(), true);
        let renewed = Instant::now();
        election.lost(&mut Leadership { renewed }).await;
        assert_eq!(renewed.elapsed().as_secs(), RENEW_DEADLINE.as_secs());
    }

    #[test]
    fn a_gateway_leaves_the_lease_free_for_managers() {
        let at = |s: i64| OffsetDateTime::from_unix_timestamp(s).unwrap();
        let first = held(None, "a", at(1));
        assert_eq!(holder(&first), Holder::Gateway("a"));
        assert_eq!(first.str_at(&["spec", "holderIdentity"]), "");
        assert_eq!(first.at(&["spec", "leaseTransitions"]).as_i64(), Some(0));

        let renewed = held(Some(&first), "a", at(2));
        assert_eq!(renewed.at(&["spec", "acquireTime"]), first.at(&["spec", "acquireTime"]));
        assert_ne!(renewed.at(&["spec", "renewTime"]), first.at(&["spec", "renewTime"]));

        let mut taken = renewed;
        taken.set(&["spec", "holderIdentity"], "manager");
        assert_eq!(holder(&taken), Holder::Manager("manager"));
        let back = held(Some(&taken), "b", at(3));
        assert_eq!(holder(&back), Holder::Gateway("b"));
        assert_eq!(back.at(&["spec", "leaseTransitions"]).as_i64(), Some(1));
    }
}
