//! Validation of containers: regular, init and ephemeral ones. Entry point: [`containers`].

use super::env;
use super::probe::{self, PROBES};
use super::resources::Claims;
use super::volume::Volumes;
use super::{Tolerated, mounts, resources, security};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, net};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{PROTOCOLS, Seen, duplicate_enum, invalid_each, required_choice, required_valid};
use crate::interrupt::checkpoint;

/// Checks all containers of a pod. Names are unique across regular, init and ephemeral containers.
pub(super) fn containers(
    out: &mut ErrorList,
    spec: &Value,
    volumes: &Volumes<'_>,
    claims: &Claims<'_>,
    tolerated: Tolerated,
    path: &FieldPath,
) {
    let pod = Pod {
        spec,
        volumes,
        claims,
        tolerated,
        grace: spec.get("terminationGracePeriodSeconds").as_i64(),
    };
    let at = path.child("containers");
    let regular = spec.get("containers").items();
    if regular.is_empty() {
        out.push(FieldError::required(&at, ""));
    }
    let mut names: Seen<&str> = Seen::new();
    for (i, c) in regular.iter().enumerate() {
        let at = at.index(i);
        common(out, &pod, c, &at);
        let name = c.str_at(&["name"]);
        if !names.insert(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
        probe::handlers(out, c, &at, pod.grace);
        restarts(out, c, &at);
    }
    // Across all regular containers, since they run together.
    let mut taken = Seen::new();
    for (i, c) in regular.iter().enumerate() {
        conflicts(out, c, &mut taken, &at.index(i));
    }
    init(out, &pod, &mut names, &path.child("initContainers"));
    ephemeral(out, &pod, &names, path);
}

/// The parts of a pod that validation of its containers depends on.
struct Pod<'a> {
    spec: &'a Value,
    volumes: &'a Volumes<'a>,
    claims: &'a Claims<'a>,
    tolerated: Tolerated,
    /// The pod's grace period in seconds.
    grace: Option<i64>,
}

fn init<'a>(out: &mut ErrorList, pod: &Pod<'a>, names: &mut Seen<&'a str>, path: &FieldPath) {
    for (i, c) in pod.spec.get("initContainers").items().iter().enumerate() {
        let at = path.index(i);
        common(out, pod, c, &at);
        if c.get("restartPolicy").is_null() {
            if !c.get("restartPolicyRules").items().is_empty() {
                let why = "must specify restartPolicy when restart rules are used";
                out.push(FieldError::required(&at.child("restartPolicy"), why));
            }
        } else {
            restarts(out, c, &at);
        }
        let name = c.str_at(&["name"]);
        // An empty name has been reported and is not a duplicate of another one.
        if names.contains(&name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Upstream checks init containers one at a time, hence the fresh set and index 0: they do not run
        // together.
        conflicts(out, c, &mut Seen::new(), &path.index(0));
        // A sidecar keeps running, so it may have probes and lifecycle handlers.
        if c.str_at(&["restartPolicy"]) == "Always" {
            probe::handlers(out, c, &at, pod.grace);
        } else {
            init_only(out, c, pod.tolerated, &at);
        }
    }
}

fn conflicts(out: &mut ErrorList, c: &Value, taken: &mut Seen<String>, at: &FieldPath) {
    for (i, p) in c.get("ports").items().iter().enumerate() {
        let port = p.get("hostPort").as_i64().unwrap_or(0);
        if port == 0 {
            continue;
        }
        // Also the bad value of the error: upstream joins them in this form.
        let key = format!("{}/{}/{port}", p.str_at(&["protocol"]), p.str_at(&["hostIP"]));
        if taken.contains(&key) {
            out.push(FieldError::duplicate(
                &at.child("ports").index(i).child("hostPort"),
                key.as_str(),
            ));
        }
        taken.insert(key);
    }
}

/// Rejects fields that only containers that keep running may have.
fn init_only(out: &mut ErrorList, c: &Value, tolerated: Tolerated, at: &FieldPath) {
    for key in std::iter::once("lifecycle").chain(PROBES) {
        if !c.get(key).is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            out.push(FieldError::forbidden(&at.child(key), why));
        }
    }
    for (i, p) in c.get("resizePolicy").items().iter().enumerate() {
        if !tolerated.init_restarts && p.str_at(&["restartPolicy"]) == "RestartContainer" {
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            let at = at.child("resizePolicy").index(i).child("restartPolicy");
            out.push(FieldError::invalid(&at, "RestartContainer", why));
        }
    }
}

/// True if an init container that is no sidecar restarts on a resize.
pub(super) fn has_init_restarts(spec: &Value) -> bool {
    let all = spec.get("initContainers").items().iter();
    let mut policies = all
        .filter(|c| c.str_at(&["restartPolicy"]) != "Always")
        .flat_map(|c| c.get("resizePolicy").items());
    policies.any(|p| p.str_at(&["restartPolicy"]) == "RestartContainer")
}

/// Checks what all kinds of containers have in common.
fn common(out: &mut ErrorList, pod: &Pod<'_>, c: &Value, at: &FieldPath) {
    checkpoint();
    required_valid(out, &at.child("name"), c.str_at(&["name"]), dns1123_label);
    if c.str_at(&["image"]).is_empty() {
        out.push(FieldError::required(&at.child("image"), ""));
    }
    required_choice(
        out,
        c,
        "terminationMessagePolicy",
        at,
        &["File", "FallbackToLogsOnError"],
    );
    ports(out, c, &at.child("ports"));
    env::env(out, c, at);
    mounts::mounts(out, c, pod.volumes, at);
    required_choice(out, c, "imagePullPolicy", at, &["Always", "IfNotPresent", "Never"]);
    resources::container(
        out,
        c.get("resources"),
        pod.claims,
        pod.tolerated,
        &at.child("resources"),
    );
    resize(out, pod.spec, c, &at.child("resizePolicy"));
    // Absent means true.
    let host_users = pod.spec.get("hostUsers").as_bool() != Some(false);
    security::container(out, c.get("securityContext"), &at.child("securityContext"), host_users);
}

/// Rejects whitespace around the image. As upstream, this applies to pods but not to templates.
pub(super) fn image_of_pod(out: &mut ErrorList, c: &Value, at: &FieldPath) {
    let image = c.str_at(&["image"]);
    if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        out.push(FieldError::invalid(&at.child("image"), image, why));
    }
}

fn ports(out: &mut ErrorList, c: &Value, path: &FieldPath) {
    let mut names: Seen<&str> = Seen::new();
    for (i, p) in c.get("ports").items().iter().enumerate() {
        checkpoint();
        let at = path.index(i);
        let name = p.str_at(&["name"]);
        if !name.is_empty() {
            let messages = net::port_name(name);
            // Only valid names are remembered, so a repeated invalid one is not a duplicate.
            if !messages.is_empty() {
                invalid_each(out, &at.child("name"), name, messages);
            } else if names.contains(&name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            } else {
                names.insert(name);
            }
        }
        let port = p.get("containerPort").as_i64().unwrap_or(0);
        match port {
            // Zero is the Go value of an absent port.
            0 => out.push(FieldError::required(&at.child("containerPort"), "")),
            n => invalid_each(out, &at.child("containerPort"), n, net::port(n)),
        }
        let host = p.get("hostPort").as_i64().unwrap_or(0);
        if host != 0 {
            invalid_each(out, &at.child("hostPort"), host, net::port(host));
        }
        required_choice(out, p, "protocol", &at, PROTOCOLS);
    }
}

fn restarts(out: &mut ErrorList, c: &Value, at: &FieldPath) {
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
    // Upstream's limits of rules and, below, of exit codes: a kubelet evaluates them at every exit.
    if rules.len() > 20 {
        out.push(FieldError::too_many(&rules_at, rules.len(), 20));
    }
    for (i, r) in rules.iter().enumerate() {
        let at = rules_at.index(i);
        choice(out, r, "action", &at, &["Restart", "RestartAllContainers"]);
        let codes = r.get("exitCodes");
        if codes.is_null() {
            out.push(FieldError::required(&at.child("exitCodes"), "must be specified"));
            continue;
        }
        let at = at.child("exitCodes");
        choice(out, codes, "operator", &at, &["In", "NotIn"]);
        let count = codes.get("values").items().len();
        if count > 255 {
            out.push(FieldError::too_many(&at.child("values"), count, 255));
        }
    }
}

/// Checks an enum; an absent value is reported as unsupported, not as missing.
fn choice(out: &mut ErrorList, v: &Value, key: &str, at: &FieldPath, supported: &[&str]) {
    let value = v.str_at(&[key]);
    if !supported.contains(&value) {
        out.push(FieldError::not_supported(&at.child(key), value, supported));
    }
}

fn resize(out: &mut ErrorList, spec: &Value, c: &Value, at: &FieldPath) {
    let mut seen: Seen<&str> = Seen::new();
    for (i, p) in c.get("resizePolicy").items().iter().enumerate() {
        let (name, policy) = (p.str_at(&["resourceName"]), p.str_at(&["restartPolicy"]));
        if !seen.insert(name) {
            out.push(duplicate_enum(&at.index(i), name));
        }
        match name {
            // Errors other than duplicates are reported at the list, as upstream.
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
        // Such a resize would restart a container of a pod whose containers must not be restarted.
        if policy != "NotRequired" && spec.str_at(&["restartPolicy"]) == "Never" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            out.push(FieldError::invalid_enum(at, policy, why));
        }
    }
}

/// Fields that an ephemeral container cannot have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

fn ephemeral(out: &mut ErrorList, pod: &Pod<'_>, known: &Seen<&str>, path: &FieldPath) {
    const NOT_FOR_THEM: &str = "cannot be set for an Ephemeral Container";
    let path = path.child("ephemeralContainers");
    let mut names: Seen<&str> = Seen::new();
    for (i, c) in pod.spec.get("ephemeralContainers").items().iter().enumerate() {
        let at = path.index(i);
        common(out, pod, c, &at);
        image_of_pod(out, c, &at);
        let name = c.str_at(&["name"]);
        if known.contains(&name) || !names.insert(name) {
            out.push(FieldError::duplicate(&at.child("name"), name));
        }
        let target = c.str_at(&["targetContainerName"]);
        if !target.is_empty() && !known.contains(&target) {
            out.push(FieldError::not_found(&at.child("targetContainerName"), target));
        }
        // A list of forbidden fields, where upstream has one of permitted fields: the rest of the struct is
        // permitted.
        let is_set = |key: &str| match key {
            // A struct, and thus set if one of its members is.
            "resources" => !c.get(key).is_empty_value(),
            // Lists and pointers, which are set even if they are empty.
            _ => !c.get(key).is_null(),
        };
        for key in NOT_EPHEMERAL.iter().filter(|key| is_set(key)) {
            out.push(FieldError::forbidden(&at.child(key), NOT_FOR_THEM));
        }
        for (i, mount) in c.get("volumeMounts").items().iter().enumerate() {
            // Sub-path mounts are released only with the pod, so each debugging session would leak one.
            for key in ["subPath", "subPathExpr"] {
                if !mount.str_at(&[key]).is_empty() {
                    let at = at.child("volumeMounts").index(i).child(key);
                    out.push(FieldError::forbidden(&at, NOT_FOR_THEM));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::apimachinery::field::aggregate;
    use crate::apimachinery::value::Value;
    use crate::controlplane::validation::pod::pod;
    use crate::json;

    #[test]
    fn ephemeral_containers_may_not_have_even_empty_lists_of_some_fields() {
        let errors = |container: Value| {
            let mut v = json!({"spec": {"containers": [{"name": "a", "image": "i"}]}});
            v.set(&["spec", "ephemeralContainers"], vec![container]);
            crate::controlplane::defaults::pod::pod(&mut v);
            aggregate(&pod(&v))
        };
        let on_create = "spec.ephemeralContainers: Forbidden: cannot be set on create";
        assert_eq!(errors(json!({"name": "e", "image": "i", "resources": {}})), on_create);
        let wrong =
            errors(json!({"name": "e", "image": "i", "ports": [], "resources": {"claims": []}, "lifecycle": {}}));
        for key in ["ports", "resources", "lifecycle"] {
            let want =
                format!("spec.ephemeralContainers[0].{key}: Forbidden: cannot be set for an Ephemeral Container");
            assert!(wrong.contains(&want), "{wrong}");
        }
    }

    #[test]
    fn resize_policies_are_printed_as_json() {
        let mut v = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i", "resizePolicy": [
            {"resourceName": "<", "restartPolicy": "<"}, {"resourceName": "<", "restartPolicy": "NotRequired"}]}]}});
        crate::controlplane::defaults::pod::pod(&mut v);
        let errors = aggregate(&pod(&v));
        let at = "spec.containers[0].resizePolicy";
        for want in [
            format!("{at}: Invalid value: \"\\u003c\": must be 'NotRequired' when pod `restartPolicy` is 'Never'"),
            format!("{at}[1]: Duplicate value: \"\\u003c\""),
        ] {
            assert!(errors.contains(&want), "{errors}");
        }
    }
}
