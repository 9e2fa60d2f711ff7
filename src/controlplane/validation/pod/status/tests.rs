use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

fn errors(spec: Value, old: Value, new: Value) -> String {
    let mut pods = [json!({}), json!({})];
    for (pod, status) in pods.iter_mut().zip([old, new]) {
        pod.set(&["spec"], spec.clone());
        pod.set(&["status"], status);
    }
    aggregate(&pod_status(&pods[1], &pods[0]))
}

#[test]
fn terminated_container_cannot_restart() {
    let ended = json!({"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}}]});
    let runs = json!({"containerStatuses": [{"name": "a", "state": {"running": {}}}]});
    let of = |policy: &str| {
        let mut spec = json!({"containers": [{"name": "a"}]});
        spec.set(&["restartPolicy"], policy);
        errors(spec, ended.clone(), runs.clone())
    };
    assert_eq!(of("Always"), "[]");
    for policy in ["Never", "OnFailure"] {
        assert_eq!(
            of(policy),
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
        );
    }
}

#[test]
fn addresses_are_limited_to_one_per_family() {
    let new =
        json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "hostIP": "a", "hostIPs": [{"ip": "10.0.0.1"}]});
    assert_eq!(
        errors(json!({}), json!({}), new),
        "[status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family, \
         status.hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`]"
    );
}

#[test]
fn addresses_are_parsed_leniently_and_printed_as_json() {
    let of = |ips: &[&str]| {
        let all: Vec<Value> = ips.iter().map(|ip| json!({"ip": (*ip)})).collect();
        let mut status = json!({});
        status.set(&["podIPs"], all);
        // Stored addresses are not checked one by one.
        errors(json!({}), status.clone(), status)
    };
    assert_eq!(of(&["010.0.0.1", "fd00::1"]), "[]");
    // An IPv4 address in another form.
    let one_family = "may specify no more than one IP for each IP family";
    assert_eq!(
        of(&["10.0.0.1", "::ffff:10.0.0.2"]),
        format!("status.podIPs: Invalid value: [{{\"IP\":\"10.0.0.1\"}},{{\"IP\":\"::ffff:10.0.0.2\"}}]: {one_family}")
    );
    assert_eq!(
        of(&["10.0.0.1", "a&\u{0}"]),
        format!(
            "[status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: a&\u{0}, \
             status.podIPs: Invalid value: [{{\"IP\":\"10.0.0.1\"}},{{\"IP\":\"a\\u0026\\u0000\"}}]: {one_family}]"
        )
    );
}

#[test]
fn the_qos_class_and_pointers_are_printed_as_json() {
    let new = json!({"qosClass": "<", "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "<"}]});
    let printed = errors(json!({"resourceClaims": [{"name": "c"}]}), json!({}), new);
    assert!(
        printed.starts_with("[status.qosClass: Invalid value: \"\\u003c\": field is immutable, "),
        "{printed}"
    );
    let claim = "status.resourceClaimStatuses[0].resourceClaimName: Invalid value: \"\\u003c\": ";
    assert!(printed.contains(claim), "{printed}");
}

#[test]
fn a_status_update_keeps_the_mirror_annotation() {
    let mut new = json!({"spec": {"nodeName": "n"}});
    new.set(&["metadata", "annotations", "kubernetes.io/config.mirror"], "h");
    let old = json!({"spec": {"nodeName": "n"}});
    assert_eq!(
        aggregate(&pod_status(&new, &old)),
        "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"
    );
}
