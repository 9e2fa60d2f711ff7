//! Validation and warnings of Endpoints (`ValidateEndpoints` in upstream's `pkg/apis/core/validation`) and
//! EndpointSlices (`pkg/apis/discovery/validation`). Which updates skip validation is left to the strategy,
//! except for unchanged endpoints of a slice.

use super::service::warnings::ip_warning;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{
    self, dns1123_label, dns1123_subdomain, label_value, net, parse_ip, qualified_name,
};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{
    IMMUTABLE, PROTOCOLS, Seen, duplicate_enum, invalid_each, non_special_ip, required_choice, required_pointer, same,
    strings,
};
use crate::interrupt::checkpoint;
use std::net::IpAddr;

pub(crate) fn endpoints(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("subsets");
    for (i, s) in v.get("subsets").items().iter().enumerate() {
        let at = path.index(i);
        let ready = s.get("addresses").items();
        let not_ready = s.get("notReadyAddresses").items();
        if ready.is_empty() && not_ready.is_empty() {
            out.push(FieldError::required(
                &at,
                "must specify `addresses` or `notReadyAddresses`",
            ));
        }
        for (key, list) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
            for (k, a) in list.iter().enumerate() {
                endpoint_address(&mut out, a, &at.child(key).index(k));
            }
        }
        let ports = s.get("ports").items();
        for (k, p) in ports.iter().enumerate() {
            let at = at.child("ports").index(k);
            match p.str_at(&["name"]) {
                // A single port may be unnamed; several are distinguished by name.
                "" if ports.len() > 1 => out.push(FieldError::required(&at.child("name"), "")),
                "" => {}
                name => invalid_each(&mut out, &at.child("name"), name, dns1123_label(name)),
            }
            let n = p.get("port").as_i64().unwrap_or(0);
            invalid_each(&mut out, &at.child("port"), n, net::port(n));
            required_choice(&mut out, p, "protocol", &at, PROTOCOLS);
            if let Some(app) = p.get("appProtocol").as_str() {
                invalid_each(&mut out, &at.child("appProtocol"), app, qualified_name(app));
            }
        }
    }
    out
}

fn endpoint_address(out: &mut ErrorList, a: &Value, at: &FieldPath) {
    checkpoint();
    let ip = a.str_at(&["ip"]);
    invalid_each(out, &at.child("ip"), ip, net::ip_strict(ip));
    match a.str_at(&["hostname"]) {
        "" => {}
        host => invalid_each(out, &at.child("hostname"), host, dns1123_label(host)),
    }
    if let Some(node) = a.get("nodeName").as_str() {
        invalid_each(out, &at.child("nodeName"), node, dns1123_subdomain(node));
    }
    // Runs even if the syntax is invalid, so that a malformed address yields two errors, as upstream. The rule
    // keeps Endpoints from leading traffic to a node's own loopback or link-local services.
    non_special_ip(out, &at.child("ip"), ip);
}

pub(crate) fn endpoints_warnings(v: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (i, s) in v.get("subsets").items().iter().enumerate() {
        for key in ["addresses", "notReadyAddresses"] {
            for (k, a) in s.get(key).items().iter().enumerate() {
                out.extend(ip_warning(&format!("subsets[{i}].{key}[{k}].ip"), a.str_at(&["ip"])));
            }
        }
    }
    out
}

pub(crate) fn slice_warnings(v: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (i, e) in v.get("endpoints").items().iter().enumerate() {
        for (k, a) in strings(e.get("addresses")).iter().enumerate() {
            out.extend(ip_warning(&format!("endpoints[{i}].addresses[{k}]"), a));
        }
    }
    out
}

/// Validates an EndpointSlice; `old` is the stored one on update. Unchanged endpoints are not validated
/// again.
pub(crate) fn slice(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    // EndpointSlices have no spec: their fields are at the root.
    let root = FieldPath::default();
    required_choice(&mut out, v, "addressType", &root, &["FQDN", "IPv4", "IPv6"]);
    slice_ports(&mut out, v);
    // Stored endpoints may be in a form that was valid earlier, such as an address with leading zeros.
    if !old.is_some_and(|o| same(o.get("endpoints"), v.get("endpoints"))) {
        slice_endpoints(&mut out, v);
    }
    if let Some(o) = old
        && o.get("addressType") != v.get("addressType")
    {
        out.push(FieldError::invalid_enum(
            &FieldPath::new("addressType"),
            v.get("addressType").clone(),
            IMMUTABLE,
        ));
    }
    out
}

fn slice_ports(out: &mut ErrorList, v: &Value) {
    // The documented limit is 100; upstream enforces only this one (`maxPorts`).
    const MAX: usize = 20000;
    let ports = v.get("ports").items();
    let path = FieldPath::new("ports");
    if ports.len() > MAX {
        out.push(FieldError::too_many(&path, ports.len(), MAX));
        return;
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, p) in ports.iter().enumerate() {
        let at = path.index(i);
        let name = p.str_at(&["name"]);
        if !name.is_empty() {
            invalid_each(out, &at.child("name"), name, dns1123_label(name));
        }
        // Unnamed ports count as well: at most one port may have no name.
        if !seen.insert(name) {
            // A pointer upstream.
            out.push(duplicate_enum(&at.child("name"), name));
        }
        // The number is not checked, as upstream: nil means all ports.
        required_pointer(out, p, "protocol", &at, PROTOCOLS);
        if let Some(app) = p.get("appProtocol").as_str() {
            invalid_each(out, &at.child("appProtocol"), app, qualified_name(app));
        }
    }
}

fn slice_endpoints(out: &mut ErrorList, v: &Value) {
    const MAX: usize = 1000;
    let all = v.get("endpoints").items();
    let path = FieldPath::new("endpoints");
    if all.len() > MAX {
        out.push(FieldError::too_many(&path, all.len(), MAX));
        return;
    }
    for (i, e) in all.iter().enumerate() {
        checkpoint();
        let at = path.index(i);
        let addresses = strings(e.get("addresses"));
        let at_list = at.child("addresses");
        match addresses.len() {
            0 => out.push(FieldError::required(&at_list, "must contain at least 1 address")),
            n if n > 100 => out.push(FieldError::too_many(&at_list, n, 100)),
            _ => {}
        }
        for (k, a) in addresses.iter().enumerate() {
            slice_address(out, v.str_at(&["addressType"]), a, &at_list, k);
        }
        if let Some(node) = e.get("nodeName").as_str() {
            invalid_each(out, &at.child("nodeName"), node, dns1123_subdomain(node));
        }
        // The strategy drops it from changed endpoints; it is left from versions before v1.
        let topology = e.get("deprecatedTopology");
        if let Some(m) = topology.as_object() {
            let at = at.child("deprecatedTopology");
            if m.len() > 16 {
                out.push(FieldError::too_many(&at, m.len(), 16));
            }
            validation::meta::validate_labels(topology, &at, out);
        }
        if let Some(host) = e.get("hostname").as_str() {
            invalid_each(out, &at.child("hostname"), host, dns1123_label(host));
        }
        for (key, check) in [
            // Zones are values of a node label, hence the rule.
            ("forZones", label_value as fn(&str) -> Vec<String>),
            ("forNodes", dns1123_subdomain),
        ] {
            // As upstream, too many zones hide the nodes.
            if !hints(out, e.at(&["hints", key]), check, &at.child("hints").child(key)) {
                break;
            }
        }
    }
}

fn slice_address(out: &mut ErrorList, kind: &str, text: &str, at_list: &FieldPath, k: usize) {
    let at = at_list.index(k);
    let ip = parse_ip(text);
    let (fits, why) = match kind {
        "IPv4" => (matches!(ip, Some(IpAddr::V4(_))), "must be an IPv4 address"),
        "IPv6" => (matches!(ip, Some(IpAddr::V6(_))), "must be an IPv6 address"),
        "FQDN" => return fully_qualified(out, text, &at),
        // An unsupported type has been reported by `slice`; its addresses have no syntax.
        _ => return,
    };
    // IPv6 addresses must be in canonical form; IPv4 addresses follow the rules of legacy fields, as upstream.
    let messages = match kind {
        "IPv6" => net::canonical_ip(text),
        _ => net::ip_strict(text),
    };
    if !messages.is_empty() {
        invalid_each(out, &at, text, messages);
        return;
    }
    if !fits {
        // An upstream quirk: this path lacks the index.
        out.push(FieldError::invalid(at_list, text, why));
    }
    non_special_ip(out, &at, text);
}

/// Checks a fully qualified domain name: at least two labels, optionally with a trailing dot.
fn fully_qualified(out: &mut ErrorList, name: &str, at: &FieldPath) {
    if name.is_empty() {
        return out.push(FieldError::required(at, ""));
    }
    let bare = name.strip_suffix('.').unwrap_or(name);
    let why = dns1123_subdomain(bare).join(",");
    if !why.is_empty() {
        return out.push(FieldError::invalid(at, bare, why));
    }
    if !bare.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return out.push(FieldError::invalid(at, bare, why));
    }
    // The labels of a valid subdomain can only be too long.
    let long = bare.split('.').find(|label| !dns1123_label(label).is_empty());
    if let Some(label) = long {
        out.push(FieldError::invalid(at, label, dns1123_label(label).join(",")));
    }
}

/// Checks names of zones or nodes. False if there are too many.
fn hints(out: &mut ErrorList, list: &Value, check: fn(&str) -> Vec<String>, at: &FieldPath) -> bool {
    let all = list.items();
    if all.len() > 8 {
        out.push(FieldError::too_many(at, all.len(), 8));
        return false;
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, h) in all.iter().enumerate() {
        let at = at.index(i).child("name");
        let name = h.str_at(&["name"]);
        // Before the syntax, as upstream: a repeated invalid name has both errors.
        if seen.contains(&name) {
            out.push(FieldError::duplicate(&at, name));
        } else {
            seen.insert(name);
        }
        invalid_each(out, &at, name, check(name));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn endpoints_errors_match_the_recordings() {
        let errors = |subsets: Value| {
            let mut v = json!({"subsets": null});
            v.set(&["subsets"], subsets);
            crate::registry::Strategy::default(&crate::controlplane::strategies::endpoints::Endpoints, &mut v);
            aggregate(&endpoints(&v))
        };
        assert_eq!(
            errors(json!([{"addresses": [{"ip": "x"}]}])),
            "[subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff), subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address]"
        );
        assert_eq!(
            errors(json!([{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 80}]}])),
            "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"
        );
        assert_eq!(
            errors(json!([{"ports": [{"port": 80}]}])),
            "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"
        );
        assert_eq!(
            errors(json!([{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1}, {"port": 2}]}])),
            "[subsets[0].ports[0].name: Required value, subsets[0].ports[1].name: Required value]"
        );
    }

    #[test]
    fn too_many_zones_hide_the_nodes_of_hints() {
        let errors = |zones: usize| {
            let zones: Vec<Value> = (0..zones).map(|i| json!({"name": (i.to_string())})).collect();
            let mut endpoint = json!({"addresses": ["192.0.2.20"], "hints": {"forNodes": [{"name": "-"}]}});
            endpoint.set(&["hints", "forZones"], zones);
            let mut v = json!({"addressType": "IPv4"});
            v.set(&["endpoints"], vec![endpoint]);
            aggregate(&slice(&v, None))
        };
        assert_eq!(
            errors(9),
            "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"
        );
        assert!(errors(8).starts_with("endpoints[0].hints.forNodes[0].name: Invalid value: \"-\""));
    }

    #[test]
    fn names_of_slice_ports_and_address_types_are_printed_as_json() {
        let old = json!({"addressType": "IPv4"});
        let port = || json!({"name": "<", "protocol": "TCP"});
        let mut new = json!({"addressType": "<"});
        new.set(&["ports"], vec![port(), port()]);
        let errors = aggregate(&slice(&new, Some(&old)));
        for want in [
            "ports[1].name: Duplicate value: \"\\u003c\"",
            "addressType: Invalid value: \"\\u003c\": field is immutable",
        ] {
            assert!(errors.contains(want), "{errors}");
        }
    }

    #[test]
    fn slice_address_type_is_immutable() {
        let old = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.20"]}], "ports": []});
        let mut new = old.clone();
        new.set(&["addressType"], "IPv6");
        assert_eq!(
            aggregate(&slice(&new, Some(&old))),
            "addressType: Invalid value: \"IPv6\": field is immutable"
        );
        assert_eq!(
            aggregate(&slice(&new, None)),
            "endpoints[0].addresses: Invalid value: \"192.0.2.20\": must be an IPv6 address"
        );
    }
}
