//! Validation of NetworkPolicies, IPAddresses and ServiceCIDRs (upstream's `pkg/apis/networking/validation`).
//! Whether an IPAddress has a canonical name is left to the strategy.

use super::common::{go_struct, required_segment};
use super::service::warnings::cidr_warning;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_subdomain, net, path_segment_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, Seen, SelectorCheck, invalid_each, same, selector_check, strings};
use crate::interrupt::checkpoint;

pub(crate) fn network_policy(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    let known: Seen<&str> = old.map(cidrs).unwrap_or_default().into_iter().collect();
    // By the policy's own selector, as upstream.
    let selector = selector_check(old.map(|old| old.at(&["spec", "podSelector"])));
    selector(&mut out, spec.get("podSelector"), &path.child("podSelector"));
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in spec.get(side).items().iter().enumerate() {
            let at = path.child(side).index(i);
            for (j, p) in rule.get("ports").items().iter().enumerate() {
                port(&mut out, p, &at.child("ports").index(j));
            }
            for (j, p) in rule.get(peers).items().iter().enumerate() {
                peer(&mut out, p, &known, selector, &at.child(peers).index(j));
            }
        }
    }
    let (at, types) = (path.child("policyTypes"), strings(spec.get("policyTypes")));
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        out.push(FieldError::invalid(&at, spec.get("policyTypes").clone(), why));
        // The values of a list that is too long are not looked at, as upstream.
        return out;
    }
    for (i, t) in types.iter().enumerate() {
        if !matches!(*t, "Ingress" | "Egress") {
            out.push(FieldError::not_supported(&at.index(i), *t, &["Ingress", "Egress"]));
        }
    }
    out
}

/// All CIDRs of a stored policy. They stay valid on update even if they break rules added later.
fn cidrs(v: &Value) -> Vec<&str> {
    let mut all = Vec::new();
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in v.at(&["spec", side]).items() {
            for p in rule.get(peers).items() {
                all.push(p.str_at(&["ipBlock", "cidr"]));
                all.extend(strings(p.at(&["ipBlock", "except"])));
            }
        }
    }
    all.retain(|c| !c.is_empty());
    all
}

fn port(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    checkpoint();
    if let Some(protocol) = v.get("protocol").as_str()
        && !matches!(protocol, "TCP" | "UDP" | "SCTP")
    {
        out.push(FieldError::not_supported(
            &at.child("protocol"),
            protocol,
            &["TCP", "UDP", "SCTP"],
        ));
    }
    let end = v.get("endPort").as_i64();
    let end_at = at.child("endPort");
    match v.get("port") {
        Value::Int(n) => {
            invalid_each(out, &at.child("port"), *n, net::port(*n));
            if let Some(end) = end {
                if end < *n {
                    out.push(FieldError::invalid(
                        // Upstream's bad value is the port, although the path is that of `endPort`.
                        &end_at,
                        *n,
                        "must be greater than or equal to `port`",
                    ));
                }
                invalid_each(out, &end_at, end, net::port(end));
            }
        }
        Value::String(s) => {
            // A range cannot start at a name: it may resolve to different numbers in different pods.
            if let Some(end) = end {
                out.push(FieldError::invalid(
                    &end_at,
                    end,
                    "may not be specified when `port` is non-numeric",
                ));
            }
            invalid_each(out, &at.child("port"), s.as_str(), net::port_name(s));
        }
        _ => {
            if let Some(end) = end {
                let why = "may not be specified when `port` is not specified";
                out.push(FieldError::invalid(&end_at, end, why));
            }
        }
    }
}

fn peer(out: &mut ErrorList, v: &Value, known: &Seen<&str>, selector: SelectorCheck, at: &FieldPath) {
    checkpoint();
    let mut count = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if !v.get(key).is_null() {
            count += 1;
            selector(out, v.get(key), &at.child(key));
        }
    }
    let block = v.get("ipBlock");
    if !block.is_null() {
        count += 1;
        ip_block(out, block, known, &at.child("ipBlock"));
    }
    if count == 0 {
        out.push(FieldError::required(at, "must specify a peer"));
    // Two selectors together are fine: they select pods in namespaces.
    } else if count > 1 && !block.is_null() {
        out.push(FieldError::forbidden(
            at,
            "may not specify both ipBlock and another peer",
        ));
    }
}

/// Warns about CIDRs that are ambiguous or not in canonical form.
pub(crate) fn network_policy_warnings(v: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (side, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in v.at(&["spec", side]).items().iter().enumerate() {
            for (j, peer) in rule.get(peers).items().iter().enumerate() {
                let at = format!("spec.{side}[{i}].{peers}[{j}].ipBlock");
                let block = peer.get("ipBlock");
                out.extend(cidr_warning(&format!("{at}.cidr"), block.str_at(&["cidr"])));
                for (k, text) in strings(block.get("except")).into_iter().enumerate() {
                    out.extend(cidr_warning(&format!("{at}.except[{k}]"), text));
                }
            }
        }
    }
    out
}

fn ip_block(out: &mut ErrorList, v: &Value, known: &Seen<&str>, at: &FieldPath) {
    let cidr = v.str_at(&["cidr"]);
    let check = |out: &mut ErrorList, text: &str, at: &FieldPath| {
        if !known.contains(&text) {
            invalid_each(out, at, text, net::cidr_strict(text));
        }
    };
    if cidr.is_empty() {
        out.push(FieldError::required(&at.child("cidr"), ""));
        return;
    }
    check(out, cidr, &at.child("cidr"));
    // Exceptions cannot be compared with a malformed CIDR.
    let Some((network, bits)) = net::parse_cidr(cidr) else {
        return;
    };
    for (i, e) in strings(v.get("except")).into_iter().enumerate() {
        let at = at.child("except").index(i);
        check(out, e, &at);
        if let Some((address, more)) = net::parse_cidr(e)
            // Strictly more bits: an exception as large as the CIDR would leave nothing.
            && !(more > bits && contains(network, bits, address))
        {
            out.push(FieldError::invalid(&at, e, "must be a strict subset of `cidr`"));
        }
    }
}

fn contains(network: std::net::IpAddr, bits: u8, address: std::net::IpAddr) -> bool {
    use std::net::IpAddr::{V4, V6};
    // `checked_shr` is `None` for a full-width shift, that is, for a prefix of zero bits: equal on both
    // sides, so everything is contained.
    let shift = |all: u32| all.saturating_sub(u32::from(bits));
    match (network, address) {
        (V4(a), V4(b)) => a.to_bits().checked_shr(shift(32)) == b.to_bits().checked_shr(shift(32)),
        (V6(a), V6(b)) => a.to_bits().checked_shr(shift(128)) == b.to_bits().checked_shr(shift(128)),
        _ => false,
    }
}

pub(crate) fn ip_address(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (parent, at) = (v.at(&["spec", "parentRef"]), FieldPath::new("spec").child("parentRef"));
    if parent.is_null() {
        out.push(FieldError::required(&at, ""));
        return out;
    }
    let group = parent.str_at(&["group"]);
    if !group.is_empty() {
        invalid_each(&mut out, &at.child("group"), group, dns1123_subdomain(group));
    }
    required_segment(&mut out, parent, "resource", &at);
    required_segment(&mut out, parent, "name", &at);
    let namespace = parent.str_at(&["namespace"]);
    if !namespace.is_empty() {
        invalid_each(
            &mut out,
            &at.child("namespace"),
            namespace,
            path_segment_name(namespace),
        );
    }
    out
}

pub(crate) fn ip_address_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ip_address(new);
    let parent = ["spec", "parentRef"];
    if !same(new.at(&parent), old.at(&parent)) {
        let at = FieldPath::new("spec").child("parentRef");
        let shown = match new.at(&parent) {
            Value::Null => "null".to_owned(),
            parent => go_struct(parent, PARENT),
        };
        out.push(FieldError::invalid_raw(&at, shown, IMMUTABLE));
    }
    out
}

/// Fields of Go's `ParentReference`.
const PARENT: &[(&str, &str, &str)] = &[
    ("Group", "group", "\"\""),
    ("Resource", "resource", "\"\""),
    ("Namespace", "namespace", "\"\""),
    ("Name", "name", "\"\""),
];

pub(crate) fn service_cidr(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (cidrs, at) = (v.at(&["spec", "cidrs"]), FieldPath::new("spec").child("cidrs"));
    let all = strings(cidrs);
    if all.is_empty() {
        out.push(FieldError::required(&at, "at least one CIDR required"));
        return out;
    }
    if all.len() > 2 {
        let shown = go_struct(v.get("spec"), &[("CIDRs", "cidrs", "null")]);
        out.push(FieldError::invalid_raw(&at, shown, "may only hold up to 2 values"));
        return out;
    }
    for (i, text) in all.iter().enumerate() {
        let messages = net::cidr_strict(text);
        // The canonical form follows only for a valid CIDR; it does not exist for others.
        let fine = messages.is_empty();
        invalid_each(&mut out, &at.index(i), *text, messages);
        if let Some((ip, bits)) = net::parse_cidr(text).filter(|(ip, bits)| fine && format!("{ip}/{bits}") != *text) {
            let why = format!("must be in canonical form (\"{ip}/{bits}\")");
            out.push(FieldError::invalid(&at.index(i), *text, why));
        }
    }
    let families: Vec<bool> = all
        .iter()
        .filter_map(|t| net::parse_cidr(t))
        .map(|(ip, _)| ip.is_ipv4())
        .collect();
    if let [a, b] = families.as_slice()
        && a == b
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        out.push(FieldError::invalid(&at, cidrs.clone(), why));
    }
    out
}

pub(crate) fn service_cidr_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (cidrs, at) = (new.at(&["spec", "cidrs"]), FieldPath::new("spec").child("cidrs"));
    let (now, was) = (strings(cidrs), strings(old.at(&["spec", "cidrs"])));
    if now.len() == was.len() {
        for (i, text) in now.iter().enumerate() {
            if *text != was[i] {
                out.push(FieldError::invalid(&at.index(i), *text, IMMUTABLE));
            }
        }
    // Adding the second family is the only permitted change.
    } else if was.len() == 1 && now.len() == 2 {
        if now[0] != was[0] {
            out.push(FieldError::invalid(&at.index(0), now[0], IMMUTABLE));
        }
        // Only the new entry can be invalid, but the families are a matter of both.
        out.extend(service_cidr(new));
    } else {
        out.push(FieldError::invalid(&at, cidrs.clone(), IMMUTABLE));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn service_cidr_errors_match_the_recordings() {
        for (cidrs, want) in [
            (
                json!(["x"]),
                "spec.cidrs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
            (json!([]), "spec.cidrs: Required value: at least one CIDR required"),
            (
                json!(["10.1.0.0/24", "10.2.0.0/24", "fd00::/64"]),
                "spec.cidrs: Invalid value: {\"CIDRs\":[\"10.1.0.0/24\",\"10.2.0.0/24\",\"fd00::/64\"]}: may only hold up to 2 values",
            ),
            (
                json!(["10.1.0.0/24", "10.2.0.0/24"]),
                "spec.cidrs: Invalid value: [\"10.1.0.0/24\",\"10.2.0.0/24\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            ),
            (
                json!(["10.1.0.5/24"]),
                "spec.cidrs[0]: Invalid value: \"10.1.0.5/24\": must not have bits set beyond the prefix length",
            ),
        ] {
            let mut v = json!({});
            v.set(&["spec", "cidrs"], cidrs);
            assert_eq!(aggregate(&service_cidr(&v)), want);
        }
    }

    #[test]
    fn stored_values_of_the_selector_are_not_checked_on_update() {
        let selector = |value: &str| json!({"matchExpressions": [{"key": "k", "operator": "In", "values": [(value)]}]});
        let with = |own: &str, peer: &str| {
            let peer = json!({"podSelector": (selector(peer))});
            json!({"spec": {"podSelector": (selector(own)), "ingress": [{"from": [(peer)]}]}})
        };
        let errors = |old: &Value| network_policy(&with("not valid", "not valid"), Some(old)).len();
        assert_eq!(errors(&with("a", "not valid")), 2);
        assert_eq!(errors(&with("not valid", "a")), 0);
    }

    #[test]
    fn exception_is_a_strict_subset() {
        let errors = |except: &str| {
            let v = json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [(except)]}}]}]}});
            aggregate(&network_policy(&v, None))
        };
        assert_eq!(errors("10.1.0.0/16"), "[]");
        assert!(errors("11.0.0.0/16").ends_with("must be a strict subset of `cidr`"));
        assert!(errors("10.0.0.0/8").ends_with("must be a strict subset of `cidr`"));
    }

    #[test]
    fn noncanonical_cidr_yields_a_warning() {
        let v = json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "FD00::/64"}}]}]}});
        assert_eq!(
            network_policy_warnings(&v),
            [
                "spec.egress[0].to[0].ipBlock.cidr: IPv6 CIDR value \"FD00::/64\" should be in RFC 5952 canonical format (\"fd00::/64\")"
            ]
        );
    }

    #[test]
    fn changed_parent_is_printed_with_go_names() {
        let old = json!({"metadata": {"name": "192.0.2.1"}, "spec": {"parentRef": {"resource": "r", "name": "a"}}});
        let mut new = old.clone();
        new.set(&["spec", "parentRef", "name"], "b");
        assert_eq!(
            aggregate(&ip_address_update(&new, &old)),
            "spec.parentRef: Invalid value: {\"Group\":\"\",\"Resource\":\"r\",\"Namespace\":\"\",\"Name\":\"b\"}: field is immutable"
        );
    }
}
