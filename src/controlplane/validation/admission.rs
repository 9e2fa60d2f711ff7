//! Validation of webhook configurations, admission policies and bindings (upstream's
//! `pkg/apis/admissionregistration/validation`). CEL expressions are compiled by `admission`.

mod policies;
mod rules;

pub(crate) use policies::{binding, policy, status as policy_status};

use crate::admission::expressions::{Compiler, Returns};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1035_label, dns1123_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::client::webhook::validate as validate_client_config;
use crate::controlplane::fields::{
    Seen, invalid_each, label_selector, label_selector_with_any_values, optional_choice, required_choice, same, strings,
};

/// Rules that do not apply to an update, because a stored webhook breaks them already, or because what they concern has
/// not changed (`validationOptions` upstream).
#[derive(Default)]
struct Exempt {
    match_conditions: bool,
    side_effects: bool,
    review_versions: bool,
    unique_names: bool,
    selector_values: bool,
}

impl Exempt {
    fn on_update(new: &Value, old: &Value) -> Self {
        let (new, old) = (new.get("webhooks").items(), old.get("webhooks").items());
        let conditions = |(a, b): (&Value, &Value)| same(a.get("matchConditions"), b.get("matchConditions"));
        let mut names: Seen<&str> = Seen::new();
        let knows_version = |hook: &Value| {
            let versions = strings(hook.get("admissionReviewVersions"));
            versions.is_empty() || versions.iter().any(|v| is_known(v))
        };
        Self {
            match_conditions: new.len() == old.len() && new.iter().zip(old).all(conditions),
            side_effects: !old.iter().all(|h| SIDE_EFFECTS.contains(&h.str_at(&["sideEffects"]))),
            review_versions: !old.iter().all(knows_version),
            unique_names: !old.iter().all(|h| names.insert(h.str_at(&["name"]))),
            selector_values: old.iter().any(|hook| {
                let mut errors = ErrorList::new();
                for key in ["namespaceSelector", "objectSelector"] {
                    label_selector(&mut errors, hook.get(key), &FieldPath::new(key));
                }
                !errors.is_empty()
            }),
        }
    }
}

/// Side effects that v1 allows. It dropped `Some` and `Unknown`, with which a webhook cannot take part in a dry run.
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];

/// True for the versions of AdmissionReview that the server sends.
fn is_known(version: &str) -> bool {
    matches!(version, "v1" | "v1beta1")
}

pub(crate) fn webhooks(v: &Value, old: Option<&Value>, mutating: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let exempt = old.map_or_else(Exempt::default, |old| Exempt::on_update(v, old));
    let mut names: Seen<&str> = Seen::new();
    for (i, hook) in v.get("webhooks").items().iter().enumerate() {
        let at = FieldPath::new("webhooks").index(i);
        webhook(&mut out, hook, mutating, &exempt, &at);
        // After everything else about the webhook, and before its duplicate name: upstream's order.
        review_versions(&mut out, hook, &exempt, &at.child("admissionReviewVersions"));
        let name = hook.str_at(&["name"]);
        if !exempt.unique_names && !name.is_empty() && !names.insert(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
    }
    out
}

fn webhook(out: &mut ErrorList, hook: &Value, mutating: bool, exempt: &Exempt, at: &FieldPath) {
    fully_qualified_name(out, hook.str_at(&["name"]), &at.child("name"));
    for (i, rule) in hook.get("rules").items().iter().enumerate() {
        rules::rule(out, rule, &at.child("rules").index(i));
    }
    optional_choice(out, hook, "failurePolicy", at, &["Fail", "Ignore"]);
    optional_choice(out, hook, "matchPolicy", at, &["Equivalent", "Exact"]);
    let effects: &[&str] = match exempt.side_effects {
        true => &["None", "NoneOnDryRun", "Some", "Unknown"],
        false => SIDE_EFFECTS,
    };
    if hook.get("sideEffects").is_null() {
        let why = format!("must specify one of {}", effects.join(", "));
        out.push(FieldError::required(&at.child("sideEffects"), why));
    }
    optional_choice(out, hook, "sideEffects", at, effects);
    if let Some(n) = hook.get("timeoutSeconds").as_i64().filter(|n| !(1..=30).contains(n)) {
        out.push(FieldError::invalid(
            &at.child("timeoutSeconds"),
            n,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    let selector = match exempt.selector_values {
        true => label_selector_with_any_values,
        false => label_selector,
    };
    selector(out, hook.get("namespaceSelector"), &at.child("namespaceSelector"));
    selector(out, hook.get("objectSelector"), &at.child("objectSelector"));
    if mutating {
        optional_choice(out, hook, "reinvocationPolicy", at, &["IfNeeded", "Never"]);
    }
    // The same rules as for the conversion webhooks of CustomResourceDefinitions.
    validate_client_config(out, hook.get("clientConfig"), &at.child("clientConfig"));
    if !exempt.match_conditions {
        match_conditions(out, hook.get("matchConditions"), false, &at.child("matchConditions"));
    }
}

/// Upstream's `IsFullyQualifiedName`: all messages about the syntax are one error, and only a valid name is counted.
fn fully_qualified_name(out: &mut ErrorList, name: &str, at: &FieldPath) {
    if name.is_empty() {
        out.push(FieldError::required(at, ""));
        return;
    }
    let messages = dns1123_subdomain(name);
    if !messages.is_empty() {
        out.push(FieldError::invalid(at, name, messages.join(",")));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        out.push(FieldError::invalid(at, name, why));
    }
}

/// Upstream's limit of match conditions per webhook or policy.
const MAX_CONDITIONS: usize = 64;

pub(super) fn match_conditions(out: &mut ErrorList, list: &Value, has_params: bool, at: &FieldPath) {
    let all = list.items();
    if all.is_empty() {
        return;
    }
    // Made only if there are conditions: most configurations have none.
    let compiler = Compiler::new(has_params, true);
    if all.len() > MAX_CONDITIONS {
        out.push(FieldError::too_many(at, all.len(), MAX_CONDITIONS));
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, c) in all.iter().enumerate() {
        let at = at.index(i);
        // Trimmed, so that positions in compiler messages and the bad value match upstream's.
        match c.str_at(&["expression"]).trim() {
            "" => out.push(FieldError::required(&at.child("expression"), "")),
            // Conditions beyond the limit are not compiled: compilation is expensive, and the list is refused.
            _ if i >= MAX_CONDITIONS => {}
            text => {
                if let Some(why) = compiler.compile(text, Returns::Bool).error() {
                    out.push(FieldError::invalid(&at.child("expression"), text, why.to_string()));
                }
            }
        }
        let name = c.str_at(&["name"]);
        if name.is_empty() {
            out.push(FieldError::required(&at.child("name"), ""));
        } else {
            invalid_each(out, &at.child("name"), name, qualified_name(name));
            if !seen.insert(name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
    }
}

fn review_versions(out: &mut ErrorList, hook: &Value, exempt: &Exempt, at: &FieldPath) {
    let list = hook.get("admissionReviewVersions");
    let all = strings(list);
    if all.is_empty() {
        out.push(FieldError::required(at, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen: Seen<&str> = Seen::new();
    let mut known = false;
    for (i, v) in all.into_iter().enumerate() {
        if !seen.insert(v) {
            out.push(FieldError::invalid(&at.index(i), v, "duplicate version"));
            // The syntax of a repeated version has been checked at its first occurrence.
            continue;
        }
        invalid_each(out, &at.index(i), v, dns1035_label(v));
        // Unknown versions are fine beside a known one: they may be meant for newer servers.
        known |= is_known(v);
    }
    if !known && !exempt.review_versions {
        out.push(FieldError::invalid(
            at,
            list.clone(),
            "must include at least one of v1, v1beta1",
        ));
    }
}

/// Validates `matchConstraints` of a policy or `matchResources` of a binding. Only the former must have rules
/// (`rules_required`); `mutating` policies cannot match DELETE.
pub(super) fn match_resources(out: &mut ErrorList, v: &Value, at: &FieldPath, rules_required: bool, mutating: bool) {
    optional_choice(out, v, "matchPolicy", at, &["Equivalent", "Exact"]);
    label_selector(out, v.get("namespaceSelector"), &at.child("namespaceSelector"));
    label_selector(out, v.get("objectSelector"), &at.child("objectSelector"));
    for key in ["resourceRules", "excludeResourceRules"] {
        let at = at.child(key);
        for (i, rule) in v.get(key).items().iter().enumerate() {
            rules::named_rule(out, rule, &at.index(i));
        }
    }
    if rules_required && v.get("resourceRules").items().is_empty() {
        out.push(FieldError::required(&at.child("resourceRules"), ""));
    }
    if mutating {
        rules::mutable_operations(out, v.get("resourceRules"), &at.child("resourceRules"));
    }
}

pub(super) fn required_subdomain(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
    } else {
        invalid_each(out, at, text, dns1123_subdomain(text));
    }
}

pub(super) fn choice(out: &mut ErrorList, v: &Value, key: &str, at: &FieldPath, supported: &[&str]) {
    required_choice(out, v, key, at, supported);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::controlplane::defaults;
    use crate::json;

    fn errors(edits: Value) -> String {
        let mut hook = json!({"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/hook"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        for (k, x) in edits.as_object().unwrap().iter() {
            hook.set(&[k], x.clone());
        }
        let mut v = json!({"metadata": {"name": "x"}});
        v.set(&["webhooks"], vec![hook]);
        defaults::admission::webhooks(&mut v, true);
        aggregate(&webhooks(&v, None, true))
    }

    #[test]
    fn an_update_tolerates_stored_errors() {
        let hook = json!({"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/hook"},
            "sideEffects": "Some", "admissionReviewVersions": ["v9"],
            "matchConditions": [{"name": "a", "expression": "1"}],
            "objectSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["not valid"]}]}});
        let mut old = json!({"metadata": {"name": "x"}});
        old.set(&["webhooks"], vec![hook.clone(), hook]);
        assert_eq!(webhooks(&old, None, false).len(), 9);
        assert_eq!(aggregate(&webhooks(&old, Some(&old), false)), "[]");
        // New errors are refused if the stored object is valid, and match conditions also if they changed.
        let mut valid = old.clone();
        let good = json!({"name": "d.e.f", "clientConfig": {"url": "https://127.0.0.1:1/hook"},
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        valid.set(&["webhooks"], vec![good]);
        assert_eq!(webhooks(&old, Some(&valid), false).len(), 9);
    }

    #[test]
    fn webhook_errors_match_the_recordings() {
        assert_eq!(errors(json!({})), "[]");
        assert_eq!(
            errors(json!({"reinvocationPolicy": "X"})),
            "webhooks[0].reinvocationPolicy: Unsupported value: \"X\": supported values: \"IfNeeded\", \"Never\""
        );
        assert_eq!(errors(json!({"name": ""})), "webhooks[0].name: Required value");
        let long = errors(json!({"name": ("X".repeat(300))}));
        assert!(
            long.contains("must be no more than 253 characters,a lowercase RFC 1123 subdomain"),
            "{long}"
        );
        assert_eq!(
            errors(json!({"reinvocationPolicy": "X", "clientConfig": {}})),
            "[webhooks[0].reinvocationPolicy: Unsupported value: \"X\": supported values: \"IfNeeded\", \"Never\", \
             webhooks[0].clientConfig: Required value: exactly one of url or service is required]"
        );
        assert_eq!(
            errors(json!({"matchConditions": [{"name": "a", "expression": " 1 "}]})),
            "webhooks[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int"
        );
        let typed = errors(json!({"matchConditions": [{"name": "a", "expression": "[duration('1s')]"}]}));
        assert!(
            typed.ends_with("must evaluate to bool but got list(google.protobuf.Duration)"),
            "{typed}"
        );
        let unknown = errors(json!({"matchConditions": [{"name": "a", "expression": "params.x == variables.y"}]}));
        assert!(
            unknown.contains("compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'")
                && unknown.contains("undeclared reference to 'variables'"),
            "{unknown}"
        );
        assert_eq!(
            errors(json!({"rules": [{"operations": ["CREATE"]}]})),
            "[webhooks[0].rules[0].apiGroups: Required value, webhooks[0].rules[0].apiVersions: Required value, webhooks[0].rules[0].resources: Required value]"
        );
        assert_eq!(
            errors(json!({"clientConfig": {}})),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required"
        );
    }
}
