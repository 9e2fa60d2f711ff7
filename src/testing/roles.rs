//! Authorization by roles, without a store (the `access` benchmark).

use crate::authz::rbac::{Binding, Index, Role};
use crate::authz::{Authorizer, PrivilegedGroups, Rbac, Union};
use crate::json;
use std::sync::Arc;

/// The authorizers of `--authorization-mode=RBAC`. Each of `users` has a ClusterRole of their own, which lets
/// `user-<i>` read the pods of all namespaces.
pub fn authorizer(users: usize) -> Arc<dyn Authorizer> {
    let mut index = Index::default();
    for i in 0..users {
        let name = format!("user-{i}");
        let role = json!({"metadata": {"name": (name.as_str())},
            "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]});
        index.set_role(&name, Some(Arc::new(Role::parse(&role))));
        let binding = json!({"metadata": {"name": (name.as_str())},
            "roleRef": {"kind": "ClusterRole", "name": (name.as_str())},
            "subjects": [{"kind": "User", "name": (name.as_str())}]});
        index.set_binding(&name, Some(Arc::new(Binding::parse(&binding))));
    }
    let members: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroups::masters()), Rbac::fixed(index)];
    Arc::new(Union::new(members))
}
