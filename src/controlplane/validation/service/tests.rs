use super::*;
use crate::apimachinery::field::aggregate;
use crate::controlplane::defaults;
use crate::json;

/// The error message without upstream's prefix `Service "x" is invalid: `.
fn errors(spec: Value) -> String {
    let mut v = json!({"metadata": {"name": "x"}});
    v.set(&["spec"], spec);
    defaults::service::service(&mut v);
    if v.at(&["spec", "clusterIPs"]).is_null() && !v.str_at(&["spec", "clusterIP"]).is_empty() {
        let ip = v.at(&["spec", "clusterIP"]).clone();
        v.set(&["spec", "clusterIPs"], vec![ip]);
    }
    let errors = service(&v, None);
    if errors.is_empty() {
        String::new()
    } else {
        aggregate(&errors)
    }
}

#[test]
fn errors_match_the_recordings() {
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let cases: Vec<(Value, String)> = vec![
        (json!({}), "spec.ports: Required value".into()),
        (json!({"ports": [{"port": 0}]}), "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]".into()),
        (json!({"ports": [{"port": 80, "protocol": "HTTP"}]}), r#"spec.ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP""#.into()),
        (json!({"ports": [{"port": 80}, {"port": 81}]}), "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]".into()),
        (json!({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}), r#"spec.ports[1].name: Duplicate value: "a""#.into()),
        (json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}), r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#.into()),
        (json!({"ports": [{"port": 80, "name": "A"}]}), format!(r#"spec.ports[0].name: Invalid value: "A": {label}"#)),
        (json!({"ports": [{"port": 80, "targetPort": "-"}]}), r#"[spec.ports[0].targetPort: Invalid value: "-": must contain at least one letter (a-z), spec.ports[0].targetPort: Invalid value: "-": must not begin or end with a hyphen]"#.into()),
        (json!({"ports": [{"port": 80}], "type": "X"}), r#"spec.type: Unsupported value: "X": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#.into()),
        (json!({"ports": [{"port": 80}], "sessionAffinity": "X"}), r#"spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None""#.into()),
        (json!({"ports": [{"port": 80}], "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}), String::new()),
        (json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 90000}}}), "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 90000: must be greater than 0 and less than 86400".into()),
        (json!({"ports": [{"port": 80}], "type": "ExternalName"}), "spec.externalName: Required value".into()),
        (json!({"ports": [{"port": 80}], "type": "ExternalName", "externalName": "x.example.com", "clusterIP": "10.0.0.5"}), "spec.clusterIPs: Forbidden: may not be set for ExternalName services".into()),
        (json!({"ports": [{"port": 80}], "clusterIP": "1.2.3"}), r#"spec.clusterIPs[0]: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#.into()),
        (json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.20", "clusterIPs": ["10.0.0.21"]}), r#"spec.clusterIPs: Invalid value: ["10.0.0.21"]: first value must match `clusterIP`"#.into()),
        (json!({"ports": [{"port": 80}], "externalIPs": ["127.0.0.1"]}), r#"spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#.into()),
        (json!({"ports": [{"port": 80}], "externalIPs": ["x"]}), r#"spec.externalIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#.into()),
        (json!({"ports": [{"port": 80, "nodePort": 30100}]}), "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'".into()),
        (json!({"ports": [{"port": 80}], "type": "NodePort", "clusterIP": "None"}), r#"spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services"#.into()),
        (json!({"ports": [{"port": 80}], "type": "NodePort", "externalTrafficPolicy": "X"}), r#"spec.externalTrafficPolicy: Unsupported value: "X": supported values: "Cluster", "Local""#.into()),
        (json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}), r#"spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services"#.into()),
        (json!({"ports": [{"port": 80}], "externalTrafficPolicy": "<"}), r#"spec.externalTrafficPolicy: Invalid value: "\u003c": may only be set for externally-accessible services"#.into()),
        (json!({"ports": [{"port": 80}], "trafficDistribution": "<"}), r#"spec.trafficDistribution: Unsupported value: "<": supported values: "PreferClose", "PreferSameZone", "PreferSameNode""#.into()),
        (json!({"ports": [{"port": 80}], "ipFamilies": ["<", "<"]}), r#"[spec.ipFamilies[0]: Unsupported value: "\u003c": supported values: "IPv4", "IPv6", spec.ipFamilies[1]: Unsupported value: "\u003c": supported values: "IPv4", "IPv6", spec.ipFamilies[1]: Duplicate value: "\u003c"]"#.into()),
        (json!({"ports": [{"port": 80}], "internalTrafficPolicy": "X"}), r#"spec.internalTrafficPolicy: Unsupported value: "X": supported values: "Cluster", "Local""#.into()),
        (json!({"ports": [{"port": 80}], "loadBalancerSourceRanges": ["1.2.3.4/8"]}), r#"[spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer', spec.LoadBalancerSourceRanges[0]: Invalid value: "1.2.3.4/8": must not have bits set beyond the prefix length]"#.into()),
    ];
    for (spec, want) in cases {
        assert_eq!(errors(spec.clone()), want, "{spec:?}");
    }
}

#[test]
fn cluster_ip_is_immutable() {
    let with = |ip: &str| {
        json!({"spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                        "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}})
    };
    assert_eq!(
        aggregate(&service_update(&with("10.0.0.99"), &with("10.0.0.5"))),
        r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.99"]: may not change once set"#
    );
    assert_eq!(
        aggregate(&service_update(&with("None"), &with("10.0.0.5"))),
        r#"spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set"#
    );
    assert!(service_update(&with("10.0.0.5"), &with("10.0.0.5")).is_empty());
    // Also if the new type is unknown: only an ExternalName has no addresses.
    let mut odd = with("10.0.0.99");
    odd.set(&["spec", "type"], "X");
    let errors = aggregate(&service_update(&odd, &with("10.0.0.5")));
    assert!(
        errors.contains("spec.clusterIPs[0]: Invalid value: [\"10.0.0.99\"]: may not change once set"),
        "{errors}"
    );
}
