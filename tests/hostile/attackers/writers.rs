//! Users who may write in one namespace.

mod bodies;
mod kubelets;
mod lists;
mod metadata;
mod patches;
mod references;
mod rights;
mod specs;

use super::Cases;
use crate::scale::Scale;

pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/evil/configmaps";
pub(super) const PODS: &str = "/api/v1/namespaces/evil/pods";
pub(super) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/evil/roles";

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    bodies::all(cases, scale);
    metadata::all(cases, scale);
    rights::all(cases, scale);
    specs::all(cases, scale);
    patches::all(cases, scale);
    references::all(cases, scale);
    lists::all(cases, scale);
    kubelets::all(cases, scale);
}

/// `n` items made by `item`, joined by commas.
pub(super) fn joined(n: usize, mut item: impl FnMut(usize) -> String) -> String {
    let mut out = String::new();
    for i in 0..n {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&item(i));
    }
    out
}

/// A ConfigMap with additional members of `metadata`, and additional members of the object.
pub(super) fn config_map(name: &str, metadata: &str, rest: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"{}{metadata}}}{}{rest}}}"#,
        if metadata.is_empty() { "" } else { "," },
        if rest.is_empty() { "" } else { "," },
    )
}
