//! Which rules are missing: upstream's `validation.Covers`.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::json;

/// The single grants of `wanted` that no rule of `held` covers, as rules of one verb and one resource (or path) each.
pub(in crate::controlplane) fn missing(held: &[Value], wanted: &[Value]) -> Vec<Value> {
    wanted
        .iter()
        .flat_map(grants)
        .filter(|grant| !held.iter().any(|rule| covers(rule, grant)))
        .collect()
}

fn list<'a>(rule: &'a Value, key: &str) -> Vec<&'a str> {
    strings(rule.get(key))
}

/// A rule, taken apart.
fn grants(rule: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    let verbs = list(rule, "verbs");
    for group in list(rule, "apiGroups") {
        for resource in list(rule, "resources") {
            for verb in &verbs {
                let names = list(rule, "resourceNames");
                let one = json!({"apiGroups": [group], "resources": [resource], "verbs": [(*verb)]});
                if names.is_empty() {
                    out.push(one);
                    continue;
                }
                for name in names {
                    let mut named = one.clone();
                    named.set(&["resourceNames"], json!([name]));
                    out.push(named);
                }
            }
        }
    }
    for url in list(rule, "nonResourceURLs") {
        for verb in &verbs {
            out.push(json!({"nonResourceURLs": [url], "verbs": [(*verb)]}));
        }
    }
    out
}

fn covers(rule: &Value, grant: &Value) -> bool {
    let has = |key: &str| {
        let held = list(rule, key);
        held.contains(&"*") || list(grant, key).iter().all(|x| held.contains(x))
    };
    let resources = || {
        let held = list(rule, "resources");
        list(grant, "resources").iter().all(|x| {
            let any_of = x.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            held.contains(&"*") || held.contains(x) || any_of.is_some_and(|a| held.contains(&a.as_str()))
        })
    };
    let names = || {
        let (held, asked) = (list(rule, "resourceNames"), list(grant, "resourceNames"));
        held.is_empty() || (!asked.is_empty() && asked.iter().all(|x| held.contains(x)))
    };
    let urls = || {
        let held = list(rule, "nonResourceURLs");
        let one = |x: &&str| {
            held.iter()
                .any(|h| h == x || h.strip_suffix('*').is_some_and(|prefix| x.starts_with(prefix)))
        };
        list(grant, "nonResourceURLs").iter().all(one)
    };
    has("verbs") && has("apiGroups") && resources() && names() && urls()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_granted_yet_is_missing() {
        let held = [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}),
            json!({"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get"]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/api/*"], "verbs": ["get"]}),
        ];
        let wanted = [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}),
            json!({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/api/v1", "/version"], "verbs": ["get"]}),
        ];
        assert_eq!(
            missing(&held, &wanted),
            [
                json!({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["update"]}),
                json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
                json!({"nonResourceURLs": ["/version"], "verbs": ["get"]}),
            ]
        );
        assert!(missing(&wanted, &wanted).is_empty());
    }
}
