//! Validation of the spec of pods and templates: calls the other parts in upstream's order, which determines
//! the order of causes. Entry point: [`spec`].

use super::super::common::go_struct;
use super::resources::Claims;
use super::{Of, Tolerated, affinity, container, env, resources, security, volume, windows};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{
    dns1123_label, dns1123_subdomain, dns1123_subdomain_with_underscore, label_value, meta, net, qualified_name,
};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, required_choice, strings};
use crate::interrupt::checkpoint;

pub(super) fn spec(out: &mut ErrorList, spec: &Value, path: &FieldPath, of: Of<'_>, tolerated: Tolerated) {
    // Volumes and claims come first, because containers refer to them.
    let volumes = volume::volumes(out, spec, path, of);
    let claims = resource_claims(out, spec, path, matches!(of, Of::Pod { mirror: true, .. }));
    container::containers(out, spec, &volumes, &claims, tolerated, path);
    resources::pod_level(out, spec, &claims, tolerated, path);
    host_ports(out, spec, path);
    required_choice(out, spec, "restartPolicy", path, &["Always", "OnFailure", "Never"]);
    required_choice(
        out,
        spec,
        "dnsPolicy",
        path,
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    meta::validate_labels(spec.get("nodeSelector"), &path.child("nodeSelector"), out);
    security::pod(out, spec, tolerated, path);
    affinity::affinity(out, spec.get("affinity"), tolerated, &path.child("affinity"));
    dns_config(out, spec, path);
    for (i, g) in spec.get("readinessGates").items().iter().enumerate() {
        let at = path.child("readinessGates").index(i).child("conditionType");
        let kind = g.str_at(&["conditionType"]);
        invalid_each(out, &at, kind, qualified_name(kind));
    }
    gates(out, spec, path);
    affinity::spread(out, spec, tolerated, path);
    windows::host_processes(out, spec, path);
    host_users(out, spec, tolerated, path);
    names(out, spec, path);
    if let Some(n) = spec.get("activeDeadlineSeconds").as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&n)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        out.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), n, why));
    }
    for key in ["hostname", "subdomain"] {
        let text = spec.str_at(&[key]);
        if !text.is_empty() {
            invalid_each(out, &path.child(key), text, dns1123_label(text));
        }
    }
    tolerations(out, spec, path);
    host_aliases(out, spec, path);
    let class = spec.str_at(&["priorityClassName"]);
    if !class.is_empty() {
        invalid_each(out, &path.child("priorityClassName"), class, dns1123_subdomain(class));
    }
    if let Some(class) = spec.get("runtimeClassName").as_str() {
        invalid_each(out, &path.child("runtimeClassName"), class, dns1123_subdomain(class));
    }
    // Priority admission fills it in, but validation also sees templates, which have none.
    if !spec.get("preemptionPolicy").is_null() {
        required_choice(out, spec, "preemptionPolicy", path, &["PreemptLowerPriority", "Never"]);
    }
    if !spec.get("overhead").is_empty_value() {
        resources::list(out, spec.get("overhead"), tolerated, &path.child("overhead"));
    }
    security::os(out, spec, path);
    env::files(out, spec, path);
}

/// Checks that with `hostNetwork` every host port equals its container port.
fn host_ports(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    // Containers then bind directly to ports of the node.
    if spec.get("hostNetwork").as_bool() != Some(true) {
        return;
    }
    for (i, c) in spec.get("containers").items().iter().enumerate() {
        for (j, p) in c.get("ports").items().iter().enumerate() {
            let host = p.get("hostPort").as_i64().unwrap_or(0);
            if host != 0 && host != p.get("containerPort").as_i64().unwrap_or(0) {
                let at = path.child("containers").index(i).child("ports").index(j);
                let why = "must match `containerPort` when `hostNetwork` is true";
                out.push(FieldError::invalid(&at.child("hostPort"), host, why));
            }
        }
    }
}

fn names(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    if let Some(name) = spec.get("hostnameOverride").as_str() {
        let at = path.child("hostnameOverride");
        for (key, message) in [
            (
                "setHostnameAsFQDN",
                "may not be specified when setHostnameAsFQDN is true",
            ),
            // The pod then has the node's host name.
            ("hostNetwork", "may not be specified when hostNetwork is true"),
        ] {
            if spec.get(key).as_bool() == Some(true) {
                out.push(FieldError::forbidden(&at, message));
            }
        }
        // The kernel's limit of a host name (`HOST_NAME_MAX`).
        if name.len() > 64 {
            out.push(FieldError::too_long(&at, 64));
        }
        invalid_each(out, &at, name, dns1123_subdomain(name));
    }
    for key in ["serviceAccountName", "nodeName"] {
        let text = spec.str_at(&[key]);
        if !text.is_empty() {
            invalid_each(out, &path.child(key), text, dns1123_subdomain(text));
        }
    }
}

fn gates(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let mut seen: Seen<&str> = Seen::new();
    for (i, g) in spec.get("schedulingGates").items().iter().enumerate() {
        let at = path.child("schedulingGates").index(i);
        let name = g.str_at(&["name"]);
        invalid_each(out, &at, name, qualified_name(name));
        if !seen.insert(name) {
            out.push(FieldError::duplicate(&at, name));
        }
    }
}

/// The lists of containers in the order in which upstream visits them.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// True if a container of a pod with users of its own has block devices.
pub(super) fn has_mapped_devices(spec: &Value) -> bool {
    let all = || CONTAINERS.iter().flat_map(|list| spec.get(list).items());
    spec.get("hostUsers").as_bool() == Some(false) && all().any(|c| !c.get("volumeDevices").items().is_empty())
}

fn host_users(out: &mut ErrorList, spec: &Value, tolerated: Tolerated, path: &FieldPath) {
    if spec.get("hostUsers").as_bool() != Some(false) {
        return;
    }
    // The capitalized names are upstream's.
    for (key, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.get(key).as_bool() == Some(true) {
            out.push(FieldError::forbidden(&path.child(shown), "when `hostUsers` is false"));
        }
    }
    for list in CONTAINERS.iter().filter(|_| !tolerated.mapped_devices) {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            // Block devices cannot be mapped to other user ids.
            if !c.get("volumeDevices").items().is_empty() {
                let at = path.child(list).index(i).child("volumeDevices");
                out.push(FieldError::forbidden(&at, "when `hostUsers` is false"));
            }
        }
    }
}

fn host_aliases(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    for (i, a) in spec.get("hostAliases").items().iter().enumerate() {
        let at = path.child("hostAliases").index(i);
        let ip = a.str_at(&["ip"]);
        invalid_each(out, &at.child("ip"), ip, net::ip_strict(ip));
        for (j, name) in strings(a.get("hostnames")).into_iter().enumerate() {
            invalid_each(out, &at.child("hostnames").index(j), name, dns1123_subdomain(name));
        }
    }
}

fn dns_config(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let (config, at) = (spec.get("dnsConfig"), path.child("dnsConfig"));
    let none = spec.str_at(&["dnsPolicy"]) == "None";
    if config.is_null() {
        if none {
            let why = "must provide `dnsConfig` when `dnsPolicy` is None";
            out.push(FieldError::required(&at, why));
        }
        return;
    }
    let servers = strings(config.get("nameservers"));
    let servers_at = at.child("nameservers");
    if none && servers.is_empty() {
        let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        out.push(FieldError::required(&servers_at, why));
        // The other settings are not looked at, as upstream.
        return;
    }
    // Limits of `resolv.conf`: glibc reads three servers. The limits of search paths are upstream's.
    if servers.len() > 3 {
        let shown = config.get("nameservers").clone();
        out.push(FieldError::invalid(
            &servers_at,
            shown,
            "must not have more than 3 nameservers",
        ));
    }
    for (i, ip) in servers.iter().enumerate() {
        invalid_each(out, &servers_at.index(i), *ip, net::ip_strict(ip));
    }
    let searches = strings(config.get("searches"));
    let searches_at = at.child("searches");
    let shown = || config.get("searches").clone();
    if searches.len() > 32 {
        out.push(FieldError::invalid(
            &searches_at,
            shown(),
            "must not have more than 32 search paths",
        ));
    }
    if searches.join(" ").len() > 2048 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        out.push(FieldError::invalid(&searches_at, shown(), why));
    }
    for (i, s) in searches.iter().enumerate() {
        // The root domain as the only search path prevents searching.
        if *s != "." {
            let bare = s.strip_suffix('.').unwrap_or(s);
            invalid_each(
                out,
                &searches_at.index(i),
                bare,
                dns1123_subdomain_with_underscore(bare),
            );
        }
    }
    for (i, o) in config.get("options").items().iter().enumerate() {
        if o.str_at(&["name"]).is_empty() {
            out.push(FieldError::required(&at.child("options").index(i), "must not be empty"));
        }
    }
}

const CLAIM: &[(&str, &str, &str)] = &[
    ("Name", "name", "\"\""),
    ("ResourceClaimName", "resourceClaimName", "null"),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName", "null"),
];

fn resource_claims<'a>(out: &mut ErrorList, spec: &'a Value, path: &FieldPath, mirror: bool) -> Claims<'a> {
    let mut names = Claims::default();
    for (i, c) in spec.get("resourceClaims").items().iter().enumerate() {
        let at = path.child("resourceClaims").index(i);
        let name = c.str_at(&["name"]);
        if mirror {
            // As upstream, the path is empty, which prints as brackets.
            let why = "static pods do not support resource claims";
            out.push(FieldError::forbidden(&FieldPath::new("[]"), why));
            // Recorded nevertheless, so that containers that refer to it add no errors.
            names.insert(name);
            continue;
        }
        if name.is_empty() {
            out.push(FieldError::required(&at.child("name"), ""));
        } else if names.contains(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        } else {
            // Invalid names are recorded too: unlike volumes, claims are not dropped after an error.
            invalid_each(out, &at.child("name"), name, dns1123_label(name));
            names.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let why = match sources.iter().filter(|k| !c.get(k).is_null()).count() {
            0 => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => None,
            _ => Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
        };
        if let Some(why) = why {
            out.push(FieldError::invalid_raw(&at, go_struct(c, CLAIM), why));
        }
        for key in sources {
            if let Some(name) = c.get(key).as_str() {
                invalid_each(out, &at.child(key), name, dns1123_subdomain(name));
            }
        }
    }
    names
}

/// Checks a pod's tolerations of taints.
pub(super) fn tolerations(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    for (i, t) in spec.get("tolerations").items().iter().enumerate() {
        toleration(out, t, &path.child("tolerations").index(i));
    }
}

pub(in crate::controlplane::validation) fn toleration(out: &mut ErrorList, t: &Value, at: &FieldPath) {
    checkpoint();
    let (key, operator, value, effect) = (
        t.str_at(&["key"]),
        t.str_at(&["operator"]),
        t.str_at(&["value"]),
        t.str_at(&["effect"]),
    );
    if !key.is_empty() {
        invalid_each(out, &at.child("key"), key, qualified_name(key));
    // An empty key means all taints, so there is no value to compare.
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        out.push(FieldError::invalid_enum(&at.child("operator"), operator, why));
    }
    if !t.get("tolerationSeconds").is_null() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        out.push(FieldError::invalid_enum(&at.child("effect"), effect, why));
    }
    match operator {
        // `Equal` is the default; it is not written back.
        "" | "Equal" => {
            let messages = label_value(value);
            if !messages.is_empty() {
                // As upstream, a bad value is reported at the operator.
                out.push(FieldError::invalid(&at.child("operator"), value, messages.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            out.push(FieldError::invalid(&at.child("operator"), value, why));
        }
        "Exists" => {}
        // The feature gate of these operators is off, yet upstream's message lists them as supported.
        "Lt" | "Gt" => out.push(FieldError::not_supported(
            &at.child("operator"),
            operator,
            &["Equal", "Exists", "Lt", "Gt"],
        )),
        other => out.push(FieldError::not_supported(
            &at.child("operator"),
            other,
            &["Equal", "Exists"],
        )),
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        out.push(FieldError::not_supported(&at.child("effect"), effect, &effects));
    }
}
