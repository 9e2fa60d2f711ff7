//! The resources of coordination.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::lease;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "coordination.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("leases", "Lease")
            .namespaced()
            .strategy(lease::Lease)
            .columns(columns::leases())
            .conditional_update()
            .create_on_update()
            .build(),
    ]
}
