//! The resources of flowcontrol.apiserver.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::strategies::flowcontrol::FlowControl;
use crate::controlplane::table::Group;
use crate::registry::resource::Resource;

const V1: Group = Group {
    group: "flowcontrol.apiserver.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub fn rows() -> Vec<Resource> {
    vec![
        V1.kind("flowschemas", "FlowSchema")
            .strategy(FlowControl { levels: false })
            .columns(columns::flow_schemas())
            .status()
            .done(),
        V1.kind("prioritylevelconfigurations", "PriorityLevelConfiguration")
            .strategy(FlowControl { levels: true })
            .columns(columns::priority_levels())
            .status()
            .done(),
    ]
}
