//! Tokens a node may ask for: those of pods that run on it, for audiences these pods use.

use super::{Asked, absent};
use crate::admission::{Cluster, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authz::{self, Authorizer, Decision};

pub(super) async fn check(cluster: &Cluster, authorizer: &dyn Authorizer, asked: &Asked<'_>) -> Result<()> {
    if asked.attributes.operation != Operation::Create || asked.attributes.subresource != "token" {
        return Ok(());
    }
    let bound = asked.object.at(&["spec", "boundObjectRef"]);
    let name = bound.str_at(&["name"]);
    if bound.api_version() != "v1" || ObjectView::kind(bound) != "Pod" || name.is_empty() {
        return asked.no("node requested token not bound to a pod");
    }
    let uid = bound.str_at(&["uid"]);
    if uid.is_empty() {
        return asked.no("node requested token with a pod binding without a uid");
    }
    let pod = cluster.find("", "pods", &asked.attributes.namespace, name).await?;
    let pod = pod.ok_or_else(|| absent("pod", name))?;
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
    if uses(cluster, &pod, audience).await? || granted(authorizer, asked, audience).await {
        return Ok(());
    }
    asked.no(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        asked.attributes.user.name
    ))
}

/// A projection of the pod, or the driver of one of its volumes, wants tokens for the audience.
async fn uses(cluster: &Cluster, pod: &Value, audience: &str) -> Result<bool> {
    let mut drivers: Vec<String> = Vec::new();
    for volume in pod.at(&["spec", "volumes"]).items() {
        for source in volume.at(&["projected", "sources"]).items() {
            let token = source.get("serviceAccountToken");
            if !token.is_null() && token.str_at(&["audience"]) == audience {
                return Ok(true);
            }
        }
        let claim = match volume.str_at(&["persistentVolumeClaim", "claimName"]) {
            // A claim made for the pod is called after both.
            "" if !volume.get("ephemeral").is_null() => format!("{}-{}", pod.name(), volume.str_at(&["name"])),
            name => name.to_owned(),
        };
        drivers.push(match volume.str_at(&["csi", "driver"]) {
            "" if claim.is_empty() => continue,
            "" => driver_of(cluster, pod.namespace(), &claim).await?,
            driver => driver.to_owned(),
        });
    }
    for driver in drivers.iter().filter(|d| !d.is_empty()) {
        let Some(driver) = cluster.find("storage.k8s.io", "csidrivers", "", driver).await? else {
            continue;
        };
        let mut wanted = driver.at(&["spec", "tokenRequests"]).items().iter();
        if wanted.any(|r| r.str_at(&["audience"]) == audience) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The driver behind a claim; empty where it is unbound or has none.
async fn driver_of(cluster: &Cluster, namespace: &str, claim: &str) -> Result<String> {
    let claim = cluster.find("", "persistentvolumeclaims", namespace, claim).await?;
    let volume = claim.as_ref().map_or("", |c| c.str_at(&["spec", "volumeName"]));
    if volume.is_empty() {
        return Ok(String::new());
    }
    let volume = cluster.find("", "persistentvolumes", "", volume).await?;
    Ok(volume.map_or_else(String::new, |v| v.str_at(&["spec", "csi", "driver"]).to_owned()))
}

async fn granted(authorizer: &dyn Authorizer, asked: &Asked<'_>, audience: &str) -> bool {
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
