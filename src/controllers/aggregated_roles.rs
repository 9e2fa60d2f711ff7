//! The rules of aggregated ClusterRoles such as `admin`, `edit` and `view`: those of the roles that their
//! selectors match (`pkg/controller/clusterroleaggregation`).

use super::loopback::{APPLY, Failure, Path};
use super::term::Term;
use crate::apimachinery::selector::LabelSelector;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::json;
use crate::storage::Entry;
use std::collections::HashSet;
use std::sync::Arc;

const QUEUE: &str = "ClusterRoleAggregator";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A ClusterRole.
#[derive(Debug)]
struct Role {
    labels: Value,
    rules: Vec<Value>,
    /// The selectors of the roles whose rules it has; `None` without an aggregation rule.
    aggregates: Option<Vec<LabelSelector>>,
}

impl Role {
    fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode())
    }

    fn from_value(role: &Value) -> Self {
        let rule = role.get("aggregationRule");
        let selectors = rule.get("clusterRoleSelectors").items().iter();
        Self {
            labels: role.at(&["metadata", "labels"]).clone(),
            rules: role.get("rules").items().to_vec(),
            // Validation has refused selectors that cannot be parsed.
            aggregates: (!rule.is_null())
                .then(|| selectors.filter_map(|s| LabelSelector::from_object(s).ok()).collect()),
        }
    }

    fn selects(&self, labels: &Value) -> bool {
        let selectors = self.aggregates.iter().flatten();
        selectors.into_iter().any(|s| s.matches_map(labels))
    }
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let roles = term.inform((GROUP, "clusterroles"), Role::from_entry, |roles| {
        let all = roles.clone();
        roles.subscribe(move |change: &Change<'_, Role>| {
            concerned(&all, change, |name| changed.add(name.into()));
        });
    });
    let Some(roles) = roles else { return };
    let api = term.client("clusterrole-aggregation-controller");
    term.process(QUEUE, &queue, 1, move |name: Str| {
        let (api, roles) = (api.clone(), roles.clone());
        async move {
            roles.synced().wait().await;
            let all = roles.snapshot();
            let Some(role) = all.get(&*name).filter(|r| r.aggregates.is_some()) else {
                return Ok::<_, Failure>(());
            };
            let rules = aggregated(&name, role, all.iter());
            if rules == role.rules {
                return Ok(());
            }
            let path = Path::of(GROUP, "v1", "", "clusterroles").name(&name);
            let path = format!("{path}?fieldManager=clusterrole-aggregation-controller&force=true");
            let patch = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": (name.as_str())}, "rules": (rules)});
            api.patch(path, APPLY, &patch).await.map(drop)
        }
    });
}

/// Calls `add` with the roles whose rules a change concerns. There are few aggregated roles, so all are
/// asked.
fn concerned(roles: &Informer<Role>, change: &Change<'_, Role>, mut add: impl FnMut(&str)) {
    let sides = || [change.old, change.new].into_iter().flatten();
    for (name, role) in roles.snapshot().iter() {
        if role.aggregates.is_some() && (**name == *change.key || sides().any(|s| role.selects(&s.labels))) {
            add(name);
        }
    }
}

/// The rules of the selected roles, without repetitions: by selector, then by name, then as they are listed.
fn aggregated<'a>(
    name: &str,
    role: &Role,
    all: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Role>)> + Clone,
) -> Vec<Value> {
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    let mut rules = Vec::new();
    for selector in role.aggregates.iter().flatten() {
        let selected = all
            .clone()
            .filter(|(other, r)| ***other != *name && selector.matches_map(&r.labels));
        for rule in selected.flat_map(|(_, r)| &r.rules) {
            // Members are sorted, so equal rules have equal encodings.
            if known.insert(crate::apimachinery::codec::json::to_vec(rule)) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(labels: Value, rules: &[&str], selectors: Option<Value>) -> Arc<Role> {
        let rules: Vec<Value> = rules.iter().map(|r| json!({"verbs": [(*r)]})).collect();
        let mut role = json!({"metadata": {"labels": (labels)}, "rules": (rules)});
        if let Some(selectors) = selectors {
            role.set(&["aggregationRule", "clusterRoleSelectors"], selectors);
        }
        Arc::new(Role::from_value(&role))
    }

    #[test]
    fn rules_follow_selectors_then_names_and_do_not_repeat() {
        let selectors = json!([{"matchLabels": {"to": "b"}}, {"matchLabels": {"to": "a"}}]);
        let all: Vec<(Arc<str>, Arc<Role>)> = vec![
            ("all".into(), role(json!({"to": "a"}), &["own"], Some(selectors))),
            ("r1".into(), role(json!({"to": "a"}), &["get", "list"], None)),
            ("r2".into(), role(json!({"to": "b"}), &["watch", "get"], None)),
            ("r3".into(), role(json!({}), &["delete"], None)),
        ];
        let rules = aggregated("all", &all[0].1, all.iter().map(|(n, r)| (n, r)));
        let verbs: Vec<&str> = rules
            .iter()
            .map(|r| r.get("verbs").items()[0].as_str().unwrap())
            .collect();
        assert_eq!(verbs, ["watch", "get", "list"]);
    }
}
