//! The resources of policy/v1.

use crate::controlplane::columns::network as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::network;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "policy",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("poddisruptionbudgets", "PodDisruptionBudget")
            .namespaced()
            .short(&["pdb"])
            .strategy(network::POD_DISRUPTION_BUDGET)
            .columns(columns::pod_disruption_budgets())
            .conditional_update()
            .status()
            .build(),
    ]
}
