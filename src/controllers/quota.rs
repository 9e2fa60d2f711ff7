//! The status of ResourceQuotas: copies the limits from the spec, and recounts the usage when objects are
//! deleted or change what they use (`pkg/controller/resourcequota`). Creates are charged by admission.

use super::loopback::{Failure, Loopback, Path, found};
use super::objects::{Objects, Resource};
use super::term::Term;
use crate::admission::plugins::quota::Recount;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::storage::{Entry, ListOptions, MinRevision};
use crate::tasks::WorkQueue;
use std::ops::Bound;
use std::sync::LazyLock;
use std::time::Duration;

const QUEUE: &str = "resourcequota_primary";
/// Interval at which a quota is recounted in any case: admission charges a write before it is stored, and
/// a count in between misses it.
const RESYNC: Duration = Duration::from_secs(300);
/// Objects that are counted before other tasks get their turn.
const BATCH: usize = 32;

/// The limits of a quota.
type Limits = Value;

fn limits(entry: &Entry) -> Limits {
    static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["spec"]));
    entry.decode_parts(&PARTS)
}

/// Whether a Pod counts, and in which scope. Only a change of these changes its usage.
fn pod_usage(entry: &Entry) -> [bool; 3] {
    static PARTS: LazyLock<Mask> = LazyLock::new(|| {
        Mask::of(&[
            "metadata.deletionTimestamp",
            "spec.activeDeadlineSeconds",
            "status.phase",
        ])
    });
    let pod = entry.decode_parts(&PARTS);
    [
        matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed"),
        pod.is_being_deleted(),
        pod.at(&["spec", "activeDeadlineSeconds"]).is_null(),
    ]
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let quotas = term.inform(("", "resourcequotas"), limits, |quotas| {
        quotas.subscribe(move |change: &Change<'_, Limits>| {
            if change.new.is_some() && change.new != change.old {
                changed.add(change.key.into());
            }
        });
    });
    let Some(quotas) = quotas else { return };
    let (known, added) = (quotas.clone(), queue.clone());
    term.objects().observe(move |resource, change| {
        // Updates of these change their usage; Pods are followed below.
        let by_content = matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("", "services" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims")
        );
        if change.new.is_none() || by_content && change.old.is_some() {
            concerned(&known, change.key, &added);
        }
    });
    let (known, added) = (quotas.clone(), queue.clone());
    let pods = term.inform(("", "pods"), pod_usage, |pods| {
        pods.subscribe(move |change: &Change<'_, [bool; 3]>| {
            if let (Some(old), Some(new)) = (change.old, change.new)
                && old != new
            {
                concerned(&known, change.key, &added);
            }
        });
    });
    if pods.is_none() {
        return;
    }
    let (api, objects, later) = (
        term.client("resourcequota-controller"),
        term.objects().clone(),
        queue.clone(),
    );
    term.process(QUEUE, &queue, 5, move |key: Str| {
        let (api, objects, later) = (api.clone(), objects.clone(), later.clone());
        async move {
            objects.ready().wait().await;
            if recount(&api, &objects, &key).await? {
                later.add_after(key, RESYNC);
            }
            Ok::<_, Failure>(())
        }
    });
}

/// Queues the quotas of the namespace of an object.
fn concerned(quotas: &Informer<Limits>, key: &str, queue: &WorkQueue<Str>) {
    let Some((namespace, _)) = key.split_once('/') else {
        return;
    };
    let prefix = format!("{namespace}/");
    let all = quotas.snapshot();
    let of_namespace = all.range::<_, str>((Bound::Included(&*prefix), Bound::Unbounded));
    for (quota, _) in of_namespace.take_while(|(quota, _)| quota.starts_with(&prefix)) {
        queue.add((&**quota).into());
    }
}

/// Returns false if the quota is gone.
async fn recount(api: &Loopback, objects: &Objects, key: &str) -> Result<bool, Failure> {
    let Some((namespace, name)) = key.split_once('/') else {
        return Ok(false);
    };
    let path = Path::core(namespace, "resourcequotas").name(name);
    // The service account may not read single quotas; upstream's loop has a lister.
    let Some(of) = objects.of_kind("", "ResourceQuota") else {
        return Ok(false);
    };
    let live = of.storage.get(key, MinRevision::Latest).await?;
    let Some(mut quota) = live.map(|entry| entry.decode()) else {
        return Ok(false);
    };
    let status = {
        let mut recount = Recount::new(&quota);
        for of in objects.all() {
            let resource: &Resource = &of.resource;
            let counted = GroupResource::new(&resource.group, &resource.plural);
            if !resource.namespaced || !recount.counts(&counted) {
                continue;
            }
            let listed = of.storage.list(ListOptions::latest(namespace)).await?;
            for batch in listed.entries.chunks(BATCH) {
                for entry in batch {
                    match Recount::reads(&counted) {
                        true => recount.add(&counted, &entry.decode()),
                        false => recount.add(&counted, &Value::Null),
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        recount.status()
    };
    if let Some(status) = status {
        quota.set(&["status"], status);
        found(api.replace(path.subresource("status"), &quota).await)?;
    }
    Ok(true)
}
