//! The notation the default roles are written in, and the objects it stands for.
//!
//! A rule is one line: `groups resources verbs`, each a comma-separated list. `core` is the group without a name, `R` the
//! reading verbs, `W` the writing ones; `resources{a,b}` restricts to names; `url paths verbs` is a rule for paths.
//! As upstream's builder does, the finished lists are sorted.

use crate::apimachinery::value::Value;
use crate::json;

/// Marks what the server made, for people who look for it.
const LABEL: &str = "kubernetes.io/bootstrapping";
/// `"false"` keeps the server's hands off an object.
pub(super) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Where events are written.
pub(super) const EVENTS: &str = "core,events.k8s.io events create,patch,update";
const API_GROUP: &str = "rbac.authorization.k8s.io";

/// A default role.
pub(super) struct Role {
    /// Its name.
    pub name: &'static str,
    /// Where it lives; empty: a ClusterRole.
    pub namespace: &'static str,
    /// Roles it is aggregated to (`admin`: label `…/aggregate-to-admin`).
    pub part_of: &'static str,
    /// It is made of the roles that are part of this; it has no rules of its own then.
    pub made_of: &'static str,
    /// One rule a line.
    pub rules: &'static [&'static str],
}

/// A default binding, of the role of the same name.
pub(super) struct Binding {
    /// Its name, and that of its role.
    pub name: &'static str,
    /// Where it lives; empty: a ClusterRoleBinding.
    pub namespace: &'static str,
    /// The role where that is another name.
    pub role: &'static str,
    /// `Group/x`, `User/x` or `namespace:name` of a service account.
    pub subjects: &'static [&'static str],
}

/// A ClusterRole with rules.
pub(super) const fn cluster(name: &'static str, rules: &'static [&'static str]) -> Role {
    Role {
        name,
        namespace: "",
        part_of: "",
        made_of: "",
        rules,
    }
}

/// A Role.
pub(super) const fn role(namespace: &'static str, name: &'static str, rules: &'static [&'static str]) -> Role {
    Role {
        namespace,
        ..cluster(name, rules)
    }
}

/// A ClusterRoleBinding.
pub(super) const fn bind(name: &'static str, subjects: &'static [&'static str]) -> Binding {
    Binding {
        name,
        namespace: "",
        role: name,
        subjects,
    }
}

/// `kind: ClusterRole` and so on, as the object says it.
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

/// A role of these rules.
pub(super) fn role_object(namespace: &str, name: &str, rules: &[&str]) -> Value {
    let mut v = object(&kind(namespace, "Role"), namespace, name);
    v.set(&["rules"], rules.iter().map(|line| rule(line)).collect::<Vec<_>>());
    v
}

/// A binding of the role to these subjects; without any, it has no `subjects` at all.
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
    /// The object.
    pub(super) fn object(&self) -> Value {
        let mut v = role_object(self.namespace, self.name, self.rules);
        if !self.part_of.is_empty() {
            v.set(&["metadata", "labels", &aggregate_label(self.part_of)], "true");
        }
        if !self.made_of.is_empty() {
            let mut selector = Value::object();
            selector.set(&["matchLabels", &aggregate_label(self.made_of)], "true");
            v.set(&["aggregationRule", "clusterRoleSelectors"], vec![selector]);
            v.set(&["rules"], Value::Null);
        }
        v
    }
}

impl Binding {
    /// The object.
    pub(super) fn object(&self) -> Value {
        binding_object(self.namespace, self.name, self.role, self.subjects)
    }
}

fn subject(text: &str) -> Value {
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

/// The rule a line stands for.
fn rule(line: &str) -> Value {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
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
    fn a_line_is_a_rule() {
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
    fn a_role_made_of_others_has_no_rules() {
        let admin = Role {
            made_of: "admin",
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
