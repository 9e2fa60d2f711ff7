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
fn list_attributes_of_a_disabled_gate_are_dropped() {
    let mut v = json!({"spec": {"devices": [{"name": "a", "attributes": {"x": {"ints": [1]}, "y": {"int": 1}}}]}});
    drop_disabled(&mut v, None);
    assert_eq!(
        v,
        json!({"spec": {"devices": [{"name": "a", "attributes": {"x": {}, "y": {"int": 1}}}]}})
    );
}
