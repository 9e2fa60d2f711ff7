//! Nodes.

use super::service::cidr_strict;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::validation::{label_value, net, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, required_choice, strings};

pub(crate) fn node(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    taints(&mut out, v);
    pod_ranges(&mut out, v);
    out
}

fn taints(out: &mut ErrorList, v: &Value) {
    // Upstream reports them below metadata.
    let path = FieldPath::new("metadata").child("taints");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, t) in v.at(&["spec", "taints"]).items().iter().enumerate() {
        let at = path.index(i);
        let (key, value, effect) = (t.str_at(&["key"]), t.str_at(&["value"]), t.str_at(&["effect"]));
        invalid_each(out, &at.child("key"), key, qualified_name(key));
        if !value.is_empty() {
            invalid_each(out, &at.child("value"), value, label_value(value));
        }
        required_choice(out, t, "effect", &at, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if seen.contains(&(key, effect)) {
            let added = t.get("timeAdded").as_str().map_or("null".to_owned(), quote);
            let mut e = FieldError::duplicate(&at, "");
            e.bad_value = Some(format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}",
                quote(key),
                quote(value),
                quote(effect)
            ));
            e.detail = "taints must be unique by key and effect pair".to_owned();
            out.push(e);
        }
        seen.push((key, effect));
    }
}

fn pod_ranges(out: &mut ErrorList, v: &Value) {
    let path = FieldPath::new("spec").child("podCIDRs");
    let ranges = strings(v.at(&["spec", "podCIDRs"]));
    for (i, r) in ranges.iter().enumerate() {
        invalid_each(out, &path.index(i), *r, cidr_strict(r));
    }
    let family = |r: &str| net::parse_cidr(r).map(|(ip, _)| ip.is_ipv4());
    let clash = ranges.len() > 2 || (ranges.len() == 2 && family(ranges[0]) == family(ranges[1]));
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
    taints(&mut out, new);
    let (was, now) = (
        strings(old.at(&["spec", "podCIDRs"])),
        strings(new.at(&["spec", "podCIDRs"])),
    );
    if was.is_empty() {
        pod_ranges(&mut out, new);
    } else if was != now {
        out.push(FieldError::forbidden(
            &path.child("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    let before = old.str_at(&["spec", "providerID"]);
    if !before.is_empty() && before != new.str_at(&["spec", "providerID"]) {
        out.push(FieldError::forbidden(
            &path.child("providerID"),
            "node updates may not change providerID except from \"\" to valid",
        ));
    }
    if old.str_at(&["spec", "externalID"]) != new.str_at(&["spec", "externalID"]) {
        out.push(FieldError::forbidden(&path.child("externalID"), "may not be updated"));
    }
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, a) in new.at(&["status", "addresses"]).items().iter().enumerate() {
        let key = (a.str_at(&["type"]), a.str_at(&["address"]));
        if seen.contains(&key) {
            let mut e = FieldError::duplicate(&FieldPath::new("status").child("addresses").index(i), "");
            e.bad_value = Some(format!("{{\"Type\":{},\"Address\":{}}}", quote(key.0), quote(key.1)));
            out.push(e);
        }
        seen.push(key);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn recorded_node_errors_are_the_same() {
        let said = |spec: Value| {
            let mut v = json!({});
            v.set(&["spec"], spec);
            aggregate(&node(&v))
        };
        assert_eq!(
            said(json!({"taints": [{"key": "a", "effect": "X"}]})),
            "metadata.taints[0].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
        );
        assert_eq!(
            said(json!({"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]})),
            "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair"
        );
        assert_eq!(
            said(json!({"podCIDRs": ["x"]})),
            "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        );
    }
}
