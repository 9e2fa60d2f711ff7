use super::*;
use crate::authz::{Attributes, Decision, Verdict};
use crate::json;

/// Allows only the listed actions, each written `verb/subresource/namespace/name`.
struct Only(Vec<&'static str>);

#[async_trait]
impl Authorizer for Only {
    async fn authorize(&self, a: &Attributes<'_>) -> Verdict {
        let asked = format!("{}/{}/{}/{}", a.verb, a.subresource, a.namespace, a.name);
        if self.0.contains(&asked.as_str()) {
            Verdict::allow("")
        } else {
            Verdict {
                decision: Decision::NoOpinion,
                reason: "".into(),
                error: None,
            }
        }
    }
}

fn claims(allowed: Vec<&'static str>) -> ResourceClaim {
    ResourceClaim {
        stores: StoreLookup::default(),
        authorizer: Arc::new(Only(allowed)),
    }
}

fn bound() -> (Value, Value) {
    let old = json!({"metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {"requests": [{"name": "r"}]}}, "status": {}});
    let mut new = old.clone();
    new.set(
        &["status", "allocation"],
        json!({"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "x"}]}}),
    );
    new.set(
        &["status", "devices"],
        json!([{"driver": "d.io", "pool": "p", "device": "x"}]),
    );
    (new, old)
}

#[tokio::test]
async fn binding_and_device_status_require_permissions() {
    let (mut new, old) = bound();
    let cx = Context::system("ns");
    let refused = claims(vec![]).begin(&cx, &mut new, Some(&old)).await.unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(
        refused.message.contains("status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: ")
            && refused.message.contains("status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:update]\" permission: "),
        "{}",
        refused.message
    );
    let allowed = claims(vec!["update/binding//", "arbitrary-node:update/driver/ns/d.io"]);
    assert!(allowed.begin(&cx, &mut new, Some(&old)).await.is_ok());
}

#[test]
fn status_of_deallocated_devices_is_removed() {
    let (old, _) = bound();
    let mut new = old.clone();
    new.unset(&["status", "allocation"]);
    drop_deallocated(&mut new, &old);
    assert_eq!(new.get("status"), &json!({}));
}

#[test]
fn shares_of_a_device_are_deallocated_one_by_one() {
    let device = |share: &str| json!({"driver": "d.io", "pool": "p", "device": "x", "shareID": (share)});
    let of = |results: Value| json!({"status": {"allocation": {"devices": {"results": (results)}}, "devices": [(device("a")), (device("b"))]}});
    let old = of(json!([(device("a")), (device("b"))]));
    let mut new = of(json!([(device("a"))]));
    drop_deallocated(&mut new, &old);
    assert_eq!(new.at(&["status", "devices"]), &json!([(device("a"))]));
}

#[tokio::test]
async fn refused_admin_access_comes_with_all_errors_of_the_object() {
    let cx = Context::system("ns");
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "annotations": {"": "x"}}, "spec": {"devices": {
        "requests": [{"name": "r", "exactly": {"adminAccess": true, "allocationMode": "All"}}]}}});
    let refused = claims(vec![]).begin(&cx, &mut claim.clone(), None).await.unwrap_err();
    let causes = [
        "spec.devices.requests[0].adminAccess: Internal error",
        "metadata.annotations: Invalid value: \"\"",
        "spec.devices.requests[0].exactly.deviceClassName: Required value",
    ];
    let places = causes.map(|c| refused.message.find(c));
    assert!(places[0].is_some() && places.is_sorted(), "{}", refused.message);
}

#[test]
fn a_dropped_change_of_a_slice_counts_for_its_generation() {
    let old = json!({"metadata": {"generation": 3}, "spec": {"devices": [{"name": "a", "attributes": {"x": {}}}]}});
    let mut new = json!({"metadata": {"generation": 3}, "spec": {"devices": [{"name": "a", "attributes": {"x": {"ints": [1]}}}]}});
    Strategy::prepare_update(&RESOURCE_SLICE, &mut new, &old);
    assert_eq!(new.get("spec"), old.get("spec"));
    assert_eq!(new.at(&["metadata", "generation"]), &json!(4));
}

#[test]
fn list_attributes_of_a_disabled_gate_are_dropped() {
    let mut v = json!({"spec": {"devices": [{"name": "a", "attributes": {"x": {"ints": [1]}, "y": {"int": 1}}}]}});
    drop_disabled(&mut v, None);
    assert_eq!(
        v,
        json!({"spec": {"devices": [{"name": "a", "attributes": {"x": {}, "y": {"int": 1}}}]}})
    );
}

#[test]
fn empty_lists_of_a_disabled_gate_are_not_validated() {
    let with = |extra: Value| {
        let mut attribute = json!({"int": 1});
        attribute.set(&["bools"], extra);
        let device = json!({"name": "a", "attributes": {"x": (attribute)}});
        json!({"spec": {"driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [(device)]}})
    };
    let (bare, empty, full) = (with(Value::Null), with(json!([])), with(json!([true])));
    let validate = |new: &Value, old: &Value| Strategy::validate_update(&RESOURCE_SLICE, new, old);
    assert!(Strategy::validate_create(&RESOURCE_SLICE, &empty).is_empty());
    assert!(validate(&empty, &bare).is_empty() && validate(&empty, &empty).is_empty());
    // A slice that a server with the gate stored has them judged.
    assert!(!validate(&empty, &full).is_empty());
}
