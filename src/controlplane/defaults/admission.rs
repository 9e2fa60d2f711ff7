//! Defaults of webhook configurations and admission policies
//! (`pkg/apis/admissionregistration/v1/defaults.go`).

use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default};

fn rules(v: &mut Value, path: &[&str]) {
    for rule in elements_mut(v, path) {
        set_default(rule, &["scope"], "*");
    }
}

fn selectors(v: &mut Value) {
    set_default(v, &["namespaceSelector"], Value::object());
    set_default(v, &["objectSelector"], Value::object());
}

pub(crate) fn webhooks(v: &mut Value, mutating: bool) {
    for hook in elements_mut(v, &["webhooks"]) {
        // Pointers upstream: an explicit empty string is not defaulted, and validation rejects it.
        set_default(hook, &["failurePolicy"], "Fail");
        set_default(hook, &["matchPolicy"], "Equivalent");
        selectors(hook);
        set_default(hook, &["timeoutSeconds"], 10i64);
        if mutating {
            set_default(hook, &["reinvocationPolicy"], "Never");
        }
        if !hook.at(&["clientConfig", "service"]).is_null() {
            set_default(hook, &["clientConfig", "service", "port"], 443i64);
        }
        rules(hook, &["rules"]);
    }
}

fn match_resources(v: &mut Value) {
    set_default(v, &["matchPolicy"], "Equivalent");
    selectors(v);
    rules(v, &["resourceRules"]);
    rules(v, &["excludeResourceRules"]);
}

pub(crate) fn policy(v: &mut Value) {
    set_default(v, &["spec", "failurePolicy"], "Fail");
    if let Some(m) = v.at_mut(&["spec", "matchConstraints"]).filter(|m| !m.is_null()) {
        match_resources(m);
    }
}

pub(crate) fn binding(v: &mut Value) {
    if let Some(m) = v.at_mut(&["spec", "matchResources"]).filter(|m| !m.is_null()) {
        match_resources(m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_webhook_defaults_to_fail_closed_after_ten_seconds() {
        let mut v = json!({"webhooks": [{"name": "w", "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{"apiGroups": [""]}]}]});
        webhooks(&mut v, false);
        assert_eq!(
            v.at(&["webhooks"]),
            &json!([{"name": "w", "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}}, "failurePolicy": "Fail",
                     "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10,
                     "rules": [{"apiGroups": [""], "scope": "*"}]}])
        );
    }

    #[test]
    fn empty_strings_are_not_defaulted() {
        let mut v = json!({"webhooks": [{"failurePolicy": "", "matchPolicy": "", "rules": [{"scope": ""}]}]});
        webhooks(&mut v, true);
        let hook = &v.get("webhooks").items()[0];
        assert_eq!(hook.get("failurePolicy"), &json!(""));
        assert_eq!(hook.get("rules").items()[0].get("scope"), &json!(""));
    }
}
