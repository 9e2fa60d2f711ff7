//! Validation of load balancer fields, traffic policies and traffic distribution.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{net, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::defaults::service::externally_accessible;
use crate::controlplane::fields::{Seen, invalid_each, optional_choice, required_choice, required_pointer};

const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Checks a CIDR strictly, as v1.36 checks new values of legacy fields: no leading zeros, no IPv4-mapped
/// IPv6, no bits beyond the prefix.
pub(crate) fn cidr_strict(text: &str) -> Vec<String> {
    let Some((ip, bits)) = net::parse_cidr(text) else {
        return net::cidr(text);
    };
    let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
    // The standard parser refuses leading zeros, which `net::parse_cidr` accepts as legacy Go did.
    if address.parse::<std::net::IpAddr>().is_err() || (prefix.len() > 1 && prefix.starts_with('0')) {
        return vec!["must not have leading 0s in IP or prefix length".to_owned()];
    }
    match ip {
        std::net::IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            vec!["must not have an IPv4-mapped IPv6 address".to_owned()]
        }
        // The guard keeps the shift below the width of the type.
        std::net::IpAddr::V6(v6) if bits < 128 && u128::from(v6) & (u128::MAX >> bits) != 0 => {
            vec!["must not have bits set beyond the prefix length".to_owned()]
        }
        std::net::IpAddr::V4(v4) if bits < 32 && u32::from(v4) & (u32::MAX >> bits) != 0 => {
            vec!["must not have bits set beyond the prefix length".to_owned()]
        }
        _ => Vec::new(),
    }
}

pub(super) fn load_balancer(out: &mut ErrorList, v: &Value, kind: &str, old: Option<&Value>, path: &FieldPath) {
    let spec = v.get("spec");
    let balanced = kind == "LoadBalancer";
    let ranges = spec.get("loadBalancerSourceRanges").items();
    // Upstream's path has a capital `L`.
    let at = path.child("LoadBalancerSourceRanges");
    let annotation = v.at(&["metadata", "annotations", SOURCE_RANGES]).as_str();
    if !ranges.is_empty() {
        if !balanced {
            out.push(FieldError::forbidden(&at, ONLY));
        }
        let had = old.map_or(&[][..], |o| o.at(&["spec", "loadBalancerSourceRanges"]).items());
        // Trimmed on both sides: upstream has always tolerated blanks around ranges.
        let had: Seen<&str> = had.iter().filter_map(Value::as_str).map(str::trim).collect();
        for (i, range) in ranges.iter().enumerate() {
            let range = range.as_str().unwrap_or("").trim();
            if !had.contains(&range) {
                invalid_each(out, &at.index(i), range, cidr_strict(range));
            }
        }
    // The legacy annotation matters only without the field.
    } else if let Some(text) = annotation {
        let at = FieldPath::new("metadata").child("annotations").key(SOURCE_RANGES);
        if !balanced {
            out.push(FieldError::forbidden(&at, ONLY));
        }
        // As a whole, unlike the list: one changed range makes all of them new.
        let had = old.is_some_and(|o| o.at(&["metadata", "annotations", SOURCE_RANGES]).as_str() == Some(text));
        if !text.trim().is_empty() && !had {
            for range in text.split(',').map(str::trim) {
                invalid_each(out, &at, range, cidr_strict(range));
            }
        }
    }
    if !spec.get("allocateLoadBalancerNodePorts").is_null() && !balanced {
        out.push(FieldError::forbidden(
            &path.child("allocateLoadBalancerNodePorts"),
            ONLY,
        ));
    }
    balancer_class(out, spec, balanced, path);
}

/// Checks `loadBalancerClass`: a qualified name, only for load balancers.
pub(super) fn balancer_class(out: &mut ErrorList, spec: &Value, balanced: bool, path: &FieldPath) {
    let at = path.child("loadBalancerClass");
    match spec.get("loadBalancerClass").as_str() {
        Some(class) if balanced => invalid_each(out, &at, class, qualified_name(class)),
        Some(_) => out.push(FieldError::forbidden(&at, ONLY)),
        None => {}
    }
}

pub(super) fn policies(out: &mut ErrorList, v: &Value, kind: &str, path: &FieldPath) {
    let spec = v.get("spec");
    let reachable = externally_accessible(v);
    let at = path.child("externalTrafficPolicy");
    let external = spec.str_at(&["externalTrafficPolicy"]);
    // Not only NodePort and LoadBalancer: external IPs make a ClusterIP Service reachable too.
    if reachable {
        required_choice(out, spec, "externalTrafficPolicy", path, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        out.push(FieldError::invalid_enum(
            &at,
            external,
            "may only be set for externally-accessible services",
        ));
    }
    let health = spec.get("healthCheckNodePort").as_i64().unwrap_or(0);
    let at = path.child("healthCheckNodePort");
    // Balancers ask it which nodes have local endpoints; with `Cluster` every node has some.
    if health != 0 && needs_health_check(v) {
        invalid_each(out, &at, health, net::port(health));
    } else if health != 0 {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        out.push(FieldError::invalid(&at, health, why));
    }
    // ExternalName Services are resolved by DNS and have no proxied traffic.
    if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        required_pointer(out, spec, "internalTrafficPolicy", path, &["Cluster", "Local"]);
    } else {
        optional_choice(out, spec, "internalTrafficPolicy", path, &["Cluster", "Local"]);
    }
    // In order of declaration, not sorted, as upstream.
    const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(other) = spec.get("trafficDistribution").as_str()
        && !DISTRIBUTIONS.contains(&other)
    {
        let at = path.child("trafficDistribution");
        out.push(FieldError::not_supported_string(&at, other, DISTRIBUTIONS));
    }
}

/// True if the Service needs a health check node port.
pub(crate) fn needs_health_check(service: &Value) -> bool {
    service.str_at(&["spec", "type"]) == "LoadBalancer" && service.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ranges_are_checked_strictly() {
        let why = |s| cidr_strict(s).pop().unwrap_or_default();
        assert_eq!(why("10.0.0.0/8"), "");
        assert_eq!(why("2001:db8::/64"), "");
        assert!(why("10.1.0.0/8").contains("bits set"));
        assert!(why("010.0.0.0/8").contains("leading 0s") && why("10.0.0.0/08").contains("leading 0s"));
        assert!(why("x").contains("must be a valid CIDR"));
    }
}
