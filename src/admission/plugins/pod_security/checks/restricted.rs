//! The checks that the restricted level adds, as in upstream's `pod-security-admission/policy/check_*.go`.

use super::super::pod::{Names, Pod, Values, containers, naming, plural, quoted, setters};
use super::Violation;
use super::baseline::{added_beyond, is_good_seccomp, seccomp_profiles, seccomp_type};
use crate::apimachinery::value::Value;

pub(super) fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    // Absent counts as allowed: the kernel's default permits it.
    let may = |c: &'_ Value| c.at(&["securityContext", "allowPrivilegeEscalation"]).as_bool() != Some(false);
    let names = naming(pod, may);
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        containers(&names)
    );
    Violation::new("allowPrivilegeEscalation != false", detail)
}

pub(super) fn privilege_escalation_but_windows(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        None
    } else {
        privilege_escalation(pod)
    }
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let keeps_some = |c: &'_ Value| {
        let dropped = c.at(&["securityContext", "capabilities", "drop"]).items();
        !dropped.iter().any(|d| d.as_str() == Some("ALL"))
    };
    let keeping = naming(pod, keeps_some);
    let (adding, added) = added_beyond(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers(&keeping)
        ));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(added)
        ));
    }
    if details.is_empty() {
        return None;
    }
    Violation::new("unrestricted capabilities", details.join("; "))
}

pub(super) fn capabilities_but_windows(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { capabilities(pod) }
}

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Volume types that are not allowed, as spelled in messages and objects alike.
const OTHER_VOLUMES: [&str; 20] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn volumes(pod: Pod<'_>) -> Option<Violation> {
    let (mut names, mut kinds) = (Names::new(), Values::new());
    let has = |volume: &Value, source: &&&str| !volume.get(source).is_null();
    for volume in pod.spec.get("volumes").items() {
        // An allow list: a volume type that is added to the API later is refused until it is listed.
        if VOLUMES.iter().any(|source| has(volume, &source)) {
            continue;
        }
        names.push(volume.str_at(&["name"]));
        let kind = OTHER_VOLUMES.iter().find(|source| has(volume, source));
        kinds.insert(
            // The types that upstream names, and its word for all others.
            kind.copied()
                .unwrap_or(match volume.get("photonPersistentDisk").is_null() {
                    true => "unknown",
                    false => "photonPersistentDisk",
                }),
        );
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    Violation::new("restricted volume types", detail)
}

pub(super) fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of = |context: &'_ Value| context.get("runAsNonRoot").as_bool();
    let of_pod = of(pod.security());
    let explicit = naming(pod, |c| of(c.get("securityContext")) == Some(false));
    // An explicit `false` decides the message, even if containers override the pod's setting.
    if let Some(who) = setters(of_pod == Some(false), &explicit) {
        return Violation::new(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    // Containers inherit the pod's setting.
    let implicit = naming(pod, |c| of_pod != Some(true) && of(c.get("securityContext")).is_none());
    if implicit.is_empty() {
        return None;
    }
    let who = containers(&implicit);
    Violation::new(
        REASON,
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    )
}

pub(super) fn run_as_non_root_of_host_users(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        None
    } else {
        run_as_non_root(pod)
    }
}

pub(super) fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let root = |context: &'_ Value| context.get("runAsUser").as_i64() == Some(0);
    let names = naming(pod, |c| root(c.get("securityContext")));
    let who = setters(root(pod.security()), &names)?;
    Violation::new("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

pub(super) fn run_as_user_of_host_users(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { run_as_user(pod) }
}

pub(super) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    // Forbidden profiles are reported before missing ones, which the restricted level adds.
    if let Some(explicit) = seccomp_profiles(pod) {
        return Some(explicit);
    }
    if seccomp_type(pod.security()).is_some_and(is_good_seccomp) {
        return None;
    }
    let implicit = naming(pod, |c| seccomp_type(c.get("securityContext")).is_none());
    if implicit.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&implicit)
    );
    Violation::new("seccompProfile", detail)
}

pub(super) fn seccomp_but_windows(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { seccomp(pod) }
}
