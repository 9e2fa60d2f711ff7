//! Effects of the empty lists and maps of a body, although they are not stored.

use super::*;
use crate::registry::write::WriteOptions;

#[tokio::test]
async fn validation_sees_empty_lists_of_the_body() {
    let r = running();
    let store = r.plane.store("batch", "jobs");
    let refused = |body: Value| {
        let store = store.clone();
        async move {
            let (mut object, cx) = (body, Context::system("default"));
            let decoded = store.resource().schema.normalize_with_empties(&mut object);
            cx.empties.set(decoded.unwrap().1);
            store.create_value(&cx, object).await.map(drop).map_err(|s| s.message)
        }
    };
    let job = |resources: Value| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "resources": (resources), "containers": (containers)}}}})
    };
    // As upstream, where an empty list differs from none until it is encoded.
    assert_eq!(
        refused(job(json!({"claims": []}))).await,
        Err(
            "Job.batch \"j\" is invalid: spec.template.spec.resources.claims: Forbidden: claims may not be set for \
             Resources at pod-level"
                .to_owned()
        )
    );
    assert_eq!(refused(job(json!({}))).await, Ok(()));
    let windows = |context: Value| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"metadata": {"name": "w"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "os": {"name": "windows"}, "securityContext": (context), "containers": (containers)}}}})
    };
    assert_eq!(
        refused(windows(json!({"supplementalGroups": []}))).await,
        Err(
            "Job.batch \"w\" is invalid: spec.template.spec.securityContext.supplementalGroups: Forbidden: cannot be set \
             for a windows pod"
                .to_owned()
        )
    );
    assert_eq!(refused(windows(json!({"sysctls": []}))).await, Ok(()));
}

#[tokio::test]
async fn an_empty_list_can_be_the_only_fault_of_an_update() {
    let r = running();
    let store = r.plane.store("apps", "deployments");
    let labels = json!({"a": "b"});
    let containers = json!([{"name": "c", "image": "i"}]);
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": (labels)},
        "template": {"metadata": {"labels": (labels)}, "spec": {"containers": (containers)}}}});
    let cx = Context::system("default");
    let mut body = store.create_value(&cx, deployment).await.unwrap();
    let at = ["spec", "template", "spec", "resources", "claims"];
    body.set(&at, Vec::<Value>::new());
    let decoded = store.resource().schema.normalize_with_empties(&mut body);
    cx.empties.set(decoded.unwrap().1);
    let updated = store.update_with(&cx, "d", "", |_| Ok(body.clone())).await;
    assert_eq!(
        updated.unwrap_err().message,
        "Deployment.apps \"d\" is invalid: spec.template.spec.resources.claims: Forbidden: claims may not be set for \
         Resources at pod-level"
    );
}

#[tokio::test]
async fn empty_lists_are_no_change_of_an_immutable_field() {
    let r = running();
    let (store, cx) = (r.plane.store("batch", "jobs"), Context::system("default"));
    let containers = json!([{"name": "c", "image": "i"}]);
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": (containers)}}}});
    let mut body = store.create_value(&cx, job).await.unwrap();
    // The template of a Job cannot change.
    body.set(&["spec", "template", "spec", "volumes"], Vec::<Value>::new());
    let decoded = store.resource().schema.normalize_with_empties(&mut body);
    cx.empties.set(decoded.unwrap().1);
    let updated = store.update_with(&cx, "j", "", |_| Ok(body.clone())).await;
    assert_eq!(updated.map(drop), Ok(()));
}

/// The generation of the object `name` after an update with each of these bodies.
async fn generations(store: &Store, namespace: &str, name: &str, bodies: Vec<Value>) -> Vec<Option<i64>> {
    let mut generations = Vec::new();
    for mut body in bodies {
        let cx = Context::system(namespace);
        let decoded = store.resource().schema.normalize_with_empties(&mut body);
        cx.empties.set(decoded.expect("the body fits its kind").1);
        let change = |live: &Value| {
            let mut new = body.clone();
            new.set_meta("resourceVersion", live.resource_version());
            Ok(new)
        };
        let updated = store.update_with(&cx, name, "", change).await;
        let updated = updated.expect("the update is valid");
        generations.push(updated.at(&["metadata", "generation"]).as_i64());
    }
    generations
}

#[tokio::test]
async fn empty_lists_change_the_generation_of_kinds_that_compare_go_memory() {
    let r = running();
    let policies = r.plane.store("networking.k8s.io", "networkpolicies");
    let policy = |egress: Value| {
        let mut v = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}});
        v.set(&["spec", "egress"], egress);
        v
    };
    let cx = Context::system("default");
    policies.create_value(&cx, policy(Value::Null)).await.unwrap();
    let bodies = [Value::Null, json!([]), json!([]), Value::Null].map(policy);
    // Each counts, since the stored policy never has the list.
    assert_eq!(
        generations(policies, "default", "p", bodies.into()).await,
        [Some(1), Some(2), Some(3), Some(3)]
    );
    let configurations = r
        .plane
        .store("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    let bare = json!({"metadata": {"name": "c"}});
    configurations
        .create_value(&Context::system(""), bare.clone())
        .await
        .unwrap();
    let empty = json!({"metadata": {"name": "c"}, "webhooks": []});
    assert_eq!(
        generations(configurations, "", "c", vec![bare, empty]).await,
        [Some(1), Some(2)]
    );
}

#[tokio::test]
async fn an_empty_map_keeps_the_default_of_a_node_from_being_owned() {
    let r = running();
    let (store, owned) = (r.plane.store("", "nodes"), |node: &Value| {
        let entries = node.at(&["metadata", "managedFields"]).items();
        let entry = entries.iter().find(|e| e.str_at(&["subresource"]) == "status");
        entry.is_some_and(|e| !e.at(&["fieldsV1", "f:status", "f:allocatable"]).is_null())
    });
    for (name, allocatable, is_owned) in [("left-out", None, true), ("empty", Some(json!({})), false)] {
        // Internal writes are not tracked, nor are updates of objects without managed fields, hence the label.
        let metadata = json!({"name": name, "labels": {"a": "b"}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        let kubelet = |subresource| WriteOptions {
            manager: Some("kubelet".to_owned()),
            ..WriteOptions::internal(subresource)
        };
        let created = store.create(&Context::system(""), node, &kubelet("")).await;
        let mut body = created.unwrap().to_value();
        body.set(&["status", "capacity"], json!({"cpu": "1"}));
        if let Some(allocatable) = allocatable {
            body.set(&["status", "allocatable"], allocatable);
        }
        let cx = Context::system("");
        let decoded = store.resource().schema.normalize_with_empties(&mut body);
        cx.empties.set(decoded.unwrap().1);
        let status = kubelet("status");
        let updated = store.update(&cx, name, &mut |_| Ok(body.clone()), false, &status).await;
        let updated = updated.unwrap().object.to_value();
        assert_eq!(updated.at(&["status", "allocatable"]), &json!({"cpu": "1"}));
        assert_eq!(owned(&updated), is_owned, "{name}");
    }
}
