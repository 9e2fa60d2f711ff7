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
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const QUEUE: &str = "resourcequota_primary";
/// Interval at which a quota is recounted in any case: admission charges a write before it is stored, and
/// a count in between misses it.
const RESYNC: Duration = Duration::from_secs(300);
/// Upper bound of the cost of a quota per byte of it: each of its limits is compared with each resource.
const COMPARISONS: usize = 8;

/// Cost of an object that is counted without being decoded, in bytes of one that is decoded.
const UNREAD: usize = 32;
/// Quotas of a namespace that are queued before the task yields.
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

/// The fields of a Pod that determine its quota usage.
#[derive(Debug, PartialEq, Eq)]
struct PodUsage {
    ended: bool,
    deleting: bool,
    /// It is in the scope `NotTerminating` then, else in `Terminating`.
    without_deadline: bool,
    /// The resources in the statuses of its containers. A kubelet sets them when it has resized a container in place.
    resources: Resources,
}

/// Hashes of resources by the name of the container, which is unique in a Pod. Hashes, because all Pods are remembered.
type Resources = BTreeMap<Str, u64>;

impl PodUsage {
    fn from_entry(entry: &Entry) -> Self {
        static PARTS: LazyLock<Mask> = LazyLock::new(|| {
            Mask::of(&[
                "metadata.deletionTimestamp",
                "spec.activeDeadlineSeconds",
                "status.{phase,containerStatuses,initContainerStatuses}",
            ])
        });
        let pod = entry.decode_parts(&PARTS);
        let statuses = ["containerStatuses", "initContainerStatuses"].map(|list| pod.at(&["status", list]));
        let resources = statuses.iter().flat_map(|list| list.items()).map(|of| {
            // A collision, even one that is made on purpose, only delays the recount until the next periodic
            // one.
            let mut hasher = DefaultHasher::new();
            of.get("resources").hash(&mut hasher);
            (of.str_at(&["name"]).into(), hasher.finish())
        });
        Self {
            ended: matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed"),
            deleting: pod.is_being_deleted(),
            without_deadline: pod.at(&["spec", "activeDeadlineSeconds"]).is_null(),
            resources: resources.collect(),
        }
    }

    /// Whether a change of a Pod from `self` to `new` causes a recount.
    fn changes_to(&self, new: &Self) -> bool {
        let parts = |p: &Self| (p.ended, p.deleting, p.without_deadline);
        // As upstream's `hasResourcesChanged`: the first status of a container is no change, or each start of a Pod
        // would cause a recount.
        let resized = |(name, was): (&Str, &u64)| new.resources.get(name).is_some_and(|is| is != was);
        parts(self) != parts(new) || self.resources.iter().any(resized)
    }
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
        // Projected metadata cannot show whether their usage changed, so each update causes a recount.
        let by_content = matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("", "services" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims")
        );
        // Creates are charged by admission; counting them here, too, would double the work of a burst.
        if change.new.is_none() || by_content && change.old.is_some() {
            concerned(&known, change.key, &added);
        }
    });
    let (known, added) = (quotas.clone(), queue.clone());
    let pods = term.inform(("", "pods"), PodUsage::from_entry, |pods| {
        pods.subscribe(move |change: &Change<'_, PodUsage>| {
            if let (Some(old), Some(new)) = (change.old, change.new)
                && old.changes_to(new)
            {
                // Waiting Pods are updated all the time, hence the comparison of the projection.
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
    // Upstream's default of `--concurrent-resource-quota-syncs`.
    term.process(QUEUE, &queue, 5, move |key: Str| {
        let (api, objects, later, quotas) = (api.clone(), objects.clone(), later.clone(), quotas.clone());
        async move {
            // Before that the lists of custom kinds are incomplete, and a recount would lower the usage.
            objects.ready().wait().await;
            // A namespace to expand; keys of quotas never end in a slash.
            if key.ends_with('/') {
                expand(&quotas, &key, &later).await;
            // A deleted quota drops out of the periodic recounts here.
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
        let (storage, options) = (of.storage.clone(), ListOptions::latest(namespace));
        // The latest state: a stale count would undo charges of admission.
        let list = async move { storage.list(options).await };
        let listed = sized::list(of.storage.count(), list).await??;
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
                // So many are large together, and adding up the sizes of a hundred thousand takes milliseconds itself.
                true if entries.len() >= sized::LARGE / sized::SMALLEST => entries.len() * sized::SMALLEST,
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
                // `counts` also registers the resource with zero usage, hence before the entries.
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
    fn a_resize_in_place_changes_the_usage_of_a_pod_and_its_start_does_not() {
        let pod = |status: Value| PodUsage::from_entry(&entry("x/a", &json!({"metadata": {}, "status": (status)})));
        let of = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let waiting = pod(json!({"phase": "Pending"}));
        for list in ["containerStatuses", "initContainerStatuses"] {
            let status = |statuses: Value| {
                let mut status = json!({"phase": "Running"});
                status.set(&[list], statuses);
                pod(status)
            };
            let running = status(json!([(of("a", "2")), (of("b", "1"))]));
            assert!(!waiting.changes_to(&running) && !running.changes_to(&waiting));
            let reordered = status(json!([(of("b", "1")), (of("a", "2"))]));
            assert!(!running.changes_to(&reordered));
            let shrunk = status(json!([(of("a", "1")), (of("b", "1"))]));
            assert!(running.changes_to(&shrunk));
        }
        assert!(waiting.changes_to(&pod(json!({"phase": "Failed"}))));
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
