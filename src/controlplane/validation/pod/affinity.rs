//! Validation of affinities, node selectors and topology spread constraints.

use super::Tolerated;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{
    Seen, invalid_each, label_selector, label_selector_with_any_values, optional_choice, strings,
};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(out: &mut ErrorList, v: &Value, tolerated: Tolerated, path: &FieldPath) {
    let (node, at) = (v.get("nodeAffinity"), path.child("nodeAffinity"));
    if !node.get(REQUIRED).is_null() {
        node_terms(out, node.get(REQUIRED), !tolerated.node_values, &at.child(REQUIRED));
    }
    let selector = match tolerated.affinity_values {
        true => label_selector_with_any_values,
        false => label_selector,
    };
    for (i, p) in node.get(PREFERRED).items().iter().enumerate() {
        let at = at.child(PREFERRED).index(i);
        weight(out, p, &at);
        // Values are not checked in preferences, where a wrong one only matches nothing; they cause warnings
        // instead.
        term(out, p.get("preference"), &at.child("preference"), false);
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let (pods, at) = (v.get(key), path.child(key));
        for (i, t) in pods.get(REQUIRED).items().iter().enumerate() {
            pod_term(out, t, selector, &at.child(REQUIRED).index(i));
        }
        for (i, p) in pods.get(PREFERRED).items().iter().enumerate() {
            let at = at.child(PREFERRED).index(i);
            weight(out, p, &at);
            pod_term(out, p.get("podAffinityTerm"), selector, &at.child("podAffinityTerm"));
        }
    }
}

/// True if the required node affinity has an invalid value.
pub(super) fn has_invalid_node_values(affinity: &Value) -> bool {
    has_invalid_values(affinity.at(&["nodeAffinity", REQUIRED]))
}

/// True if a `NodeSelector` has an invalid value.
fn has_invalid_values(selector: &Value) -> bool {
    let terms = selector.get("nodeSelectorTerms").items();
    let mut expressions = terms.iter().flat_map(|t| t.get("matchExpressions").items());
    expressions.any(|e| strings(e.get("values")).iter().any(|v| !label_value(v).is_empty()))
}

/// True if a pod affinity has an invalid selector.
pub(super) fn has_invalid_selectors(affinity: &Value) -> bool {
    let mut errors = ErrorList::new();
    let mut check = |term: &Value| {
        for key in ["labelSelector", "namespaceSelector"] {
            label_selector(&mut errors, term.get(key), &FieldPath::default());
        }
    };
    for pods in ["podAffinity", "podAntiAffinity"].map(|key| affinity.get(key)) {
        pods.get(REQUIRED).items().iter().for_each(&mut check);
        let preferred = pods.get(PREFERRED).items().iter();
        preferred.map(|p| p.get("podAffinityTerm")).for_each(&mut check);
    }
    !errors.is_empty()
}

/// True if a topology spread constraint has an invalid selector.
pub(super) fn has_invalid_spread(spec: &Value) -> bool {
    let mut errors = ErrorList::new();
    for c in spec.get("topologySpreadConstraints").items() {
        label_selector(&mut errors, c.get("labelSelector"), &FieldPath::default());
    }
    !errors.is_empty()
}

fn weight(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let n = v.get("weight").as_i64().unwrap_or(0);
    if !(1..=100).contains(&n) {
        out.push(FieldError::invalid(
            &at.child("weight"),
            n,
            "must be in the range 1-100",
        ));
    }
}

/// Checks a `NodeSelector`: terms are alternatives, of which there must be at least one.
pub(in crate::controlplane::validation) fn node_selector(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    node_terms(out, v, true, path);
}

/// [`node_selector`] for an update: values are not checked if the `stored` selector has invalid ones.
pub(in crate::controlplane::validation) fn node_selector_update(
    out: &mut ErrorList,
    v: &Value,
    stored: &Value,
    path: &FieldPath,
) {
    node_terms(out, v, !has_invalid_values(stored), path);
}

fn node_terms(out: &mut ErrorList, v: &Value, check_values: bool, path: &FieldPath) {
    let (at, terms) = (path.child("nodeSelectorTerms"), v.get("nodeSelectorTerms").items());
    if terms.is_empty() {
        out.push(FieldError::required(&at, "must have at least one node selector term"));
    }
    for (i, t) in terms.iter().enumerate() {
        term(out, t, &at.index(i), check_values);
    }
}

fn term(out: &mut ErrorList, v: &Value, path: &FieldPath, values: bool) {
    for (i, e) in v.get("matchExpressions").items().iter().enumerate() {
        requirement(out, e, &path.child("matchExpressions").index(i), values);
    }
    for (i, e) in v.get("matchFields").items().iter().enumerate() {
        let at = path.child("matchFields").index(i);
        match e.str_at(&["operator"]) {
            // A node has a single name, and the scheduler looks it up directly.
            "In" | "NotIn" => {
                if e.get("values").items().len() != 1 {
                    let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                    out.push(FieldError::required(&at.child("values"), why));
                }
            }
            other => out.push(FieldError::invalid_enum(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        match e.str_at(&["key"]) {
            "metadata.name" => {
                for (j, name) in strings(e.get("values")).into_iter().enumerate() {
                    invalid_each(out, &at.child("values").index(j), name, dns1123_subdomain(name));
                }
            }
            other => out.push(FieldError::invalid(
                &at.child("key"),
                other,
                "not a valid field selector key",
            )),
        }
    }
}

fn requirement(out: &mut ErrorList, e: &Value, at: &FieldPath, check_values: bool) {
    checkpoint();
    let values = e.get("values").items();
    let values_at = at.child("values");
    match e.str_at(&["operator"]) {
        "In" | "NotIn" => {
            if values.is_empty() {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                out.push(FieldError::required(&values_at, why));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                out.push(FieldError::forbidden(&values_at, why));
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                out.push(FieldError::required(&values_at, why));
            }
        }
        other => out.push(FieldError::invalid_enum(
            &at.child("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    // Independent of the operator, so several errors may apply to one requirement.
    let key = e.str_at(&["key"]);
    invalid_each(out, &at.child("key"), key, qualified_name(key));
    // `Gt` and `Lt` take numbers, but upstream checks them as label values only.
    if check_values {
        for (i, value) in strings(e.get("values")).into_iter().enumerate() {
            invalid_each(out, &values_at.index(i), value, label_value(value));
        }
    }
}

fn pod_term(out: &mut ErrorList, v: &Value, selector: fn(&mut ErrorList, &Value, &FieldPath), at: &FieldPath) {
    checkpoint();
    for key in ["labelSelector", "namespaceSelector"] {
        selector(out, v.get(key), &at.child(key));
    }
    for name in strings(v.get("namespaces")) {
        // As upstream, the path has no index.
        invalid_each(out, &at.child("namespace"), name, dns1123_label(name));
    }
    for key in ["matchLabelKeys", "mismatchLabelKeys"] {
        label_keys(out, v, key, at);
    }
    // Against the selector first, then against the other list: the order of upstream's errors.
    taken_keys(out, v, at);
    let other: Seen<&str> = strings(v.get("mismatchLabelKeys")).into_iter().collect();
    for (i, k) in strings(v.get("matchLabelKeys")).into_iter().enumerate() {
        if other.contains(&k) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            out.push(FieldError::invalid(&at.child("matchLabelKeys").index(i), k, why));
        }
    }
    topology_key(out, v, at);
}

/// Checks `matchLabelKeys` or `mismatchLabelKeys`, which extend the label selector and require one.
fn label_keys(out: &mut ErrorList, v: &Value, key: &str, at: &FieldPath) {
    let (keys, at) = (strings(v.get(key)), at.child(key));
    if !keys.is_empty() && v.get("labelSelector").is_null() {
        let why = "must not be specified when labelSelector is not set";
        out.push(FieldError::forbidden(&at, why));
        // The keys themselves are not checked any more in this case.
        return;
    }
    for (i, k) in keys.into_iter().enumerate() {
        invalid_each(out, &at.index(i), k, qualified_name(k));
    }
}

/// Reports `matchLabelKeys` that the selector also has on its own. The strategy has already merged each key
/// into the selector once, so only a second occurrence is a conflict. As upstream, the path is that of the
/// list's owner.
fn taken_keys(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let selector = v.get("labelSelector");
    let labels = selector.get("matchLabels").as_object();
    let mut seen: Seen<&str> = labels.into_iter().flat_map(|m| m.keys()).collect();
    // For duplicate keys, the index of the last one is reported.
    let keys = strings(v.get("matchLabelKeys")).into_iter().enumerate();
    let keys: HashMap<&str, usize> = keys.map(|(i, key)| (key, i)).collect();
    for e in selector.get("matchExpressions").items() {
        let key = e.str_at(&["key"]);
        if !seen.insert(key)
            && let Some(i) = keys.get(key)
        {
            let why = "exists in both matchLabelKeys and labelSelector";
            out.push(FieldError::invalid(&at.index(*i), key, why));
        }
    }
}

fn topology_key(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (key, at) = (v.str_at(&["topologyKey"]), at.child("topologyKey"));
    if key.is_empty() {
        out.push(FieldError::required(&at, "can not be empty"));
    }
    // An empty key has both errors.
    invalid_each(out, &at, key, qualified_name(key));
}

pub(super) fn spread(out: &mut ErrorList, spec: &Value, tolerated: Tolerated, path: &FieldPath) {
    let path = path.child("topologySpreadConstraints");
    let all = spec.get("topologySpreadConstraints").items();
    let pair = |c: &'_ Value| -> (String, String) {
        let of = |key: &str| json::to_string(c.get(key));
        (of("topologyKey"), of("whenUnsatisfiable"))
    };
    // Counts the remaining occurrences of each pair: all but the last are reported as duplicates, as upstream
    // does by comparing each constraint with those after it.
    let mut to_come: HashMap<(String, String), usize> = HashMap::new();
    // Most pods have at most one constraint, which needs no formatting of keys.
    if all.len() > 1 {
        all.iter().for_each(|c| *to_come.entry(pair(c)).or_default() += 1);
    }
    for (i, c) in all.iter().enumerate() {
        checkpoint();
        let at = path.index(i);
        let number = |key: &str| c.get(key).as_i64();
        let skew = number("maxSkew").unwrap_or(0);
        if skew <= 0 {
            out.push(FieldError::invalid(
                &at.child("maxSkew"),
                skew,
                "must be greater than zero",
            ));
        }
        if c.str_at(&["topologyKey"]).is_empty() {
            out.push(FieldError::required(&at.child("topologyKey"), "can not be empty"));
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        let action = c.str_at(&["whenUnsatisfiable"]);
        if !actions.contains(&action) {
            out.push(FieldError::not_supported(
                &at.child("whenUnsatisfiable"),
                action,
                &actions,
            ));
        }
        let again = all.len() > 1
            && to_come.get_mut(&pair(c)).is_some_and(|left| {
                *left -= 1;
                *left > 0
            });
        if again {
            let shown = format!("{{{}, {action}}}", c.str_at(&["topologyKey"]));
            let at = at.child("{topologyKey, whenUnsatisfiable}");
            out.push(FieldError::duplicate(&at, shown.as_str()));
        }
        if let Some(n) = number("minDomains") {
            let at = at.child("minDomains");
            if n <= 0 {
                out.push(FieldError::invalid(&at, n, "must be greater than zero"));
            }
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                out.push(FieldError::invalid(&at, n, why));
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            optional_choice(out, c, key, &at, &["Honor", "Ignore"]);
        }
        label_keys(out, c, "matchLabelKeys", &at);
        taken_keys(out, c, &at);
        if !tolerated.spread_selectors {
            label_selector(out, c.get("labelSelector"), &at.child("labelSelector"));
        }
    }
}
