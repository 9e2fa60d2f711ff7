//! The resources of node.k8s.io/v1.

use crate::controlplane::columns::devices as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::runtime_class::RUNTIME_CLASS;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "node.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("runtimeclasses", "RuntimeClass")
            .strategy(RUNTIME_CLASS)
            .columns(columns::runtime_classes())
            .conditional_update()
            .create_on_update()
            .build(),
    ]
}
