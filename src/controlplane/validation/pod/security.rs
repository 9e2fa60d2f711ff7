//! Validation of security contexts of pods and containers, and of fields that the pod's operating system
//! lacks. Entry points: [`pod`], [`container`] and [`os`].

use super::super::common::local_path;
use super::super::{common, go_form};
use super::{Tolerated, windows};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::net;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, optional_choice, strings};

fn id(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.as_i64() {
        // Linux has 32-bit ids, but upstream excludes the upper half.
        invalid_each(out, at, n, net::in_range(n, 0, i64::from(i32::MAX)));
    }
}

pub(super) fn pod(out: &mut ErrorList, spec: &Value, tolerated: Tolerated, path: &FieldPath) {
    let (v, at) = (spec.get("securityContext"), path.child("securityContext"));
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(out, v.get(key), &at.child(key));
    }
    for (i, g) in v.get("supplementalGroups").items().iter().enumerate() {
        id(out, g, &at.child("supplementalGroups").index(i));
    }
    let flag = |key: &str| spec.get(key).as_bool() == Some(true);
    // Mutually exclusive: both would define the pod's PID namespace.
    if flag("shareProcessNamespace") && flag("hostPID") {
        // Upstream reports this below the security context, where its internal struct has the field.
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        out.push(FieldError::invalid(&at.child("shareProcessNamespace"), true, why));
    }
    sysctls(out, spec, tolerated, &at.child("sysctls"));
    optional_choice(out, v, "fsGroupChangePolicy", &at, &["Always", "OnRootMismatch"]);
    seccomp(out, v.get("seccompProfile"), &at.child("seccompProfile"));
    windows::credentials(out, v.get("windowsOptions"), &at.child("windowsOptions"));
    app_armor(out, v.get("appArmorProfile"), &at.child("appArmorProfile"));
    optional_choice(out, v, "supplementalGroupsPolicy", &at, &["Merge", "Strict"]);
    // `MountOption` needs the gate `SELinuxMount`, which is off.
    optional_choice(out, v, "seLinuxChangePolicy", &at, &["Recursive"]);
}

fn is_sysctl(name: &str) -> bool {
    let word = |s: &str| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(s.bytes().next())
            && edge(s.bytes().last())
            && s.bytes()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_')
    };
    // Both separators may be mixed, as in upstream's regular expression.
    name.len() <= 253 && name.split(['.', '/']).all(word)
}

/// The field by which the pod shares the namespace of this sysctl with the host, for which it would be changed.
fn shared_by(spec: &Value, name: &str) -> Option<&'static str> {
    let flag = |key: &str| spec.get(key).as_bool() == Some(true);
    // The kernel accepts both separators; namespaces are recognized in the dotted form.
    let plain = name.replace('/', ".");
    let of_messages = ["kernel.shm", "kernel.msg", "fs.mqueue."]
        .iter()
        .any(|p| plain.starts_with(p))
        || plain == "kernel.sem";
    if flag("hostNetwork") && plain.starts_with("net.") {
        Some("hostNetwork")
    } else if flag("hostIPC") && of_messages {
        Some("hostIPC")
    } else {
        None
    }
}

/// True if a sysctl would be changed for the whole host.
pub(super) fn has_host_sysctls(spec: &Value) -> bool {
    let mut all = spec.at(&["securityContext", "sysctls"]).items().iter();
    all.any(|s| shared_by(spec, s.str_at(&["name"])).is_some())
}

fn sysctls(out: &mut ErrorList, spec: &Value, tolerated: Tolerated, path: &FieldPath) {
    let mut seen: Seen<&str> = Seen::new();
    for (i, s) in spec.at(&["securityContext", "sysctls"]).items().iter().enumerate() {
        let at = path.index(i).child("name");
        let name = s.str_at(&["name"]);
        if name.is_empty() {
            out.push(FieldError::required(&at, ""));
        } else if !is_sysctl(name) {
            let why = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            out.push(FieldError::invalid(&at, name, why));
        } else if seen.contains(&name) {
            out.push(FieldError::duplicate(&at, name));
        }
        if !tolerated.host_sysctls
            && let Some(key) = shared_by(spec, name)
        {
            let why = format!("may not be specified when '{key}' is true");
            out.push(FieldError::invalid(&at, name, why));
        }
        seen.insert(name);
    }
}

/// Types of seccomp and AppArmor profiles.
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

const SECCOMP: &[(&str, &str, &str)] = &[
    ("Type", "type", "\"\""),
    ("LocalhostProfile", "localhostProfile", "null"),
];

fn seccomp(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if v.is_null() {
        return;
    }
    let kind = v.str_at(&["type"]);
    let (local, local_at) = (v.get("localhostProfile"), at.child("localhostProfile"));
    if kind.is_empty() {
        let why = "type is required when seccompProfile is set";
        out.push(FieldError::required(&at.child("type"), why));
    } else if !PROFILES.contains(&kind) {
        out.push(FieldError::not_supported(&at.child("type"), kind, PROFILES));
    }
    match (kind == "Localhost", local.as_str()) {
        (true, None) => {
            let why = "must be set when seccomp type is Localhost";
            out.push(FieldError::required(&local_at, why));
        }
        // Relative to the kubelet's directory of profiles, from which it must not escape.
        (true, Some(file)) => local_path(out, file, &local_at),
        (false, Some(_)) => {
            let why = "can only be set when seccomp type is Localhost";
            // As upstream, the bad value is the whole profile.
            out.push(FieldError::invalid_raw(&local_at, common::go_struct(v, SECCOMP), why));
        }
        (false, None) => {}
    }
}

fn app_armor(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if v.is_null() {
        return;
    }
    let (local, local_at) = (v.get("localhostProfile"), at.child("localhostProfile"));
    match v.str_at(&["type"]) {
        "Localhost" => {
            let name = local.as_str().unwrap_or("");
            if name.trim() != name {
                let why = "must not be padded with whitespace";
                out.push(FieldError::invalid(&local_at, name, why));
            } else if name.is_empty() {
                let why = "must be set when AppArmor type is Localhost";
                out.push(FieldError::required(&local_at, why));
            }
            // `PATH_MAX` without the terminating zero byte.
            if name.len() > 4095 {
                out.push(FieldError::too_long(&local_at, 4095));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if !local.is_null() {
                let why = "can only be set when AppArmor type is Localhost";
                out.push(FieldError::invalid_enum(&local_at, local.clone(), why));
            }
        }
        "" => {
            let why = "type is required when appArmorProfile is set";
            out.push(FieldError::required(&at.child("type"), why));
        }
        other => out.push(FieldError::not_supported(&at.child("type"), other, PROFILES)),
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
    // An unmasked `/proc` exposes the host unless the pod has its own user namespace.
    if host_users && v.str_at(&["procMount"]) == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        out.push(FieldError::invalid(&at.child("procMount"), "Unmasked", why));
    }
    seccomp(out, v.get("seccompProfile"), &at.child("seccompProfile"));
    if v.get("allowPrivilegeEscalation").as_bool() == Some(false) {
        let mut refuse = |why: &str| out.push(FieldError::invalid_raw(at, go_form::compact(v, go_form::CONTEXT), why));
        if v.get("privileged").as_bool() == Some(true) {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        // Only this spelling: runtimes also accept `SYS_ADMIN`, which upstream overlooks.
        if strings(v.at(&["capabilities", "add"])).contains(&"CAP_SYS_ADMIN") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    windows::credentials(out, v.get("windowsOptions"), &at.child("windowsOptions"));
    app_armor(out, v.get("appArmorProfile"), &at.child("appArmorProfile"));
}

/// Pod fields that Windows lacks, in upstream's order. True if the field is in the security context, not the
/// spec.
const LINUX_POD: &[(&str, bool)] = &[
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];
/// Fields of a container's security context that Windows lacks.
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
    // In the order of upstream's visitor; the index is that within the list.
    let each = || {
        ["initContainers", "containers", "ephemeralContainers"]
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
            for (key, in_context) in LINUX_POD {
                let (holder, at) = if *in_context {
                    (spec.get("securityContext"), &at)
                } else {
                    (spec, path)
                };
                // Host namespace flags are plain bools in Go, where false equals absent; the other two are
                // pointers.
                let is_set = match holder.get(key) {
                    Value::Bool(false) => matches!(*key, "hostUsers" | "shareProcessNamespace"),
                    // Upstream ignores `sysctls` without elements; `supplementalGroups` only has to be present.
                    Value::Array(a) => *key == "supplementalGroups" || !a.is_empty(),
                    v => !v.is_null(),
                };
                if is_set {
                    out.push(FieldError::forbidden(&at.child(key), why));
                }
            }
            for (list, i, c) in each() {
                let context = c.get("securityContext");
                let at = path.child(list).index(i).child("securityContext");
                for key in LINUX_CONTAINER.iter().filter(|k| !context.get(k).is_null()) {
                    out.push(FieldError::forbidden(&at.child(key), why));
                }
            }
        }
        // As upstream, reported at `os`, not at `os.name`.
        other => out.push(FieldError::not_supported(
            &path.child("os"),
            other,
            &["linux", "windows"],
        )),
    }
}
