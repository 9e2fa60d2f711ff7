//! The status of ResourceQuotas: copies the limits from the spec, and recounts the usage when objects are
//! deleted or change what they use (`pkg/controller/resourcequota`). Creates are charged by admission.

use super::loopback::{Failure, Loopback, Path, encode, found};
use super::objects::{Followed, Objects, Resource};
use super::sized;
use super::term::Term;
use crate::admission::plugins::quota::Recount;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Map, Str, Value};
use crate::client::{Change, Informer};
use crate::storage::{Entry, ListOptions, MinRevision};
use crate::tasks::WorkQueue;
use bytes::Bytes;
use imbl::OrdMap;
use std::ops::Bound;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const QUEUE: &str = "resourcequota_primary";
/// Interval at which a quota is recounted in any case: admission charges a write before it is stored, and
/// a count in between misses it.
const RESYNC: Duration = Duration::from_secs(300);
/// What a quota costs at most, in its bytes: each of its limits is compared with each resource.
const COMPARISONS: usize = 8;

/// What an object that is counted without being read costs, in bytes of one that is read.
const UNREAD: usize = 32;
/// Quotas of a namespace that are queued before other tasks get their turn.
const BATCH: usize = 64;

/// A quota, and the objects that it counts.
struct Counted {
    quota: Value,
    objects: Vec<(GroupResource, Vec<Arc<Entry>>)>,
}

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
        let (api, objects, later, quotas) = (api.clone(), objects.clone(), later.clone(), quotas.clone());
        async move {
            objects.ready().wait().await;
            if key.ends_with('/') {
                expand(&quotas, &key, &later).await;
            } else if recount(&api, &objects, &key).await? {
                later.add_after(key, RESYNC);
            }
            Ok::<_, Failure>(())
        }
    });
}

/// Queues the namespace of an object, as `<namespace>/`, if it has quotas. There may be thousands, so a worker
/// queues each.
fn concerned(quotas: &Informer<Limits>, key: &str, queue: &WorkQueue<Str>) {
    let Some((namespace, _)) = key.split_once('/') else {
        return;
    };
    let prefix = format!("{namespace}/");
    if of_namespace(&quotas.snapshot(), &prefix).next().is_some() {
        queue.add(prefix.into());
    }
}

/// The keys of the quotas that begin with `<namespace>/`.
fn of_namespace<'a>(
    quotas: &'a OrdMap<Arc<str>, Arc<Limits>>,
    prefix: &'a str,
) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
    let from = quotas.range::<_, str>((Bound::Included(prefix), Bound::Unbounded));
    let keys = from.map(|(quota, _)| quota);
    keys.take_while(move |quota| quota.starts_with(prefix))
}

/// Queues the quotas of a namespace.
async fn expand(quotas: &Informer<Limits>, prefix: &str, queue: &WorkQueue<Str>) {
    for (n, quota) in of_namespace(&quotas.snapshot(), prefix).enumerate() {
        queue.add((&**quota).into());
        if n % BATCH == BATCH - 1 {
            tokio::task::yield_now().await;
        }
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
    let Some(entry) = of.storage.get(key, MinRevision::Latest).await? else {
        return Ok(false);
    };
    let all = objects.all();
    let selected = sized::compute(sized::size(&entry) * COMPARISONS, move || selected(&entry, all));
    let (quota, selected) = selected.await?;
    let mut counted = Counted {
        quota,
        objects: Vec::with_capacity(selected.len()),
    };
    for (resource, of) in selected {
        let listed = of.storage.list(ListOptions::latest(namespace)).await?;
        counted.objects.push((resource, listed.entries));
        // Lists from the cache are ready at once.
        tokio::task::yield_now().await;
    }
    let replaced = sized::compute(counted.size(), move || counted.replaced());
    if let Some(quota) = replaced.await? {
        found(api.replace(path.subresource("status"), quota).await)?;
    }
    Ok(true)
}

/// The quota, and the resources that it counts.
fn selected(entry: &Entry, all: Vec<Arc<Followed>>) -> (Value, Vec<(GroupResource, Arc<Followed>)>) {
    let quota = entry.decode();
    let mut recount = Recount::new(&quota);
    let named = all.into_iter().map(|of| {
        let resource: &Resource = &of.resource;
        (GroupResource::new(&resource.group, &resource.plural), of)
    });
    let selected = named.filter(|(resource, of)| of.resource.namespaced && recount.counts(resource));
    let selected = selected.collect();
    (quota, selected)
}

impl Counted {
    /// About as much as counting costs, in bytes.
    fn size(&self) -> usize {
        let of_objects = self
            .objects
            .iter()
            .map(|(resource, entries)| match Recount::reads(resource) {
                true => entries.iter().map(|entry| sized::size(entry)).sum(),
                false => entries.len() * UNREAD,
            });
        let own = self.quota.at(&["spec", "hard"]).as_object().map_or(0, Map::len);
        of_objects.sum::<usize>() + own * sized::SMALLEST
    }

    /// The encoded quota with the usage that it should have; `None` if it has.
    fn replaced(mut self) -> Option<Bytes> {
        let status = {
            let mut recount = Recount::new(&self.quota);
            for (resource, entries) in &self.objects {
                let reads = recount.counts(resource) && Recount::reads(resource);
                for entry in entries {
                    match reads {
                        true => recount.add(resource, &entry.decode()),
                        false => recount.add(resource, &Value::Null),
                    }
                }
            }
            recount.status()
        };
        self.quota.set(&["status"], status?);
        Some(encode(&self.quota))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};

    fn entry(key: &str, object: &Value) -> Arc<Entry> {
        Arc::new(Draft::new(object, Vec::new()).into_entry(key, Revision(1)))
    }

    #[test]
    fn large_pods_are_counted_off_the_reactor_and_large_config_maps_are_not_read() {
        let text = "x".repeat(sized::LARGE);
        let pod = json!({"metadata": {"name": "a", "annotations": {"text": (text.as_str())}}});
        let map = json!({"metadata": {"name": "a"}, "data": {"text": (text.as_str())}});
        let counted = |resource: &str, object: &Value| Counted {
            quota: json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "configmaps": "1"}}}),
            objects: vec![(GroupResource::new("", resource), vec![entry("x/a", object)])],
        };
        let (pods, maps) = (counted("pods", &pod), counted("configmaps", &map));
        assert!(pods.size() >= sized::LARGE && maps.size() < sized::LARGE);
        for (counted, name) in [(pods, "pods"), (maps, "configmaps")] {
            let quota = counted.replaced().expect("its status is missing");
            let quota = crate::apimachinery::codec::json::decode(&quota).expect("it is JSON");
            assert_eq!(quota.str_at(&["status", "used", name]), "1");
        }
    }
}
