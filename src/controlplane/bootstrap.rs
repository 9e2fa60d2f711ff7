//! What a cluster starts with, made when it is missing and kept up while the server runs: the system namespaces, the
//! server's own Service with its endpoints, the record of cluster IPs, and the trust that backends need to believe the front proxy; beside them the
//! default [`rbac`] roles, [`flowcontrol`] objects and [`priority_classes`], each with a hook of its own.
//!
//! Entry points: [`ensure`] once at start, [`keep`] for as long as the server runs.

mod addresses;
pub mod flowcontrol;
mod namespaces;
pub mod priority_classes;
pub mod rbac;
mod service;
mod trust;

pub use service::Advertise;
pub use trust::{RequestHeaderTrust, Trust, publish};

use super::ControlPlane;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::store::{Store, WriteOptions};
use crate::registry::strategy::Context;
use crate::tasks::TaskGroup;
use futures_util::{StreamExt, stream};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Who these objects are written by, in their managed fields.
const MANAGER: &str = "kube-apiserver";
/// How often everything is looked at again.
const INTERVAL: Duration = Duration::from_secs(60);

/// Makes what is missing. Each part is tried, whatever became of the others.
///
/// # Errors
/// The first refusal.
pub async fn ensure(plane: &ControlPlane, advertise: &Advertise, trust: &Trust) -> Result<()> {
    let spaces = namespaces::ensure(plane).await;
    let service = service::ensure(plane, advertise).await;
    let addresses = addresses::ensure(plane).await;
    let trust = publish(plane, trust).await;
    spaces.and(service).and(addresses).and(trust)
}

/// Repeats [`ensure`] every minute, and publishes new trust at once, as it does where the published one was changed. The task belongs to `group` and ends with it.
pub fn keep(
    group: &TaskGroup,
    plane: Arc<ControlPlane>,
    advertise: Advertise,
    mut trust: watch::Receiver<Arc<Trust>>,
) -> bool {
    addresses::keep(group, plane.clone());
    group.spawn_until_stopped("published trust", trust::keep(plane.clone(), trust.clone()));
    let stop = group.stop_signal().clone();
    group.spawn("bootstrap", async move {
        let mut rotates = true;
        loop {
            // Order: an end comes first; a rotation must reach backends within seconds, so it comes before the clock.
            tokio::select! {
                biased;
                () = stop.wait() => return,
                changed = trust.changed(), if rotates => match changed {
                    Ok(()) => {
                        let now = trust.borrow_and_update().clone();
                        report("publishing new certificate authorities", publish(&plane, &now).await);
                    }
                    Err(_) => rotates = false,
                },
                () = tokio::time::sleep(INTERVAL) => {
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

/// How many writes of one table are under way at a time: enough to share commits, far from the store's queue bound.
const AT_ONCE: usize = 64;

/// Does `one` to all objects, some at a time. Each is tried, whatever became of the others.
///
/// # Errors
/// The first refusal.
async fn all_at_once<T, F: Future<Output = Result<()>>>(objects: Vec<T>, one: impl Fn(T) -> F) -> Result<()> {
    stream::iter(objects)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .fold(Ok(()), async |all: Result<()>, each| all.and(each))
        .await
}

/// Tries `work` each second until it succeeds, for a post-start hook.
///
/// # Errors
/// Its last refusal, when `limit` is over.
pub async fn retry<F: Future<Output = Result<()>>>(limit: Duration, work: impl Fn() -> F) -> Result<()> {
    let end = tokio::time::Instant::now() + limit;
    loop {
        match work().await {
            Err(e) if tokio::time::Instant::now() >= end => return Err(e),
            Err(e) => tracing::debug!(error = %e, "making default objects failed, trying again"),
            Ok(()) => return Ok(()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Creates an object; one that is there already is fine.
async fn create_if_missing(store: &Store, mut object: Value, manager: &str) -> Result<()> {
    let cx = Context::system(object.namespace());
    store.resource().schema.normalize(&mut object)?;
    match store.create(&cx, object, &options(manager)).await {
        Ok(_) => Ok(()),
        Err(e) if e.reason == "AlreadyExists" => Ok(()),
        Err(e) => Err(e),
    }
}

/// The object, or `None`.
async fn find(store: &Store, namespace: &str, name: &str) -> Result<Option<Value>> {
    match store.get_value(namespace, name).await {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.code == 404 => Ok(None),
        Err(e) => Err(e),
    }
}

/// Changes a live object; `change` says whether there was anything to change.
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
