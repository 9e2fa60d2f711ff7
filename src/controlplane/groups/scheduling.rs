//! The resources of scheduling.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::scheduling::{GROUP, PriorityClass};
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: GROUP,
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("priorityclasses", "PriorityClass")
            .short(&["pc"])
            .strategy(PriorityClass)
            .columns(columns::priority_classes())
            .build(),
    ]
}
