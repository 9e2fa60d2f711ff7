//! The system namespaces (upstream's `pkg/controlplane/controller/systemnamespaces`).

use super::super::ControlPlane;
use super::{MANAGER, create_if_missing, find, for_each_concurrently};
use crate::apimachinery::status::Result;

const NAMES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

pub(super) async fn ensure(plane: &ControlPlane) -> Result<()> {
    let store = plane.store("", "namespaces");
    for_each_concurrently(NAMES.map(str::to_owned).to_vec(), |name| one(store, name)).await
}

async fn one(store: &crate::registry::Store, name: String) -> Result<()> {
    // Runs every minute: a read is cheaper than a create that is refused.
    if find(store, "", &name).await?.is_some() {
        return Ok(());
    }
    let object = crate::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create_if_missing(store, object, MANAGER).await
}
