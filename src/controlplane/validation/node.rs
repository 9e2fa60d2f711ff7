//! Validation of nodes: [`node`] for create and [`node_update`] for updates, status included (`ValidateNode` and
//! `ValidateNodeUpdate` in upstream's `pkg/apis/core/validation/validation.go`). The strategy runs both on update.

use super::service::cidr_strict;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote, show_json};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{label_value, net, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, required_choice, strings};
use crate::interrupt::checkpoint;

pub(crate) fn node(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    annotations(&mut out, v);
    taints(
        &mut out,
        v.at(&["spec", "taints"]),
        &FieldPath::new("metadata").child("taints"),
    );
    resources(&mut out, v);
    if let Some(n) = v
        .at(&["status", "nodeInfo", "swap", "capacity"])
        .as_i64()
        .filter(|n| *n <= 0)
    {
        // The misleading path is upstream's.
        let at = FieldPath::new("metadata").child("nodeSwapStatus").child("capacity");
        out.push(FieldError::invalid(&at, n, "must be greater than zero"));
    }
    declared_features(&mut out, v);
    pod_ranges(&mut out, v);
    out
}

/// Checks the alpha annotations for taints and avoided pods. As upstream, malformed JSON is reported at the
/// annotations as a whole.
fn annotations(out: &mut ErrorList, v: &Value) {
    const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
    const AVOID: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    let path = FieldPath::new("metadata").child("annotations");
    if let Some(text) = v.annotation(TAINTS).filter(|t| !t.is_empty()) {
        match json::decode(text.as_bytes()) {
            Err(why) => out.push(FieldError::invalid(&path, TAINTS, why.to_string())),
            Ok(list) => taints(out, &list, &path.child(TAINTS)),
        }
    }
    if let Some(text) = v.annotation(AVOID).filter(|t| !t.is_empty()) {
        match json::decode(text.as_bytes()) {
            // `AvoidPods` is upstream's path, not the annotation's key.
            Err(why) => out.push(FieldError::invalid(&path.child("AvoidPods"), AVOID, why.to_string())),
            Ok(avoid) => {
                for (i, entry) in avoid.get("preferAvoidPods").items().iter().enumerate() {
                    let at = path.child(AVOID).index(i).child("PodSignature");
                    let owner = entry.at(&["podSignature", "podController"]);
                    if owner.is_null() {
                        out.push(FieldError::required(&at, ""));
                    // A missing flag passes; upstream dereferences the nil pointer, which panics.
                    } else if owner.get("controller").as_bool() == Some(false) {
                        let at = at.child("PodController").child("Controller");
                        out.push(FieldError::invalid(&at, false, "must point to a controller"));
                    }
                }
            }
        }
    }
}

/// Checks the quantities in `capacity` and `allocatable`.
fn resources(out: &mut ErrorList, v: &Value) {
    for key in ["capacity", "allocatable"] {
        let path = FieldPath::new("status").child(key);
        for (name, q) in v.at(&["status", key]).as_object().into_iter().flat_map(|m| m.iter()) {
            super::quota::amount(out, name, q, &path.child(name));
        }
    }
}

fn declared_features(out: &mut ErrorList, v: &Value) {
    let path = FieldPath::new("status").child("declaredFeatures");
    // Segments after the first may start in lower case.
    let word =
        |s: &str| s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.bytes().all(|c| c.is_ascii_alphanumeric());
    let all = strings(v.at(&["status", "declaredFeatures"]));
    for (i, name) in all.iter().enumerate() {
        let shown = quote(name);
        let why = if name.len() > 253 {
            Some(format!(
                "invalid feature name {shown}: must be no more than 253 characters"
            ))
        } else if !name.starts_with(|c: char| c.is_ascii_uppercase()) || !name.split('/').all(word) {
            Some(format!(
                "invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            ))
        } else {
            None
        };
        if let Some(why) = why {
            out.push(FieldError::invalid(&path.index(i), *name, why));
        }
        // Sorted lists make duplicates neighbours, so one pass finds both defects.
        match all.get(i + 1) {
            Some(next) if next == name => out.push(FieldError::duplicate(&path.index(i + 1), *next)),
            Some(next) if next < name => {
                let why = "list must be sorted alphabetically";
                out.push(FieldError::invalid(&path.index(i + 1), *next, why));
            }
            _ => {}
        }
    }
}

/// Checks taints. Upstream reports those of the spec below `metadata`.
fn taints(out: &mut ErrorList, list: &Value, path: &FieldPath) {
    let mut seen: Seen<(&str, &str)> = Seen::new();
    for (i, t) in list.items().iter().enumerate() {
        checkpoint();
        let at = path.index(i);
        let (key, value, effect) = (t.str_at(&["key"]), t.str_at(&["value"]), t.str_at(&["effect"]));
        invalid_each(out, &at.child("key"), key, qualified_name(key));
        if !value.is_empty() {
            // Joined into one error here, unlike for labels.
            let messages = label_value(value);
            if !messages.is_empty() {
                out.push(FieldError::invalid(&at.child("value"), value, messages.join(";")));
            }
        }
        required_choice(out, t, "effect", &at, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if !seen.insert((key, effect)) {
            // The bad value is printed like Go's internal struct, where a missing time is null.
            let added = show_json(t.get("timeAdded"));
            let mut e = FieldError::duplicate(&at, "");
            e.bad_value = Some(format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}",
                show_json(&key.into()),
                show_json(&value.into()),
                show_json(&effect.into())
            ));
            e.detail = "taints must be unique by key and effect pair".to_owned();
            out.push(e);
        }
    }
}

fn pod_ranges(out: &mut ErrorList, v: &Value) {
    let path = FieldPath::new("spec").child("podCIDRs");
    let ranges = strings(v.at(&["spec", "podCIDRs"]));
    for (i, r) in ranges.iter().enumerate() {
        invalid_each(out, &path.index(i), *r, cidr_strict(r));
    }
    let family = |r: &str| net::parse_cidr(r).map(|(ip, _)| ip.is_ipv4());
    // Upstream's dual-stack check fails with an internal error if any CIDR is malformed.
    if ranges.len() > 1
        && let Some((i, odd)) = ranges.iter().enumerate().find(|(_, r)| net::parse_cidr(r).is_none())
    {
        let why = format!(
            "failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: {odd})"
        );
        out.push(FieldError::internal(&path, format!("invalid PodCIDRs. {why}")));
    }
    // Two ranges are a pair only if both are valid and of different families.
    let is_pair = |a: &str, b: &str| family(a).zip(family(b)).is_some_and(|(a, b)| a != b);
    let clash = match ranges.as_slice() {
        [] | [_] => false,
        [a, b] => !is_pair(a, b),
        _ => true,
    };
    if clash {
        out.push(FieldError::invalid(
            &path,
            v.at(&["spec", "podCIDRs"]).clone(),
            "may specify no more than one CIDR for each IP family",
        ));
    }
}

pub(crate) fn node_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("spec");
    annotations(&mut out, new);
    resources(&mut out, new);
    declared_features(&mut out, new);
    addresses(&mut out, new);
    let (was, now) = (
        strings(old.at(&["spec", "podCIDRs"])),
        strings(new.at(&["spec", "podCIDRs"])),
    );
    // Routes and pod addresses derive from the ranges; they can be assigned once.
    let changed = match was.len() == now.len() {
        true => was.iter().zip(&now).filter(|(a, b)| a != b).count(),
        // A list of another length is one error, as upstream.
        false => usize::from(!was.is_empty()),
    };
    out.push_times(changed, || {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        FieldError::forbidden(&path.child("podCIDRs"), why)
    });
    let before = old.str_at(&["spec", "providerID"]);
    if !before.is_empty() && before != new.str_at(&["spec", "providerID"]) {
        out.push(FieldError::forbidden(
            &path.child("providerID"),
            "node updates may not change providerID except from \"\" to valid",
        ));
    }
    taints(
        &mut out,
        new.at(&["spec", "taints"]),
        &FieldPath::new("metadata").child("taints"),
    );
    if old.str_at(&["spec", "externalID"]) != new.str_at(&["spec", "externalID"]) {
        out.push(FieldError::forbidden(&path.child("externalID"), "may not be updated"));
    }
    out
}

fn addresses(out: &mut ErrorList, v: &Value) {
    let mut seen: Seen<(&str, &str)> = Seen::new();
    for (i, a) in v.at(&["status", "addresses"]).items().iter().enumerate() {
        let key = (a.str_at(&["type"]), a.str_at(&["address"]));
        if !seen.insert(key) {
            let mut e = FieldError::duplicate(&FieldPath::new("status").child("addresses").index(i), "");
            let (kind, address) = (show_json(&key.0.into()), show_json(&key.1.into()));
            e.bad_value = Some(format!("{{\"Type\":{kind},\"Address\":{address}}}"));
            out.push(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn each_changed_pod_range_is_an_error() {
        let of = |ranges: Value| {
            let mut v = json!({});
            v.set(&["spec", "podCIDRs"], ranges);
            v
        };
        let old = of(json!(["10.0.0.0/24", "fd00::/64"]));
        let errors = |ranges: Value, old: &Value| node_update(&of(ranges), old).len();
        assert_eq!(errors(json!(["10.0.1.0/24", "fd01::/64"]), &old), 2);
        assert_eq!(errors(json!(["10.0.0.0/24"]), &old), 1);
        assert_eq!(errors(json!(["10.0.0.0/24", "fd00::/64"]), &of(json!([]))), 0);
    }

    #[test]
    fn node_errors_match_the_recordings() {
        let errors = |spec: Value| {
            let mut v = json!({});
            v.set(&["spec"], spec);
            aggregate(&node(&v))
        };
        assert_eq!(
            errors(json!({"taints": [{"key": "a", "effect": "X"}]})),
            "metadata.taints[0].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
        );
        assert_eq!(
            errors(json!({"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]})),
            "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair"
        );
        let odd = json!({"key": "a", "value": "<", "effect": "NoSchedule"});
        assert!(
            errors(json!({"taints": [(odd.clone()), (odd)]}))
                .contains("{\"Key\":\"a\",\"Value\":\"\\u003c\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}")
        );
        assert_eq!(
            errors(json!({"podCIDRs": ["x"]})),
            "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        );
        assert_eq!(errors(json!({"podCIDRs": ["10.0.0.0/24", "fd00::/64"]})), "[]");
        let clash = "may specify no more than one CIDR for each IP family";
        for pair in [json!(["x", "10.0.0.0/24"]), json!(["10.0.0.0/24", "10.0.1.0/24"])] {
            assert!(errors(json!({"podCIDRs": (pair)})).contains(clash));
        }
    }
}
