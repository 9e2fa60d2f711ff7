//! Protection of volumes in use: removes the finalizers that admission adds to PersistentVolumeClaims and
//! PersistentVolumes, once a deleted claim is used by no Pod and a deleted volume is not bound
//! (`pkg/controller/volume/{pvcprotection,pvprotection}`).

use super::loopback::{Failure, JSON, Loopback, Path, encode, found};
use super::term::Term;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::storage::Entry;
use arc_swap::ArcSwap;
use imbl::OrdSet;
use std::sync::{Arc, LazyLock};

const CLAIMS: &str = "pvcprotection";
const VOLUMES: &str = "pvprotection";
/// Pods of one claim that are looked at before the task yields.
const BATCH: usize = 256;
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The claims that a Pod uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct PodClaims {
    /// Has a Node. Other Pods do not use their claims yet, and the kubelet does not start a Pod whose claim is being
    /// deleted.
    scheduled: bool,
    /// No longer runs, so that its claims are looked at again.
    terminated: bool,
    /// Names of claims. Both lists are sorted, for a binary search.
    names: Vec<Str>,
    /// Claims of ephemeral volumes, which are not in use any more when the Pod only waits to be removed.
    ephemeral: Vec<Str>,
    shut_down: bool,
}

static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.{deletionTimestamp,deletionGracePeriodSeconds}",
        "spec.nodeName",
        "spec.volumes",
        "status.phase",
    ])
});

impl PodClaims {
    fn from_entry(entry: &Entry) -> Self {
        let pod = entry.decode_parts(&PARTS);
        let mut claims = Self {
            scheduled: !pod.str_at(&["spec", "nodeName"]).is_empty(),
            terminated: matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed"),
            shut_down: pod.is_being_deleted()
                && pod.at(&["metadata", "deletionGracePeriodSeconds"]).as_i64() == Some(0),
            ..Self::default()
        };
        for volume in pod.at(&["spec", "volumes"]).items() {
            let claim = volume.str_at(&["persistentVolumeClaim", "claimName"]);
            if !claim.is_empty() {
                claims.names.push(claim.into());
            } else if !volume.get("ephemeral").is_null() {
                // The claim of a generic ephemeral volume; upstream's `ephemeral.VolumeClaimName`.
                let name = format!("{}-{}", entry.name(), volume.str_at(&["name"]));
                claims.ephemeral.push(name.into());
            }
        }
        claims.names.sort_unstable();
        claims.ephemeral.sort_unstable();
        claims
    }

    fn uses(&self, claim: &str) -> bool {
        let listed = |names: &[Str]| names.binary_search_by(|n| n.as_str().cmp(claim)).is_ok();
        self.scheduled && (listed(&self.names) || !self.shut_down && listed(&self.ephemeral))
    }
}

/// The keys of claims, each with the key of a Pod that lists it: finding the Pods of a claim does not cost time in the
/// number of all Pods of its namespace. The informer replaces the set, so no reader waits while a Pod with thousands of
/// claims is entered.
#[derive(Default)]
struct ByClaim(ArcSwap<OrdSet<(Str, Str)>>);

impl ByClaim {
    fn follow(&self, change: &Change<'_, PodClaims>) {
        let same = |(old, new): (&Arc<PodClaims>, &Arc<PodClaims>)| {
            (&old.names, &old.ephemeral) == (&new.names, &new.ephemeral)
        };
        if change.old.zip(change.new).is_some_and(same) {
            return;
        }
        let pod = Str::from(change.key);
        // Shares its structure with the one that readers have.
        let mut pods = OrdSet::clone(&self.0.load());
        for claim in change.old.iter().flat_map(|p| listed_claims(change.key, p)) {
            pods.remove(&(claim, pod.clone()));
        }
        for claim in change.new.iter().flat_map(|p| listed_claims(change.key, p)) {
            pods.insert((claim, pod.clone()));
        }
        self.0.store(Arc::new(pods));
    }

    /// Whether a Pod uses a claim.
    async fn is_used(&self, pods: &Informer<PodClaims>, key: &str) -> bool {
        let Some((_, claim)) = key.split_once('/') else {
            return false;
        };
        let (by_claim, all) = (self.0.load_full(), pods.snapshot());
        // No key is empty, so this is before the first Pod of the claim.
        let from = by_claim.range::<_, (Str, Str)>((Str::from(key), Str::default())..);
        for (n, (of, pod)) in from.enumerate() {
            if of.as_str() != key {
                return false;
            }
            if all.get(&**pod).is_some_and(|p| p.uses(claim)) {
                return true;
            }
            if n % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
        }
        false
    }
}

/// The keys of the claims that a Pod lists.
fn listed_claims(pod: &str, claims: &PodClaims) -> impl Iterator<Item = Str> {
    let namespace = pod.split_once('/').map_or("", |(namespace, _)| namespace);
    let names = claims.names.iter().chain(&claims.ephemeral);
    names.map(move |name| format!("{namespace}/{name}").into())
}

/// A claim or a volume.
#[derive(Debug, PartialEq, Eq)]
struct Protected {
    /// Being deleted, with the finalizer.
    candidate: bool,
    bound: bool,
}

fn protected(entry: &Entry, finalizer: &str) -> Protected {
    static PARTS: LazyLock<Mask> =
        LazyLock::new(|| Mask::of(&["metadata.{deletionTimestamp,finalizers}", "status.phase"]));
    let object = entry.decode_parts(&PARTS);
    Protected {
        candidate: object.is_being_deleted() && object.finalizers().contains(&finalizer),
        bound: object.str_at(&["status", "phase"]) == "Bound",
    }
}

/// Removes the finalizer from the claims.
pub(crate) fn start_claims(term: &Term) {
    let queue = term.queue::<Str>(CLAIMS);
    let (of_claims, of_pods) = (queue.clone(), queue.clone());
    let by_claim = Arc::new(ByClaim::default());
    let index = by_claim.clone();
    let claims = term.inform(
        ("", "persistentvolumeclaims"),
        |entry| protected(entry, CLAIM_FINALIZER),
        |claims| {
            claims.subscribe(move |change: &Change<'_, Protected>| {
                // At the start, every claim is reported as created, so earlier deletions are not missed.
                if change.new.is_some_and(|c| c.candidate) {
                    of_claims.add(change.key.into());
                }
            });
        },
    );
    let pods = term.inform(("", "pods"), PodClaims::from_entry, |pods| {
        pods.subscribe(move |change: &Change<'_, PodClaims>| {
            // Before the claims are queued, so that their worker does not miss a Pod.
            index.follow(change);
            // Only a Pod that ends can release a claim.
            let ends = change.new.is_none_or(|p| p.terminated || p.shut_down || !p.scheduled);
            if let (Some(pod), true) = (change.old.or(change.new), ends) {
                listed_claims(change.key, pod).for_each(|claim| of_pods.add(claim));
            }
        });
    });
    let (Some(claims), Some(pods)) = (claims, pods) else {
        return;
    };
    let Some(storage) = term.storage("", "pods") else {
        return;
    };
    let api = term.client("pvc-protection-controller");
    term.process(CLAIMS, &queue, 1, move |key: Str| {
        let (api, claims, pods, storage) = (api.clone(), claims.clone(), pods.clone(), storage.clone());
        let by_claim = by_claim.clone();
        async move {
            // Most Pods that end use claims that are not being deleted.
            if claims.get(&key).is_none_or(|c| !c.candidate) {
                return Ok(());
            }
            // A Pod that was created before the claim's deletion must be seen; upstream lists from the server for this.
            pods.catch_up(&*storage).await;
            match by_claim.is_used(&pods, &key).await {
                // The Pod's end brings the claim back to the queue.
                true => Ok(()),
                false => release(&api, &key, "persistentvolumeclaims", CLAIM_FINALIZER).await,
            }
        }
    });
}

/// Removes the finalizer from the volumes.
pub(crate) fn start_volumes(term: &Term) {
    let queue = term.queue::<Str>(VOLUMES);
    let changed = queue.clone();
    let volumes = term.inform(
        ("", "persistentvolumes"),
        |entry| protected(entry, VOLUME_FINALIZER),
        |volumes| {
            volumes.subscribe(move |change: &Change<'_, Protected>| {
                // A bound volume comes back when its phase changes.
                if change.new.is_some_and(|v| v.candidate && !v.bound) {
                    changed.add(change.key.into());
                }
            });
        },
    );
    let Some(volumes) = volumes else { return };
    let api = term.client("pv-protection-controller");
    term.process(VOLUMES, &queue, 1, move |key: Str| {
        let (api, volumes) = (api.clone(), volumes.clone());
        async move {
            match volumes.get(&key) {
                Some(v) if v.candidate && !v.bound => release(&api, &key, "persistentvolumes", VOLUME_FINALIZER).await,
                _ => Ok(()),
            }
        }
    });
}

async fn release(api: &Loopback, key: &str, resource: &str, finalizer: &'static str) -> Result<(), Failure> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let path = Path::core(namespace, resource).name(name);
    let released = move |mut object: Value| {
        if !object.is_being_deleted() {
            return None;
        }
        let left = object.finalizers().into_iter().filter(|f| *f != finalizer);
        let left: Vec<Value> = left.map(Value::from).collect();
        object.set_meta("finalizers", left);
        // With its resourceVersion: a conflict brings the object back through the queue's backoff.
        Some(encode(&object))
    };
    match found(api.extract(path, JSON, released).await)?.flatten() {
        Some(object) => found(api.replace(path, object).await).map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};

    fn pod(object: &Value) -> PodClaims {
        PodClaims::from_entry(&Draft::new(object, Vec::new()).into_entry("a/p", Revision(1)))
    }

    #[test]
    fn the_pods_of_a_claim_are_found_by_it() {
        let of = |claim: &str| {
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
            Arc::new(pod(&json!({"metadata": {}, "spec": {"volumes": (volumes)}})))
        };
        let (index, first, second) = (ByClaim::default(), of("c"), of("d"));
        let listed = || {
            index
                .0
                .load()
                .iter()
                .map(|(claim, pod)| format!("{claim} {pod}"))
                .collect::<Vec<_>>()
        };
        let change = |key, old, new| index.follow(&Change { key, old, new });
        change("a/p", None, Some(&first));
        change("b/p", None, Some(&first));
        assert_eq!(listed(), ["a/c a/p", "b/c b/p"]);
        change("a/p", Some(&first), Some(&second));
        change("b/p", Some(&first), None);
        assert_eq!(listed(), ["a/d a/p"]);
    }

    #[test]
    fn a_scheduled_pod_uses_its_claims_until_it_is_shut_down() {
        let volumes =
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}}]);
        let waiting = json!({"metadata": {}, "spec": {"volumes": (volumes.clone())}});
        assert!(!pod(&waiting).uses("c"));
        let mut running = waiting;
        running.set(&["spec", "nodeName"], "n");
        assert!(pod(&running).uses("c") && pod(&running).uses("p-e") && !pod(&running).uses("other"));
        running.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        running.set_meta("deletionGracePeriodSeconds", 0);
        assert!(pod(&running).uses("c") && !pod(&running).uses("p-e"));
    }
}
