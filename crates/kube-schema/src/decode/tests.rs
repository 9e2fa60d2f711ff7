use super::*;
use crate::by_gvk;
use proptest::prelude::*;
use torana_apimachinery::json;
use torana_apimachinery::value::Map;

fn decode(group: &str, version: &str, kind: &str, mut v: Value) -> Result<(Value, Vec<String>), DecodeError> {
    let def = by_gvk(group, version, kind).expect("a built-in kind");
    let findings = normalize(def, &mut v)?;
    Ok((v, findings))
}

fn error(group: &str, version: &str, kind: &str, v: Value) -> String {
    decode(group, version, kind, v).expect_err("it has a wrong type").0
}

#[test]
fn unknown_fields_are_reported_by_path_and_dropped() {
    let (v, findings) = decode(
        "apps",
        "v1",
        "Deployment",
        json!({"bogusTop": 1, "spec": {"bogus": true, "template": {"spec": {"containers": [{"name": "c", "Image": "x"}]}}}}),
    )
    .expect("types fit");
    assert_eq!(
        findings,
        [
            r#"unknown field "bogusTop""#,
            r#"unknown field "spec.bogus""#,
            r#"unknown field "spec.template.spec.containers[0].Image""#
        ]
    );
    assert!(v.get("bogusTop").is_null());
    assert_eq!(
        *v.at(&["spec", "template", "spec", "containers"]),
        json!([{"name": "c", "resources": {}}])
    );
}

#[test]
fn parse_errors_precede_type_mismatches() {
    let container = json!({"name": 1, "resources": {"requests": {"cpu": "abc"}}});
    let pod = json!({"metadata": "x", "spec": {"containers": [container]}});
    assert!(error("", "v1", "Pod", pod).starts_with("quantities must match"));
    let pod = json!({"metadata": "x", "spec": {"containers": [{"name": 1}]}});
    assert_eq!(
        error("", "v1", "Pod", pod),
        "json: cannot unmarshal string into Go struct field Pod.metadata of type v1.ObjectMeta"
    );
}

#[test]
fn amounts_are_rounded_only_where_they_have_defaults() {
    for (text, exact) in [("9.9999999999u", "10u"), ("1.0000000001n", "2n")] {
        let (class, _) = decode(
            "node.k8s.io",
            "v1",
            "RuntimeClass",
            json!({"overhead": {"podFixed": {"memory": text}}}),
        )
        .expect("types fit");
        assert_eq!(class.str_at(&["overhead", "podFixed", "memory"]), exact);
        let (pod, _) = decode("", "v1", "Pod", json!({"spec": {"overhead": {"memory": text}}})).expect("types fit");
        assert_eq!(pod.str_at(&["spec", "overhead", "memory"]), "1m");
    }
}

#[test]
fn zero_times_are_null() {
    let zero = "0001-01-01T00:00:00Z";
    let status = json!({"status": {"lastScheduleTime": zero, "lastSuccessfulTime": "0001-01-01T00:00:01Z"}});
    let (job, _) = decode("batch", "v1", "CronJob", status).expect("types fit");
    assert_eq!(
        *job.get("status"),
        json!({"lastScheduleTime": null, "lastSuccessfulTime": "0001-01-01T00:00:01Z"})
    );
    let spec = json!({"spec": {"acquireTime": "0001-01-01T01:00:00.000000+01:00"}});
    let (lease, _) = decode("coordination.k8s.io", "v1", "Lease", spec).expect("types fit");
    assert_eq!(*lease.get("spec"), json!({"acquireTime": null}));
    let (pod, _) = decode("", "v1", "Pod", json!({"metadata": {"creationTimestamp": zero}})).expect("types fit");
    assert!(pod.at(&["metadata", "creationTimestamp"]).is_null());
    // In the body of the next update, null means unset.
    let (job, _) = decode("batch", "v1", "CronJob", job).expect("types fit");
    assert_eq!(
        *job.get("status"),
        json!({"lastSuccessfulTime": "0001-01-01T00:00:01Z"})
    );
}

#[test]
fn empty_lists_are_stored_as_null() {
    let stored = |group, kind, v| {
        let def = by_gvk(group, "v1", kind).expect("a built-in kind");
        let (mut v, _) = decode(group, "v1", kind, v).expect("types fit");
        forget_empty_lists(def, &mut v);
        v
    };
    let rbac = "rbac.authorization.k8s.io";
    assert_eq!(
        stored(rbac, "Role", json!({"rules": []})),
        json!({"metadata": {}, "rules": null})
    );
    let role = stored(rbac, "Role", json!({"rules": [{"verbs": [], "resources": ["pods"]}]}));
    assert_eq!(*role.at(&["rules"]), json!([{"resources": ["pods"], "verbs": null}]));
    // A raw extension is not a list, whatever it holds.
    let def = by_gvk("apps", "v1", "ControllerRevision").expect("a built-in kind");
    let (mut revision, _) = decode("apps", "v1", "ControllerRevision", json!({"data": []})).expect("types fit");
    forget_empty_lists(def, &mut revision);
    assert_eq!(*revision.get("data"), json!([]));
    // Definitions are stored as JSON.
    let v = json!({"spec": {"versions": []}});
    let crd = stored("apiextensions.k8s.io", "CustomResourceDefinition", v);
    assert_eq!(*crd.at(&["spec", "versions"]), json!([]));
}

#[test]
fn findings_are_capped_at_one_hundred() {
    let spec: Map = (0..150).map(|i| (format!("x{i}"), Value::Int(1))).collect();
    let (_, findings) = decode("", "v1", "Pod", json!({"spec": Value::Object(spec)})).expect("types fit");
    assert_eq!(
        findings.len(),
        torana_apimachinery::codec::strict_errors::StrictErrors::MAX
    );
}

#[test]
fn always_written_fields_are_added_and_empty_ones_dropped() {
    let (v, _) = decode(
        "",
        "v1",
        "Namespace",
        json!({"metadata": {"name": "a", "creationTimestamp": null}}),
    )
    .expect("ok");
    assert_eq!(v, json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}));
    let service =
        json!({"metadata": {"labels": {}}, "spec": {"ports": [{"port": 80}], "publishNotReadyAddresses": false}});
    let (v, _) = decode("", "v1", "Service", service).expect("ok");
    assert_eq!(
        v,
        json!({"metadata": {}, "spec": {"ports": [{"port": 80, "targetPort": 0}]}, "status": {"loadBalancer": {}}})
    );
    let (v, _) = decode(
        "",
        "v1",
        "Pod",
        json!({"spec": {"hostNetwork": false, "containers": [], "enableServiceLinks": false}}),
    )
    .expect("ok");
    assert_eq!(
        v,
        json!({"metadata": {}, "spec": {"containers": [], "enableServiceLinks": false}, "status": {}})
    );
    let role = by_gvk("rbac.authorization.k8s.io", "v1", "Role").expect("roles");
    assert_eq!(role.field("rules").map(|f| f.emit), Some(Emit::Null));
}

#[test]
fn scalars_take_their_canonical_form() {
    let pod = json!({"metadata": {"creationTimestamp": "2024-01-01T01:00:00.5+01:00"}, "spec": {"containers": [
        {"name": "c", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}});
    let (v, _) = decode("", "v1", "Pod", pod).expect("ok");
    assert_eq!(v.str_at(&["metadata", "creationTimestamp"]), "2024-01-01T00:00:00Z");
    let container = &v.at(&["spec", "containers"]).items()[0];
    assert_eq!(
        *container.at(&["resources", "limits"]),
        json!({"cpu": "500m", "memory": "1Gi"})
    );
    for (given, want) in [
        ("2024-01-01T1:00:00,000001Z", "2024-01-01T01:00:00.000001Z"),
        ("2024-01-01T01:00:00,000001Z", "2024-01-01T01:00:00.000001Z"),
        ("2024-01-01T01:00:00.000001+01:00", "2024-01-01T00:00:00.000001Z"),
    ] {
        let lease = json!({"spec": {"renewTime": (given)}});
        let (v, _) = decode("coordination.k8s.io", "v1", "Lease", lease).expect("ok");
        assert_eq!(v.str_at(&["spec", "renewTime"]), want);
    }
    let (v, _) = decode("", "v1", "Secret", json!({"data": {"a": "YQ\n==", "b": null}})).expect("ok");
    assert_eq!(*v.get("data"), json!({"a": "YQ==", "b": ""}));
}

#[test]
fn type_errors_have_gos_messages() {
    assert_eq!(
        error("apps", "v1", "Deployment", json!({"spec": {"replicas": "5"}})),
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
    assert_eq!(
        error("", "v1", "ConfigMap", json!({"data": {"a": {}}})),
        "json: cannot unmarshal object into Go struct field ConfigMap.data of type string"
    );
    assert_eq!(
        error(
            "",
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"ports": [{"containerPort": 80.5}]}]}})
        ),
        "json: cannot unmarshal number 80.5 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"
    );
    assert_eq!(
        error("", "v1", "Pod", json!({"metadata": {"name": true}})),
        "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string"
    );
    assert_eq!(
        error("", "v1", "Pod", json!([])),
        "json: cannot unmarshal array into Go value of type v1.Pod"
    );
    assert_eq!(
        error("", "v1", "Secret", json!({"data": {"a": "!"}})),
        "illegal base64 data at input byte 0"
    );
    assert!(
        error(
            "",
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"max": {"cpu": "lots"}}]}})
        )
        .starts_with("quantities must")
    );
}

#[test]
fn json_schemas_in_crds_are_checked_recursively() {
    let crd = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
        "type": "object", "nullable": false, "properties": {"a": {"type": "array", "readOnly": true, "items": {"type": "string", "odd": 1}}},
        "additionalProperties": false, "default": {"x": null}}}}]}});
    let (v, findings) = decode("apiextensions.k8s.io", "v1", "CustomResourceDefinition", crd).expect("ok");
    let base = "spec.versions[0].schema.openAPIV3Schema.properties.a";
    assert_eq!(
        findings,
        [
            // Not of `items.odd`: the schema of items unmarshals itself.
            format!("unknown field \"{base}.readOnly\"")
        ]
    );
    let schema = v.at(&["spec", "versions"]).items()[0].at(&["schema", "openAPIV3Schema"]);
    assert_eq!(*schema.get("default"), json!({"x": null}));
    assert_eq!(*schema.get("additionalProperties"), Value::Bool(false));
}

#[test]
fn findings_of_a_part_carry_its_path_and_type_errors_do_not() {
    let meta = crate::by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("metadata");
    let findings = normalize_under("metadata", meta, &mut json!({"bogus": 1}));
    assert_eq!(findings, Ok(vec![r#"unknown field "metadata.bogus""#.to_owned()]));
    let error = normalize_under("metadata", meta, &mut json!({"labels": {"a": 1}})).map_err(|e| e.0);
    assert_eq!(
        error,
        Err("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string".to_owned())
    );
}

fn tree() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "containers",
        "name",
        "labels",
        "resources",
        "limits",
        "cpu",
        "ports",
        "status",
        "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(|i| Value::Int(i.into())),
        "[0-9a-zA-Z.]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn normalization_is_idempotent(v in tree()) {
        if let Ok((once, _)) = decode("", "v1", "Pod", v) {
            let (twice, findings) = decode("", "v1", "Pod", once.clone()).expect("its own form fits");
            prop_assert_eq!(once, twice);
            prop_assert!(findings.is_empty());
        }
    }
}
