//! The checks of the baseline level (upstream's `pod-security-admission/policy/check_*.go`). Each returns the first
//! part of the message as reason and the rest as detail, worded as upstream.

use super::super::pod::{Names, Pod, Values, containers, naming, plural, quoted, setters};
use super::Violation;
use crate::apimachinery::field::quote;
use crate::apimachinery::value::Value;

/// Prefix of the annotations that set a container's AppArmor profile before the field existed.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// What container runtimes grant by default, without `NET_RAW`.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(super) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    let bad_type = |security: &'_ Value| {
        let profile = security.get("appArmorProfile");
        !profile.is_null() && !matches!(profile.str_at(&["type"]), "RuntimeDefault" | "Localhost")
    };
    let mut values = Values::new();
    let of_pod = bad_type(pod.security());
    if of_pod {
        values.insert(pod.security().str_at(&["appArmorProfile", "type"]));
    }
    let bad = |c: &&Value| bad_type(c.get("securityContext"));
    let mut names = Names::new();
    for container in pod.containers().filter(bad) {
        names.push(container.str_at(&["name"]));
        values.insert(container.str_at(&["securityContext", "appArmorProfile", "type"]));
    }
    let annotations = pod.metadata.get("annotations").as_object();
    let annotations = annotations.into_iter().flat_map(|m| m.iter());
    let forbidden: Vec<String> = annotations
        // The annotations are checked in all versions: kubelets of before the field still read them.
        .filter(|(key, _)| key.starts_with(APP_ARMOR))
        .filter_map(|(key, value)| value.as_str().map(|v| (key, v)))
        .filter(|(_, v)| !(v.is_empty() || *v == "runtime/default" || v.starts_with("localhost/")))
        .map(|(key, v)| format!("{key}={}", quote(v)))
        .collect();
    let mut who: Vec<String> = setters(of_pod, &names).into_iter().collect();
    if !forbidden.is_empty() {
        who.push(plural("annotation", "annotations", forbidden.len()).into());
    }
    if who.is_empty() {
        return None;
    }
    let count = values.len() + forbidden.len();
    let what = quoted(values.into_iter().chain(forbidden.iter().map(String::as_str)));
    Violation::new(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", count),
        format!("{} must not set AppArmor profile type to {what}", who.join(" and ")),
    )
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let (names, values) = added_beyond(pod, &CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers(&names),
        quoted(values)
    );
    Violation::new("non-default capabilities", detail)
}

/// The containers that add capabilities not in `allowed`, and those capabilities.
pub(super) fn added_beyond<'a>(pod: Pod<'a>, allowed: &[&str]) -> (Names<'a>, Values<'a>) {
    let (mut names, mut values) = (Names::new(), Values::new());
    for container in pod.containers() {
        let added = container.at(&["securityContext", "capabilities", "add"]).items();
        let added = added.iter().filter_map(Value::as_str);
        let before = names.len();
        for capability in added.filter(|c| !allowed.contains(c)) {
            values.insert(capability);
            // Once per container, however many capabilities it adds.
            if names.len() == before {
                names.push(container.str_at(&["name"]));
            }
        }
    }
    (names, values)
}

pub(super) fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let set = set.filter(|field| pod.spec.get(field).as_bool() == Some(true));
    let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
    if set.is_empty() {
        return None;
    }
    Violation::new("host namespaces", set.join(", "))
}

pub(super) fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.get("volumes").items().iter();
    let volumes = volumes.filter(|v| !v.get("hostPath").is_null());
    let names: Names<'_> = volumes.map(|v| v.str_at(&["name"])).collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    Violation::new("hostPath volumes", detail)
}

pub(super) fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    // 0 means no host port.
    let host_ports = |c: &'_ Value| -> Vec<String> {
        let ports = c.get("ports").items().iter();
        let ports = ports.filter_map(|p| p.get("hostPort").as_i64());
        ports.filter(|p| *p != 0).map(|p| p.to_string()).collect()
    };
    let names = naming(pod, |c| !host_ports(c).is_empty());
    if names.is_empty() {
        return None;
    }
    // Upstream sorts the ports as strings.
    let mut ports: Vec<String> = pod.containers().flat_map(host_ports).collect();
    ports.sort();
    ports.dedup();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
        ports.join(", ")
    );
    Violation::new("hostPort", detail)
}

pub(super) fn probe_and_lifecycle_hosts(pod: Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    // A set of names: a container may have several such handlers.
    let (mut names, mut hosts) = (Values::new(), Values::new());
    for container in pod.containers() {
        let handlers = HANDLERS.iter().map(|path| container.at(path));
        let found = handlers.flat_map(|h| ["httpGet", "tcpSocket"].map(|kind| h.str_at(&[kind, "host"])));
        for host in found.filter(|h| !h.is_empty()) {
            names.insert(container.str_at(&["name"]));
            hosts.insert(host);
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Names<'_> = names.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(hosts)
    );
    Violation::new("probe or lifecycle host", detail)
}

pub(super) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let names = naming(pod, |c| {
        c.at(&["securityContext", "privileged"]).as_bool() == Some(true)
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.privileged=true", containers(&names));
    Violation::new("privileged", detail)
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let set = |c: &'_ Value| {
        c.at(&["securityContext", "procMount"])
            .as_str()
            .is_some_and(|m| m != "Default")
    };
    let names = naming(pod, set);
    if names.is_empty() {
        return None;
    }
    let kinds = pod.containers().filter(|c| set(c));
    let kinds: Values<'_> = kinds.map(|c| c.str_at(&["securityContext", "procMount"])).collect();
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        containers(&names),
        quoted(kinds)
    );
    Violation::new("procMount", detail)
}

pub(super) fn proc_mount_of_host_users(pod: Pod<'_>) -> Option<Violation> {
    // In a user namespace of its own, the pod's root has no rights over the host's `/proc`.
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

pub(super) fn selinux_1_0(pod: Pod<'_>) -> Option<Violation> {
    // Without a type, the runtime chooses a confined one.
    selinux(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

pub(super) fn selinux_1_31(pod: Pod<'_>) -> Option<Violation> {
    let types = [
        "",
        "container_t",
        "container_init_t",
        "container_kvm_t",
        "container_engine_t",
    ];
    selinux(pod, &types)
}

fn selinux(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (Values::new(), false, false);
    let mut names = Names::new();
    let mut of_pod = false;
    let contexts = pod.containers().map(|c| (Some(c), c.get("securityContext")));
    for (container, context) in std::iter::once((None, pod.security())).chain(contexts) {
        let options = context.get("seLinuxOptions");
        let kind = options.str_at(&["type"]);
        let bad_type = !allowed.contains(&kind);
        let [sets_user, sets_role] = ["user", "role"].map(|field| !options.str_at(&[field]).is_empty());
        if bad_type {
            types.insert(kind);
        }
        (user, role) = (user || sets_user, role || sets_role);
        if bad_type || sets_user || sets_role {
            match container {
                None => of_pod = true,
                Some(c) => names.push(c.str_at(&["name"])),
            }
        }
    }
    let who = setters(of_pod, &names)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", plural("type", "types", types.len()), quoted(types)));
    }
    if user {
        what.push("user may not be set".into());
    }
    if role {
        what.push("role may not be set".into());
    }
    let detail = format!(
        "{who} set forbidden securityContext.seLinuxOptions: {}",
        what.join("; ")
    );
    Violation::new("seLinuxOptions", detail)
}

/// Checks the annotations that set profiles before v1.19.
pub(super) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let keys = pod
        .containers()
        .map(|c| format!("{SECCOMP_CONTAINER}{}", c.str_at(&["name"])));
    // A set: upstream lists them sorted, each once.
    let mut forbidden = std::collections::BTreeSet::new();
    for key in std::iter::once(SECCOMP_POD.to_owned()).chain(keys) {
        if let Some(value) = pod.annotation(&key)
            && !matches!(value, "runtime/default" | "docker/default")
            && !value.starts_with("localhost/")
        {
            forbidden.insert(format!("{key}={}", quote(value)));
        }
    }
    if forbidden.is_empty() {
        return None;
    }
    let all: Vec<String> = forbidden.into_iter().collect();
    let detail = format!(
        "forbidden {} {}",
        plural("annotation", "annotations", all.len()),
        all.join(", ")
    );
    Violation::new("seccompProfile", detail)
}

/// The type of a context's seccomp profile; `None` if it sets none.
pub(super) fn seccomp_type(context: &Value) -> Option<&str> {
    let profile = context.get("seccompProfile");
    (!profile.is_null()).then(|| profile.str_at(&["type"]))
}

pub(super) fn is_good_seccomp(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

pub(super) fn seccomp_profiles(pod: Pod<'_>) -> Option<Violation> {
    let bad = |context| seccomp_type(context).filter(|kind| !is_good_seccomp(kind));
    let of_pod = bad(pod.security());
    let names = naming(pod, |c| bad(c.get("securityContext")).is_some());
    let who = setters(of_pod.is_some(), &names)?;
    let kinds = pod.containers().filter_map(|c| bad(c.get("securityContext")));
    let kinds: Values<'_> = of_pod.into_iter().chain(kinds).collect();
    let detail = format!(
        "{who} must not set securityContext.seccompProfile.type to {}",
        quoted(kinds)
    );
    Violation::new("seccompProfile", detail)
}

/// The safe sysctls in the order they were added: each version allows a longer prefix of this list.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

pub(super) fn sysctls_1_0(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 5)
}

pub(super) fn sysctls_1_27(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 6)
}

pub(super) fn sysctls_1_29(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 10)
}

pub(super) fn sysctls_1_32(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 12)
}

fn sysctls(pod: Pod<'_>, allowed: usize) -> Option<Violation> {
    let set = pod.security().get("sysctls").items().iter();
    let set = set.map(|s| s.str_at(&["name"]));
    let forbidden: Names<'_> = set.filter(|name| !SYSCTLS[..allowed].contains(name)).collect();
    if forbidden.is_empty() {
        return None;
    }
    Violation::new("forbidden sysctls", forbidden.join(", "))
}

pub(super) fn windows_host_process(pod: Pod<'_>) -> Option<Violation> {
    let set = |context: &'_ Value| context.at(&["windowsOptions", "hostProcess"]).as_bool() == Some(true);
    let names = naming(pod, |c| set(c.get("securityContext")));
    let who = setters(set(pod.security()), &names)?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Violation::new("hostProcess", detail)
}
