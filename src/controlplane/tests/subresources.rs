//! Errors of writing subresources for requests that name the wrong object.

use super::*;
use crate::authn::jwt::Signer;
use crate::authn::service_account::{Issuer, system_clock};
use crate::controlplane::subresources::token::TokenRequests;
use crate::registry::SubresourceBehaviour;
use crate::registry::resource::SubresourceHandler;
use crate::registry::write::WriteOptions;

fn handler(r: &Running, group: &str, resource: &str, subresource: &str) -> Arc<dyn SubresourceHandler> {
    let (row, _) = r.plane.find(&GroupResource::new(group, resource)).unwrap();
    match &row.subresource(subresource).unwrap().behaviour {
        SubresourceBehaviour::Custom(handler) => handler.clone(),
        _ => panic!("{subresource} has a handler of its own"),
    }
}

async fn pod(r: &Running, name: &str) {
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    r.create("pods", "default", pod).await.unwrap();
}

#[tokio::test]
async fn a_binding_must_name_its_pod_and_target() {
    let r = running();
    pod(&r, "p").await;
    let cx = Context::system("default");
    let binding = handler(&r, "", "pods", "binding");
    let refused = async |body: Value| binding.create(&cx, "p", body).await.unwrap_err();
    let nameless = refused(json!({"target": {}})).await;
    assert_eq!(
        (nameless.code, nameless.message.as_str()),
        (400, "name in URL does not match name in Binding object")
    );
    let aimless = refused(json!({"metadata": {"name": "p"}, "target": {}})).await;
    assert_eq!(
        (aimless.code, aimless.message.as_str()),
        (500, "target.name: Required value")
    );
}

#[tokio::test]
async fn a_pod_takes_the_labels_of_its_binding_as_they_are() {
    let r = running();
    pod(&r, "p").await;
    let cx = Context::system("default");
    let labels = json!({"topology.kubernetes.io/zone": "-5"});
    let body = json!({"metadata": {"name": "p", "labels": labels}, "target": {"kind": "Node", "name": "n"}});
    handler(&r, "", "pods", "binding").create(&cx, "p", body).await.unwrap();
}

fn tokens() -> TokenRequests {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signer = Signer::from_pem(key.as_bytes()).unwrap();
    TokenRequests {
        issuer: Issuer::new("https://i".into(), Arc::new(signer), system_clock()),
        audiences: vec!["a".into()],
        max_seconds: 0,
        extend: false,
    }
}

#[tokio::test]
async fn a_token_request_must_match_its_account_and_bound_object() {
    let r = running_with(Config {
        tokens: Some(tokens()),
        ..config()
    });
    let sa = json!({"metadata": {"name": "sa"}});
    r.create("serviceaccounts", "default", sa).await.unwrap();
    let cx = Context::system("default");
    let token = handler(&r, "", "serviceaccounts", "token");
    assert!(token.keeps_system_fields());
    let ask = async |metadata: Value, reference: Value| {
        let spec = json!({"expirationSeconds": 600, "boundObjectRef": reference});
        let asked = json!({"metadata": metadata, "spec": spec});
        let asked = token.prepare_create(&cx, "sa", asked).await?;
        token.create(&cx, "sa", asked).await
    };
    assert!(ask(json!({}), json!(null)).await.is_ok());
    for (metadata, reference, code, message) in [
        (
            json!({"name": "other"}),
            json!(null),
            422,
            "TokenRequest.authentication.k8s.io \"sa\" is invalid: metadata.name: Invalid value: \"other\": must match",
        ),
        (
            json!({"uid": "other"}),
            json!(null),
            409,
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"sa\": the UID in the token request",
        ),
        (json!({}), json!({"kind": "Pod"}), 400, "Name parameter required."),
        (
            json!({}),
            json!({"kind": "Secret", "name": "a/b"}),
            400,
            "Name parameter invalid: \"a/b\": may not contain '/'",
        ),
    ] {
        let refused = ask(metadata, reference).await.unwrap_err();
        assert!(
            refused.code == code && refused.message.starts_with(message),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_scale_update_with_a_wrong_uid_conflicts() {
    let r = running();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let rc = json!({"metadata": {"name": "rc"}, "spec": {"replicas": 1, "selector": {"a": "b"}, "template": template}});
    r.create("replicationcontrollers", "default", rc).await.unwrap();
    let cx = Context::system("default");
    let scale = handler(&r, "", "replicationcontrollers", "scale");
    let other = json!({"metadata": {"name": "rc", "uid": "other"}, "spec": {"replicas": 2}});
    let put = WriteOptions {
        uid: Some("other".into()),
        ..WriteOptions::default()
    };
    let refused = scale.update_as(&cx, "rc", other, &put).await.unwrap_err();
    let start = "Operation cannot be fulfilled on replicationcontrollers \"rc\": StorageError: invalid object, Code: 4";
    assert!(refused.code == 409 && refused.message.starts_with(start), "{refused:?}");
}

#[test]
fn the_subresources_without_a_table_are_those_of_upstream() {
    let plane = running_rows();
    let groups = plane.groups.iter().chain([&plane.apiregistration]);
    let rows = groups.flat_map(|group| &group.resources);
    let mut plain: Vec<String> = rows
        .flat_map(|(row, _)| {
            let parts = row.subresources.iter().filter(|s| !s.has_table());
            parts
                .map(|s| format!("{}/{}", row.gvr.resource, s.name))
                .collect::<Vec<_>>()
        })
        .collect();
    plain.sort();
    plain.dedup();
    assert_eq!(
        plain,
        [
            "apiservices/status",
            "certificatesigningrequests/approval",
            "customresourcedefinitions/status",
            "namespaces/finalize",
            "pods/binding",
            "pods/ephemeralcontainers",
            "pods/eviction",
            "pods/resize",
            "resourceclaims/status",
        ]
    );
}

#[tokio::test]
async fn only_the_status_of_policies_creates_an_object_that_is_applied() {
    let r = running();
    let policies = r
        .plane
        .store("admissionregistration.k8s.io", "validatingadmissionpolicies");
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
        "validations": [{"expression": "true"}]}, "status": {"observedGeneration": 1}});
    let options = WriteOptions::internal("status");
    let applied = async |store: &Arc<Store>, upsert: bool| {
        let mut transform = |live: Option<&Value>| Ok(live.unwrap_or(&policy).clone());
        let cx = Context::system("");
        let updated = store.update(&cx, "p", &mut transform, upsert, &options).await;
        updated.map(|updated| updated.object.to_value())
    };
    assert_eq!(applied(policies, false).await.unwrap_err().code, 404);
    let created = applied(policies, true).await.unwrap();
    // As a create does.
    assert_eq!(created.at(&["metadata", "generation"]), &1i64.into());
    assert!(created.at(&["status"]).is_empty_value());
    let schemas = r.plane.store("flowcontrol.apiserver.k8s.io", "flowschemas");
    assert_eq!(applied(schemas, true).await.unwrap_err().code, 404);
}
