//! Security contexts of pods and containers, and what an operating system does not have.

use super::super::common::internal;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::net;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, optional_choice, strings};

const CONTEXT: &[(&str, &str, &str)] = &[
    ("Capabilities", "capabilities", "null"),
    ("Privileged", "privileged", "null"),
    ("SELinuxOptions", "seLinuxOptions", "null"),
    ("WindowsOptions", "windowsOptions", "null"),
    ("RunAsUser", "runAsUser", "null"),
    ("RunAsGroup", "runAsGroup", "null"),
    ("RunAsNonRoot", "runAsNonRoot", "null"),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", "null"),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", "null"),
    ("ProcMount", "procMount", "null"),
    ("SeccompProfile", "seccompProfile", "null"),
    ("AppArmorProfile", "appArmorProfile", "null"),
];

fn id(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.as_i64() {
        invalid_each(out, at, n, net::in_range(n, 0, i64::from(i32::MAX)));
    }
}

pub(super) fn pod(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let (v, at) = (spec.get("securityContext"), path.child("securityContext"));
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(out, v.get(key), &at.child(key));
    }
    for (i, g) in v.get("supplementalGroups").items().iter().enumerate() {
        id(out, g, &at.child("supplementalGroups").index(i));
    }
    let flag = |key: &str| spec.get(key).as_bool() == Some(true);
    if flag("shareProcessNamespace") && flag("hostPID") {
        // The path is upstream's.
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        out.push(FieldError::invalid(&at.child("shareProcessNamespace"), true, why));
    }
    sysctls(out, spec, &at.child("sysctls"));
    optional_choice(out, v, "fsGroupChangePolicy", &at, &["Always", "OnRootMismatch"]);
    optional_choice(out, v, "supplementalGroupsPolicy", &at, &["Merge", "Strict"]);
    optional_choice(out, v, "seLinuxChangePolicy", &at, &["Recursive"]);
    profiles(out, v, &at);
}

fn is_sysctl(name: &str) -> bool {
    let word = |s: &str| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(s.bytes().next())
            && edge(s.bytes().last())
            && s.bytes()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(word)
}

fn sysctls(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let mut seen: Vec<String> = Vec::new();
    for (i, s) in spec.at(&["securityContext", "sysctls"]).items().iter().enumerate() {
        let at = path.index(i).child("name");
        let name = s.str_at(&["name"]);
        let plain = name.replace('/', ".");
        if name.is_empty() {
            out.push(FieldError::required(&at, ""));
        } else if !is_sysctl(name) {
            let why = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            out.push(FieldError::invalid(&at, name, why));
        } else if seen.contains(&plain) {
            out.push(FieldError::duplicate(&at, name));
        }
        for (key, prefixes) in [
            ("hostNetwork", &["net."][..]),
            ("hostIPC", &["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."]),
        ] {
            if spec.get(key).as_bool() == Some(true) && prefixes.iter().any(|p| plain.starts_with(p)) {
                let why = format!("may not be specified when '{key}' is true");
                out.push(FieldError::invalid(&at, name, why));
            }
        }
        seen.push(plain);
    }
}

/// Seccomp and AppArmor.
fn profiles(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    for (key, word) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let p = v.get(key);
        if p.is_null() {
            continue;
        }
        let at = path.child(key);
        let (kind, local) = (p.str_at(&["type"]), p.get("localhostProfile"));
        let local_at = at.child("localhostProfile");
        match kind {
            "" => out.push(FieldError::required(
                &at.child("type"),
                format!("type is required when {key} is set"),
            )),
            "Localhost" => {
                if local.as_str().is_none_or(str::is_empty) {
                    let why = format!("must be set when {word} type is Localhost");
                    out.push(FieldError::required(&local_at, why));
                }
            }
            "RuntimeDefault" | "Unconfined" => {
                if !local.is_null() {
                    let why = format!("can only be set when {word} type is Localhost");
                    out.push(FieldError::invalid(&local_at, local.clone(), why));
                }
            }
            other => out.push(FieldError::not_supported(
                &at.child("type"),
                other,
                &["Localhost", "RuntimeDefault", "Unconfined"],
            )),
        }
    }
}

pub(super) fn container(out: &mut ErrorList, v: &Value, at: &FieldPath, host_users: bool) {
    if v.is_null() {
        return;
    }
    for key in ["runAsUser", "runAsGroup"] {
        id(out, v.get(key), &at.child(key));
    }
    optional_choice(out, v, "procMount", at, &["Default", "Unmasked"]);
    if host_users && v.str_at(&["procMount"]) == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        out.push(FieldError::invalid(&at.child("procMount"), "Unmasked", why));
    }
    profiles(out, v, at);
    if v.get("allowPrivilegeEscalation").as_bool() == Some(false) {
        let mut refuse = |why: &str| out.push(FieldError::invalid_raw(at, internal(v, CONTEXT), why));
        if v.get("privileged").as_bool() == Some(true) {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if strings(v.at(&["capabilities", "add"])).contains(&"CAP_SYS_ADMIN") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
}

/// Fields of a pod that Windows does not have.
const LINUX_POD: &[&str] = &["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
/// The same of a pod's security context.
const LINUX_CONTEXT: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
/// The same of a container's.
const LINUX_CONTAINER: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub(super) fn os(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    if spec.get("os").is_null() {
        return;
    }
    let at = path.child("securityContext");
    let each = || {
        ["containers", "initContainers", "ephemeralContainers"]
            .into_iter()
            .flat_map(|list| {
                spec.get(list)
                    .items()
                    .iter()
                    .enumerate()
                    .map(move |(i, c)| (list, i, c))
            })
    };
    match spec.str_at(&["os", "name"]) {
        "" => out.push(FieldError::required(&path.child("os").child("name"), "")),
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            if !spec.at(&["securityContext", "windowsOptions"]).is_null() {
                out.push(FieldError::forbidden(&at.child("windowsOptions"), why));
            }
            for (list, i, c) in each() {
                if !c.at(&["securityContext", "windowsOptions"]).is_null() {
                    let at = path.child(list).index(i).child("securityContext");
                    out.push(FieldError::forbidden(&at.child("windowsOptions"), why));
                }
            }
        }
        "windows" => {
            let why = "cannot be set for a windows pod";
            for key in LINUX_POD.iter().filter(|k| !spec.get(k).is_empty_value()) {
                out.push(FieldError::forbidden(&path.child(key), why));
            }
            let context = spec.get("securityContext");
            for key in LINUX_CONTEXT.iter().filter(|k| !context.get(k).is_null()) {
                out.push(FieldError::forbidden(&at.child(key), why));
            }
            for (list, i, c) in each() {
                let context = c.get("securityContext");
                let at = path.child(list).index(i).child("securityContext");
                for key in LINUX_CONTAINER.iter().filter(|k| !context.get(k).is_null()) {
                    out.push(FieldError::forbidden(&at.child(key), why));
                }
            }
        }
        // At `spec.os`, as upstream.
        other => out.push(FieldError::not_supported(
            &path.child("os"),
            other,
            &["linux", "windows"],
        )),
    }
}
