//! Validation of roles and bindings (upstream's `pkg/apis/rbac/validation`). Escalation checks are in the
//! strategies.

use super::common::go_struct;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_subdomain, path_segment_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, label_selector};
use crate::interrupt::checkpoint;

/// Upstream's internal `RoleRef`, see [`go_struct`].
const ROLE_REF: &[(&str, &str, &str)] = &[
    ("APIGroup", "apiGroup", "\"\""),
    ("Kind", "kind", "\"\""),
    ("Name", "name", "\"\""),
];

/// The API group of the RBAC kinds.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) fn role(v: &Value, namespaced: bool) -> ErrorList {
    let mut out = ErrorList::new();
    for (i, rule) in v.get("rules").items().iter().enumerate() {
        policy_rule(&mut out, rule, namespaced, &FieldPath::new("rules").index(i));
    }
    let aggregation = v.get("aggregationRule");
    // Only ClusterRoles can aggregate.
    if !namespaced && !aggregation.is_null() {
        let at = FieldPath::new("aggregationRule").child("clusterRoleSelectors");
        let selectors = aggregation.get("clusterRoleSelectors").items();
        if selectors.is_empty() {
            out.push(FieldError::required(
                &at,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
        for (i, s) in selectors.iter().enumerate() {
            // Upstream reports an invalid selector twice: in detail and as a whole.
            let before = out.len();
            label_selector(&mut out, s, &at.index(i));
            let bad = crate::apimachinery::selector::LabelSelector::from_object(s).is_err();
            if bad || out.len() > before {
                out.push(FieldError::invalid_raw(&at.index(i), "null", "invalid label selector."));
            }
        }
    }
    out
}

fn policy_rule(out: &mut ErrorList, rule: &Value, namespaced: bool, at: &FieldPath) {
    checkpoint();
    let list = |key: &str| rule.get(key).items();
    if list("verbs").is_empty() {
        out.push(FieldError::required(
            &at.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    let urls = rule.get("nonResourceURLs");
    if !urls.items().is_empty() {
        let at = at.child("nonResourceURLs");
        if namespaced {
            out.push(FieldError::invalid(
                &at,
                urls.clone(),
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|k| !list(k).is_empty())
        {
            out.push(FieldError::invalid(
                &at,
                urls.clone(),
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        // A rule is about URLs or about resources; the fields of the latter are then not required.
        return;
    }
    // The contents are free: a rule may mention resources that do not exist yet.
    if list("apiGroups").is_empty() {
        out.push(FieldError::required(
            &at.child("apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if list("resources").is_empty() {
        out.push(FieldError::required(
            &at.child("resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

pub(crate) fn binding(v: &Value, namespaced: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let reference = v.get("roleRef");
    let at = FieldPath::new("roleRef");
    let group = reference.str_at(&["apiGroup"]);
    if group != GROUP {
        out.push(FieldError::not_supported_string(&at.child("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced {
        // A ClusterRoleBinding cannot grant a Role, which exists in one namespace only.
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = reference.str_at(&["kind"]);
    if !kinds.contains(&kind) {
        out.push(FieldError::not_supported_string(&at.child("kind"), kind, kinds));
    }
    match reference.str_at(&["name"]) {
        "" => out.push(FieldError::required(&at.child("name"), "")),
        name => invalid_each(&mut out, &at.child("name"), name, path_segment_name(name)),
    }
    for (i, s) in v.get("subjects").items().iter().enumerate() {
        subject(&mut out, s, namespaced, &FieldPath::new("subjects").index(i));
    }
    out
}

fn subject(out: &mut ErrorList, s: &Value, namespaced: bool, at: &FieldPath) {
    checkpoint();
    let (name, group) = (s.str_at(&["name"]), s.str_at(&["apiGroup"]));
    if name.is_empty() {
        out.push(FieldError::required(&at.child("name"), ""));
    }
    match s.str_at(&["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                invalid_each(out, &at.child("name"), name, dns1123_subdomain(name));
            }
            if !group.is_empty() {
                out.push(FieldError::not_supported_string(&at.child("apiGroup"), group, &[""]));
            }
            // A RoleBinding may leave it out; such a subject never matches.
            if !namespaced && s.str_at(&["namespace"]).is_empty() {
                out.push(FieldError::required(&at.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                out.push(FieldError::not_supported_string(&at.child("apiGroup"), group, &[GROUP]));
            }
        }
        other => out.push(FieldError::not_supported_string(
            &at.child("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

pub(crate) fn binding_update(new: &Value, old: &Value, namespaced: bool) -> ErrorList {
    let mut out = binding(new, namespaced);
    let r = new.get("roleRef");
    // Otherwise whoever may update a binding could turn it into one of a stronger role.
    if r != old.get("roleRef") {
        // The bad value is printed like upstream's internal struct.
        let shown = go_struct(r, ROLE_REF);
        out.push(FieldError::invalid_raw(
            &FieldPath::new("roleRef"),
            shown,
            "cannot change roleRef",
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn role_errors_match_the_recordings() {
        let errors = |v: Value| aggregate(&role(&v, false));
        assert_eq!(
            errors(
                json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "nonResourceURLs": ["/x"], "verbs": ["get"]}]})
            ),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs"
        );
        assert_eq!(
            errors(json!({"aggregationRule": {"clusterRoleSelectors": []}})),
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
        );
        let s = errors(json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}}));
        assert!(
            s.starts_with("[aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: \"a b\": name part")
        );
        assert!(s.ends_with("aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.]"));
    }

    #[test]
    fn role_ref_is_immutable() {
        let old = json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}});
        let mut new = old.clone();
        new.set(&["roleRef", "name"], "other&");
        assert_eq!(
            aggregate(&binding_update(&new, &old, true)),
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\\u0026\"}: cannot change roleRef"
        );
    }
}
