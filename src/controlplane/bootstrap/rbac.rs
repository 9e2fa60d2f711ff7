//! Reconciles the default roles and bindings: missing objects are created, incomplete ones extended, and
//! nothing is ever removed (upstream's `plugin/pkg/auth/authorizer/rbac/bootstrappolicy` and
//! `k8s.io/component-helpers/auth/rbac/reconciliation`). Start at [`ensure`].
//!
//! ```text
//! live object                        role                          binding
//! missing                            create                        create
//! autoupdate: "false"                leave                         leave
//! lacks rules, selectors, subjects   append them                   append them
//! lacks labels or annotations        add them, existing keys win   add them
//! has additional content             keep it                       keep it
//! other roleRef                      -                             delete and create: roleRef is immutable
//! ```

mod controller_roles;
mod cover;
mod policy;
mod system_roles;
mod user_roles;

use super::super::ControlPlane;
use super::{MANAGER, change, create_if_missing, find, for_each_concurrently, namespaces};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::validation::rbac::GROUP;
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::DeleteOptions;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use policy::{AUTOUPDATE, Binding, Role};

/// Creates and extends the default roles and bindings. Idempotent, hence cancel safe.
///
/// # Errors
/// The first failure. Other objects of the same kind are still processed.
pub(crate) fn ensure(plane: &ControlPlane) -> BoxFuture<'_, Result<()>> {
    async move {
        let [cluster_roles, cluster_bindings, roles, bindings] = objects();
        let store = |plural| &**plane.store(GROUP, plural);
        let one = |store, object| ensure_one(store, object);
        // The namespaces come first: the roles and bindings of kube-system and kube-public are created in
        // them.
        let spaces = namespaces::ensure(plane).await;
        // Together, so that on a first start they share commits of the store. They are queued in this order.
        let (cluster_roles, cluster_bindings, roles, bindings) = tokio::join!(
            biased;
            for_each_concurrently(cluster_roles, |o| one(store("clusterroles"), o)),
            for_each_concurrently(cluster_bindings, |o| one(store("clusterrolebindings"), o)),
            for_each_concurrently(roles, |o| one(store("roles"), o)),
            for_each_concurrently(bindings, |o| one(store("rolebindings"), o)),
        );
        spaces.and(cluster_roles).and(cluster_bindings).and(roles).and(bindings)
    }
    .boxed()
}

/// The rules of ClusterRole `system:node`, which the Node authorizer grants to every node.
pub(crate) fn node_rules() -> Vec<Value> {
    let roles = system_roles::CLUSTER_ROLES.iter();
    let node = roles.filter(|r| r.name == "system:node").map(Role::object);
    node.flat_map(|r| r.get("rules").items().to_vec()).collect()
}

/// The default objects: ClusterRoles, ClusterRoleBindings, Roles, RoleBindings.
fn objects() -> [Vec<Value>; 4] {
    let controllers = controller_roles::CONTROLLERS.iter().map(|(name, rules)| {
        let full = format!("system:controller:{name}");
        let account = [format!("kube-system:{name}")];
        (
            policy::role_object("", &full, rules),
            policy::binding_object("", &full, &full, &account),
        )
    });
    let (controller_roles, controller_bindings): (Vec<Value>, Vec<Value>) = controllers.unzip();
    let roles = |tables: &[&[Role]]| tables.concat_objects(Role::object);
    let bindings = |tables: &[&[Binding]]| tables.concat_objects(Binding::object);
    let mut cluster_roles = roles(&[user_roles::ROLES, system_roles::CLUSTER_ROLES]);
    cluster_roles.extend(controller_roles);
    let mut cluster_bindings = bindings(&[user_roles::BINDINGS, system_roles::CLUSTER_BINDINGS]);
    cluster_bindings.extend(controller_bindings);
    [
        cluster_roles,
        cluster_bindings,
        roles(&[system_roles::ROLES]),
        bindings(&[system_roles::BINDINGS]),
    ]
}

trait Tables<T> {
    fn concat_objects(&self, object: impl Fn(&T) -> Value) -> Vec<Value>;
}

impl<T> Tables<T> for [&[T]] {
    fn concat_objects(&self, object: impl Fn(&T) -> Value) -> Vec<Value> {
        self.iter().flat_map(|t| t.iter()).map(object).collect()
    }
}

async fn ensure_one(store: &Store, wanted: Value) -> Result<()> {
    let (namespace, name) = (wanted.namespace().to_owned(), wanted.name().to_owned());
    let Some(live) = find(store, &namespace, &name).await? else {
        return create_if_missing(store, wanted, MANAGER).await;
    };
    if live.annotation(AUTOUPDATE) == Some("false") {
        return Ok(());
    }
    // Null on both sides for roles.
    if live.get("roleRef") != wanted.get("roleRef") {
        let options = DeleteOptions {
            // Spares a binding that an administrator has recreated since the read.
            uid: Some(live.uid().to_owned()),
            ..DeleteOptions::default()
        };
        store.delete(&Context::system(&namespace), &name, &options).await?;
        return create_if_missing(store, wanted, MANAGER).await;
    }
    // Compared first: the pass runs every minute, and normally has nothing to write.
    if extended(&live, &wanted) == live {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| *v = extended(v, &wanted)).await
}

/// The live object plus the wanted content it lacks.
fn extended(live: &Value, wanted: &Value) -> Value {
    let mut v = live.clone();
    for key in ["labels", "annotations"] {
        let members = wanted.at(&["metadata", key]).as_object();
        for (name, value) in members.into_iter().flat_map(|m| m.iter()) {
            // Values that an administrator has changed stay.
            if live.at(&["metadata", key, name]).is_null() {
                v.set(&["metadata", key, name], value.clone());
            }
        }
    }
    const SELECTORS: [&str; 2] = ["aggregationRule", "clusterRoleSelectors"];
    if wanted.get("aggregationRule").is_null() {
        // The aggregation controller would otherwise keep overwriting the rules.
        v.unset(&["aggregationRule"]);
        append(
            &mut v,
            &["rules"],
            cover::missing(live.get("rules").items(), wanted.get("rules").items()),
        );
    } else {
        append(&mut v, &SELECTORS, lacking(live.at(&SELECTORS), wanted.at(&SELECTORS)));
    }
    append(
        &mut v,
        &["subjects"],
        lacking(live.get("subjects"), wanted.get("subjects")),
    );
    v
}

fn lacking(live: &Value, wanted: &Value) -> Vec<Value> {
    // Quadratic, but `wanted` comes from the built-in tables and is short.
    let new = |x: &&Value| !live.items().contains(x);
    wanted.items().iter().filter(new).cloned().collect()
}

fn append(v: &mut Value, path: &[&str], more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    let mut all = v.at(path).items().to_vec();
    all.extend(more);
    v.set(path, all);
}

#[cfg(test)]
mod tests;
