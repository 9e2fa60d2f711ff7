//! Options → the authorizers in the operator's order, and what feeds them.

use crate::authz::node::{self, Graph, Node};
use crate::authz::rbac::{self, PolicyRule, Rbac};
use crate::authz::{AlwaysAllow, AlwaysDeny, Authorizer, PrivilegedGroups, Union};
use crate::cli::CompletedOptions;
use crate::cli::options::AuthorizationMode;
use crate::controlplane::ControlPlane;
use crate::controlplane::bootstrap;
use crate::tasks::{Signal, TaskGroup};
use std::sync::Arc;

/// Whether callers may.
pub struct Access {
    /// `system:masters`, then the modes.
    pub authorizer: Arc<dyn Authorizer>,
    /// Roles and bindings; followed whatever the modes, since who may write them is judged by them.
    pub roles: Arc<Rbac>,
    graph: Option<Arc<Graph>>,
}

/// Builds them. They know nothing, and allow only `system:masters`, until [`Access::start`].
pub fn build(options: &CompletedOptions) -> Access {
    let roles = Rbac::new();
    let mut graph = None;
    let mut members: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroups::masters())];
    for mode in &options.authorization.modes {
        members.push(match mode {
            AuthorizationMode::AlwaysAllow => Arc::new(AlwaysAllow),
            AuthorizationMode::AlwaysDeny => Arc::new(AlwaysDeny),
            AuthorizationMode::Rbac => roles.clone(),
            AuthorizationMode::Node => {
                let graph = graph.get_or_insert_with(Graph::new).clone();
                let rules = bootstrap::rbac::node_rules();
                Arc::new(Node::new(graph, rules.iter().map(PolicyRule::parse).collect()))
            }
        });
    }
    Access {
        authorizer: Arc::new(Union::new(members)),
        roles,
        graph,
    }
}

impl Access {
    /// Reads what decisions depend on from now on. The signals fire when all of it is known.
    pub fn start(&self, plane: &ControlPlane, tasks: &TaskGroup) -> Vec<Signal> {
        const RBAC: &str = "rbac.authorization.k8s.io";
        let storage = |group: &str, plural: &str| plane.store(group, plural).storage().clone();
        let feeds = self.roles.follow(&rbac::Sources {
            cluster_roles: storage(RBAC, "clusterroles"),
            cluster_role_bindings: storage(RBAC, "clusterrolebindings"),
            roles: storage(RBAC, "roles"),
            role_bindings: storage(RBAC, "rolebindings"),
        });
        let mut synced = feeds.synced().to_vec();
        feeds.start(tasks);
        if let Some(graph) = &self.graph {
            let slices = crate::apimachinery::gvk::GroupResource::new("resource.k8s.io", "resourceslices");
            let feeds = graph.follow(&node::Sources {
                pods: storage("", "pods"),
                volumes: storage("", "persistentvolumes"),
                attachments: storage("storage.k8s.io", "volumeattachments"),
                slices: plane.find(&slices).map(|(_, store)| store.storage().clone()),
            });
            synced.extend(feeds.synced().iter().cloned());
            feeds.start(tasks);
        }
        synced
    }
}
