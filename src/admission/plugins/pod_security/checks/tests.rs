//! One case per check and version boundary: a pod, and the expected message.

use super::super::policy::Version;
use super::*;
use crate::apimachinery::value::Value;
use crate::json;

fn violations(level: &str, version: &str, pod: &Value) -> String {
    let policy = LevelVersion {
        level: Level::parse(level).unwrap(),
        version: Version::parse(version).unwrap(),
    };
    details(&super::violations(policy, Pod::of(pod)))
}

/// A pod with one container `main` with this security context.
fn context(context: Value) -> Value {
    json!({"spec": {"containers": [{"name": "main", "securityContext": context}]}})
}

/// Adds the fields that the restricted level requires, unless they are set.
fn nearly(mut pod: Value) -> Value {
    let containers = pod.at_mut(&["spec", "containers"]).unwrap().as_array_mut().unwrap();
    for container in containers {
        for (key, value) in [
            ("allowPrivilegeEscalation", Value::from(false)),
            ("runAsNonRoot", Value::from(true)),
            ("capabilities", json!({"drop": ["ALL"]})),
            ("seccompProfile", json!({"type": "RuntimeDefault"})),
        ] {
            if container.at(&["securityContext", key]).is_null() {
                container.set(&["securityContext", key], value);
            }
        }
    }
    pod
}

#[test]
fn baseline_messages_name_the_field_and_container() {
    let two = |a: Value, b: Value| {
        json!({"spec": {"initContainers": [{"name": "b", "securityContext": b}],
            "containers": [{"name": "a", "securityContext": a}]}})
    };
    for (pod, version, want) in [
        (json!({"spec": {"containers": [{"name": "a"}]}}), "latest", ""),
        (
            context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            "latest",
            "forbidden AppArmor profile (container \"main\" must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "unconfined",
                "container.apparmor.security.beta.kubernetes.io/b": "localhost/x"}},
                "spec": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}}),
            "latest",
            "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        ),
        (
            two(
                json!({"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}),
                json!({"capabilities": {"add": ["BPF"]}}),
            ),
            "latest",
            "non-default capabilities (containers \"b\", \"a\" must not include \"BPF\", \"SYS_ADMIN\" in \
             securityContext.capabilities.add)",
        ),
        (
            json!({"spec": {"hostNetwork": true, "hostIPC": true, "hostPID": false}}),
            "latest",
            "host namespaces (hostNetwork=true, hostIPC=true)",
        ),
        (
            json!({"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "hostPath": {}}]}}),
            "latest",
            "hostPath volumes (volumes \"a\", \"b\")",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "ports": [{"hostPort": 80}, {"hostPort": 8080}]},
                {"name": "b", "ports": [{"hostPort": 80}, {"containerPort": 1}]}, {"name": "c"}]}}),
            "latest",
            "hostPort (containers \"a\", \"b\" use hostPorts 80, 8080)",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "1.2.3.4"}},
                "lifecycle": {"preStop": {"tcpSocket": {"host": "h"}}}}]}}),
            "v1.34",
            "probe or lifecycle host (container \"a\" uses probe or lifecycle hosts \"1.2.3.4\", \"h\")",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "1.2.3.4"}}}]}}),
            "v1.33",
            "",
        ),
        (
            two(json!({"privileged": true}), json!({"privileged": true})),
            "v1.0",
            "privileged (containers \"b\", \"a\" must not set securityContext.privileged=true)",
        ),
        (
            context(json!({"procMount": "Unmasked"})),
            "latest",
            "procMount (container \"main\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            json!({"spec": {"securityContext": {"seLinuxOptions": {"role": "r"}}, "containers": [
                {"name": "a", "securityContext": {"seLinuxOptions": {"type": "x", "user": "u"}}}]}}),
            "latest",
            "seLinuxOptions (pod and container \"a\" set forbidden securityContext.seLinuxOptions: type \"x\"; user \
             may not be set; role may not be set)",
        ),
        (
            context(json!({"seLinuxOptions": {"type": "container_engine_t"}})),
            "v1.31",
            "",
        ),
        (
            context(json!({"seLinuxOptions": {"type": "container_engine_t"}})),
            "v1.30",
            "seLinuxOptions (container \"main\" set forbidden securityContext.seLinuxOptions: type \
             \"container_engine_t\")",
        ),
        (
            json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined",
                "container.seccomp.security.alpha.kubernetes.io/main": "x"}},
                "spec": {"containers": [{"name": "main", "securityContext": {"seccompProfile": {"type": "Unconfined"}}}]}}),
            "v1.18",
            "seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/main=\"x\", \
             seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")",
        ),
        (
            json!({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}),
            "v1.19",
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({"spec": {"securityContext": {"windowsOptions": {"hostProcess": true}}, "containers": [
                {"name": "a", "securityContext": {"windowsOptions": {"hostProcess": true}}}]}}),
            "latest",
            "hostProcess (pod and container \"a\" must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ] {
        assert_eq!(violations("baseline", version, &pod), want, "{version}");
    }
}

#[test]
fn each_version_allows_more_sysctls() {
    let names = [
        "kernel.msgmax",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.ip_local_reserved_ports",
    ];
    let sysctls = names.map(|name| json!({"name": name}));
    let pod = json!({"spec": {"securityContext": {"sysctls": (sysctls.to_vec())}}});
    for (version, forbidden) in [("v1.26", 4), ("v1.27", 3), ("v1.29", 2), ("v1.32", 1), ("latest", 1)] {
        let want = format!("forbidden sysctls ({})", names[..forbidden].join(", "));
        assert_eq!(violations("baseline", version, &pod), want, "{version}");
    }
}

#[test]
fn restricted_messages_name_the_field_and_container() {
    let windows = |mut pod: Value| {
        pod.set(&["spec", "os", "name"], "windows");
        pod
    };
    for (pod, version, want) in [
        (nearly(context(json!({}))), "latest", ""),
        (
            nearly(context(json!({"allowPrivilegeEscalation": true}))),
            "latest",
            "allowPrivilegeEscalation != false (container \"main\" must set \
             securityContext.allowPrivilegeEscalation=false)",
        ),
        (nearly(context(json!({"allowPrivilegeEscalation": true}))), "v1.7", ""),
        (
            nearly(context(json!({"capabilities": {"add": ["NET_BIND_SERVICE", "X"]}}))),
            "v1.22",
            "unrestricted capabilities (container \"main\" must set securityContext.capabilities.drop=[\"ALL\"]; \
             container \"main\" must not include \"X\" in securityContext.capabilities.add)",
        ),
        (
            nearly(context(json!({"capabilities": {"add": ["X"]}}))),
            "v1.21",
            "non-default capabilities (container \"main\" must not include \"X\" in securityContext.capabilities.add)",
        ),
        (
            nearly(
                json!({"spec": {"containers": [], "volumes": [{"name": "a", "hostPath": {}}, {"name": "b", "nfs": {}},
                {"name": "c", "emptyDir": {}}, {"name": "d", "x": {}}]}}),
            ),
            "v1.0",
            "restricted volume types (volumes \"a\", \"b\", \"d\" use restricted volume types \"hostPath\", \"nfs\", \
             \"unknown\")",
        ),
        (
            nearly(context(json!({"runAsNonRoot": false}))),
            "latest",
            "runAsNonRoot != true (container \"main\" must not set securityContext.runAsNonRoot=false)",
        ),
        (
            nearly(context(json!({"runAsUser": 0}))),
            "v1.23",
            "runAsUser=0 (container \"main\" must not set runAsUser=0)",
        ),
        (nearly(context(json!({"runAsUser": 0}))), "v1.22", ""),
        (
            nearly(context(json!({"seccompProfile": {"type": "Unconfined"}}))),
            "latest",
            "seccompProfile (container \"main\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            context(json!({})),
            "v1.24",
            "allowPrivilegeEscalation != false (container \"main\" must set \
             securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"main\" must set \
             securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"main\" must set \
             securityContext.runAsNonRoot=true), seccompProfile (pod or container \"main\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (
            windows(context(json!({}))),
            "v1.25",
            "runAsNonRoot != true (pod or container \"main\" must set securityContext.runAsNonRoot=true)",
        ),
        (
            windows(context(json!({"runAsNonRoot": true}))),
            "v1.24",
            "allowPrivilegeEscalation != false (container \"main\" must set \
             securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"main\" must set \
             securityContext.capabilities.drop=[\"ALL\"]), seccompProfile (pod or container \"main\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
    ] {
        assert_eq!(violations("restricted", version, &pod), want, "{version}");
    }
}

#[test]
fn user_namespaced_pods_may_run_as_root_since_v1_35() {
    let mut pod = nearly(context(
        json!({"runAsUser": 0, "runAsNonRoot": false, "procMount": "Unmasked"}),
    ));
    pod.set(&["spec", "hostUsers"], false);
    assert_eq!(
        violations("restricted", "v1.35", &pod),
        "procMount (container \"main\" must not set securityContext.procMount to \"Unmasked\")"
    );
    assert_eq!(violations("baseline", "v1.35", &pod), "");
    assert!(violations("baseline", "v1.34", &pod).starts_with("procMount ("));
    assert_eq!(violations("restricted", "v1.34", &pod).matches('(').count(), 3);
}

#[test]
fn pod_level_settings_apply_to_containers_without_their_own() {
    let mut pod = nearly(context(json!({})));
    for key in ["runAsNonRoot", "seccompProfile"] {
        let containers = pod.at_mut(&["spec", "containers"]).unwrap().as_array_mut().unwrap();
        let value = containers[0].unset(&["securityContext", key]).unwrap();
        pod.set(&["spec", "securityContext", key], value);
    }
    assert_eq!(violations("restricted", "latest", &pod), "");
}
