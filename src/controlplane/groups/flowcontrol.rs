//! The resources of flowcontrol.apiserver.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::flowcontrol::FlowControl;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "flowcontrol.apiserver.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("flowschemas", "FlowSchema")
            .strategy(FlowControl { levels: false })
            .columns(columns::flow_schemas())
            .status()
            .build(),
        V1.kind("prioritylevelconfigurations", "PriorityLevelConfiguration")
            .strategy(FlowControl { levels: true })
            .columns(columns::priority_levels())
            .status()
            .build(),
    ]
}
