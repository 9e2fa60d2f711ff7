//! Containers.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::validation::{config_map_key, dns1123_label, env_var_name, net};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{PROTOCOLS, invalid_each, required_choice};

/// All containers of a pod, names unique over regular and init containers.
pub(super) fn containers(out: &mut ErrorList, spec: &Value, volumes: &[&str], path: &FieldPath) {
    let regular = spec.get("containers").items();
    if regular.is_empty() {
        out.push(FieldError::required(&path.child("containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut host_ports: Vec<String> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            let at = path.child(list).index(i);
            container(out, c, volumes, &at);
            let name = c.str_at(&["name"]);
            if !name.is_empty() && names.contains(&name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            }
            names.push(name);
            if list == "containers" {
                conflicts(out, c, &mut host_ports, &at);
            }
        }
    }
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

fn container(out: &mut ErrorList, c: &Value, volumes: &[&str], at: &FieldPath) {
    match c.str_at(&["name"]) {
        "" => out.push(FieldError::required(&at.child("name"), "")),
        name => invalid_each(out, &at.child("name"), name, dns1123_label(name)),
    }
    let image = c.str_at(&["image"]);
    if image.is_empty() {
        out.push(FieldError::required(&at.child("image"), ""));
    } else if image.trim() != image {
        out.push(FieldError::invalid(
            &at.child("image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
    required_choice(
        out,
        c,
        "terminationMessagePolicy",
        at,
        &["File", "FallbackToLogsOnError"],
    );
    ports(out, c, &at.child("ports"));
    env(out, c, &at.child("env"));
    mounts(out, c, volumes, &at.child("volumeMounts"));
    required_choice(out, c, "imagePullPolicy", at, &["Always", "IfNotPresent", "Never"]);
    resources(out, c.get("resources"), &at.child("resources"));
}

fn ports(out: &mut ErrorList, c: &Value, path: &FieldPath) {
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
        match p.get("containerPort").as_i64().unwrap_or(0) {
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

fn env(out: &mut ErrorList, c: &Value, path: &FieldPath) {
    for (i, e) in c.get("env").items().iter().enumerate() {
        let at = path.index(i);
        match e.str_at(&["name"]) {
            "" => out.push(FieldError::required(&at.child("name"), "")),
            name => invalid_each(out, &at.child("name"), name, env_var_name(name)),
        }
        let source = e.get("valueFrom");
        if source.is_null() {
            continue;
        }
        let at = at.child("valueFrom");
        let set = source
            .as_object()
            .map_or(0, |m| m.values().filter(|v| !v.is_null()).count());
        if set == 0 {
            out.push(FieldError::invalid(&at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"));
        } else if !e.str_at(&["value"]).is_empty() {
            out.push(FieldError::invalid(
                &at,
                "",
                "may not be specified when `value` is not empty",
            ));
        } else if set > 1 {
            out.push(FieldError::invalid(
                &at,
                "",
                "may not have more than one field specified at a time",
            ));
        }
        for key in ["configMapKeyRef", "secretKeyRef"] {
            let r = source.get(key);
            if r.is_null() {
                continue;
            }
            match r.str_at(&["key"]) {
                "" => out.push(FieldError::required(&at.child(key).child("key"), "")),
                k => invalid_each(out, &at.child(key).child("key"), k, config_map_key(k)),
            }
        }
    }
}

fn mounts(out: &mut ErrorList, c: &Value, volumes: &[&str], path: &FieldPath) {
    let mut paths: Vec<&str> = Vec::new();
    for (i, m) in c.get("volumeMounts").items().iter().enumerate() {
        let at = path.index(i);
        let (name, mount) = (m.str_at(&["name"]), m.str_at(&["mountPath"]));
        if name.is_empty() {
            out.push(FieldError::required(&at.child("name"), ""));
        }
        if !volumes.contains(&name) {
            out.push(FieldError::not_found(&at.child("name"), name));
        }
        if mount.is_empty() {
            out.push(FieldError::required(&at.child("mountPath"), ""));
        }
        if paths.contains(&mount) {
            out.push(FieldError::invalid(&at.child("mountPath"), mount, "must be unique"));
        }
        paths.push(mount);
    }
}

fn resources(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    for side in ["limits", "requests"] {
        for (name, _) in v.get(side).as_object().into_iter().flat_map(|m| m.iter()) {
            let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
            if !name.contains('/') && !standard {
                let at = path.child(side).key(name);
                let shown = quote(name);
                out.push(FieldError::invalid_raw(
                    &at,
                    shown.clone(),
                    "must be a standard resource type or fully qualified",
                ));
                out.push(FieldError::invalid_raw(
                    &at,
                    shown,
                    "must be a standard resource for containers",
                ));
            }
        }
    }
}
