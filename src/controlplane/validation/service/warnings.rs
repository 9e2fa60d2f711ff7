//! Warnings about Services, addresses and CIDRs (upstream's `pkg/api/service/warnings.go`).

use super::is_headless;
use crate::apimachinery::validation::net;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use std::net::IpAddr;

/// Warnings about a created or updated Service, in upstream's order.
pub(crate) fn service(v: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let spec = v.get("spec");
    if v.at(&["metadata", "annotations", super::HINTS]).as_str().is_some() {
        out.push(format!(
            "annotation {} is deprecated, please use {} instead",
            super::HINTS,
            super::MODE
        ));
    }
    for (i, ip) in strings(spec.get("clusterIPs"))
        .iter()
        .enumerate()
        .filter(|(_, ip)| **ip != "None")
    {
        out.extend(ip_warning(&format!("spec.clusterIPs[{i}]"), ip));
    }
    let external_ips = strings(spec.get("externalIPs"));
    let balancer_ip = spec.str_at(&["loadBalancerIP"]);
    if is_headless(v) {
        if !balancer_ip.is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !external_ips.is_empty() {
            out.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec.str_at(&["sessionAffinity"]) == "ClientIP" {
            out.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    for (i, ip) in external_ips.iter().enumerate() {
        out.extend(ip_warning(&format!("spec.externalIPs[{i}]"), ip));
    }
    let external = spec.str_at(&["type"]) == "ExternalName";
    // Where the field is ignored, another warning says so.
    if !external_ips.is_empty() && !external && !is_headless(v) {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if !balancer_ip.is_empty() {
        out.extend(ip_warning("spec.loadBalancerIP", balancer_ip));
    }
    for (i, range) in strings(spec.get("loadBalancerSourceRanges")).iter().enumerate() {
        out.extend(cidr_warning(
            &format!("spec.loadBalancerSourceRanges[{i}]"),
            range.trim(),
        ));
    }
    if external && !external_ips.is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !external && !spec.str_at(&["externalName"]).is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.str_at(&["trafficDistribution"]) == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    out
}

/// Warns if an accepted address is not in canonical form.
pub(crate) fn ip_warning(path: &str, text: &str) -> Option<String> {
    let ip = net::parse_ip(text)?;
    let canonical = match ip {
        // Go has no separate type for mapped addresses: it prints them as IPv4.
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
    .to_string();
    if canonical == text {
        return None;
    }
    // Well-formed but not canonical, as opposed to forms that only legacy parsers accept.
    let plain = text.parse::<IpAddr>().ok() == Some(ip) && ip.to_string() == canonical;
    Some(if plain {
        format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})")
    } else {
        format!("{path}: non-standard IP address {text:?} is invalid: use {canonical:?}")
    })
}

/// Warns about load balancer addresses (of a Service or an Ingress) that are not in canonical form.
pub(crate) fn balancer(v: &Value) -> Vec<String> {
    let all = v.at(&["status", "loadBalancer", "ingress"]).items().iter().enumerate();
    all.filter_map(|(i, a)| ip_warning(&format!("status.loadBalancer.ingress[{i}]"), a.str_at(&["ip"])))
        .collect()
}

/// Warns if an accepted CIDR is ambiguous or not in canonical form.
pub(crate) fn cidr_warning(path: &str, text: &str) -> Option<String> {
    let (ip, bits) = net::parse_cidr(text)?;
    let (address, prefix) = text.split_once('/')?;
    let masked = match ip {
        IpAddr::V4(v4) => {
            // A prefix of zero bits shifts by the full width, which `checked_shl` refuses: no bit is fixed
            // then.
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    };
    let full = if ip.is_ipv4() { 32 } else { 128 };
    // Consumers disagree whether such a value means the network or the single address.
    if masked != ip {
        return Some(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{masked}/{bits}\" or \"{ip}/{full}\"?)"
        ));
    }
    let canonical = format!("{ip}/{bits}");
    if canonical == text {
        return None;
    }
    let plain = address.parse::<IpAddr>().is_ok() && prefix == bits.to_string();
    Some(if plain && ip.is_ipv6() {
        format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})")
    } else {
        format!("{path}: non-standard CIDR value {text:?} is invalid: use {canonical:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noncanonical_addresses_yield_warnings() {
        assert_eq!(ip_warning("p", "10.0.0.1"), None);
        assert_eq!(
            ip_warning("p", "010.0.0.1").unwrap(),
            "p: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""
        );
        assert_eq!(
            ip_warning("p", "2001:DB8::1").unwrap(),
            "p: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"
        );
        assert_eq!(
            cidr_warning("p", "1.2.3.4/8").unwrap(),
            "p: CIDR value \"1.2.3.4/8\" is ambiguous in this context (should be \"1.0.0.0/8\" or \"1.2.3.4/32\"?)"
        );
    }

    #[test]
    fn warnings_about_annotations_and_addresses_come_in_upstreams_order() {
        let v = crate::json!({"metadata": {"annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}},
            "spec": {"type": "ClusterIP", "clusterIP": "010.0.0.1", "clusterIPs": ["010.0.0.1"],
                "externalIPs": ["01.1.1.1"]}});
        let warnings = service(&v);
        let starts = [
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
             service.kubernetes.io/topology-mode instead",
            "spec.clusterIPs[0]: ",
            "spec.externalIPs[0]: ",
            "spec.externalIPs is deprecated ",
        ];
        assert_eq!(warnings.len(), starts.len(), "{warnings:?}");
        for (warning, start) in warnings.iter().zip(starts) {
            assert!(warning.starts_with(start), "{warning}");
        }
    }

    #[test]
    fn external_ips_that_are_ignored_are_not_deprecated_too() {
        let warnings = |kind: &str, cluster_ip: &str| {
            service(
                &crate::json!({"spec": {"type": kind, "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
                "externalIPs": ["1.1.1.1"]}}),
            )
        };
        assert_eq!(
            warnings("ClusterIP", "None"),
            ["spec.externalIPs is ignored for headless services"]
        );
        assert_eq!(
            warnings("ExternalName", ""),
            ["spec.externalIPs is ignored when spec.type is \"ExternalName\""]
        );
        assert_eq!(
            warnings("ClusterIP", "10.0.0.1"),
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"]
        );
    }
}
