//! Pods: a node may create its mirror pods, delete and evict the pods that run on it, and update their
//! status.

use super::{NodeRequest, absent};
use crate::admission::plugins::pods::{MIRROR, is_mirror, projects, references_config_maps, references_secrets};
use crate::admission::{ObjectLookup, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;

pub(super) async fn check(cluster: &ObjectLookup, asked: &NodeRequest<'_>) -> Result<()> {
    let (me, operation) = (asked.node, asked.attributes.operation);
    match (asked.attributes.subresource.as_str(), operation) {
        ("", Operation::Create) => create(cluster, asked).await,
        ("", Operation::Delete) => match asked.old().str_at(&["spec", "nodeName"]) == me {
            true => Ok(()),
            false => asked.no(format!(
                "node {me:?} can only delete pods with spec.nodeName set to itself"
            )),
        },
        ("", operation) => asked.no(format!(
            "unexpected operation {:?}, node {me:?} can only create and delete mirror pods",
            operation.as_str()
        )),
        ("status", Operation::Update) => status(asked),
        ("eviction", Operation::Create) => eviction(cluster, asked).await,
        ("status", operation) => asked.no(format!("unexpected operation {:?}", operation.as_str())),
        ("eviction", operation) => asked.no(format!("unexpected operation {}", operation.as_str())),
        (sub, _) => asked.no(format!(
            "unexpected pod subresource {sub:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

async fn create(cluster: &ObjectLookup, asked: &NodeRequest<'_>) -> Result<()> {
    let (me, pod) = (asked.node, asked.object);
    if !is_mirror(pod) {
        return asked.no(format!(
            "pod does not have {MIRROR:?} annotation, node {me:?} can only create mirror pods"
        ));
    }
    if pod.str_at(&["spec", "nodeName"]) != me {
        return asked.no(format!(
            "node {me:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    owner(cluster, asked).await?;
    let spec = pod.get("spec");
    // The Node authorizer lets a node read what its Pods reference: a mirror pod must not widen that.
    let what = if !spec.str_at(&["serviceAccountName"]).is_empty() {
        "a service account"
    } else if references_secrets(pod) {
        "secrets"
    } else if references_config_maps(pod) {
        "configmaps"
    } else if projects(pod, "clusterTrustBundle") {
        "clustertrustbundles"
    } else if has_claim(spec) {
        "persistentvolumeclaims"
    } else if !spec.get("resourceClaims").items().is_empty() {
        "resourceclaims"
    } else {
        return Ok(());
    };
    asked.no(format!("node {me:?} can not create pods that reference {what}"))
}

fn has_claim(spec: &Value) -> bool {
    let volumes = spec.get("volumes").items();
    volumes.iter().any(|v| !v.get("persistentVolumeClaim").is_null())
}

async fn owner(cluster: &ObjectLookup, asked: &NodeRequest<'_>) -> Result<()> {
    let (me, pod) = (asked.node, asked.object);
    let can_only = |what: &str| asked.no(format!("node {me:?} can only create pods with {what} set to itself"));
    let owner = match pod.at(&["metadata", "ownerReferences"]).items() {
        [] => return can_only("an owner reference"),
        [owner] => owner,
        _ => return can_only("a single owner reference"),
    };
    let is_me = owner.api_version() == "v1" && ObjectView::kind(owner) == "Node" && owner.str_at(&["name"]) == me;
    if !is_me {
        return can_only("an owner reference");
    }
    if owner.get("controller").as_bool() != Some(true) {
        return can_only("a controller owner reference");
    }
    if owner.get("blockOwnerDeletion").as_bool() == Some(true) {
        return asked.no(format!(
            "node {me:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    // The UID must be the current Node's: a reference to a former one would let garbage collection delete the pod.
    let node = cluster.get_cached("", "nodes", "", me).await?;
    let node = node.ok_or_else(|| absent(("", "node"), me))?;
    let claimed = owner.str_at(&["uid"]);
    match claimed == node.uid() {
        true => Ok(()),
        false => asked.no(format!("node {me} UID mismatch: expected {claimed} got {}", node.uid())),
    }
}

fn status(asked: &NodeRequest<'_>) -> Result<()> {
    let (me, new, old) = (asked.node, asked.object, asked.old());
    // The stored Pod: the one in the request is under the node's control.
    if old.str_at(&["spec", "nodeName"]) != me {
        return asked.no(format!(
            "node {me:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = ["metadata", "labels"];
    let none = |v: &Value| v.is_empty_value();
    // Go does not tell an absent map from an empty one.
    let same = |path: &[&str]| new.at(path) == old.at(path) || none(new.at(path)) && none(old.at(path));
    if !same(&labels) {
        return asked.no(format!("node {me:?} cannot update labels through pod status"));
    }
    if !same(&["status", "resourceClaimStatuses"]) {
        // The misspelling is upstream's.
        return asked.no(format!("node {me:?} cannot update resource claim statues"));
    }
    if !same(&["status", "extendedResourceClaimStatus"]) {
        return asked.no(format!("node {me:?} cannot update extended resource claim status"));
    }
    Ok(())
}

async fn eviction(cluster: &ObjectLookup, asked: &NodeRequest<'_>) -> Result<()> {
    // The name may only be in the Eviction itself.
    let name = match asked.attributes.name.as_str() {
        "" => asked.object.name(),
        name => name,
    };
    if name.is_empty() {
        return asked.no("could not determine pod from request data");
    }
    let pod = cluster
        .get_cached("", "pods", &asked.attributes.namespace, name)
        .await?;
    let pod = pod.ok_or_else(|| absent(("", "pod"), name))?;
    match pod.str_at(&["spec", "nodeName"]) == asked.node {
        true => Ok(()),
        false => asked.no(format!(
            "node {} can only evict pods with spec.nodeName set to itself",
            asked.node
        )),
    }
}
