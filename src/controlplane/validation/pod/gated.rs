//! Updates of scheduling constraints while a pod has scheduling gates: they may only become narrower, so that an
//! external controller can refine but not override them (`validateNodeAffinityMutation` upstream). Entry point:
//! [`places`].

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::same;
use crate::controlplane::validation::go_form;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks that the node selector and the required node affinity only gain requirements.
pub(super) fn places(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    let was = old.get("nodeSelector").as_object();
    let kept = |(k, v): (&str, &Value)| new.at(&["nodeSelector", k]) == v;
    if !was.into_iter().flat_map(|m| m.iter()).all(kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        out.push(FieldError::invalid(
            &path.child("nodeSelector"),
            new.get("nodeSelector").clone(),
            why,
        ));
    }
    let terms = |v: &Value| {
        v.at(&["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"])
            .clone()
    };
    let (now, was) = (terms(new), terms(old));
    // Without terms every node matches: any new terms are narrower.
    if was.items().is_empty() {
        return;
    }
    let at = ["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"]
        .iter()
        .fold(path.clone(), |at, k| at.child(k));
    // Terms are alternatives: a further one would widen the choice.
    if now.items().len() != was.items().len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        out.push(FieldError::invalid_raw(
            &at,
            go_form::compact_list(&now, go_form::NODE_TERM),
            why,
        ));
        return;
    }
    for (i, (now, was)) in now.items().iter().zip(was.items()).enumerate() {
        // The old requirements must be an unchanged prefix of the new ones.
        let grew = |key: &str| {
            let (now, was) = (now.get(key).items(), was.get(key).items());
            now.len() >= was.len() && now.iter().zip(was).all(|(a, b)| same(a, b))
        };
        // An empty term matches no node, so requirements added to it would make it match some.
        let empty = was.is_empty_value();
        if !grew("matchExpressions") || !grew("matchFields") || (empty && !now.is_empty_value()) {
            let why = "only additions are allowed (no mutations or deletions)";
            out.push(FieldError::invalid_raw(
                &at.index(i),
                go_form::compact(now, go_form::NODE_TERM),
                why,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn gated_pod_constraints_only_narrow() {
        let errors = |new: Value, old: Value| {
            let mut out = ErrorList::new();
            places(&mut out, &new, &old, &FieldPath::new("spec"));
            aggregate(&out)
        };
        assert_eq!(
            errors(
                json!({"nodeSelector": {"a": "b", "c": "d"}}),
                json!({"nodeSelector": {"a": "b"}})
            ),
            "[]"
        );
        assert_eq!(
            errors(json!({"nodeSelector": {"c": "d"}}), json!({"nodeSelector": {"a": "b"}})),
            "spec.nodeSelector: Invalid value: {\"c\":\"d\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        );
        let with = |terms: Value| {
            let mut v = json!({});
            v.set(&["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"], terms);
            v
        };
        let term = |key: &str| json!({"matchExpressions": [{"key": (key), "operator": "Exists"}]});
        let one = |key: &str| with(Value::from(vec![term(key)]));
        let at = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
        let shown =
            "{\"MatchExpressions\":[{\"Key\":\"b\",\"Operator\":\"Exists\",\"Values\":null}],\"MatchFields\":null}";
        assert_eq!(
            errors(one("b"), one("a")),
            format!("{at}[0]: Invalid value: {shown}: only additions are allowed (no mutations or deletions)")
        );
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        assert_eq!(errors(json!({}), one("a")), format!("{at}: Invalid value: null: {why}"));
        let two = with(Value::from(vec![term("b"), term("b")]));
        assert_eq!(
            errors(two, one("a")),
            format!("{at}: Invalid value: [{shown},{shown}]: {why}")
        );
    }
}
