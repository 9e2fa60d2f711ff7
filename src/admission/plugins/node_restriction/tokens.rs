//! Service account tokens: a node may request those of pods that run on it, for audiences that these pods
//! use.

use super::{NodeRequest, absent};
use crate::admission::{ObjectLookup, Operation};
use crate::apimachinery::field::aggregate_texts;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::{self, Authorizer, Decision};

pub(super) async fn check(cluster: &ObjectLookup, authorizer: &dyn Authorizer, asked: &NodeRequest<'_>) -> Result<()> {
    if asked.attributes.operation != Operation::Create || asked.attributes.subresource != "token" {
        return Ok(());
    }
    // A bound token ends with its Pod, so a node cannot collect tokens for later.
    let bound = asked.object.at(&["spec", "boundObjectRef"]);
    let name = bound.str_at(&["name"]);
    if bound.api_version() != "v1" || ObjectView::kind(bound) != "Pod" || name.is_empty() {
        return asked.no("node requested token not bound to a pod");
    }
    let uid = bound.str_at(&["uid"]);
    // Without it, the token would also be valid for a later pod of the same name.
    if uid.is_empty() {
        return asked.no("node requested token with a pod binding without a uid");
    }
    let pod = cluster
        .get_cached("", "pods", &asked.attributes.namespace, name)
        .await?;
    let pod = pod.ok_or_else(|| absent(("", "pod"), name))?;
    if pod.uid() != uid {
        return asked.no(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if pod.str_at(&["spec", "nodeName"]) != asked.node {
        return asked.no("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match asked.object.at(&["spec", "audiences"]).items() {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return asked.no("node may only request 0 or 1 audiences"),
    };
    let used = match uses(cluster, &pod, audience).await? {
        Used::Unknown(why) => return asked.no(format!("error validating audience {audience:?}: {why}")),
        Used::Yes => true,
        Used::No => false,
    };
    // The cheap check first; the authorizer may call a webhook.
    if used || granted(authorizer, asked, audience).await {
        return Ok(());
    }
    asked.no(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        asked.attributes.user.name
    ))
}

/// Whether a pod uses tokens for an audience.
enum Used {
    Yes,
    No,
    /// Undecidable because an object is missing; with the messages about missing objects.
    Unknown(String),
}

/// Checks whether a projected volume of the pod, or the CSI driver of one of its volumes, uses the audience.
/// Missing objects on the way to a driver matter only if no other volume uses it.
async fn uses(cluster: &ObjectLookup, pod: &Value, audience: &str) -> Result<Used> {
    let mut missing: Vec<String> = Vec::new();
    for volume in pod.at(&["spec", "volumes"]).items() {
        for source in volume.at(&["projected", "sources"]).items() {
            let token = source.get("serviceAccountToken");
            if !token.is_null() && token.str_at(&["audience"]) == audience {
                return Ok(Used::Yes);
            }
        }
        match driver_wants(cluster, pod, volume, audience).await {
            Ok(true) => return Ok(Used::Yes),
            Ok(false) => {}
            // Remembered, not fatal: another volume may use the audience.
            Err(s) if s.code == 404 => missing.push(s.message),
            Err(s) => return Err(s),
        }
    }
    Ok(match missing.is_empty() {
        true => Used::No,
        false => Used::Unknown(aggregate_texts(missing)),
    })
}

async fn driver_wants(cluster: &ObjectLookup, pod: &Value, volume: &Value, audience: &str) -> Result<bool> {
    let claim = volume.str_at(&["persistentVolumeClaim", "claimName"]);
    let driver = if !volume.at(&["ephemeral", "volumeClaimTemplate"]).is_null() {
        // The claim of a generic ephemeral volume is named after the pod and the volume.
        let claim = format!("{}-{}", pod.name(), volume.str_at(&["name"]));
        driver_of(cluster, pod.namespace(), &claim).await?
    } else if !claim.is_empty() {
        driver_of(cluster, pod.namespace(), claim).await?
    } else {
        driver_in(volume)
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let found = cluster.get_cached("storage.k8s.io", "csidrivers", "", &driver).await?;
    let found = found.ok_or_else(|| absent(("storage.k8s.io", "csidriver"), &driver))?;
    let mut wanted = found.at(&["spec", "tokenRequests"]).items().iter();
    Ok(wanted.any(|r| r.str_at(&["audience"]) == audience))
}

/// The CSI driver behind a claim; empty if its volume has none.
async fn driver_of(cluster: &ObjectLookup, namespace: &str, claim: &str) -> Result<String> {
    let found = cluster
        .get_cached("", "persistentvolumeclaims", namespace, claim)
        .await?;
    let found = found.ok_or_else(|| absent(("", "persistentvolumeclaim"), claim))?;
    let name = found.str_at(&["spec", "volumeName"]);
    let volume = cluster.get_cached("", "persistentvolumes", "", name).await?;
    let volume = volume.ok_or_else(|| absent(("", "persistentvolume"), name))?;
    Ok(driver_in(volume.get("spec")))
}

/// The CSI driver of a volume source. In-tree volume types map to the driver that they were migrated to.
fn driver_in(source: &Value) -> String {
    let own = source.str_at(&["csi", "driver"]);
    let successor = |(key, driver): &(&str, &'static str)| (!source.get(key).is_null()).then_some(*driver);
    match own {
        "" => SUCCESSORS.iter().find_map(successor).unwrap_or_default().to_owned(),
        own => own.to_owned(),
    }
}

/// In-tree volume types, and the CSI drivers that they were migrated to.
const SUCCESSORS: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

async fn granted(authorizer: &dyn Authorizer, asked: &NodeRequest<'_>, audience: &str) -> bool {
    let question = authz::Attributes {
        user: &asked.attributes.user,
        verb: "request-serviceaccounts-token-audience",
        is_resource: true,
        api_group: "",
        api_version: "v1",
        namespace: &asked.attributes.namespace,
        resource: audience,
        subresource: "",
        name: &asked.attributes.name,
        path: "",
        field_selector: "",
        label_selector: "",
    };
    authorizer.authorize(&question).await.decision == Decision::Allow
}
