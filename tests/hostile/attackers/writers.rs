//! Users who may write in one namespace.

mod bodies;
mod lists;
mod metadata;
mod patches;
mod rights;
mod specs;

use super::Cases;
use crate::form::Form;

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/evil/configmaps";
pub const PODS: &str = "/api/v1/namespaces/evil/pods";
pub const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/evil/roles";

pub fn all(cases: &mut Cases, form: &Form) {
    bodies::all(cases, form);
    metadata::all(cases, form);
    rights::all(cases, form);
    specs::all(cases, form);
    patches::all(cases, form);
    lists::all(cases, form);
}

/// `n` items made by `item`, joined by commas.
pub fn joined(n: usize, mut item: impl FnMut(usize) -> String) -> String {
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
pub fn config_map(name: &str, metadata: &str, rest: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"{}{metadata}}}{}{rest}}}"#,
        if metadata.is_empty() { "" } else { "," },
        if rest.is_empty() { "" } else { "," },
    )
}
