//! Environment variables.

use super::super::common::quantity;
use super::mounts::no_backsteps;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{
    config_map_key, dns1123_subdomain, env_var_name, name_is_dns_subdomain, qualified_name,
};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;

/// Fields of a pod that variables may show.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of a pod that volumes may show.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

pub(super) fn env(out: &mut ErrorList, c: &Value, path: &FieldPath) {
    for (i, e) in c.get("env").items().iter().enumerate() {
        let at = path.child("env").index(i);
        match e.str_at(&["name"]) {
            "" => out.push(FieldError::required(&at.child("name"), "")),
            name => invalid_each(out, &at.child("name"), name, env_var_name(name)),
        }
        if !e.get("valueFrom").is_null() {
            source(out, e, &at.child("valueFrom"));
        }
    }
    for e in c.get("envFrom").items() {
        env_from(out, e, &path.child("envFrom"));
    }
}

/// Files that variables come from lie in volumes of the pod that are empty at first.
pub(super) fn files(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            for (j, e) in c.get("env").items().iter().enumerate() {
                let name = e.str_at(&["valueFrom", "fileKeyRef", "volumeName"]);
                if name.is_empty() {
                    continue;
                }
                let at = ["valueFrom", "fileKeyRef", "volumeName"]
                    .iter()
                    .fold(path.child(list).index(i).child("env").index(j), |at, k| at.child(k));
                let volumes = spec.get("volumes").items();
                match volumes.iter().find(|v| v.str_at(&["name"]) == name) {
                    None => out.push(FieldError::not_found(&at, name)),
                    Some(v) if v.get("emptyDir").is_null() => {
                        let why = "referenced volume must be of type emptyDir";
                        out.push(FieldError::invalid(&at, name, why));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn source(out: &mut ErrorList, e: &Value, at: &FieldPath) {
    let v = e.get("valueFrom");
    let count = v.as_object().map_or(0, |m| m.values().filter(|x| !x.is_null()).count());
    const SOURCES: [&str; 5] = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    for key in SOURCES {
        let (r, at) = (v.get(key), at.child(key));
        match key {
            _ if r.is_null() => {}
            "fieldRef" => field_ref(out, r, ENV_FIELDS, &at),
            "resourceFieldRef" => resource_ref(out, r, false, &at),
            "configMapKeyRef" | "secretKeyRef" => {
                let name = r.str_at(&["name"]);
                invalid_each(out, &at.child("name"), name, dns1123_subdomain(name));
                match r.str_at(&["key"]) {
                    "" => out.push(FieldError::required(&at.child("key"), "")),
                    k => invalid_each(out, &at.child("key"), k, config_map_key(k)),
                }
            }
            "fileKeyRef" => {
                for key in ["key", "volumeName", "path"] {
                    if r.str_at(&[key]).is_empty() {
                        out.push(FieldError::required(&at.child(key), ""));
                    }
                }
                no_backsteps(out, r.str_at(&["path"]), &at.child("path"));
            }
            _ => {}
        }
    }
    let why = if count == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !e.str_at(&["value"]).is_empty() {
        "may not be specified when `value` is not empty"
    } else if count > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    out.push(FieldError::invalid(at, "", why));
}

/// Fields that can be named at all.
fn is_field(path: &str) -> bool {
    matches!(
        path,
        "metadata.annotations"
            | "metadata.labels"
            | "metadata.name"
            | "metadata.namespace"
            | "metadata.uid"
            | "spec.nodeName"
            | "spec.restartPolicy"
            | "spec.serviceAccountName"
            | "spec.schedulerName"
            | "spec.hostNetwork"
            | "status.phase"
            | "status.hostIP"
            | "status.hostIPs"
            | "status.podIP"
            | "status.podIPs"
    )
}

pub(super) fn field_ref(out: &mut ErrorList, v: &Value, allowed: &[&str], at: &FieldPath) {
    if v.str_at(&["apiVersion"]).is_empty() {
        out.push(FieldError::required(&at.child("apiVersion"), ""));
        return;
    }
    let (text, at) = (v.str_at(&["fieldPath"]), at.child("fieldPath"));
    if text.is_empty() {
        out.push(FieldError::required(&at, ""));
        return;
    }
    if let Some((base, rest)) = text.split_once("['")
        && let Some(key) = rest.strip_suffix("']")
    {
        match base {
            "metadata.annotations" => invalid_each(out, &at, key, qualified_name(&key.to_lowercase())),
            "metadata.labels" => invalid_each(out, &at, key, qualified_name(key)),
            _ => out.push(FieldError::invalid(&at, base, "does not support subscript")),
        }
    } else if !is_field(text) {
        let why = format!("error converting fieldPath: field label not supported: {text}");
        out.push(FieldError::invalid(&at, text, why));
    } else if !allowed.contains(&text) {
        out.push(FieldError::not_supported(&at, text, allowed));
    }
}

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn resource_ref(out: &mut ErrorList, v: &Value, in_volume: bool, at: &FieldPath) {
    if in_volume && v.str_at(&["containerName"]).is_empty() {
        out.push(FieldError::required(&at.child("containerName"), ""));
    }
    let name = v.str_at(&["resource"]);
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if name.is_empty() {
        out.push(FieldError::required(&at.child("resource"), ""));
    } else if !RESOURCES.contains(&name) && !huge {
        out.push(FieldError::not_supported(&at.child("resource"), name, RESOURCES));
    } else {
        divisor(out, v, name, &at.child("divisor"));
    }
}

fn divisor(out: &mut ErrorList, v: &Value, name: &str, at: &FieldPath) {
    let Some(q) = quantity(v.get("divisor")).filter(|q| q.milli_value() != 0) else {
        return;
    };
    let text = q.to_string();
    let bytes = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let word = match name.split_once('.').map_or("", |(_, r)| r) {
        "cpu" if ["1m", "1"].contains(&text.as_str()) => return,
        "cpu" => {
            let why = "only divisor's values 1m and 1 are supported with the cpu resource";
            out.push(FieldError::invalid(at, name, why));
            return;
        }
        _ if bytes.contains(&text.as_str()) => return,
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        _ => "hugepages",
    };
    let why = format!(
        "only divisor's values {} are supported with the {word} resource",
        bytes.join(", ")
    );
    out.push(FieldError::invalid(at, name, why));
}

fn env_from(out: &mut ErrorList, e: &Value, at: &FieldPath) {
    let prefix = e.str_at(&["prefix"]);
    if !prefix.is_empty() {
        invalid_each(out, &at.child("prefix"), prefix, env_var_name(prefix));
    }
    let said: Vec<&str> = ["configMapRef", "secretRef"]
        .into_iter()
        .filter(|k| !e.get(k).is_null())
        .collect();
    for key in &said {
        match e.str_at(&[key, "name"]) {
            "" => out.push(FieldError::required(&at.child(key).child("name"), "")),
            name => {
                let at = at.child(key).child("name");
                invalid_each(out, &at, name, name_is_dns_subdomain(name, true));
            }
        }
    }
    let why = match said.len() {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    out.push(FieldError::invalid(at, "", why));
}
