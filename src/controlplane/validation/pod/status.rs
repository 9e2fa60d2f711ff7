//! Validation of `pods/status`, which kubelets and schedulers write (`ValidatePodStatusUpdate` upstream).

use super::annotations;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, net, parse_ip, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{
    IMMUTABLE, Seen, duplicate_enum, invalid_each, invalid_each_enum, regular_containers, required_valid,
};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

pub(crate) fn pod_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    annotations::update(&mut out, new, old);
    let path = FieldPath::new("status");
    let observed = |out: &mut ErrorList, v: &Value, at: &FieldPath| {
        let n = v.get("observedGeneration").as_i64().unwrap_or(0);
        if n < 0 {
            let why = "must be a non-negative integer";
            out.push(FieldError::invalid(&at.child("observedGeneration"), n, why));
        }
    };
    for (i, c) in new.at(&["status", "conditions"]).items().iter().enumerate() {
        let at = path.child("conditions").index(i);
        observed(&mut out, c, &at);
        let kind = c.str_at(&["type"]);
        // The well-known types are exempt upstream; they would pass anyway.
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            // The capital letter is upstream's.
            invalid_each(&mut out, &at.child("Type"), kind, qualified_name(kind));
        }
    }
    nominated(&mut out, new, old, &path);
    observed(&mut out, new.get("status"), &path);
    if new.str_at(&["status", "qosClass"]) != old.str_at(&["status", "qosClass"]) {
        let class = new.str_at(&["status", "qosClass"]);
        out.push(FieldError::invalid_enum(&path.child("qosClass"), class, IMMUTABLE));
    }
    for (list, _) in STATUSES {
        transitions(&mut out, new, old, list, &path.child(list));
    }
    claims(&mut out, new, &path);
    extended(&mut out, new, &path.child("extendedResourceClaimStatus"));
    addresses(&mut out, new, old, &path);
    for (list, _) in STATUSES {
        for (i, c) in new.at(&["status", list]).items().iter().enumerate() {
            user(&mut out, new, c.get("user"), &path.child(list).index(i).child("user"));
        }
    }
    for (list, containers) in STATUSES {
        let known = by_name(new.at(&["spec", containers]).items());
        for (i, c) in new.at(&["status", list]).items().iter().enumerate() {
            let at = path.child(list).index(i).child("allocatedResourcesStatus");
            if *containers != "ephemeralContainers" {
                let container = known.get(c.str_at(&["name"])).copied();
                allocated(&mut out, c, container, &at);
            // Ephemeral containers have no resources of their own.
            } else if !c.get("allocatedResourcesStatus").items().is_empty() {
                let why = "must not be specified in container status";
                out.push(FieldError::forbidden(&at, why));
            }
        }
    }
    out
}

/// Lists of container statuses, each with the spec's list of the same containers.
const STATUSES: &[(&str, &str)] = &[
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

fn nominated(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    let of = |v: &Value| v.str_at(&["status", "nominatedNodeName"]).to_owned();
    let (now, at) = (of(new), path.child("nominatedNodeName"));
    // An unchanged name passes even for a bound pod: other writers send it back with their own changes.
    if now.is_empty() || now == of(old) {
        return;
    }
    invalid_each(out, &at, now.as_str(), dns1123_subdomain(&now));
    if !old.str_at(&["spec", "nodeName"]).is_empty() {
        let why = "may not be set on pods that are already bound to a node";
        out.push(FieldError::forbidden(&at, why));
    }
}

/// Indexes objects by name. Reversed, so that the first of several with one name wins.
fn by_name(all: &[Value]) -> HashMap<&str, &Value> {
    all.iter().rev().map(|v| (v.str_at(&["name"]), v)).collect()
}

/// True if a container that exited with `code` is restarted by its rules or its policy.
fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    let matches = |rule: &Value| {
        let codes = rule.get("exitCodes");
        let listed = codes.get("values").items().iter().any(|c| c.as_i64() == Some(code));
        match codes.str_at(&["operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    let own = container.str_at(&["restartPolicy"]);
    // Rules apply only if the container has a policy of its own; any matching rule restarts it.
    if !own.is_empty() && container.get("restartPolicyRules").items().iter().any(matches) {
        return true;
    }
    let whole = spec.str_at(&["restartPolicy"]);
    // The container's own policy overrides the pod's.
    match if own.is_empty() { whole } else { own } {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

/// Rejects transitions of terminated containers to another state, unless the container may be restarted.
fn transitions(out: &mut ErrorList, new: &Value, old: &Value, list: &str, path: &FieldPath) {
    // The stored spec: it is restored before validation, so both are the same.
    let spec = old.get("spec");
    let containers = match list {
        "containerStatuses" => "containers",
        "initContainerStatuses" => "initContainers",
        _ => "",
    };
    let restarts_all = regular_containers(spec).any(|c| {
        let mut rules = c.get("restartPolicyRules").items().iter();
        rules.any(|r| r.str_at(&["action"]) == "RestartAllContainers")
    });
    // Any exit may restart every container then, so no transition can be ruled out. Ephemeral containers are
    // not restarted.
    if restarts_all && !containers.is_empty() {
        return;
    }
    // By name: kubelets may reorder statuses.
    let now = new.at(&["status", list]).items().iter();
    let running = now.filter(|c| c.at(&["state", "terminated"]).is_null());
    let running: Seen<&str> = running.map(|c| c.str_at(&["name"])).collect();
    let known = by_name(spec.get(containers).items());
    for (i, was) in old.at(&["status", list]).items().iter().enumerate() {
        let ended = was.at(&["state", "terminated"]);
        if ended.is_null() || !running.contains(&was.str_at(&["name"])) {
            continue;
        }
        let code = ended.get("exitCode").as_i64().unwrap_or(0);
        let container = known.get(was.str_at(&["name"]));
        // A container that is not in the spec cannot be restarted; for ephemeral ones `known` is empty.
        if !container.is_some_and(|c| restarts(c, spec, code)) {
            let why = "may not be transitioned to non-terminated state";
            out.push(FieldError::forbidden(&path.index(i).child("state"), why));
        }
    }
}

fn claims(out: &mut ErrorList, new: &Value, path: &FieldPath) {
    let known = new.at(&["spec", "resourceClaims"]).items().iter();
    let known: Seen<&str> = known.map(|c| c.str_at(&["name"])).collect();
    let mut seen: Seen<&str> = Seen::new();
    let statuses = new.at(&["status", "resourceClaimStatuses"]).items();
    for (i, status) in statuses.iter().enumerate() {
        let (at, name) = (path.child("resourceClaimStatuses").index(i), status.str_at(&["name"]));
        if !known.contains(&name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            out.push(FieldError::invalid(&at.child("name"), name, why));
        }
        if !seen.insert(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
        if let Some(claim) = status.get("resourceClaimName").as_str() {
            // A pointer upstream.
            invalid_each_enum(out, &at.child("resourceClaimName"), claim, dns1123_subdomain(claim));
        }
    }
}

fn addresses(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    for list in ["podIPs", "hostIPs"] {
        let (all, was) = (new.at(&["status", list]).items(), old.at(&["status", list]).items());
        let at = path.child(list);
        if list == "hostIPs"
            && let Some(first) = all.first()
            && first.str_at(&["ip"]) != new.str_at(&["status", "hostIP"])
        {
            let why = "must be equal to `hostIP`";
            let at = at.index(0).child("ip");
            out.push(FieldError::invalid(&at, first.str_at(&["ip"]), why));
        }
        // Addresses that are already stored may be in a form that is no longer valid.
        let was: Seen<&str> = was.iter().map(|o| o.str_at(&["ip"])).collect();
        for (i, ip) in all.iter().enumerate() {
            let text = ip.str_at(&["ip"]);
            if !was.contains(&text) {
                invalid_each(out, &at.index(i), text, net::ip_strict(text));
            }
        }
        if all.len() > 1 {
            one_per_family(out, all, &at);
        }
    }
}

/// Checks that several addresses are one of each family.
fn one_per_family(out: &mut ErrorList, all: &[Value], at: &FieldPath) {
    let mut families = Seen::new();
    let mut malformed = false;
    for (i, ip) in all.iter().enumerate() {
        let text = ip.str_at(&["ip"]);
        let Some(ip) = parse_ip(text) else {
            malformed = true;
            let why = format!("failed to check for dual stack with error:invalid IP[{i}]: {text}");
            out.push(FieldError::internal(at, why));
            break;
        };
        families.insert(ip.to_canonical().is_ipv4());
    }
    let both = !malformed && families.contains(&true) && families.contains(&false);
    if !both || all.len() > 2 {
        // In addition to the internal error: upstream's helper returns false with it.
        let why = "may specify no more than one IP for each IP family";
        let shown: Vec<String> = all
            .iter()
            .map(|ip| format!("{{\"IP\":{}}}", show_json(&ip.str_at(&["ip"]).into())))
            .collect();
        out.push(FieldError::invalid_raw(at, format!("[{}]", shown.join(",")), why));
    }
}

/// Checks `extendedResourceClaimStatus`: the claim that the scheduler generated for extended resources.
fn extended(out: &mut ErrorList, new: &Value, path: &FieldPath) {
    let status = new.at(&["status", "extendedResourceClaimStatus"]);
    if status.is_null() {
        return;
    }
    let (mappings, at) = (status.get("requestMappings").items(), path.child("requestMappings"));
    if mappings.is_empty() {
        out.push(FieldError::required(&at, "at least one request mapping is required"));
    }
    let known: HashMap<&str, &Value> = {
        // Collected to be reversed: the first of several containers with one name wins.
        let all: Vec<&Value> = regular_containers(new.get("spec")).collect();
        all.into_iter().rev().map(|c| (c.str_at(&["name"]), c)).collect()
    };
    let mut seen = Seen::new();
    for (i, m) in mappings.iter().enumerate() {
        let at = at.index(i);
        let (container, resource) = (m.str_at(&["containerName"]), m.str_at(&["resourceName"]));
        match known.get(container) {
            None => {
                let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                out.push(FieldError::invalid(&at.child("containerName"), container, why));
            }
            Some(c) if c.at(&["resources", "requests", resource]).is_null() => {
                let why = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                out.push(FieldError::invalid(&at.child("resourceName"), resource, why));
            }
            Some(_) => {}
        }
        let request = m.str_at(&["requestName"]);
        // As upstream, the path has no index.
        invalid_each(out, &path.child("requestName"), request, dns1123_label(request));
        if !seen.insert((container, resource, request)) {
            // The triple must be unique; upstream reports each of its parts.
            for (key, value) in [
                ("containerName", container),
                ("resourceName", resource),
                ("requestName", request),
            ] {
                out.push(FieldError::duplicate(&at.child(key), value));
            }
        }
    }
    required_valid(
        out,
        &path.child("resourceClaimName"),
        status.str_at(&["resourceClaimName"]),
        dns1123_subdomain,
    );
}

/// Checks the user and group ids a container reports.
fn user(out: &mut ErrorList, pod: &Value, user: &Value, path: &FieldPath) {
    let (linux, at) = (user.get("linux"), path.child("linux"));
    if linux.is_null() {
        return;
    }
    match pod.str_at(&["spec", "os", "name"]) {
        "windows" => out.push(FieldError::forbidden(&at, "cannot be set for a windows pod")),
        "" | "linux" => {
            let mut judge = |v: &Value, at: &FieldPath| {
                let n = v.as_i64().unwrap_or(0);
                invalid_each(out, at, n, net::in_range(n, 0, i64::from(i32::MAX)));
            };
            judge(linux.get("uid"), &at.child("uid"));
            judge(linux.get("gid"), &at.child("gid"));
            for (i, g) in linux.get("supplementalGroups").items().iter().enumerate() {
                judge(g, &at.child("supplementalGroups").index(i));
            }
        }
        // Other values of `os.name` are invalid in the spec.
        _ => {}
    }
}

/// Checks the reported health of a container's devices.
fn allocated(out: &mut ErrorList, status: &Value, container: Option<&Value>, path: &FieldPath) {
    checkpoint();
    const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
    let claims = container
        .map_or(&[][..], |c| c.at(&["resources", "claims"]).items())
        .iter();
    let claims: Seen<(&str, &str)> = claims.map(|k| (k.str_at(&["name"]), k.str_at(&["request"]))).collect();
    for (i, r) in status.get("allocatedResourcesStatus").items().iter().enumerate() {
        let (name, at) = (r.str_at(&["name"]), path.index(i));
        // A status without a container in the spec is not an error here.
        if let Some(c) = container {
            let (found, why) = match name.strip_prefix("claim:") {
                Some(claim) => {
                    // Without a request the claim as a whole is meant.
                    let (claim, request) = claim.split_once('/').unwrap_or((claim, ""));
                    (
                        claims.contains(&(claim, request)),
                        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
                    )
                }
                None => (
                    !c.at(&["resources", "requests", name]).is_null(),
                    "must match one of the container's resource requests",
                ),
            };
            if !found {
                out.push(FieldError::invalid_enum(&at.child("name"), name, why));
            }
        }
        let mut seen: Seen<&str> = Seen::new();
        for (k, device) in r.get("resources").items().iter().enumerate() {
            let (at, id) = (at.child("resources").index(k), device.str_at(&["resourceID"]));
            let health = device.str_at(&["health"]);
            if !HEALTH.contains(&health) {
                out.push(FieldError::not_supported(&at.child("health"), health, HEALTH));
            }
            match device.get("message").as_str() {
                Some("") => out.push(FieldError::required(
                    &at.child("message"),
                    "must be non-empty if specified",
                )),
                Some(text) if text.len() > MAX_MESSAGE_LENGTH as usize => {
                    out.push(FieldError::too_long(&at.child("message"), MAX_MESSAGE_LENGTH));
                }
                _ => {}
            }
            if !seen.insert(id) {
                out.push(duplicate_enum(&at.child("resourceID"), id));
            }
        }
    }
}

/// Maximum length, in bytes, of a message about a device's health.
const MAX_MESSAGE_LENGTH: i64 = 1024;

#[cfg(test)]
mod tests;
