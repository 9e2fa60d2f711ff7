//! Validation of RuntimeClasses (upstream's `pkg/apis/node/validation`).

use super::pod;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, meta};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, Seen, invalid_each};

/// Validates a new RuntimeClass.
pub(crate) fn class(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (handler, at) = (v.str_at(&["handler"]), FieldPath::new("handler"));
    if handler.is_empty() {
        out.push(FieldError::required(&at, ""));
    } else {
        invalid_each(&mut out, &at, handler, dns1123_label(handler));
    }
    // Upstream validates the overhead as a container's limits, so paths contain `limits`.
    let fixed = v.at(&["overhead", "podFixed"]);
    if !fixed.is_null() {
        let mut as_limits = Value::object();
        as_limits.set(&["limits"], fixed.clone());
        pod::container_resources(
            &mut out,
            &as_limits,
            // There is no pod whose claims could be referred to.
            &pod::Claims::default(),
            // The overhead of a stored class is immutable, and upstream checks it strictly.
            pod::Tolerated::default(),
            &FieldPath::new("overhead"),
        );
    }
    let (scheduling, at) = (v.get("scheduling"), FieldPath::new("scheduling"));
    meta::validate_labels(scheduling.get("nodeSelector"), &at.child("nodeSelector"), &mut out);
    let at = at.child("tolerations");
    let all = scheduling.get("tolerations").items();
    for (i, t) in all.iter().enumerate() {
        pod::toleration(&mut out, t, &at.index(i));
    }
    // Without `tolerationSeconds`: tolerations that differ only in the duration contradict each other.
    let what = |t: &Value| ["key", "operator", "value", "effect"].map(|k| t.str_at(&[k]).to_owned());
    let mut seen = Seen::new();
    for (i, t) in all.iter().enumerate() {
        if !seen.insert(what(t)) {
            let mut e = FieldError::duplicate(&at.index(i), "");
            e.bad_value = Some(pod::toleration_shown(t));
            out.push(e);
        }
    }
    out
}

/// Warns about deprecated node labels.
pub(crate) fn warnings(v: &Value) -> Vec<String> {
    let labels = v.at(&["scheduling", "nodeSelector"]).as_object();
    labels
        .into_iter()
        .flat_map(|m| m.keys())
        .filter_map(pod::deprecated_label)
        .map(|text| format!("scheduling.nodeSelector: {text}"))
        .collect()
}

/// Validates an update: the class, and that its handler is the same.
pub(crate) fn class_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = class(new);
    let handler = new.str_at(&["handler"]);
    if handler != old.str_at(&["handler"]) {
        out.push(FieldError::invalid(&FieldPath::new("handler"), handler, IMMUTABLE));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn a_removed_handler_prints_as_an_empty_string() {
        assert_eq!(
            aggregate(&class_update(&json!({}), &json!({"handler": "h"}))),
            r#"[handler: Required value, handler: Invalid value: "": field is immutable]"#
        );
    }
}
