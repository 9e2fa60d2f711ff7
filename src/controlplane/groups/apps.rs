//! The resources of apps/v1.

use crate::apimachinery::gvk::GroupVersionKind;
use crate::controlplane::columns::workloads as columns;
use crate::controlplane::resource_builder::{GroupVersionBuilder, ResourceBuilder};
use crate::controlplane::strategies::workloads;
use crate::registry::resource::{Resource, SubresourceHandler, Verbs};
use std::sync::Arc;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "apps",
    version: "v1",
};

/// Handlers of the `scale` subresources.
pub(crate) struct Parts {
    /// `deployments/scale`
    pub deployments: Arc<dyn SubresourceHandler>,
    /// `replicasets/scale`
    pub replica_sets: Arc<dyn SubresourceHandler>,
    /// `statefulsets/scale`
    pub stateful_sets: Arc<dyn SubresourceHandler>,
}

/// Adds the `scale` subresource to a resource.
pub(super) fn scaled(row: ResourceBuilder, handler: Arc<dyn SubresourceHandler>) -> ResourceBuilder {
    let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
    row.custom("scale", kind, Verbs::GET_PATCH_UPDATE, handler)
}

/// The resources of the group.
pub(crate) fn rows(parts: Parts) -> Vec<Resource> {
    let row = |plural, kind| V1.kind(plural, kind).namespaced();
    vec![
        row("controllerrevisions", "ControllerRevision")
            .strategy(workloads::CONTROLLER_REVISION)
            .columns(columns::controller_revisions())
            .build(),
        row("daemonsets", "DaemonSet")
            .short(&["ds"])
            .category("all")
            .strategy(workloads::DAEMON_SET)
            .columns(columns::daemon_sets())
            .status()
            .build(),
        scaled(
            row("deployments", "Deployment")
                .short(&["deploy"])
                .category("all")
                .strategy(workloads::DEPLOYMENT)
                .columns(columns::deployments()),
            parts.deployments,
        )
        .status()
        .build(),
        scaled(
            row("replicasets", "ReplicaSet")
                .short(&["rs"])
                .category("all")
                .strategy(workloads::REPLICA_SET)
                .columns(columns::replica_sets()),
            parts.replica_sets,
        )
        .status()
        .build(),
        scaled(
            row("statefulsets", "StatefulSet")
                .short(&["sts"])
                .category("all")
                .strategy(workloads::STATEFUL_SET)
                .columns(columns::stateful_sets()),
            parts.stateful_sets,
        )
        .status()
        .build(),
    ]
}
