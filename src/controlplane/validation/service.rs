//! Validation of Services (`ValidateService*` in upstream's `pkg/apis/core/validation/validation.go`).
//!
//! Entry points: [`service()`] for create, `update::service_update`, [`service_status`]. Allocation, and the
//! errors it reports, are left to the strategy.

pub(crate) mod cluster_ips;
mod traffic;
mod update;
pub(crate) mod warnings;

pub(crate) use traffic::cidr_strict;
pub(crate) use update::service_update;

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::validation::{self, dns1123_label, dns1123_subdomain, net, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{
    PROTOCOLS, Seen, invalid_each, non_special_ip, optional_choice, required_choice, required_valid,
};
use crate::interrupt::checkpoint;

/// Deprecated name of [`MODE`].
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";

pub(crate) fn is_headless(service: &Value) -> bool {
    let spec = service.get("spec");
    // The list decides; `clusterIP` alone only counts before the strategy has derived the list from it.
    let first = spec.get("clusterIPs").items().first().and_then(Value::as_str);
    first == Some("None") || (first.is_none() && spec.str_at(&["clusterIP"]) == "None")
}

/// Validates a Service. `old` is the stored one on update: addresses it already has are exempt from stricter
/// rules.
pub(crate) fn service(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    let annotations = v.at(&["metadata", "annotations"]);
    if let (Some(mode), Some(hints)) = (annotations.get(MODE).as_str(), annotations.get(HINTS).as_str())
        && mode != hints
    {
        out.push(FieldError::invalid(
            &FieldPath::new("metadata").child("annotations").key(MODE),
            mode,
            format!("must match annotations[{HINTS}] when both are specified"),
        ));
    }
    let ports = spec.get("ports").items();
    let kind = spec.str_at(&["type"]);
    // Without a virtual IP or proxying, ports are only documentation.
    if ports.is_empty() && !is_headless(v) && kind != "ExternalName" {
        out.push(FieldError::required(&path.child("ports"), ""));
    }
    by_type(&mut out, v, kind, &path);
    let mut names: Seen<&str> = Seen::new();
    for (i, port) in ports.iter().enumerate() {
        service_port(
            &mut out,
            port,
            ports.len() > 1,
            &mut names,
            &path.child("ports").index(i),
        );
    }
    validation::meta::validate_labels(spec.get("selector"), &path.child("selector"), &mut out);
    affinity(&mut out, spec, &path);
    // Between affinity and external IPs, where upstream has it.
    out.extend(cluster_ips::related_fields(v, old));
    let had = old.map_or(&[][..], |o| o.at(&["spec", "externalIPs"]).items());
    let had: Seen<&str> = had.iter().filter_map(Value::as_str).collect();
    for (i, ip) in spec.get("externalIPs").items().iter().enumerate() {
        let at = path.child("externalIPs").index(i);
        let ip = ip.as_str().unwrap_or("");
        let messages = if had.contains(&ip) {
            Vec::new()
        } else {
            net::ip_strict(ip)
        };
        // The ranges are checked even for addresses that are already stored.
        if messages.is_empty() {
            non_special_ip(&mut out, &at, ip);
        } else {
            invalid_each(&mut out, &at, ip, messages);
        }
    }
    // Late, as upstream: the checks above have treated an unknown type as none.
    required_choice(
        &mut out,
        spec,
        "type",
        &path,
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    port_conflicts(&mut out, ports, kind, &path);
    traffic::load_balancer(&mut out, v, kind, old, &path);
    traffic::policies(&mut out, v, kind, &path);
    out
}

fn by_type(out: &mut ErrorList, v: &Value, kind: &str, path: &FieldPath) {
    let spec = v.get("spec");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(v) => out.push(FieldError::invalid(
            &path.child("clusterIPs").index(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        )),
        "ExternalName" => {
            for key in ["clusterIPs", "ipFamilies"] {
                if !spec.get(key).items().is_empty() {
                    out.push(FieldError::forbidden(
                        &path.child(key),
                        "may not be set for ExternalName services",
                    ));
                }
            }
            if !spec.get("ipFamilyPolicy").is_null() {
                out.push(FieldError::forbidden(
                    &path.child("ipFamilyPolicy"),
                    "may not be set for ExternalName services",
                ));
            }
            let at = path.child("externalName");
            let name = spec.str_at(&["externalName"]);
            // One trailing dot marks an absolute name.
            required_valid(out, &at, name.strip_suffix('.').unwrap_or(name), dns1123_subdomain);
        }
        _ => {}
    }
}

fn service_port<'a>(out: &mut ErrorList, port: &'a Value, many: bool, names: &mut Seen<&'a str>, path: &FieldPath) {
    checkpoint();
    match port.str_at(&["name"]) {
        // EndpointSlices and Ingresses refer to ports by name if there are several.
        "" if many => out.push(FieldError::required(&path.child("name"), "")),
        "" => {}
        name => {
            invalid_each(out, &path.child("name"), name, dns1123_label(name));
            if !names.insert(name) {
                out.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
    }
    let number = port.get("port").as_i64().unwrap_or(0);
    invalid_each(out, &path.child("port"), number, net::port(number));
    required_choice(out, port, "protocol", path, PROTOCOLS);
    let at = path.child("targetPort");
    match port.get("targetPort") {
        Value::String(name) => invalid_each(out, &at, name.as_str(), net::port_name(name)),
        other => {
            let n = other.as_i64().unwrap_or(0);
            invalid_each(out, &at, n, net::port(n));
        }
    }
    if let Some(app) = port.get("appProtocol").as_str() {
        invalid_each(out, &path.child("appProtocol"), app, qualified_name(app));
    }
}

fn affinity(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    required_choice(out, spec, "sessionAffinity", path, &["ClientIP", "None"]);
    let config = spec.get("sessionAffinityConfig");
    let at = path.child("sessionAffinityConfig");
    match spec.str_at(&["sessionAffinity"]) {
        "ClientIP" => {
            let why = "when session affinity type is ClientIP";
            let at_client = at.child("clientIP");
            if config.is_null() {
                out.push(FieldError::required(&at, why));
            } else if config.get("clientIP").is_null() {
                out.push(FieldError::required(&at_client, why));
            } else {
                let n = config.at(&["clientIP", "timeoutSeconds"]).as_i64();
                let at = at_client.child("timeoutSeconds");
                match n {
                    None => out.push(FieldError::required(&at, why)),
                    // A day at most; the limit itself is valid, despite the message.
                    Some(n) if n <= 0 || n > 86400 => out.push(FieldError::invalid(
                        &at,
                        n,
                        "must be greater than 0 and less than 86400",
                    )),
                    Some(_) => {}
                }
            }
        }
        "None" if !config.is_null() => {
            out.push(FieldError::forbidden(
                &at,
                "must not be set when session affinity is None",
            ));
        }
        _ => {}
    }
}

fn port_conflicts(out: &mut ErrorList, ports: &[Value], kind: &str, path: &FieldPath) {
    let number = |p: &Value, key: &str| p.get(key).as_i64().unwrap_or(0);
    // The strategy clears node ports that were allocated earlier; one that is left was asked for.
    if kind == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, p)| number(p, "nodePort") != 0) {
            out.push(FieldError::forbidden(
                &path.child("ports").index(i).child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
    }
    let mut node_ports: Seen<(&str, i64)> = Seen::new();
    for (i, p) in ports.iter().enumerate() {
        // The same number may serve several protocols.
        let key = (p.str_at(&["protocol"]), number(p, "nodePort"));
        if key.1 == 0 {
            continue;
        }
        if !node_ports.insert(key) {
            out.push(FieldError::duplicate(
                &path.child("ports").index(i).child("nodePort"),
                key.1,
            ));
        }
    }
    let mut seen: Seen<(&str, i64)> = Seen::new();
    for (i, p) in ports.iter().enumerate() {
        let key = (p.str_at(&["protocol"]), number(p, "port"));
        if !seen.insert(key) {
            // Upstream's bad value is an internal struct with only protocol and port set.
            let mut e = FieldError::duplicate(&path.child("ports").index(i), "");
            e.bad_value = Some(format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                show_json(&key.0.into()),
                key.1
            ));
            out.push(e);
        }
    }
}

/// Validates an update of a Service's status.
pub(crate) fn service_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let ingress = new.at(&["status", "loadBalancer", "ingress"]).items();
    let path = FieldPath::new("status").child("loadBalancer").child("ingress");
    if new.str_at(&["spec", "type"]) != "LoadBalancer" && !ingress.is_empty() {
        out.push(FieldError::forbidden(
            &path,
            "may only be used when `spec.type` is 'LoadBalancer'",
        ));
        // The entries themselves are not checked any more, as upstream.
        return out;
    }
    let had = old.at(&["status", "loadBalancer", "ingress"]).items().iter();
    let had: Seen<&str> = had.map(|o| o.str_at(&["ip"])).collect();
    for (i, e) in ingress.iter().enumerate() {
        let at = path.index(i);
        let ip = e.str_at(&["ip"]);
        if !ip.is_empty() && !had.contains(&ip) {
            invalid_each(&mut out, &at.child("ip"), ip, net::ip_strict(ip));
        }
        let mode = e.get("ipMode");
        // Normally set by defaulting.
        if !ip.is_empty() && mode.is_null() {
            out.push(FieldError::required(
                &at.child("ipMode"),
                "must be specified when `ip` is set",
            ));
        } else if ip.is_empty() && !mode.is_null() {
            out.push(FieldError::forbidden(
                &at.child("ipMode"),
                "may not be specified when `ip` is not set",
            ));
        } else {
            optional_choice(&mut out, e, "ipMode", &at, &["Proxy", "VIP"]);
        }
        let host = e.str_at(&["hostname"]);
        if !host.is_empty() {
            invalid_each(&mut out, &at.child("hostname"), host, dns1123_subdomain(host));
            if validation::parse_ip(host).is_some() {
                out.push(FieldError::invalid(
                    &at.child("hostname"),
                    host,
                    "must be a DNS name, not an IP address",
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
