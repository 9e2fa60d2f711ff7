//! The compact notation of the default roles and bindings, and its expansion into objects. Start at [`Role`],
//! [`Binding`] and their `object` methods.
//!
//! A rule is one line, `groups resources verbs`, each a comma-separated list. `core` is the core group; `R`
//! stands for the read verbs, `W` for the write verbs; `resources{a,b}` restricts to resource names;
//! `url paths verbs` is a non-resource rule. Like upstream's rule builder, the expansion sorts all lists.

use crate::apimachinery::value::Value;
use crate::json;

/// Label of default objects.
const LABEL: &str = "kubernetes.io/bootstrapping";
/// Annotation; `"false"` exempts an object from reconciliation.
pub(super) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Permission to write events, shared by most controllers.
pub(super) const EVENTS: &str = "core,events.k8s.io events create,patch,update";
const API_GROUP: &str = "rbac.authorization.k8s.io";

/// A Role or ClusterRole that the server creates and keeps complete.
pub(super) struct Role {
    pub name: &'static str,
    /// Empty for a ClusterRole.
    pub namespace: &'static str,
    /// The role it is aggregated to (`admin`: label `…/aggregate-to-admin`), or empty.
    pub aggregate_to: &'static str,
    /// Aggregates the roles labelled `…/aggregate-to-` this, and has no rules of its own; or empty.
    pub aggregates: &'static str,
    /// One line per rule.
    pub rules: &'static [&'static str],
}

/// A RoleBinding or ClusterRoleBinding that the server creates and keeps complete.
pub(super) struct Binding {
    pub name: &'static str,
    /// Empty for a ClusterRoleBinding.
    pub namespace: &'static str,
    /// Name of the bound role, which is in the same scope.
    pub role: &'static str,
    /// `Group/x`, `User/x` or `namespace:name` of a service account.
    pub subjects: &'static [&'static str],
}

/// A ClusterRole with rules of its own, neither aggregated nor aggregating.
pub(super) const fn cluster(name: &'static str, rules: &'static [&'static str]) -> Role {
    Role {
        name,
        namespace: "",
        aggregate_to: "",
        aggregates: "",
        rules,
    }
}

pub(super) const fn role(namespace: &'static str, name: &'static str, rules: &'static [&'static str]) -> Role {
    Role {
        namespace,
        ..cluster(name, rules)
    }
}

/// A ClusterRoleBinding to the ClusterRole of the same name.
pub(super) const fn bind(name: &'static str, subjects: &'static [&'static str]) -> Binding {
    Binding {
        name,
        namespace: "",
        role: name,
        subjects,
    }
}

/// Prefixes a kind with `Cluster` if it is not namespaced.
fn kind(namespace: &str, of: &str) -> String {
    if namespace.is_empty() {
        format!("Cluster{of}")
    } else {
        of.to_owned()
    }
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut v = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "labels": {}, "annotations": {}},
    });
    if !namespace.is_empty() {
        v.set(&["metadata", "namespace"], namespace);
    }
    v.set(&["metadata", "labels", LABEL], "rbac-defaults");
    v.set(&["metadata", "annotations", AUTOUPDATE], "true");
    v
}

fn aggregate_label(to: &str) -> String {
    format!("{API_GROUP}/aggregate-to-{to}")
}

/// A role with these rules.
pub(super) fn role_object(namespace: &str, name: &str, rules: &[&str]) -> Value {
    let mut v = object(&kind(namespace, "Role"), namespace, name);
    v.set(&["rules"], rules.iter().map(|line| rule(line)).collect::<Vec<_>>());
    v
}

/// A binding of the role to these subjects; `subjects` is omitted rather than empty.
pub(super) fn binding_object(namespace: &str, name: &str, role: &str, subjects: &[impl AsRef<str>]) -> Value {
    let mut v = object(&kind(namespace, "RoleBinding"), namespace, name);
    let of = kind(namespace, "Role");
    v.set(&["roleRef"], json!({"apiGroup": API_GROUP, "kind": of, "name": role}));
    if !subjects.is_empty() {
        let all = subjects.iter().map(|s| subject(s.as_ref())).collect::<Vec<_>>();
        v.set(&["subjects"], all);
    }
    v
}

impl Role {
    pub(super) fn object(&self) -> Value {
        let mut v = role_object(self.namespace, self.name, self.rules);
        if !self.aggregate_to.is_empty() {
            v.set(&["metadata", "labels", &aggregate_label(self.aggregate_to)], "true");
        }
        if !self.aggregates.is_empty() {
            let mut selector = Value::object();
            selector.set(&["matchLabels", &aggregate_label(self.aggregates)], "true");
            v.set(&["aggregationRule", "clusterRoleSelectors"], vec![selector]);
            // The aggregation controller fills in the rules.
            v.set(&["rules"], Value::Null);
        }
        v
    }
}

impl Binding {
    pub(super) fn object(&self) -> Value {
        binding_object(self.namespace, self.name, self.role, self.subjects)
    }
}

fn subject(text: &str) -> Value {
    // The slash first: names of users and groups contain colons.
    match text.split_once('/') {
        Some((kind, name)) => json!({"apiGroup": API_GROUP, "kind": kind, "name": name}),
        None => {
            let (namespace, name) = text.split_once(':').unwrap_or(("kube-system", text));
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
    }
}

fn sorted(list: &str, each: impl Fn(&str) -> Vec<&str>) -> Value {
    let mut all: Vec<&str> = list.split(',').flat_map(each).collect();
    all.sort_unstable();
    Value::from(all.into_iter().map(Value::from).collect::<Vec<_>>())
}

fn verbs(list: &str) -> Value {
    sorted(list, |word| match word {
        "R" => vec!["get", "list", "watch"],
        "W" => vec!["create", "delete", "deletecollection", "patch", "update"],
        one => vec![one],
    })
}

/// Expands one line into a PolicyRule.
fn rule(line: &str) -> Value {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    // Not validated: lines are constants, and a test expands every one of them.
    let (groups, resources, what) = (word(), word(), word());
    let mut v = Value::object();
    if groups == "url" {
        v.set(&["nonResourceURLs"], sorted(resources, |r| vec![r]));
    } else {
        let (resources, names) = resources.split_once('{').unwrap_or((resources, ""));
        v.set(
            &["apiGroups"],
            sorted(groups, |g| vec![if g == "core" { "" } else { g }]),
        );
        v.set(&["resources"], sorted(resources, |r| vec![r]));
        if !names.is_empty() {
            v.set(&["resourceNames"], sorted(names.trim_end_matches('}'), |n| vec![n]));
        }
    }
    v.set(&["verbs"], verbs(what));
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_expand_to_rules() {
        assert_eq!(
            rule("core,apps pods,bindings{b,a} W,R"),
            json!({"apiGroups": ["", "apps"], "resources": ["bindings", "pods"], "resourceNames": ["a", "b"],
                   "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]})
        );
        assert_eq!(
            rule("url /version,/healthz get"),
            json!({"nonResourceURLs": ["/healthz", "/version"], "verbs": ["get"]})
        );
    }

    #[test]
    fn an_aggregated_role_has_no_rules() {
        let admin = Role {
            aggregates: "admin",
            ..cluster("admin", &[])
        };
        assert_eq!(
            admin.object(),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": null,
                "metadata": {"name": "admin", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                             "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
                "aggregationRule": {"clusterRoleSelectors": [
                    {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}]},
            })
        );
    }
}
