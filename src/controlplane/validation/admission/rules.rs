//! Validation of match rules: operations, groups, versions and resources.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, optional_choice, strings};
use crate::interrupt::checkpoint;

const ALL_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// Operations of mutating policies: a deleted object cannot be changed any more.
const NOT_DELETE: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];

/// Validates the operations, groups, versions, resources and scope that a webhook or policy matches.
pub(super) fn rule(out: &mut ErrorList, rule: &Value, at: &FieldPath) {
    // A configuration may hold thousands of rules: stops early if the client is gone.
    checkpoint();
    let list = rule.get("operations");
    let all = strings(list);
    let at_operations = at.child("operations");
    if all.is_empty() {
        out.push(FieldError::required(&at_operations, ""));
    }
    if all.len() > 1 && all.contains(&"*") {
        out.push(FieldError::invalid(
            &at_operations,
            list.clone(),
            "if '*' is present, must not specify other operations",
        ));
    }
    for (i, op) in all
        .into_iter()
        .enumerate()
        .filter(|(_, op)| !ALL_OPERATIONS.contains(op))
    {
        out.push(FieldError::not_supported(&at_operations.index(i), op, ALL_OPERATIONS));
    }
    for (key, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.get(key);
        let all = strings(list);
        let at = at.child(key);
        if all.is_empty() {
            out.push(FieldError::required(&at, ""));
        }
        if all.len() > 1 && all.contains(&"*") {
            out.push(FieldError::invalid(
                &at,
                list.clone(),
                format!("if '*' is present, must not specify other {what}"),
            ));
        }
        // `""` is the core group, but not a version.
        if key == "apiVersions" {
            for (i, _) in all.iter().enumerate().filter(|(_, v)| v.is_empty()) {
                out.push(FieldError::required(&at.index(i), ""));
            }
        }
    }
    let list = rule.get("resources");
    if strings(list).is_empty() {
        out.push(FieldError::required(&at.child("resources"), ""));
    }
    resources(out, list, &at.child("resources"));
    optional_choice(out, rule, "scope", at, &["*", "Cluster", "Namespaced"]);
}

/// Validates a rule with `resourceNames`, as policies have.
pub(super) fn named_rule(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let mut seen: Seen<&str> = Seen::new();
    for (i, name) in strings(v.get("resourceNames")).into_iter().enumerate() {
        let at = at.child("resourceNames").index(i);
        invalid_each(out, &at, name, path_segment_name(name));
        if !seen.insert(name) {
            out.push(FieldError::duplicate(&at, name));
        }
    }
    // After the names, as upstream.
    rule(out, v, at);
}

/// Refuses the operations that mutating policies cannot match. Upstream's path has no index.
pub(super) fn mutable_operations(out: &mut ErrorList, rules: &Value, at: &FieldPath) {
    let at = at.child("operations");
    for rule in rules.items() {
        checkpoint();
        let all = strings(rule.get("operations")).into_iter();
        for op in all.filter(|op| !NOT_DELETE.contains(op)) {
            out.push(FieldError::not_supported(&at, op, NOT_DELETE));
        }
    }
}

fn resources(out: &mut ErrorList, list: &Value, at: &FieldPath) {
    let all = strings(list);
    // Order matters, as upstream: a wildcard is compared only with the entries after it, in one pass.
    let mut with_all_subs: Seen<&str> = Seen::new();
    let mut subs_of_all: Seen<&str> = Seen::new();
    let (mut single, mut double) = (false, false);
    let mut others_without_sub = false;
    for (i, r) in all.iter().enumerate() {
        if r.is_empty() {
            out.push(FieldError::required(&at.index(i), ""));
            continue;
        }
        match *r {
            "*/*" => double = true,
            "*" => single = true,
            _ => {}
        }
        let (resource, sub) = r.split_once('/').map_or((*r, None), |(a, b)| (a, Some(b)));
        if let Some(sub) = sub {
            if with_all_subs.contains(&resource) && sub != "*" {
                out.push(FieldError::invalid(
                    &at.index(i),
                    *r,
                    format!("if '{resource}/*' is present, must not specify {r}"),
                ));
            }
            if subs_of_all.contains(&sub) && resource != "*" {
                out.push(FieldError::invalid(
                    &at.index(i),
                    *r,
                    format!("if '*/{sub}' is present, must not specify {r}"),
                ));
            }
            if sub == "*" {
                with_all_subs.insert(resource);
            }
            if resource == "*" {
                subs_of_all.insert(sub);
            }
        } else {
            // Overwritten, not accumulated: as upstream, only the last entry without a subresource counts.
            others_without_sub = resource != "*";
        }
    }
    // `*/*` covers everything, so any second entry is redundant.
    if all.len() > 1 && double {
        out.push(FieldError::invalid(
            at,
            list.clone(),
            "if '*/*' is present, must not specify other resources",
        ));
    }
    if single && others_without_sub {
        out.push(FieldError::invalid(
            at,
            list.clone(),
            "if '*' is present, must not specify other resources without subresources",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn names_are_reported_before_missing_fields_of_the_rule() {
        let mut out = ErrorList::new();
        let v = json!({"resourceNames": ["a", "a/b", "a"], "operations": ["CREATE"], "apiVersions": ["v1"], "resources": ["x"]});
        named_rule(&mut out, &v, &FieldPath::new("r"));
        let fields: Vec<_> = out.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["r.resourceNames[1]", "r.resourceNames[2]", "r.apiGroups"]);
    }
}
