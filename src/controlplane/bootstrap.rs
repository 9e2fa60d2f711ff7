//! What a cluster starts with, made when it is missing and kept up while the server runs: the system namespaces, the
//! server's own Service with its endpoints, and the trust that backends need to believe the front proxy.
//!
//! Entry points: [`ensure`] once at start, [`keep`] for as long as the server runs.

mod namespaces;
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
    let trust = publish(plane, trust).await;
    spaces.and(service).and(trust)
}

/// Repeats [`ensure`] every minute, and publishes new trust at once. The task belongs to `group` and ends with it.
pub fn keep(
    group: &TaskGroup,
    plane: Arc<ControlPlane>,
    advertise: Advertise,
    mut trust: watch::Receiver<Arc<Trust>>,
) -> bool {
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

fn options() -> WriteOptions {
    WriteOptions {
        manager: Some(MANAGER.to_owned()),
        ..WriteOptions::default()
    }
}

/// Creates an object; one that is there already is fine.
async fn create_if_missing(store: &Store, mut object: Value) -> Result<()> {
    let cx = Context::system(object.namespace());
    store.resource().schema.normalize(&mut object)?;
    match store.create(&cx, object, &options()).await {
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
async fn change(store: &Store, live: &Value, change: impl Fn(&mut Value) + Send + Sync) -> Result<()> {
    let (namespace, name) = (live.namespace().to_owned(), live.name().to_owned());
    let gr = store.resource().group_resource();
    let mut transform = |live: Option<&Value>| {
        let mut new = live.ok_or_else(|| Status::not_found(&gr, &name))?.clone();
        change(&mut new);
        Ok(new)
    };
    store
        .update(&Context::system(&namespace), &name, &mut transform, false, &options())
        .await
        .map(drop)
}

#[cfg(test)]
mod tests;
