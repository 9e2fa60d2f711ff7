//! The resources of rbac.authorization.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::rbac::{EscalationGuard, Role, RoleBinding};
use crate::controlplane::validation::rbac::GROUP;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: GROUP,
    version: "v1",
};

/// The resources of the group; `guard` prevents privilege escalation by writers.
pub(crate) fn rows(guard: &EscalationGuard) -> Vec<Resource> {
    vec![
        V1.kind("clusterrolebindings", "ClusterRoleBinding")
            .strategy(RoleBinding {
                namespaced: false,
                guard: guard.clone(),
            })
            .columns(columns::cluster_role_bindings())
            .create_on_update()
            .build(),
        V1.kind("clusterroles", "ClusterRole")
            .strategy(Role {
                namespaced: false,
                guard: guard.clone(),
            })
            .columns(columns::created_at())
            .create_on_update()
            .build(),
        V1.kind("rolebindings", "RoleBinding")
            .namespaced()
            .strategy(RoleBinding {
                namespaced: true,
                guard: guard.clone(),
            })
            .columns(columns::role_bindings())
            .create_on_update()
            .build(),
        V1.kind("roles", "Role")
            .namespaced()
            .strategy(Role {
                namespaced: true,
                guard: guard.clone(),
            })
            .columns(columns::created_at())
            .create_on_update()
            .build(),
    ]
}
