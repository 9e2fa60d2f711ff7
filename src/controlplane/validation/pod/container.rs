//! Containers.

use super::env;
use super::probe::{self, PROBES};
use super::volume::Volumes;
use super::{mounts, resources, security};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, net};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{PROTOCOLS, invalid_each, required_choice};

/// All containers of a pod, names unique over regular and init containers.
pub(super) fn containers(out: &mut ErrorList, spec: &Value, volumes: &Volumes<'_>, claims: &[&str], path: &FieldPath) {
    if spec.get("containers").items().is_empty() {
        out.push(FieldError::required(&path.child("containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut host_ports: Vec<String> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            let at = path.child(list).index(i);
            container(out, spec, c, &at);
            env::env(out, c, &at);
            mounts::mounts(out, c, volumes, &at);
            resources::container(out, c.get("resources"), claims, &at.child("resources"));
            let sidecar = list == "initContainers" && c.str_at(&["restartPolicy"]) == "Always";
            if list == "initContainers" && !sidecar {
                init_only(out, c, &at);
            } else {
                let grace = spec.get("terminationGracePeriodSeconds").as_i64().unwrap_or(30);
                probe::handlers(out, c, &at, grace);
            }
            let name = c.str_at(&["name"]);
            if !name.is_empty() && names.contains(&name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            }
            names.push(name);
            let mut own = Vec::new();
            let taken = if list == "containers" {
                &mut host_ports
            } else {
                &mut own
            };
            conflicts(out, c, taken, &at);
        }
    }
    ephemeral(out, spec, &names, volumes, claims, path);
}

fn conflicts(out: &mut ErrorList, c: &Value, taken: &mut Vec<String>, at: &FieldPath) {
    for (i, p) in c.get("ports").items().iter().enumerate() {
        let port = p.get("hostPort").as_i64().unwrap_or(0);
        if port == 0 {
            continue;
        }
        let key = format!("{}/{}/{port}", p.str_at(&["protocol"]), p.str_at(&["hostIP"]));
        if taken.contains(&key) {
            out.push(FieldError::duplicate(
                &at.child("ports").index(i).child("hostPort"),
                key.as_str(),
            ));
        }
        taken.push(key);
    }
}

/// What only containers that keep running may have.
fn init_only(out: &mut ErrorList, c: &Value, at: &FieldPath) {
    for key in std::iter::once("lifecycle").chain(PROBES) {
        if !c.get(key).is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            out.push(FieldError::forbidden(&at.child(key), why));
        }
    }
    for p in c.get("resizePolicy").items() {
        if p.str_at(&["restartPolicy"]) == "RestartContainer" {
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            out.push(FieldError::invalid(&at.child("resizePolicy"), "RestartContainer", why));
        }
    }
}

fn container(out: &mut ErrorList, spec: &Value, c: &Value, at: &FieldPath) {
    match c.str_at(&["name"]) {
        "" => out.push(FieldError::required(&at.child("name"), "")),
        name => invalid_each(out, &at.child("name"), name, dns1123_label(name)),
    }
    let image = c.str_at(&["image"]);
    if image.is_empty() {
        out.push(FieldError::required(&at.child("image"), ""));
    }
    required_choice(
        out,
        c,
        "terminationMessagePolicy",
        at,
        &["File", "FallbackToLogsOnError"],
    );
    ports(out, spec, c, &at.child("ports"));
    required_choice(out, c, "imagePullPolicy", at, &["Always", "IfNotPresent", "Never"]);
    restarts(out, spec, c, at);
    let host_users = spec.get("hostUsers").as_bool() != Some(false);
    security::container(out, c.get("securityContext"), &at.child("securityContext"), host_users);
}

fn ports(out: &mut ErrorList, spec: &Value, c: &Value, path: &FieldPath) {
    let host_network = spec.get("hostNetwork").as_bool() == Some(true);
    let mut names: Vec<&str> = Vec::new();
    for (i, p) in c.get("ports").items().iter().enumerate() {
        let at = path.index(i);
        let name = p.str_at(&["name"]);
        if !name.is_empty() {
            let messages = net::port_name(name);
            if messages.is_empty() && names.contains(&name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            }
            names.push(name);
            invalid_each(out, &at.child("name"), name, messages);
        }
        let port = p.get("containerPort").as_i64().unwrap_or(0);
        match port {
            0 => out.push(FieldError::required(&at.child("containerPort"), "")),
            n => invalid_each(out, &at.child("containerPort"), n, net::port(n)),
        }
        let host = p.get("hostPort").as_i64().unwrap_or(0);
        if host != 0 {
            invalid_each(out, &at.child("hostPort"), host, net::port(host));
            if host_network && host != port {
                let why = "must match `containerPort` when `hostNetwork` is true";
                out.push(FieldError::invalid(&at.child("hostPort"), host, why));
            }
        }
        required_choice(out, p, "protocol", &at, PROTOCOLS);
    }
}

fn restarts(out: &mut ErrorList, spec: &Value, c: &Value, at: &FieldPath) {
    let rules = c.get("restartPolicyRules").items();
    match c.get("restartPolicy").as_str() {
        None if !rules.is_empty() => out.push(FieldError::required(
            &at.child("restartPolicy"),
            "must specify restartPolicy when restart rules are used",
        )),
        None | Some("Always" | "Never" | "OnFailure") => {}
        Some(other) => out.push(FieldError::not_supported(
            &at.child("restartPolicy"),
            other,
            &["Always", "Never", "OnFailure"],
        )),
    }
    let rules_at = at.child("restartPolicyRules");
    if rules.len() > 20 {
        out.push(FieldError::too_many(&rules_at, rules.len(), 20));
    }
    for (i, r) in rules.iter().enumerate() {
        let at = rules_at.index(i);
        required_choice(out, r, "action", &at, &["Restart", "RestartAllContainers"]);
        let codes = r.get("exitCodes");
        if codes.is_null() {
            out.push(FieldError::required(&at.child("exitCodes"), "must be specified"));
            continue;
        }
        let at = at.child("exitCodes");
        required_choice(out, codes, "operator", &at, &["In", "NotIn"]);
        let count = codes.get("values").items().len();
        if count > 255 {
            out.push(FieldError::too_many(&at.child("values"), count, 255));
        }
    }
    resize(out, spec, c, &at.child("resizePolicy"));
}

fn resize(out: &mut ErrorList, spec: &Value, c: &Value, at: &FieldPath) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, p) in c.get("resizePolicy").items().iter().enumerate() {
        let (name, policy) = (p.str_at(&["resourceName"]), p.str_at(&["restartPolicy"]));
        if seen.contains(&name) {
            out.push(FieldError::duplicate(&at.index(i), name));
        }
        seen.push(name);
        match name {
            "cpu" | "memory" => {}
            "" => out.push(FieldError::required(at, "")),
            other => out.push(FieldError::not_supported(at, other, &["cpu", "memory"])),
        }
        match policy {
            "NotRequired" | "RestartContainer" => {}
            "" => out.push(FieldError::required(at, "")),
            other => out.push(FieldError::not_supported(
                at,
                other,
                &["NotRequired", "RestartContainer"],
            )),
        }
        if policy == "RestartContainer" && spec.str_at(&["restartPolicy"]) == "Never" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            out.push(FieldError::invalid(at, policy, why));
        }
    }
}

/// What an ephemeral container cannot have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

fn ephemeral(
    out: &mut ErrorList,
    spec: &Value,
    names: &[&str],
    volumes: &Volumes<'_>,
    claims: &[&str],
    path: &FieldPath,
) {
    const NOT_FOR_THEM: &str = "cannot be set for an Ephemeral Container";
    let path = path.child("ephemeralContainers");
    let mut names = names.to_vec();
    let known = names.clone();
    for (i, c) in spec.get("ephemeralContainers").items().iter().enumerate() {
        let at = path.index(i);
        container(out, spec, c, &at);
        env::env(out, c, &at);
        mounts::mounts(out, c, volumes, &at);
        resources::container(out, c.get("resources"), claims, &at.child("resources"));
        let name = c.str_at(&["name"]);
        if !name.is_empty() && names.contains(&name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
        names.push(name);
        let target = c.str_at(&["targetContainerName"]);
        if !target.is_empty() && !known.contains(&target) {
            out.push(FieldError::not_found(&at.child("targetContainerName"), target));
        }
        for key in NOT_EPHEMERAL.iter().filter(|k| !c.get(k).is_empty_value()) {
            out.push(FieldError::forbidden(&at.child(key), NOT_FOR_THEM));
        }
        for (i, mount) in c.get("volumeMounts").items().iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !mount.str_at(&[key]).is_empty() {
                    let at = at.child("volumeMounts").index(i).child(key);
                    out.push(FieldError::forbidden(&at, NOT_FOR_THEM));
                }
            }
        }
    }
}
