//! `pods/status`: what a kubelet or a scheduler says about a pod.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_subdomain, net, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each};
use std::net::IpAddr;

pub(crate) fn pod_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("status");
    for (i, c) in new.at(&["status", "conditions"]).items().iter().enumerate() {
        let kind = c.str_at(&["type"]);
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            let at = path.child("conditions").index(i).child("Type");
            invalid_each(&mut out, &at, kind, qualified_name(kind));
        }
    }
    nominated(&mut out, new, old, &path);
    if new.str_at(&["status", "qosClass"]) != old.str_at(&["status", "qosClass"]) {
        let class = new.at(&["status", "qosClass"]).clone();
        out.push(FieldError::invalid(&path.child("qosClass"), class, IMMUTABLE));
    }
    observed(&mut out, new, &path);
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        transitions(&mut out, new, old, list, &path.child(list));
    }
    claims(&mut out, new, &path);
    addresses(&mut out, new, old, &path);
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for (i, c) in new.at(&["status", list]).items().iter().enumerate() {
            health(&mut out, c, &path.child(list).index(i));
        }
    }
    out
}

fn nominated(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
    let of = |v: &Value| v.str_at(&["status", "nominatedNodeName"]).to_owned();
    let (now, at) = (of(new), path.child("nominatedNodeName"));
    if now.is_empty() || now == of(old) {
        return;
    }
    if !old.str_at(&["spec", "nodeName"]).is_empty() {
        let why = "may not be set on pods that are already bound to a node";
        out.push(FieldError::forbidden(&at, why));
    }
    invalid_each(out, &at, now.as_str(), dns1123_subdomain(&now));
}

fn observed(out: &mut ErrorList, new: &Value, path: &FieldPath) {
    let mut judge = |v: &Value, at: &FieldPath| {
        let n = v.get("observedGeneration").as_i64().unwrap_or(0);
        if n < 0 {
            let why = "must be a non-negative integer";
            out.push(FieldError::invalid(&at.child("observedGeneration"), n, why));
        }
    };
    judge(new.get("status"), path);
    for (i, c) in new.at(&["status", "conditions"]).items().iter().enumerate() {
        judge(c, &path.child("conditions").index(i));
    }
}

/// A container that ended may run again only where something restarts it.
fn transitions(out: &mut ErrorList, new: &Value, old: &Value, list: &str, path: &FieldPath) {
    let spec = old.get("spec");
    let containers = match list {
        "containerStatuses" => "containers",
        "initContainerStatuses" => "initContainers",
        _ => "ephemeralContainers",
    };
    let all = || {
        ["containers", "initContainers"]
            .into_iter()
            .flat_map(|k| spec.get(k).items())
    };
    let restarts_all = |c: &Value| {
        let mut rules = c.get("restartPolicyRules").items().iter();
        rules.any(|r| r.str_at(&["action"]) == "RestartAllContainers")
    };
    if all().any(restarts_all) {
        return;
    }
    let whole = spec.str_at(&["restartPolicy"]);
    if list == "containerStatuses" && whole == "Always" {
        return;
    }
    let now = new.at(&["status", list]).items();
    for was in old.at(&["status", list]).items() {
        let ended = was.at(&["state", "terminated"]);
        if ended.is_null() {
            continue;
        }
        let name = was.str_at(&["name"]);
        let container = spec
            .get(containers)
            .items()
            .iter()
            .find(|c| c.str_at(&["name"]) == name);
        let own = container.map_or("", |c| c.str_at(&["restartPolicy"]));
        let rules = container.is_some_and(|c| !c.get("restartPolicyRules").items().is_empty());
        let failed = ended.get("exitCode").as_i64().unwrap_or(0) != 0;
        let policy = match (list, own) {
            ("ephemeralContainerStatuses", _) => "Never",
            (_, "") => whole,
            (_, own) => own,
        };
        // Init containers run once; those that failed run again unless the pod says never.
        let may = match policy {
            "Always" if list == "initContainerStatuses" && own != "Always" => failed,
            "Always" => true,
            "OnFailure" => failed,
            _ => false,
        };
        if may || rules {
            continue;
        }
        for (i, c) in now.iter().enumerate().filter(|(_, c)| c.str_at(&["name"]) == name) {
            if c.at(&["state", "terminated"]).is_null() {
                let why = "may not be transitioned to non-terminated state";
                out.push(FieldError::forbidden(&path.index(i).child("state"), why));
            }
        }
    }
}

fn claims(out: &mut ErrorList, new: &Value, path: &FieldPath) {
    let known = new.at(&["spec", "resourceClaims"]).items();
    let mut seen: Vec<&str> = Vec::new();
    let statuses = new.at(&["status", "resourceClaimStatuses"]).items();
    for (i, status) in statuses.iter().enumerate() {
        let (at, name) = (path.child("resourceClaimStatuses").index(i), status.str_at(&["name"]));
        if !known.iter().any(|c| c.str_at(&["name"]) == name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            out.push(FieldError::invalid(&at.child("name"), name, why));
        }
        if seen.contains(&name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
        seen.push(name);
        let claim = status.str_at(&["resourceClaimName"]);
        if !claim.is_empty() {
            invalid_each(out, &at.child("name"), claim, dns1123_subdomain(claim));
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
        for (i, ip) in all.iter().enumerate() {
            let text = ip.str_at(&["ip"]);
            if !was.iter().any(|o| o.str_at(&["ip"]) == text) {
                invalid_each(out, &at.index(i), text, net::ip_strict(text));
            }
        }
        let parsed: Vec<IpAddr> = all.iter().filter_map(|ip| ip.str_at(&["ip"]).parse().ok()).collect();
        let two_families = parsed.len() == 2 && parsed[0].is_ipv4() != parsed[1].is_ipv4();
        if all.len() > 1 && parsed.len() == all.len() && !two_families {
            let why = "may specify no more than one IP for each IP family";
            let shown: Vec<Value> = all.iter().map(|ip| ip.str_at(&["ip"]).into()).collect();
            out.push(FieldError::invalid(&at, Value::from(shown), why));
        }
    }
}

/// Health of the devices a container has.
fn health(out: &mut ErrorList, status: &Value, path: &FieldPath) {
    let path = path.child("allocatedResourcesStatus");
    for (i, r) in status.get("allocatedResourcesStatus").items().iter().enumerate() {
        let at = path.index(i).child("resources");
        let mut seen: Vec<&str> = Vec::new();
        for (k, device) in r.get("resources").items().iter().enumerate() {
            let (at, id) = (at.index(k), device.str_at(&["resourceID"]));
            if seen.contains(&id) {
                out.push(FieldError::duplicate(&at.child("resourceID"), id));
            }
            seen.push(id);
            let health = device.str_at(&["health"]);
            if !matches!(health, "" | "Healthy" | "Unhealthy" | "Unknown") {
                let known = ["Healthy", "Unhealthy", "Unknown"];
                out.push(FieldError::not_supported(&at.child("health"), health, &known));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn said(spec: Value, old: Value, new: Value) -> String {
        let mut pods = [json!({}), json!({})];
        for (pod, status) in pods.iter_mut().zip([old, new]) {
            pod.set(&["spec"], spec.clone());
            pod.set(&["status"], status);
        }
        aggregate(&pod_status(&pods[1], &pods[0]))
    }

    #[test]
    fn a_container_that_ended_for_good_stays_so() {
        let ended = json!({"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}}]});
        let runs = json!({"containerStatuses": [{"name": "a", "state": {"running": {}}}]});
        let of = |policy: &str| {
            let mut spec = json!({"containers": [{"name": "a"}]});
            spec.set(&["restartPolicy"], policy);
            said(spec, ended.clone(), runs.clone())
        };
        assert_eq!(of("Always"), "[]");
        for policy in ["Never", "OnFailure"] {
            assert_eq!(
                of(policy),
                "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
            );
        }
    }

    #[test]
    fn addresses_are_one_per_family() {
        let new =
            json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "hostIP": "a", "hostIPs": [{"ip": "10.0.0.1"}]});
        assert_eq!(
            said(json!({}), json!({}), new),
            "[status.podIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for each IP family, \
             status.hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`]"
        );
    }
}
