//! Validation of environment variables, and of the field and resource references that volumes use too.

use super::super::common::no_backsteps;
use super::super::common::quantity;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{
    NameForm, config_map_key, dns1123_label, dns1123_subdomain, env_var_name, name_is_dns_subdomain, qualified_name,
};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, required_valid};
use crate::interrupt::checkpoint;
use std::cell::LazyCell;
use std::collections::HashMap;

/// Pod fields that variables may refer to, besides single labels and annotations.
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

/// Pod fields that downward API volumes may refer to.
pub(in crate::controlplane::validation) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

pub(super) fn env(out: &mut ErrorList, c: &Value, path: &FieldPath) {
    for (i, e) in c.get("env").items().iter().enumerate() {
        checkpoint();
        let at = path.child("env").index(i);
        required_valid(out, &at.child("name"), e.str_at(&["name"]), env_var_name);
        if !e.get("valueFrom").is_null() {
            source(out, e, &at.child("valueFrom"));
        }
    }
    for (i, e) in c.get("envFrom").items().iter().enumerate() {
        env_from(out, e, &path.child("envFrom"), i);
    }
}

/// Checks that variables read from files refer to an `emptyDir` volume of the pod.
pub(super) fn files(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    // Built on first use, as few pods have such variables. As upstream, the last of equal names wins.
    let volumes: LazyCell<HashMap<&str, &Value>, _> = LazyCell::new(|| {
        let all = spec.get("volumes").items().iter();
        all.map(|v| (v.str_at(&["name"]), v)).collect()
    });
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            for (j, e) in c.get("env").items().iter().enumerate() {
                // Before the path is formatted: almost no variable is read from a file.
                if e.at(&["valueFrom", "fileKeyRef"]).is_null() {
                    continue;
                }
                let name = e.str_at(&["valueFrom", "fileKeyRef", "volumeName"]);
                let at = ["valueFrom", "fileKeyRef", "volumeName"]
                    .iter()
                    .fold(path.child(list).index(i).child("env").index(j), |at, k| at.child(k));
                match volumes.get(name) {
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
    // All members count, also ones that were added to the API later and have no rules here.
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
                // An empty name gets the message about subdomains, not `Required`: upstream does not test for
                // it.
                invalid_each(out, &at.child("name"), name, dns1123_subdomain(name));
                required_valid(out, &at.child("key"), r.str_at(&["key"]), config_map_key);
            }
            "fileKeyRef" => {
                for key in ["key", "volumeName", "path"] {
                    let at = at.child(key);
                    match (key, r.str_at(&[key])) {
                        (_, "") => out.push(FieldError::required(&at, "")),
                        ("key", text) => invalid_each(out, &at, text, env_var_name(text)),
                        ("volumeName", text) => invalid_each(out, &at, text, dns1123_label(text)),
                        (_, text) => no_backsteps(out, text, &at),
                    }
                }
            }
            _ => {}
        }
    }
    // One error at most, in upstream's order of precedence.
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

/// True for fields that exist as field labels of pods; [`field_ref`] restricts them further.
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
            | "status.phase"
            | "status.hostIP"
            | "status.hostIPs"
            | "status.podIP"
            | "status.podIPs"
    )
}

/// Returns why a field reference cannot be converted; `None` if it can.
fn unknown_field(version: &str, text: &str) -> Option<String> {
    if version != "v1" {
        return Some(format!("unsupported pod version: {version}"));
    }
    match subscripted(text) {
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {text}")),
        // `spec.host` is the v1 alias of `spec.nodeName`.
        None if text == "spec.host" || is_field(text) => None,
        None => Some(format!("field label not supported: {text}")),
    }
}

/// Splits a reference such as `metadata.labels['app']` into the map's path and the key.
fn subscripted(text: &str) -> Option<(&str, &str)> {
    let (base, rest) = text.strip_suffix("']")?.split_once("['")?;
    (!base.is_empty()).then_some((base, rest))
}

pub(in crate::controlplane::validation) fn field_ref(out: &mut ErrorList, v: &Value, allowed: &[&str], at: &FieldPath) {
    let (version, text) = (v.str_at(&["apiVersion"]), v.str_at(&["fieldPath"]));
    let text_at = at.child("fieldPath");
    if version.is_empty() {
        // Stops: the path can only be converted for a version.
        return out.push(FieldError::required(&at.child("apiVersion"), ""));
    }
    if text.is_empty() {
        return out.push(FieldError::required(&text_at, ""));
    }
    if let Some(why) = unknown_field(version, text) {
        let why = format!("error converting fieldPath: {why}");
        return out.push(FieldError::invalid(&text_at, text, why));
    }
    match subscripted(text) {
        // As upstream, an invalid key is reported at the reference, not at `fieldPath`.
        Some(("metadata.annotations", key)) => {
            // Annotation keys may be upper case, but the rule for label keys is applied to a lowered copy.
            let key = key.to_lowercase();
            let messages = qualified_name(&key);
            invalid_each(out, at, key.as_str(), messages);
        }
        Some((_, key)) => invalid_each(out, at, key, qualified_name(key)),
        None => {
            // The allowed paths are the converted ones.
            let text = if text == "spec.host" { "spec.nodeName" } else { text };
            if !allowed.contains(&text) {
                out.push(FieldError::not_supported_string(&text_at, text, allowed));
            }
        }
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

pub(in crate::controlplane::validation) fn resource_ref(
    out: &mut ErrorList,
    v: &Value,
    in_volume: bool,
    at: &FieldPath,
) {
    let name = v.str_at(&["resource"]);
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    // A variable refers to its own container by default; a volume belongs to none.
    if in_volume && v.str_at(&["containerName"]).is_empty() {
        out.push(FieldError::required(&at.child("containerName"), ""));
    } else if name.is_empty() {
        out.push(FieldError::required(&at.child("resource"), ""));
    } else if !RESOURCES.contains(&name) && !huge {
        out.push(FieldError::not_supported_string(&at.child("resource"), name, RESOURCES));
    }
    if RESOURCES.contains(&name) || huge {
        divisor(out, v, name, &at.child("divisor"));
    }
}

fn divisor(out: &mut ErrorList, v: &Value, name: &str, at: &FieldPath) {
    // Zero means the default of 1.
    let Some(q) = quantity(v.get("divisor")).filter(|q| q.milli_value() != 0) else {
        return;
    };
    // Compared in canonical form, so that `1000m` counts as `1`.
    let text = q.to_string();
    let bytes = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let word = match name.split_once('.').map_or("", |(_, r)| r) {
        "cpu" if ["1m", "1"].contains(&text.as_str()) => return,
        "cpu" => {
            let why = "only divisor's values 1m and 1 are supported with the cpu resource";
            // The bad value is the resource's name, as upstream, not the divisor.
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

/// Checks an `envFrom` entry. As upstream, a missing or ambiguous source is reported at the list, not at the
/// entry.
fn env_from(out: &mut ErrorList, e: &Value, list: &FieldPath, index: usize) {
    let at = list.index(index);
    let prefix = e.str_at(&["prefix"]);
    if !prefix.is_empty() {
        invalid_each(out, &at.child("prefix"), prefix, env_var_name(prefix));
    }
    let mut sources = 0;
    for key in ["configMapRef", "secretRef"] {
        if e.get(key).is_null() {
            continue;
        }
        sources += 1;
        let at = at.child(key).child("name");
        match e.str_at(&[key, "name"]) {
            "" => out.push(FieldError::required(&at, "")),
            // As a prefix: upstream permits a trailing hyphen here.
            name => invalid_each(out, &at, name, name_is_dns_subdomain(name, NameForm::Prefix)),
        }
    }
    let why = match sources {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    out.push(FieldError::invalid(list, "", why));
}
