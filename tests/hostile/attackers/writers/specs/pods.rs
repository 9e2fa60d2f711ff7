//! Long lists in pods.

use super::{Shape, shape};
use crate::attackers::writers::PODS;

const CONTAINERS: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[%]}}"#;
const INIT: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"initContainers":[%]}}"#;
const EPHEMERAL: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"ephemeralContainers":[%]}}"#;

/// The list is a member of the pod's spec.
fn pod(name: &'static str, member: &str, n: usize, item: fn(usize) -> String) -> Shape {
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i"}}],{member}}}}}"#
    );
    shape(name, PODS, &object, n, item)
}

/// The list is a member of the pod's only container.
fn container_of(name: &'static str, member: &str, n: usize, item: fn(usize) -> String) -> Shape {
    let object = CONTAINERS.replacen('%', &format!(r#"{{"name":"c","image":"i",{member}}}"#), 1);
    shape(name, PODS, &object, n, item)
}

pub(super) fn shapes() -> Vec<Shape> {
    let container = |i| format!(r#"{{"name":"c{i}","image":"i"}}"#);
    vec![
        shape("10,000 containers", PODS, CONTAINERS, 10_000, container),
        shape("10,000 init containers", PODS, INIT, 10_000, container),
        shape("10,000 ephemeral containers", PODS, EPHEMERAL, 10_000, container),
        shape("10,000 containers of one name", PODS, CONTAINERS, 10_000, |_| {
            r#"{"name":"c","image":"i"}"#.into()
        }),
        shape("10,000 containers with nothing", PODS, CONTAINERS, 50_000, |_| {
            "{}".into()
        }),
        pod("20,000 volumes", r#""volumes":[%]"#, 20_000, |i| {
            format!(r#"{{"name":"v{i}","emptyDir":{{}}}}"#)
        }),
        pod("20,000 volumes of unknown sources", r#""volumes":[%]"#, 20_000, |i| {
            format!(r#"{{"name":"V!{i}"}}"#)
        }),
        container_of("40,000 variables", r#""env":[%]"#, 40_000, |i| {
            format!(r#"{{"name":"E{i}","value":"v"}}"#)
        }),
        container_of("40,000 variables of one name", r#""env":[%]"#, 40_000, |_| {
            r#"{"name":"E","value":"v"}"#.into()
        }),
        container_of("40,000 ports", r#""ports":[%]"#, 40_000, |i| {
            format!(
                r#"{{"name":"p{i}","containerPort":{},"hostPort":{}}}"#,
                i % 65_535 + 1,
                i % 65_535 + 1
            )
        }),
        container_of("20,000 mounts of one path", r#""volumeMounts":[%]"#, 20_000, |i| {
            format!(r#"{{"name":"v{i}","mountPath":"/m/{i}"}}"#)
        }),
        pod("40,000 tolerations", r#""tolerations":[%]"#, 40_000, |i| {
            format!(r#"{{"key":"k{i}","operator":"Exists"}}"#)
        }),
        pod(
            "20,000 topology spread constraints",
            r#""topologySpreadConstraints":[%]"#,
            20_000,
            |i| format!(r#"{{"topologyKey":"k{i}","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}}"#),
        ),
        pod("50,000 image pull secrets", r#""imagePullSecrets":[%]"#, 50_000, |i| {
            format!(r#"{{"name":"s{i}"}}"#)
        }),
        pod("50,000 scheduling gates", r#""schedulingGates":[%]"#, 50_000, |i| {
            format!(r#"{{"name":"e.example/g{i}"}}"#)
        }),
        pod("30,000 host aliases", r#""hostAliases":[%]"#, 30_000, |i| {
            format!(r#"{{"ip":"10.0.{}.{}","hostnames":["h{i}"]}}"#, i / 256 % 256, i % 256)
        }),
        pod("30,000 sysctls", r#""securityContext":{"sysctls":[%]}"#, 30_000, |i| {
            format!(r#"{{"name":"net.a{i}","value":"1"}}"#)
        }),
        pod(
            "20,000 node selector terms",
            r#""affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[%]}}}"#,
            20_000,
            |i| format!(r#"{{"matchExpressions":[{{"key":"k{i}","operator":"In","values":["v"]}}]}}"#),
        ),
        pod(
            "20,000 pod affinity terms",
            r#""affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[%]}}"#,
            15_000,
            |i| format!(r#"{{"topologyKey":"k{i}","labelSelector":{{"matchLabels":{{"a":"b"}}}}}}"#),
        ),
        pod(
            "30,000 resource claims of a pod",
            r#""resourceClaims":[%]"#,
            30_000,
            |i| format!(r#"{{"name":"r{i}","resourceClaimName":"c{i}"}}"#),
        ),
        pod(
            "2 MB of a projected volume's sources",
            r#""volumes":[{"name":"v","projected":{"sources":[%]}}]"#,
            20_000,
            |i| format!(r#"{{"configMap":{{"name":"c{i}","items":[{{"key":"k","path":"p{i}"}}]}}}}"#),
        ),
        container_of(
            "40,000 resources with limits",
            r#""resources":{"limits":{%}}"#,
            40_000,
            |i| format!(r#""e.example/r{i}":"{i}""#),
        ),
    ]
}
