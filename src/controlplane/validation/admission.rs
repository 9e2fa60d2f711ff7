//! Validation of webhook configurations, admission policies and bindings (upstream's
//! `pkg/apis/admissionregistration/validation`). CEL expressions are compiled by `admission`.

mod policies;
mod rules;

pub(crate) use policies::{binding, policy};

use crate::admission::expressions::{Compiler, Returns};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1035_label, dns1123_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::client::webhook::validate as validate_client_config;
use crate::controlplane::fields::{Seen, invalid_each, label_selector, optional_choice, required_choice, strings};

pub(crate) fn webhooks(v: &Value, mutating: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let mut names: Seen<&str> = Seen::new();
    for (i, hook) in v.get("webhooks").items().iter().enumerate() {
        let at = FieldPath::new("webhooks").index(i);
        webhook(&mut out, hook, mutating, &at);
        review_versions(&mut out, hook, &at.child("admissionReviewVersions"));
        let name = hook.str_at(&["name"]);
        if !name.is_empty() && !names.insert(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
    }
    out
}

fn webhook(out: &mut ErrorList, hook: &Value, mutating: bool, at: &FieldPath) {
    let name = hook.str_at(&["name"]);
    if name.is_empty() {
        out.push(FieldError::required(&at.child("name"), ""));
    } else {
        let messages = dns1123_subdomain(name);
        if messages.is_empty() && name.split('.').count() < 3 {
            out.push(FieldError::invalid(
                &at.child("name"),
                name,
                "should be a domain with at least three segments separated by dots",
            ));
        }
        invalid_each(out, &at.child("name"), name, messages);
    }
    for (i, rule) in hook.get("rules").items().iter().enumerate() {
        rules::rule(out, rule, &at.child("rules").index(i));
    }
    optional_choice(out, hook, "failurePolicy", at, &["Fail", "Ignore"]);
    optional_choice(out, hook, "matchPolicy", at, &["Equivalent", "Exact"]);
    let effects = ["None", "NoneOnDryRun"];
    if hook.get("sideEffects").is_null() {
        out.push(FieldError::required(
            &at.child("sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ));
    }
    optional_choice(out, hook, "sideEffects", at, &effects);
    if let Some(n) = hook.get("timeoutSeconds").as_i64().filter(|n| !(1..=30).contains(n)) {
        out.push(FieldError::invalid(
            &at.child("timeoutSeconds"),
            n,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    label_selector(out, hook.get("namespaceSelector"), &at.child("namespaceSelector"));
    label_selector(out, hook.get("objectSelector"), &at.child("objectSelector"));
    validate_client_config(out, hook.get("clientConfig"), &at.child("clientConfig"));
    match_conditions(out, hook.get("matchConditions"), false, &at.child("matchConditions"));
    if mutating {
        optional_choice(out, hook, "reinvocationPolicy", at, &["IfNeeded", "Never"]);
    }
}

const MAX_CONDITIONS: usize = 64;

pub(super) fn match_conditions(out: &mut ErrorList, list: &Value, has_params: bool, at: &FieldPath) {
    let all = list.items();
    if all.is_empty() {
        return;
    }
    let compiler = Compiler::new(has_params, true);
    if all.len() > MAX_CONDITIONS {
        out.push(FieldError::too_many(at, all.len(), MAX_CONDITIONS));
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, c) in all.iter().enumerate() {
        let at = at.index(i);
        match c.str_at(&["expression"]).trim() {
            "" => out.push(FieldError::required(&at.child("expression"), "")),
            // More than the limit are refused without being compiled.
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

fn review_versions(out: &mut ErrorList, hook: &Value, at: &FieldPath) {
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
            continue;
        }
        invalid_each(out, &at.index(i), v, dns1035_label(v));
        known |= matches!(v, "v1" | "v1beta1");
    }
    if !known {
        out.push(FieldError::invalid(
            at,
            list.clone(),
            "must include at least one of v1, v1beta1",
        ));
    }
}

/// Validates a `matchConstraints` or `matchResources`.
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
        aggregate(&webhooks(&v, true))
    }

    #[test]
    fn webhook_errors_match_the_recordings() {
        assert_eq!(errors(json!({})), "[]");
        assert_eq!(
            errors(json!({"reinvocationPolicy": "X"})),
            "webhooks[0].reinvocationPolicy: Unsupported value: \"X\": supported values: \"IfNeeded\", \"Never\""
        );
        assert_eq!(errors(json!({"name": ""})), "webhooks[0].name: Required value");
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
