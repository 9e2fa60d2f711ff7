//! Workload, volume and quota resources of core/v1.

use super::V1;
use crate::controlplane::columns::{others, storage, workloads as columns};
use crate::controlplane::fields::count;
use crate::controlplane::groups::apps::scaled;
use crate::controlplane::strategies::{volumes, workloads};
use crate::registry::resource::{Resource, SubresourceHandler};
use std::sync::Arc;

/// The resources; `scale` handles `replicationcontrollers/scale`.
pub(super) fn rows(scale: Arc<dyn SubresourceHandler>) -> Vec<Resource> {
    vec![
        V1.kind("limitranges", "LimitRange")
            .namespaced()
            .short(&["limits"])
            .strategy(volumes::LIMIT_RANGE)
            .columns(others::created_at())
            .create_on_update()
            .build(),
        V1.kind("persistentvolumeclaims", "PersistentVolumeClaim")
            .namespaced()
            .short(&["pvc"])
            .strategy(volumes::PERSISTENT_VOLUME_CLAIM)
            .columns(storage::persistent_volume_claims())
            .returns_deleted()
            .status()
            .build(),
        V1.kind("persistentvolumes", "PersistentVolume")
            .short(&["pv"])
            .strategy(volumes::PERSISTENT_VOLUME)
            .columns(storage::persistent_volumes())
            .returns_deleted()
            .status()
            .build(),
        V1.kind("podtemplates", "PodTemplate")
            .namespaced()
            .strategy(workloads::POD_TEMPLATE)
            .columns(columns::pod_templates())
            .returns_deleted()
            .build(),
        scaled(
            V1.kind("replicationcontrollers", "ReplicationController")
                .namespaced()
                .short(&["rc"])
                .category("all")
                .stored_at("controllers")
                .strategy(workloads::REPLICATION_CONTROLLER)
                .columns(columns::replication_controllers())
                .selectable(["status.replicas"], |v| [count(v, &["status", "replicas"])]),
            scale,
        )
        .status()
        .build(),
        V1.kind("resourcequotas", "ResourceQuota")
            .namespaced()
            .short(&["quota"])
            .strategy(volumes::RESOURCE_QUOTA)
            .columns(storage::resource_quotas())
            .returns_deleted()
            .status()
            .build(),
    ]
}
