//! Validation of FlowSchemas and of the status of both kinds (upstream's `pkg/apis/flowcontrol/validation`);
//! PriorityLevelConfigurations are in `levels`.

mod levels;
mod mandatory;

pub(crate) use levels::priority_level;

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, strings};
use crate::interrupt::checkpoint;

/// Verbs of requests for resources. Non-resource requests have others, but upstream checks both against this list.
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

pub(crate) fn flow_schema(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    let precedence = spec.get("matchingPrecedence").as_i64().unwrap_or(0);
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        out.push(FieldError::invalid(&at, precedence, "must be a positive value"));
    }
    if precedence > 10000 {
        out.push(FieldError::invalid(&at, precedence, "must not be greater than 10000"));
    }
    // Nothing may come before the schema that keeps administrators from being locked out.
    if precedence == 1 && v.name() != "exempt" {
        out.push(FieldError::invalid(
            &at,
            precedence,
            "only the schema named 'exempt' may have matchingPrecedence 1",
        ));
    }
    let distinguisher = spec.get("distinguisherMethod");
    if !distinguisher.is_null() {
        let kind = distinguisher.str_at(&["type"]);
        if !["ByNamespace", "ByUser"].contains(&kind) {
            let at = path.child("distinguisherMethod").child("type");
            let mut e = FieldError::not_supported(&at, "", &["ByNamespace", "ByUser"]);
            // Upstream's bad value is the whole struct.
            e.bad_value = Some(format!("{{\"Type\":{}}}", show_json(&kind.into())));
            out.push(e);
        }
    }
    let level = spec.str_at(&["priorityLevelConfiguration", "name"]);
    let at = path.child("priorityLevelConfiguration").child("name");
    if level.is_empty() {
        out.push(FieldError::required(&at, "must reference a priority level"));
    } else {
        invalid_each(&mut out, &at, level, dns1123_subdomain(level));
    }
    for (i, rule) in spec.get("rules").items().iter().enumerate() {
        policy(&mut out, rule, &path.child("rules").index(i));
    }
    mandatory::schema(&mut out, v);
    out
}

fn policy(out: &mut ErrorList, rule: &Value, at: &FieldPath) {
    let subjects = rule.get("subjects").items();
    if subjects.is_empty() {
        out.push(FieldError::required(
            &at.child("subjects"),
            "subjects must contain at least one value",
        ));
    }
    for (i, s) in subjects.iter().enumerate() {
        subject(out, s, &at.child("subjects").index(i));
    }
    let (resources, others) = (rule.get("resourceRules").items(), rule.get("nonResourceRules").items());
    if resources.is_empty() && others.is_empty() {
        out.push(FieldError::required(
            at,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        ));
    }
    for (i, r) in resources.iter().enumerate() {
        resource_rule(out, r, &at.child("resourceRules").index(i));
    }
    for (i, r) in others.iter().enumerate() {
        let at = at.child("nonResourceRules").index(i);
        verbs(out, r, &at);
        let urls = r.get("nonResourceURLs");
        let at = at.child("nonResourceURLs");
        list(
            out,
            urls,
            &at,
            "nonResourceURLs must contain at least one value",
            "non-resource URLs",
        );
        let all = strings(urls);
        // A wildcard makes the other URLs irrelevant, so upstream skips their syntax.
        let judged = if all.contains(&"*") { 0 } else { all.len() };
        for (k, url) in all.into_iter().take(judged).enumerate() {
            if let Some(why) = url_error(url) {
                out.push(FieldError::invalid(&at.index(k), url, why));
            }
        }
    }
}

fn subject(out: &mut ErrorList, s: &Value, at: &FieldPath) {
    checkpoint();
    let kind = s.str_at(&["kind"]);
    let all = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    // Which member is required depends on the kind, so an unknown kind ends the checks.
    let Some((_, member)) = all.iter().find(|(k, _)| *k == kind) else {
        out.push(FieldError::not_supported(
            &at.child("kind"),
            kind,
            &["Group", "ServiceAccount", "User"],
        ));
        return;
    };
    let body = s.get(member);
    let at_body = at.child(member);
    if body.is_null() {
        out.push(FieldError::required(
            &at_body,
            format!("{member} is required when subject kind is '{kind}'"),
        ));
    } else {
        let name = body.str_at(&["name"]);
        if name.is_empty() {
            out.push(FieldError::required(&at_body.child("name"), ""));
        // Users and groups are arbitrary strings of an authenticator; only service accounts are API objects.
        } else if kind == "ServiceAccount" && name != "*" {
            invalid_each(out, &at_body.child("name"), name, dns1123_subdomain(name));
        }
        if kind == "ServiceAccount" {
            match body.str_at(&["namespace"]) {
                "" => out.push(FieldError::required(
                    &at_body.child("namespace"),
                    "must specify namespace for service account",
                )),
                ns => invalid_each(out, &at_body.child("namespace"), ns, dns1123_label(ns)),
            }
        }
    }
    // The message cites the other kind, as upstream.
    for (other, member) in all.iter().filter(|(k, m)| *k != kind && !s.get(m).is_null()) {
        out.push(FieldError::forbidden(
            &at.child(member),
            format!("{member} is forbidden when subject kind is not '{other}'"),
        ));
    }
}

fn list(out: &mut ErrorList, v: &Value, at: &FieldPath, empty: &str, what: &str) {
    let all = strings(v);
    if all.is_empty() {
        out.push(FieldError::required(at, empty));
    } else if all.len() > 1 && all.contains(&"*") {
        out.push(FieldError::invalid(
            at,
            v.clone(),
            format!("if '*' is present, must not specify other {what}"),
        ));
    }
}

fn verbs(out: &mut ErrorList, rule: &Value, at: &FieldPath) {
    let v = rule.get("verbs");
    let at = at.child("verbs");
    list(out, v, &at, "verbs must contain at least one value", "verbs");
    // One error with the whole list as its value, however many verbs are unknown.
    let all = strings(v);
    if all.iter().any(|x| *x != "*" && !VERBS.contains(x)) && !all.contains(&"*") {
        out.push(FieldError::not_supported(&at, v.clone(), VERBS));
    }
}

fn resource_rule(out: &mut ErrorList, rule: &Value, at: &FieldPath) {
    checkpoint();
    verbs(out, rule, at);
    list(
        out,
        rule.get("apiGroups"),
        &at.child("apiGroups"),
        "resource rules must supply at least one api group",
        "api groups",
    );
    list(
        out,
        rule.get("resources"),
        &at.child("resources"),
        "resource rules must supply at least one resource",
        "resources",
    );
    let namespaces = rule.get("namespaces");
    let at = at.child("namespaces");
    let all = strings(namespaces);
    if all.is_empty() {
        // Without namespaces a rule matches only cluster-scoped requests; without both it would match
        // nothing.
        if rule.get("clusterScope").as_bool() != Some(true) {
            out.push(FieldError::required(
                &at,
                "resource rules that are not cluster scoped must supply at least one namespace",
            ));
        }
    } else if all.contains(&"*") {
        if all.len() > 1 {
            out.push(FieldError::invalid(
                &at,
                namespaces.clone(),
                "if '*' is present, must not specify other namespaces",
            ));
        }
    } else {
        for (i, ns) in all.into_iter().enumerate() {
            for why in dns1123_label(ns) {
                out.push(FieldError::invalid(
                    &at.index(i),
                    ns,
                    format!("each member of this list must be '*' or a DNS-1123 label; {why}"),
                ));
            }
        }
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        return Some("must not be empty");
    }
    if !url.starts_with('/') {
        return Some("must start with slash");
    }
    if url.contains(' ') {
        return Some("must not contain white-space");
    }
    if url.contains("//") {
        return Some("must not contain double slash");
    }
    // Only a trailing segment may be a wildcard; the URL `*` alone never gets here.
    let body = url.strip_suffix("/*").unwrap_or(url);
    body.contains('*').then_some("wildcard can only do suffix matching")
}

pub(crate) fn status(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("status").child("conditions");
    let mut seen: Seen<&str> = Seen::new();
    for (i, c) in v.at(&["status", "conditions"]).items().iter().enumerate() {
        let kind = c.str_at(&["type"]);
        let at = path.index(i).child("type");
        // Before the emptiness check, as upstream, so two empty types are both missing and duplicate.
        if !seen.insert(kind) {
            out.push(FieldError::duplicate_enum(&at, kind));
        }
        if kind.is_empty() {
            out.push(FieldError::required(&at, ""));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn flow_schema_errors_match_the_recordings() {
        let rules = json!([{"subjects": [{"kind": "User", "user": {"name": "u"}}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}]);
        let errors = |edits: Value| {
            let mut v = json!({"metadata": {"name": "x"}, "spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 9000}});
            v.set(&["spec", "rules"], rules.clone());
            for (k, x) in edits.as_object().unwrap().iter() {
                v.set(&["spec", k], x.clone());
            }
            aggregate(&flow_schema(&v))
        };
        assert_eq!(errors(json!({})), "[]");
        assert_eq!(
            errors(json!({"priorityLevelConfiguration": {"name": ""}})),
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"
        );
        assert_eq!(
            errors(json!({"matchingPrecedence": 20000})),
            "spec.matchingPrecedence: Invalid value: 20000: must not be greater than 10000"
        );
        assert_eq!(
            errors(json!({"distinguisherMethod": {"type": "X&"}})),
            "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"X\\u0026\"}: supported values: \"ByNamespace\", \"ByUser\""
        );
        assert_eq!(
            errors(
                json!({"rules": [{"subjects": [{"kind": "X"}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}]})
            ),
            "spec.rules[0].subjects[0].kind: Unsupported value: \"X\": supported values: \"Group\", \"ServiceAccount\", \"User\""
        );
        assert_eq!(
            errors(json!({"rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}]}]})),
            "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"
        );
        assert_eq!(
            errors(
                json!({"rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["x"]}]}]})
            ),
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"x\": must start with slash"
        );
    }
}
