//! The objects every cluster starts with: the system namespaces, the `default/kubernetes` Service and its
//! endpoints, the default ServiceCIDR with its IPAddresses, and the ConfigMaps
//! `extension-apiserver-authentication` and `kube-apiserver-legacy-service-account-token-tracking`.
//!
//! Start at [`ensure`], which creates them once, and [`spawn_reconcilers`], which restores them while the
//! server runs. The default [`rbac`] roles, [`flowcontrol`] objects and [`priority_classes`] have entry
//! points (and post-start hooks) of their own.

pub(crate) mod flowcontrol;
pub(crate) mod identity_lease;
mod namespaces;
pub(crate) mod priority_classes;
pub(crate) mod rbac;
mod service;
mod service_cidrs;
mod token_tracking;
mod trust;

pub(crate) use service::Advertise;
pub(crate) use trust::{ClusterAuthenticationInfo, RequestHeaderInfo, publish};

use super::ControlPlane;
use super::strategies::service::node_ports::Repair;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::WriteOptions;
use crate::tasks::TaskGroup;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt, stream};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Field manager of these objects.
const MANAGER: &str = "kube-apiserver";
/// Interval between repairs of the record of node ports, as upstream's.
const NODE_PORT_REPAIR: Duration = Duration::from_mins(3);
const INTERVAL: Duration = Duration::from_secs(60);

/// Creates or restores the default objects. A failing part does not stop the others. Idempotent, hence cancel
/// safe.
///
/// # Errors
/// The first failure.
pub(crate) fn ensure<'a>(
    plane: &'a ControlPlane,
    advertise: &'a Advertise,
    trust: &'a ClusterAuthenticationInfo,
) -> BoxFuture<'a, Result<()>> {
    async move {
        // The namespaces come first: the others are created in them.
        let spaces = namespaces::ensure(plane).await;
        // Together, so that on a first start they share commits of the store.
        let (service, addresses, tracking, trust) = tokio::join!(
            biased;
            service::ensure(plane, advertise),
            service_cidrs::ensure(plane),
            token_tracking::ensure(plane),
            publish(plane, trust),
        );
        spaces.and(service).and(addresses).and(tracking).and(trust)
    }
    .boxed()
}

/// Runs [`ensure`] every minute, and publishes the trust configuration as soon as it rotates or the published
/// copy is modified. The tasks belong to `group` and end with it; returns false if the group is already
/// stopping.
pub(crate) fn spawn_reconcilers(
    group: &TaskGroup,
    plane: Arc<ControlPlane>,
    advertise: Advertise,
    mut trust: watch::Receiver<Arc<ClusterAuthenticationInfo>>,
) -> bool {
    service_cidrs::spawn_reconciler(group, plane.clone());
    group.spawn_until_stopped("published trust", trust::reconcile(plane.clone(), trust.clone()));
    let ports = plane.clone();
    group.spawn_until_stopped("node port repair", async move {
        let mut repair = Repair::default();
        loop {
            // Sleeps first: `load_allocations` has made the first repair.
            tokio::time::sleep(NODE_PORT_REPAIR).await;
            report(
                "repairing the record of node ports",
                ports.repair_node_ports(&mut repair).await,
            );
        }
    });
    let stop = group.stop_signal().clone();
    group.spawn("bootstrap", async move {
        // Without the sender `changed` fails at once, every time, which would turn the loop into a busy one.
        let mut rotates = true;
        loop {
            // Shutdown wins. A rotation must reach backends within seconds, so it has priority over the
            // timer.
            tokio::select! {
                biased;
                () = stop.wait() => return,
                changed = trust.changed(), if rotates => match changed {
                    Ok(()) => {
                        let now = trust.borrow_and_update().clone();
                        report("publishing new certificate authorities", publish(&plane, &now).await);
                    }
                    // The sender is gone: nothing rotates any more, but the timer continues.
                    Err(_) => rotates = false,
                },
                () = tokio::time::sleep(INTERVAL) => {
                    // Cloned: the guard of a watch channel must not be held across an await.
                    let now = trust.borrow().clone();
                    report("keeping system objects", ensure(&plane, &advertise, &now).await);
                }
            }
        }
    })
}

fn report(what: &'static str, outcome: Result<()>) {
    if let Err(e) = outcome {
        tracing::warn!(error = %e, "{what} failed");
    }
}

fn options(manager: &str) -> WriteOptions {
    WriteOptions {
        manager: Some(manager.to_owned()),
        ..WriteOptions::default()
    }
}

/// Concurrent writes per table: enough to share commits, far below the store's queue bound.
const MAX_CONCURRENT_WRITES: usize = 128;

/// Applies `one` to all objects with bounded concurrency. A failure does not stop the others.
///
/// # Errors
/// The first failure.
async fn for_each_concurrently<T, F: Future<Output = Result<()>>>(objects: Vec<T>, one: impl Fn(T) -> F) -> Result<()> {
    stream::iter(objects)
        .map(one)
        // Unordered: the writes are independent, and a slow one must not hold back the next.
        .buffer_unordered(MAX_CONCURRENT_WRITES)
        .fold(Ok(()), async |all: Result<()>, each| all.and(each))
        .await
}

/// Retries `work` every second until it succeeds or `limit` has passed, for post-start hooks.
///
/// # Errors
/// The last failure, once `limit` has passed.
pub(crate) async fn retry<F: Future<Output = Result<()>>>(limit: Duration, work: impl Fn() -> F) -> Result<()> {
    let end = tokio::time::Instant::now() + limit;
    loop {
        match work().await {
            // Checked after the attempt, so that the work runs at least once.
            Err(e) if tokio::time::Instant::now() >= end => return Err(e),
            Err(e) => tracing::debug!(error = %e, "creating default objects failed, retrying"),
            Ok(()) => return Ok(()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Creates an object; succeeds if it exists already.
async fn create_if_missing(store: &Store, mut object: Value, manager: &str) -> Result<()> {
    let cx = Context::system(object.namespace());
    // These objects have not passed a decoder, which adds the fields that the version always encodes.
    store.resource().schema.normalize(&mut object)?;
    match store.create(&cx, object, &options(manager)).await {
        Ok(_) => Ok(()),
        // Another server was faster.
        Err(e) if e.reason == "AlreadyExists" => Ok(()),
        Err(e) => Err(e),
    }
}

/// Reads an object; `None` if it does not exist.
async fn find(store: &Store, namespace: &str, name: &str) -> Result<Option<Value>> {
    match store.get_value(namespace, name).await {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.code == 404 => Ok(None),
        Err(e) => Err(e),
    }
}

/// Updates a live object. `change` is applied to the current version, and again after each conflict.
async fn change(store: &Store, live: &Value, manager: &str, change: impl Fn(&mut Value) + Send + Sync) -> Result<()> {
    let (namespace, name) = (live.namespace().to_owned(), live.name().to_owned());
    let gr = store.resource().group_resource();
    let mut transform = |live: Option<&Value>| {
        let mut new = live.ok_or_else(|| Status::not_found(&gr, &name))?.clone();
        change(&mut new);
        Ok(new)
    };
    store
        .update(
            &Context::system(&namespace),
            &name,
            &mut transform,
            false,
            &options(manager),
        )
        .await
        .map(drop)
}

#[cfg(test)]
mod tests;
