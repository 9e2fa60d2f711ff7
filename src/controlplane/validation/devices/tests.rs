use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

fn wished(devices: Value) -> String {
    let mut v = json!({"spec": {}});
    v.set(&["spec", "devices"], devices);
    aggregate(&claim(&v))
}

#[test]
fn claim_errors_match_the_recordings() {
    let exactly = |more: Value| {
        let mut e = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        for (k, v) in more.as_object().unwrap().iter() {
            e.set(&[k], v.clone());
        }
        wished(json!({"requests": [{"name": "a", "exactly": (e)}]}))
    };
    assert_eq!(exactly(json!({})), "[]");
    assert_eq!(
        exactly(json!({"allocationMode": "X"})),
        "spec.devices.requests[0].exactly.allocationMode: Unsupported value: \"X\": supported values: \"All\", \"ExactCount\""
    );
    assert_eq!(
        exactly(json!({"allocationMode": "All", "count": 2})),
        "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"
    );
    assert_eq!(
        exactly(json!({"deviceClassName": ""})),
        "spec.devices.requests[0].exactly.deviceClassName: Required value"
    );
    assert_eq!(
        exactly(json!({"tolerations": [{"operator": "Exists", "value": "x"}, {"operator": "Y", "effect": "Z"}]})),
        "[spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: \"x\": must be empty for operator `Exists`, \
         spec.devices.requests[0].exactly.tolerations[1].operator: Unsupported value: \"Y\": supported values: \"Equal\", \"Exists\", \
         spec.devices.requests[0].exactly.tolerations[1].effect: Unsupported value: \"Z\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"]"
    );
    assert_eq!(
        wished(json!({"requests": [{"name": "a"}]})),
        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"
    );
}

#[test]
fn constraints_refer_to_requests_of_the_claim() {
    let errors = |c: Value| {
        wished(
            json!({"requests": [{"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c", "allocationMode": "All"}]}],
                      "constraints": [(c)]}),
        )
    };
    assert_eq!(
        errors(json!({"requests": ["a", "a/x"], "matchAttribute": "d.io/n"})),
        "[]"
    );
    assert_eq!(
        errors(json!({"requests": ["zz"], "matchAttribute": "x"})),
        "[spec.devices.constraints[0].requests[0]: Invalid value: \"zz\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/', \
         spec.devices.constraints[0].matchAttribute: Invalid value: \"x\": a fully qualified name must be a domain and a name separated by a slash]"
    );
    assert!(
        errors(json!({"requests": ["a/y"], "distinctAttribute": "d.io/n"}))
            .contains("requests[0]: Invalid value: \"a/y\"")
    );
    assert!(
        errors(json!({})).starts_with("spec.devices.constraints[0]: Required value: exactly one of \"matchAttribute\"")
    );
}

#[test]
fn claim_spec_is_immutable_and_printed_in_internal_form() {
    let old = json!({"spec": {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]}}});
    let mut new = old.clone();
    assert!(claim_update(&new, &old).is_empty());
    new.at_mut(&["spec", "devices", "requests"])
        .unwrap()
        .as_array_mut()
        .unwrap()[0]
        .set(&["name"], "zz");
    assert_eq!(
        aggregate(&claim_update(&new, &old)),
        "spec: Invalid value: {\"Devices\":{\"Requests\":[{\"Name\":\"zz\",\"Exactly\":{\"DeviceClassName\":\"c\",\"Selectors\":null,\"AllocationMode\":\"ExactCount\",\"Count\":1,\"AdminAccess\":null,\"Tolerations\":null,\"Capacity\":null},\"FirstAvailable\":null}],\"Constraints\":null,\"Config\":null}}: field is immutable"
    );
}

#[test]
fn template_spec_is_immutable_and_printed_with_metadata() {
    let of = |n: i64| json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": (n)}}]}}}});
    assert!(template_update(&of(1), &of(1)).is_empty());
    let errors = aggregate(&template_update(&of(2), &of(1)));
    assert!(
        errors.starts_with("spec: Invalid value: {\"labels\":{\"a\":\"b\"},\"Spec\":{\"Devices\":"),
        "{errors}"
    );
    // The immutable spec is validated too, before the comparison.
    let errors = aggregate(&template_update(&of(0), &of(1)));
    assert!(
        errors.starts_with("[spec.spec.devices.requests[0].exactly.count: Invalid value: 0"),
        "{errors}"
    );
    assert!(errors.ends_with("field is immutable]"), "{errors}");
}

#[test]
fn class_errors_match_the_recordings() {
    let errors = |spec: Value| {
        let mut v = json!({});
        v.set(&["spec"], spec);
        aggregate(&class(&v, None))
    };
    assert_eq!(
        errors(json!({"selectors": [{}]})),
        "spec.selectors[0].cel: Required value"
    );
    assert!(
        errors(json!({"config": [{"opaque": {"driver": "A b", "parameters": {}}}]}))
            .starts_with("spec.config[0].opaque.driver: Invalid value: \"A b\": a lowercase RFC 1123 subdomain")
    );
    assert_eq!(
        errors(json!({"config": [{}, {"opaque": {"driver": "d", "parameters": []}}]})),
        "[spec.config[0].opaque: Required value, spec.config[1].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object]"
    );
    assert_eq!(
        errors(json!({"extendedResourceName": "cpu"})),
        "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name"
    );
}

#[test]
fn selectors_of_classes_requests_and_alternatives_are_compiled() {
    let selectors = json!([{"cel": {"expression": "1"}}]);
    let why = "Invalid value: \"1\": must evaluate to bool or the unknown type, not int";

    let of = json!({"spec": {"selectors": (selectors.clone())}});
    let expected = format!("spec.selectors[0].cel.expression: {why}");
    assert_eq!(aggregate(&class(&of, None)), expected);
    assert_eq!(aggregate(&class(&of, Some(&of))), expected, "also if it is stored");

    let request = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "selectors": (selectors)});
    let exactly = json!({"requests": [{"name": "a", "exactly": (request.clone())}]});
    let expected = format!("spec.devices.requests[0].exactly.selectors[0].cel.expression: {why}");
    assert_eq!(wished(exactly.clone()), expected);
    let made = json!({"spec": {"spec": {"devices": (exactly)}}});
    assert_eq!(
        aggregate(&template(&made)),
        expected.replace("spec.devices", "spec.spec.devices")
    );

    let mut alternative = request;
    alternative.set(&["name"], "b");
    let expected = format!("spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: {why}");
    assert_eq!(
        wished(json!({"requests": [{"name": "a", "firstAvailable": [(alternative)]}]})),
        expected
    );
}

fn published(spec: Value) -> String {
    let mut v = json!({"spec": {"driver": "d.io", "pool": {"name": "p", "resourceSliceCount": 1}}});
    for (k, x) in spec.as_object().unwrap().iter() {
        v.set(&["spec", k], x.clone());
    }
    aggregate(&slice(&v))
}

#[test]
fn slice_errors_match_the_recordings() {
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    assert_eq!(published(json!({"nodeName": "n"})), "[]");
    assert_eq!(published(json!({})), format!("spec: Required value: {one}"));
    assert_eq!(
        published(json!({"nodeName": "n", "allNodes": true})),
        format!("spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}, but multiple fields are set")
    );
    assert_eq!(
        published(json!({"nodeName": "n", "pool": {"name": "", "resourceSliceCount": 0, "generation": (-1)}})),
        "[spec.pool.name: Required value, spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero, \
         spec.pool.generation: Invalid value: -1: must be greater than or equal to zero]"
    );
    assert_eq!(
        published(json!({"nodeName": "n", "devices": [{"name": "a"}, {"name": "a"}]})),
        "spec.devices[1]: Duplicate value: \"a\""
    );
    assert_eq!(
        published(json!({"allNodes": true, "devices": [{"name": "a", "attributes": {
            "b": {}, "v": {"version": "1.2"}, "x": {"int": 1, "string": "s"}}}]})),
        "[spec.devices[0].attributes[b]: Invalid value: \"\": exactly one value must be specified, \
         spec.devices[0].attributes[v].version: Invalid value: \"1.2\": must be a string compatible with semver.org spec 2.0.0, \
         spec.devices[0].attributes[x]: Invalid value: {\"IntValue\":1,\"BoolValue\":null,\"StringValue\":\"s\",\"VersionValue\":null,\"IntValues\":null,\"BoolValues\":null,\"StringValues\":null,\"VersionValues\":null}: exactly one value must be specified]"
    );
}

#[test]
fn request_policy_stays_within_the_capacity() {
    let errors = |policy: Value| {
        published(
            json!({"allNodes": true, "devices": [{"name": "a", "allowMultipleAllocations": true,
            "capacity": {"m": {"value": "10", "requestPolicy": (policy)}}}]}),
        )
    };
    let at = "spec.devices[0].capacity[m].requestPolicy";
    assert_eq!(
        errors(json!({"default": "2", "validRange": {"min": "2", "max": "10", "step": "2"}})),
        "[]"
    );
    assert_eq!(
        errors(json!({"validValues": ["1"]})),
        format!("{at}.default: Required value: required when validValues is defined")
    );
    assert_eq!(
        errors(json!({"default": "3", "validValues": ["2", "11"]})),
        format!(
            "[{at}.validValues[1]: Invalid value: \"11\": option is larger than capacity value: 10, \
             {at}.validValues: Invalid value: \"3\": default value is not valid according to the requestPolicy]"
        )
    );
    assert_eq!(
        errors(json!({"default": "3", "validRange": {"min": "2", "step": "2"}})),
        format!("{at}.validRange.step: Invalid value: \"3\": value is not a multiple of a given step (2) from (2)")
    );
    // The difference of the two does not fit 64 bits, and wraps as in Go.
    let far = errors(json!({"default": "9223372036854775807", "validRange": {"min": "-1", "step": "3"}}));
    assert!(
        far.contains("value is not a multiple of a given step (3) from (-1)"),
        "{far}"
    );
}

#[test]
fn reservation_requires_an_allocation() {
    let old = json!({"spec": {"devices": {"requests": [{"name": "r"}]}}, "status": {}});
    let mut new = old.clone();
    new.set(
        &["status", "reservedFor"],
        json!([{"resource": "pods", "name": "p", "uid": "u"}]),
    );
    assert_eq!(
        aggregate(&claim_status(&new, &old)),
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    );
    new.set(
        &["status", "allocation"],
        json!({"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "x"}]}}),
    );
    assert!(claim_status(&new, &old).is_empty());
    new.set(
        &["status", "devices"],
        json!([{"driver": "d.io", "pool": "p", "device": "y"}]),
    );
    assert_eq!(
        aggregate(&claim_status(&new, &old)),
        "status.devices[0]: Invalid value: {\"Driver\":\"d.io\",\"Pool\":\"p\",\"Device\":\"y\",\"ShareID\":\"\"}: must be an allocated device in the claim"
    );
}

#[test]
fn allocation_is_immutable_until_cleared() {
    let old = json!({"spec": {"devices": {}}, "status": {"allocation": {"devices": {}}}});
    let mut new = old.clone();
    new.set(
        &["status", "allocation", "devices", "results"],
        json!([{"request": "r"}]),
    );
    assert!(
        aggregate(&claim_status(&new, &old))
            .ends_with("\"NodeSelector\":null,\"AllocationTimestamp\":null}: field is immutable")
    );
    new.unset(&["status", "allocation"]);
    assert!(claim_status(&new, &old).is_empty());
}

#[test]
fn metadata_of_templates_is_refused_and_printed_in_gos_order() {
    let of = |metadata: Value| json!({"spec": {"metadata": (metadata), "spec": {"devices": {}}}});
    let new = of(json!({
        "deletionGracePeriodSeconds": 0, "finalizers": [], "selfLink": "s",
        "managedFields": [{"fieldsV1": {}, "time": "t", "apiVersion": "v"}],
        "ownerReferences": [{"controller": false, "kind": "K"}],
    }));
    let fields = [
        "selfLink",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    let forbidden = fields
        .map(|f| format!("spec.metadata.{f}: Forbidden: cannot be set, "))
        .concat();
    assert_eq!(
        aggregate(&template_update(&new, &of(json!({})))),
        format!(
            "[{forbidden}spec: Invalid value: {{\"selfLink\":\"s\",\"deletionGracePeriodSeconds\":0,\
             \"ownerReferences\":[{{\"apiVersion\":\"\",\"kind\":\"K\",\"name\":\"\",\"uid\":\"\",\"controller\":false}}],\
             \"managedFields\":[{{\"apiVersion\":\"v\",\"time\":\"t\",\"fieldsV1\":{{}}}}],\
             \"Spec\":{{\"Devices\":{{\"Requests\":null,\"Constraints\":null,\"Config\":null}}}}}}: field is immutable]"
        )
    );
}

#[test]
fn tolerations_of_an_allocation_are_not_checked() {
    let old = json!({"spec": {"devices": {"requests": [{"name": "r"}]}}, "status": {}});
    let mut new = old.clone();
    new.set(
        &["status", "allocation"],
        json!({"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "x",
            "tolerations": [{"key": "/", "operator": "X", "effect": "Y"}, {"operator": "Equal", "value": "/"}]}]}}),
    );
    assert_eq!(aggregate(&claim_status(&new, &old)), "[]");
}

#[test]
fn users_of_a_claim_are_unique() {
    let user = json!({"resource": "pods", "name": "p", "uid": "a&b"});
    let old = json!({"spec": {"devices": {}}, "status": {"allocation": {"devices": {}}}});
    let mut new = old.clone();
    new.set(&["status", "reservedFor"], json!([(user.clone()), (user)]));
    assert_eq!(
        aggregate(&claim_status(&new, &old)),
        r#"status.reservedFor[1]: Duplicate value: "a\u0026b""#
    );
}

#[test]
fn updates_of_slices_check_capacities_again_but_not_taints() {
    let of = |pool: Value| {
        json!({"spec": {"driver": "d.io", "pool": (pool), "allNodes": true, "devices": [
            {"name": "a", "capacity": {"m": {"value": "1", "requestPolicy": {}}}, "taints": [{"key": "/", "effect": "X"}]}]}})
    };
    let stored = of(json!({"name": "p", "resourceSliceCount": 1}));
    let policy = "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true";
    assert_eq!(aggregate(&slice_update(&stored, &stored)), policy);
    // Identities print as strings and the pointer to the node's name as JSON.
    let mut new = of(json!({"resourceSliceCount": 1}));
    new.unset(&["spec", "allNodes"]);
    new.set(&["spec", "nodeName"], "a\u{7}");
    let errors = aggregate(&slice_update(&new, &stored));
    for part in [
        r#"spec.pool.name: Required value, spec.pool.name: Invalid value: "": field is immutable, "#,
        r#"spec.nodeName: Invalid value: "a\u0007": field is immutable, "#,
    ] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn lists_and_mappings_of_stored_slices_are_checked() {
    let at = "spec.devices[0]";
    let of = |device: Value| published(json!({"allNodes": true, "devices": [(device)]}));
    let long = "x".repeat(MAX_PARAMETERS_LENGTH);
    assert_eq!(
        of(json!({"name": "a", "attributes": {
            "a": {"strings": ["", (long)]}, "b": {"versions": ["1"]}, "c": {"ints": []}, "d": {"bools": [true], "int": 1}}})),
        format!(
            "[{at}.attributes[a].strings[1]: Too long: may not be more than 64 bytes, \
             {at}.attributes[b].versions[0]: Invalid value: \"1\": must be a string compatible with semver.org spec 2.0.0, \
             {at}.attributes[c].ints: Invalid value: []: must not be empty if specified, \
             {at}.attributes[d]: Invalid value: {{\"IntValue\":1,\"BoolValue\":null,\"StringValue\":null,\"VersionValue\":null,\"IntValues\":null,\"BoolValues\":[true],\"StringValues\":null,\"VersionValues\":null}}: exactly one value must be specified]"
        )
    );
    let many: Vec<i64> = (0..48).collect();
    assert_eq!(
        of(json!({"name": "a", "attributes": {"a": {"ints": (many)}, "b": {"int": 1}}})),
        format!("{at}: Invalid value: 49: the total number of attribute values must not exceed 48")
    );
    let devices: Vec<Value> = (0..65)
        .map(|i| json!({"name": (format!("d{i}")), "attributes": {"a": {"ints": [1]}}}))
        .collect();
    assert_eq!(
        published(json!({"allNodes": true, "devices": (devices)})),
        "spec.devices: Too many: 65: must have at most 64 items"
    );
    let at = format!("{at}.nodeAllocatableResourceMappings");
    assert_eq!(
        of(
            json!({"name": "a", "capacity": {"m": {"value": "1"}}, "nodeAllocatableResourceMappings": {
            "a.b/c": {"capacityKey": "x"}, "cpu": {}, "memory": {"capacityKey": "m", "allocationMultiplier": "0"}, "pods": {"capacityKey": ""}}})
        ),
        format!(
            "[{at}[a.b/c]: Invalid value: \"a.b/c\": must be a node allocatable resource name, \
             {at}[a.b/c].capacityKey: Not found: \"x\", \
             {at}[cpu]: Invalid value: \"\": at least one of allocationMultiplier or capacityKey must be set, \
             {at}[memory].allocationMultiplier: Invalid value: \"0\": must be positive, \
             {at}[pods].capacityKey: Invalid value: \"\": capacityKey must not be an empty string]"
        )
    );
}
