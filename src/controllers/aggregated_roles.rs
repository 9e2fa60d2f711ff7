//! The rules of aggregated ClusterRoles such as `admin`, `edit` and `view`: those of the roles that their
//! selectors match (`pkg/controller/clusterroleaggregation`).

use super::loopback::{APPLY, Failure, Path, encode};
use super::term::Term;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::selector::LabelSelector;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::json;
use crate::storage::Entry;
use crate::sync::Mutex;
use crate::tasks::off_thread;
use bytes::Bytes;
use imbl::OrdMap;
use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

const QUEUE: &str = "ClusterRoleAggregator";
const GROUP: &str = "rbac.authorization.k8s.io";

/// The fields of a ClusterRole that the loop uses.
#[derive(Debug)]
struct Role {
    labels: Value,
    rules: Vec<Value>,
    /// Selectors of the roles whose rules are aggregated into this one; `None` without an aggregation rule.
    aggregates: Option<Vec<LabelSelector>>,
}

impl Role {
    fn from_entry(entry: &Entry) -> Self {
        static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.labels", "rules", "aggregationRule"]));
        Self::from_value(&entry.decode_parts(&PARTS))
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
        let aggregated = Aggregated::default();
        roles.subscribe(move |change: &Change<'_, Role>| {
            aggregated.concerned(change, |name| changed.add(name.into()));
        });
    });
    let Some(roles) = roles else { return };
    let api = term.client("clusterrole-aggregation-controller");
    term.process(QUEUE, &queue, 1, move |name: Str| {
        let (api, roles) = (api.clone(), roles.clone());
        async move {
            // A partial list would yield a patch that removes rules, and with them permissions.
            roles.synced().wait().await;
            let of = name.clone();
            // All rules of thousands of roles may be selected.
            let patch = off_thread(0, move || patch(&of, &roles.snapshot())).await;
            let Some(patch) = patch.flatten() else {
                return Ok::<_, Failure>(());
            };
            let path = Path::of(GROUP, "v1", "", "clusterroles").name(&name);
            // By server-side apply, as upstream: the manager owns the whole list, so rules that are no longer
            // selected are removed.
            let path = format!("{path}?fieldManager=clusterrole-aggregation-controller&force=true");
            api.patch(path, APPLY, patch).await
        }
    });
}

/// The encoded patch that gives a role its rules; `None` if it has them, or is not aggregated.
fn patch(name: &str, all: &OrdMap<Arc<str>, Arc<Role>>) -> Option<Bytes> {
    let role = all.get(name).filter(|r| r.aggregates.is_some())?;
    let rules = aggregated(name, role, all.iter());
    // Also ends the loop: the patch below causes a change of this role.
    if rules == role.rules {
        return None;
    }
    let patch = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": (rules)});
    Some(encode(&patch))
}

/// The aggregated roles. There are few of them among thousands of others.
#[derive(Default)]
struct Aggregated(Mutex<OrdMap<Arc<str>, Arc<Role>>>);

impl Aggregated {
    /// Calls `add` with the roles whose rules a change concerns.
    fn concerned(&self, change: &Change<'_, Role>, mut add: impl FnMut(&str)) {
        let all = {
            let mut roles = self.0.lock();
            match change.new.filter(|role| role.aggregates.is_some()) {
                Some(role) => drop(roles.insert(change.key.into(), role.clone())),
                None => drop(roles.remove(change.key)),
            }
            // Persistent, so the copy is cheap; matching selectors below then needs no lock.
            roles.clone()
        };
        let sides = || [change.old, change.new].into_iter().flatten();
        for (name, role) in &all {
            // Both sides: a role that is no longer selected takes its rules out.
            if **name == *change.key || sides().any(|s| role.selects(&s.labels)) {
                add(name);
            }
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
            // A selector may match the role itself, whose rules could then never be removed.
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

    #[test]
    fn a_change_visits_only_aggregated_roles() {
        let aggregated = Aggregated::default();
        let selectors = || Some(json!([{"matchLabels": {"to": "a"}}]));
        let concerned = |key: &str, new: Option<Arc<Role>>| {
            let mut found = Vec::new();
            let change = Change {
                key,
                old: None,
                new: new.as_ref(),
            };
            aggregated.concerned(&change, |name| found.push(name.to_owned()));
            found
        };
        assert_eq!(concerned("all", Some(role(json!({}), &[], selectors()))), ["all"]);
        for n in 0..100 {
            let wanted: &[&str] = if n % 2 == 0 { &["all"] } else { &[] };
            let labels = json!({"to": (if n % 2 == 0 { "a" } else { "b" })});
            assert_eq!(concerned(&n.to_string(), Some(role(labels, &[], None))), wanted);
        }
        assert_eq!(aggregated.0.lock().len(), 1);
        assert_eq!(concerned("all", None), [""; 0]);
    }
}
