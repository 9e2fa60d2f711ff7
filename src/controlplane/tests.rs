//! Tests of the whole control plane over the embedded storage engine, in a temporary directory. [`running`]
//! is the fixture.

mod allocations;
mod empties;
mod subresources;
mod tables;
mod versions;

use super::*;
use crate::admission::{Admission, AdmitAll};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::json;
use crate::registry::resource::Backing;
use crate::registry::strategy::Context;
use crate::registry::write::DeleteOptions;
use crate::storage::Storage;
use crate::storage::embedded::{Engine, Options, ResourceConfig};
pub(super) use crate::testing::objects::config;

pub(super) struct Running {
    pub(super) plane: Arc<ControlPlane>,
    pub(super) engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Before the directory is removed, because the engine's threads still write to it.
        self.engine.shutdown();
    }
}

pub(super) fn running() -> Running {
    running_with(config())
}

fn plane_on(engine: &Arc<Engine>, config: Config) -> ControlPlane {
    let storage = |row: &Resource| match &row.backing {
        Backing::Stored { prefix } => engine.resource(ResourceConfig {
            prefix: prefix.clone(),
            fields: row.selectable.as_ref().map(|s| s.extract.clone()),
            compressed: false,
        }),
        _ => unreachable!("only stored rows are asked for a storage"),
    };
    let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
    build(config, &StoreLookup::default(), &storage, &admission).unwrap()
}

fn running_with(config: Config) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let plane = plane_on(&engine, config);
    Running {
        plane: Arc::new(plane),
        engine: engine.clone(),
        _dir: dir,
    }
}

impl Running {
    async fn create(&self, plural: &str, ns: &str, object: Value) -> Result<Value> {
        self.plane
            .store("", plural)
            .create_value(&Context::system(ns), object)
            .await
    }
}

#[test]
fn discovery_names_match_upstream() {
    let r = running_rows();
    let short = |g: &str, p: &str| r.find(&GroupResource::new(g, p)).unwrap().0.short_names.join(",");
    assert_eq!(short("", "serviceaccounts"), "sa");
    assert_eq!(short("apiextensions.k8s.io", "customresourcedefinitions"), "crd,crds");
    assert_eq!(short("", "secrets"), "");
    let (pods, _) = r.find(&GroupResource::new("", "pods")).unwrap();
    assert_eq!(pods.categories, ["all"]);
    let (ns, _) = r.find(&GroupResource::new("", "namespaces")).unwrap();
    assert!(!ns.verbs.names().contains(&"deletecollection"));
    let forbidden: Vec<String> = r
        .groups
        .iter()
        .chain([&r.apiregistration])
        .flat_map(|g| &g.resources)
        .filter(|(r, _)| !r.unconditional_update)
        .map(|(r, _)| r.gvr.resource.to_string())
        .collect();
    assert_eq!(forbidden.len(), 15, "{forbidden:?}");
}

fn running_rows() -> ControlPlane {
    let storage = |_: &Resource| -> Arc<dyn Storage> { Arc::new(reviews::NoStorage) };
    let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
    build(config(), &StoreLookup::default(), &storage, &admission).unwrap()
}

#[test]
fn openapi_of_connections_and_logs_matches_upstream() {
    let plane = running_rows();
    let gv = GroupVersion::new("", "v1");
    let core = plane.groups.iter().flat_map(|g| &g.resources).map(|(row, _)| row);
    let rows: Vec<_> = core.filter(|row| row.gvr.group.is_empty()).cloned().collect();
    let doc =
        crate::endpoints::openapi::v3::tree(|to| crate::endpoints::openapi::v3::write_group_version(&gv, &rows, to));
    let pod = |sub: &str| {
        doc.at(&[
            "paths",
            &format!("/api/v1/namespaces/{{namespace}}/pods/{{name}}/{sub}"),
        ])
    };
    let shared = |sub: &str| -> Vec<String> {
        let parameters = pod(sub).get("parameters").items();
        parameters.iter().map(|p| p.str_at(&["name"]).to_owned()).collect()
    };
    let attach = ["container", "name", "namespace", "stderr", "stdin", "stdout", "tty"];
    assert_eq!(shared("attach"), attach, "path and query parameters are sorted by name");
    assert_eq!(
        pod("attach").str_at(&["post", "operationId"]),
        "connectCoreV1PostNamespacedPodAttach"
    );
    assert_eq!(
        pod("proxy/{path}").str_at(&["options", "operationId"]),
        "connectCoreV1OptionsNamespacedPodProxyWithPath"
    );
    assert!(!shared("log").contains(&"sinceTime".to_owned()), "not a scalar");
    let log = pod("log").at(&["get", "responses", "200", "content"]);
    assert_eq!(*log.at(&["text/plain"]), json!({"schema": {"type": "string"}}));
    assert!(!log.at(&["application/json"]).is_null());
}

#[test]
fn duplicate_registrations_are_rejected() {
    let plane = running_rows();
    assert_eq!(super::first_duplicate(plane.groups.iter()), None);
    let again = plane.groups.iter().chain(plane.groups.iter().take(1));
    assert_eq!(super::first_duplicate(again).as_deref(), Some("v1"));
    let mut core = plane.groups[0].clone();
    core.resources.push(core.resources[0].clone());
    assert_eq!(
        super::first_duplicate([&core].into_iter()).as_deref(),
        Some("v1, Resource=bindings")
    );
    assert_eq!(
        BuildError::Duplicate("v1".into()).to_string(),
        "double registration of v1"
    );
}

#[tokio::test]
async fn a_namespace_is_deleted_once_finalized() {
    let r = running();
    r.create("namespaces", "", json!({"metadata": {"name": "l"}}))
        .await
        .unwrap();
    let (row, store) = r.plane.find(&GroupResource::new("", "namespaces")).unwrap();
    let cx = Context::system("");
    let wrong = DeleteOptions {
        uid: Some("other".into()),
        ..DeleteOptions::default()
    };
    let e = store.delete(&cx, "l", &wrong).await.unwrap_err().message;
    assert!(
        e.starts_with(
            "Operation cannot be fulfilled on namespaces \"l\": Precondition failed: UID in precondition: other"
        ),
        "{e}"
    );
    let marked = store.delete(&cx, "l", &DeleteOptions::default()).await.unwrap();
    assert!(!marked.gone);
    let marked = marked.object.to_value();
    assert_eq!(marked.str_at(&["status", "phase"]), "Terminating");
    assert!(marked.is_being_deleted() && marked.at(&["metadata", "deletionGracePeriodSeconds"]).is_null());
    let again = store.delete(&cx, "l", &DeleteOptions::default()).await.unwrap();
    assert_eq!(again.object.to_value(), marked);
    let crate::registry::SubresourceBehaviour::Custom(finalize) = &row.subresource("finalize").unwrap().behaviour
    else {
        panic!("finalize speaks objects");
    };
    let mut free = marked.clone();
    free.set(&["spec", "finalizers"], json!([]));
    finalize.update(&cx, "l", free).await.unwrap();
    assert_eq!(store.get_value("", "l").await.unwrap_err().code, 404);
}

#[tokio::test]
async fn endpoints_are_deleted_with_their_service() {
    let r = running();
    r.create(
        "services",
        "default",
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    )
    .await
    .unwrap();
    r.create("endpoints", "default", json!({"metadata": {"name": "s"}}))
        .await
        .unwrap();
    let cx = Context::system("default");
    r.plane.store("", "services").delete_by_name(&cx, "s").await.unwrap();
    assert_eq!(
        r.plane
            .store("", "endpoints")
            .get_value("default", "s")
            .await
            .unwrap_err()
            .code,
        404
    );
}

#[tokio::test]
async fn created_objects_match_upstream() {
    let r = running();
    let ns = r
        .create("namespaces", "", json!({"metadata": {"name": "d"}}))
        .await
        .unwrap();
    assert_eq!(ns.get("spec"), &json!({"finalizers": ["kubernetes"]}));
    assert_eq!(ns.get("status"), &json!({"phase": "Active"}));
    let node = r
        .create(
            "nodes",
            "",
            json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24", "configSource": {"configMap": {}}}}),
        )
        .await
        .unwrap();
    assert_eq!(
        node.get("spec"),
        &json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]})
    );
    assert_eq!(
        node.at(&["status", "daemonEndpoints"]),
        &json!({"kubeletEndpoint": {"Port": 0}})
    );
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "db.example.com"}});
    let service = r.create("services", "default", service).await.unwrap();
    assert_eq!(
        service.get("spec"),
        &json!({"externalName": "db.example.com", "sessionAffinity": "None", "type": "ExternalName"})
    );
    assert_eq!(service.get("status"), &json!({"loadBalancer": {}}));
}

#[tokio::test]
async fn the_first_update_of_a_claim_stores_its_phase() {
    let r = running();
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let made = r.create("persistentvolumeclaims", "default", claim).await.unwrap();
    let (store, cx) = (r.plane.store("", "persistentvolumeclaims"), Context::system("default"));
    let unchanged = |live: &Value| Ok(live.clone());
    let first = store.update_with(&cx, "c", "", unchanged).await.unwrap();
    assert_ne!(first.resource_version(), made.resource_version());
    let second = store.update_with(&cx, "c", "", unchanged).await.unwrap();
    assert_eq!(second.resource_version(), first.resource_version());
}

#[tokio::test]
async fn an_empty_list_has_an_owner_and_is_stored_as_null() {
    let r = running();
    let store = r.plane.store("rbac.authorization.k8s.io", "roles");
    let options = crate::registry::write::WriteOptions {
        manager: Some("m".into()),
        ..Default::default()
    };
    let mut role = json!({"metadata": {"name": "r"}, "rules": []});
    store.resource().schema.normalize(&mut role).unwrap();
    let made = store
        .create(&Context::system("default"), role, &options)
        .await
        .unwrap()
        .to_value();
    assert!(made.get("rules").is_null());
    let owner = &made.at(&["metadata", "managedFields"]).items()[0];
    assert_eq!(owner.get("fieldsV1"), &json!({"f:rules": {}}));
}

#[tokio::test]
async fn a_pod_is_bound_only_once() {
    let r = running();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "registry.invalid/app:1"}]}, "status": {"phase": "Running"}});
    let pod = r.create("pods", "default", pod).await.unwrap();
    assert_eq!(
        pod.get("status"),
        &json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    let (row, store) = r.plane.find(&GroupResource::new("", "pods")).unwrap();
    let crate::registry::SubresourceBehaviour::Custom(binding) = &row.subresource("binding").unwrap().behaviour else {
        panic!("binding speaks objects");
    };
    let cx = Context::system("default");
    let to = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    binding.create(&cx, "p", to.clone()).await.unwrap();
    assert_eq!(
        store
            .get_value("default", "p")
            .await
            .unwrap()
            .str_at(&["spec", "nodeName"]),
        "n"
    );
    assert_eq!(binding.create(&cx, "p", to).await.unwrap_err().code, 409);
}

fn handler(r: &Running, name: &str) -> Arc<dyn crate::registry::resource::SubresourceHandler> {
    let (row, _) = r.plane.find(&GroupResource::new("", "pods")).unwrap();
    match &row.subresource(name).unwrap().behaviour {
        crate::registry::SubresourceBehaviour::Custom(handler) => handler.clone(),
        _ => panic!("{name} speaks objects"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction_charges_the_budget_and_deletes_the_pod() {
    let r = running();
    let cx = Context::system("default");
    let change = |group: &str, plural: &str, name: &'static str, status: Value| {
        let store = r.plane.store(group, plural).clone();
        let cx = cx.clone();
        async move {
            let set = |live: &Value| {
                let mut new = live.clone();
                for (k, v) in status.as_object().unwrap().iter() {
                    new.set(&["status", k], v.clone());
                }
                Ok(new)
            };
            store.update_with(&cx, name, "status", set).await.unwrap()
        }
    };
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for name in ["a", "b"] {
        let mut pod = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": "n",
            "containers": [{"name": "main", "image": "registry.invalid/app:1"}]}});
        pod.set(&["metadata", "name"], name);
        r.create("pods", "default", pod).await.unwrap();
        change("", "pods", name, ready.clone()).await;
    }
    let budget = json!({"metadata": {"name": "budget"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    let budgets = r.plane.store("policy", "poddisruptionbudgets");
    budgets.create_value(&cx, budget).await.unwrap();

    let eviction = handler(&r, "eviction");
    let evict = |name: &'static str, cx: Context| {
        let eviction = eviction.clone();
        async move {
            let mut object = json!({"metadata": {}});
            object.set(&["metadata", "name"], name);
            eviction.create(&cx, name, object).await
        }
    };
    // No controller has observed the budget yet.
    assert_eq!(evict("a", cx.clone()).await.unwrap_err().retry_after(), 10);
    let allowing = json!({"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "disruptionsAllowed": 1});
    change("policy", "poddisruptionbudgets", "budget", allowing).await;
    let dry = Context {
        dry_run: true,
        ..cx.clone()
    };
    evict("a", dry).await.unwrap();
    let status = |v: &Value| v.at(&["status", "disruptionsAllowed"]).clone();
    assert_eq!(
        status(&budgets.get_value("default", "budget").await.unwrap()),
        1i64.into()
    );

    let done = evict("a", cx.clone()).await.unwrap();
    assert_eq!(done.str_at(&["status"]), "Success");
    assert_eq!(
        status(&budgets.get_value("default", "budget").await.unwrap()),
        0i64.into()
    );
    let pod = r.plane.store("", "pods").get_value("default", "a").await.unwrap();
    assert_eq!(pod.at(&["metadata", "deletionGracePeriodSeconds"]), &30i64.into());
    let conditions = pod.at(&["status", "conditions"]).items();
    assert!(
        conditions
            .iter()
            .any(|c| c.str_at(&["reason"]) == "EvictionByEvictionAPI")
    );

    let refused = evict("b", cx.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.retry_after()), (429, 0));
    // Eviction does not support two budgets for one pod.
    let other = json!({"metadata": {"name": "other"}, "spec": {"selector": {}}});
    budgets.create_value(&cx, other).await.unwrap();
    assert_eq!(evict("b", cx).await.unwrap_err().code, 500);
}

#[tokio::test]
async fn most_kinds_require_qualified_finalizers() {
    let r = running();
    let mut any = Vec::new();
    let groups = r.plane.groups.iter().chain([&r.plane.apiregistration]);
    for (row, _) in groups.flat_map(|g| &g.resources) {
        if !row.meta_checks.strict_finalizers {
            any.push(format!("{} {}", row.gvr.group, row.gvr.resource));
        }
    }
    any.sort_unstable();
    assert_eq!(
        any,
        [
            " events",
            "admissionregistration.k8s.io mutatingadmissionpolicies",
            "admissionregistration.k8s.io mutatingadmissionpolicybindings",
            "admissionregistration.k8s.io mutatingwebhookconfigurations",
            "admissionregistration.k8s.io validatingadmissionpolicies",
            "admissionregistration.k8s.io validatingadmissionpolicybindings",
            "admissionregistration.k8s.io validatingwebhookconfigurations",
            "apiextensions.k8s.io customresourcedefinitions",
            "apiregistration.k8s.io apiservices",
            "coordination.k8s.io leases",
            // Its strategy checks the metadata, finalizers included.
            "events.k8s.io events",
            "node.k8s.io runtimeclasses",
            "policy poddisruptionbudgets",
        ]
    );
    let budget = json!({"metadata": {"name": "A_b", "finalizers": ["x"]}, "spec": {}});
    let budgets = r.plane.store("policy", "poddisruptionbudgets");
    budgets.create_value(&Context::system("default"), budget).await.unwrap();
}

#[tokio::test]
async fn causes_of_a_refused_update_are_in_the_order_of_the_kind() {
    let r = running();
    let refused = async |group: &str, plural: &str, object: Value, key: &'static str, value: &'static str| {
        let store = r.plane.store(group, plural);
        let cx = Context::system(object.namespace());
        store.create_value(&cx, object).await.unwrap();
        let change = |live: &Value| {
            let mut new = live.clone();
            new.set(&["metadata", "labels"], json!({"a": "!"}));
            new.set_meta("deletionGracePeriodSeconds", 5i64);
            let path: Vec<&str> = key.split('.').collect();
            new.set(&path, value);
            Ok(new)
        };
        let e = store.update_with(&cx, "u", "", change).await.unwrap_err();
        let causes = e.details.unwrap().causes;
        let last = |field: String| field.rsplit('.').next().unwrap_or_default().to_owned();
        causes.into_iter().map(|c| last(c.field)).collect::<Vec<_>>().join(" ")
    };
    let (meta, against_old) = (
        "labels deletionGracePeriodSeconds labels",
        "deletionGracePeriodSeconds labels",
    );
    // The comparison with the stored object comes first.
    let class = json!({"metadata": {"name": "u"}, "spec": {"controller": "a.b/c"}});
    assert_eq!(
        refused("networking.k8s.io", "ingressclasses", class, "spec.controller", "x").await,
        format!("{meta} {against_old} controller labels controller")
    );
    let attributes = json!({"metadata": {"name": "u"}, "driverName": "a.b", "parameters": {"a": "b"}});
    assert_eq!(
        refused(
            "storage.k8s.io",
            "volumeattributesclasses",
            attributes,
            "driverName",
            "x y"
        )
        .await,
        format!("{meta} {against_old} driverName labels driverName")
    );
    // Only the metadata is compared first.
    let claim = json!({"metadata": {"name": "u", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"}});
    assert_eq!(
        refused("", "persistentvolumeclaims", claim, "spec.volumeName", "w").await,
        format!("{meta} {against_old} labels spec")
    );
    // There is no validation as a new object, except for the specification.
    let set = json!({"metadata": {"name": "u", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let causes = refused("apps", "replicasets", set, "spec.template.spec.restartPolicy", "x").await;
    assert!(
        causes.starts_with(&format!("{meta} {against_old} restartPolicy")),
        "{causes}"
    );
    // The validation as a new object comes first.
    let class = json!({"metadata": {"name": "u"}, "provisioner": "a.b/c"});
    assert_eq!(
        refused("storage.k8s.io", "storageclasses", class, "provisioner", "x y").await,
        format!("{meta} labels provisioner {against_old} provisioner")
    );
}

#[tokio::test]
async fn the_name_of_an_ip_address_is_checked_before_its_labels_and_spec() {
    let r = running();
    let address = json!({"metadata": {"name": "192.0.2.01", "labels": {"a": "!"}}, "spec": {}});
    let store = r.plane.store("networking.k8s.io", "ipaddresses");
    let e = store.create_value(&Context::system(""), address).await.unwrap_err();
    let causes = e.details.unwrap().causes;
    assert_eq!(
        causes[0].message,
        "Invalid value: \"192.0.2.01\": must not have leading 0s"
    );
    let fields: Vec<_> = causes.iter().map(|c| c.field.as_str()).collect();
    assert_eq!(fields, ["metadata.name", "metadata.labels", "spec.parentRef"]);
}

#[tokio::test]
async fn self_links_are_dropped_except_by_a_dry_run_of_an_update() {
    let r = running();
    let cx = Context::system("");
    let store = r.plane.store("scheduling.k8s.io", "priorityclasses");
    let object = json!({"metadata": {"name": "u", "selfLink": "x"}, "value": 1});
    let created = store.create_value(&cx, object).await.unwrap();
    assert!(created.at(&["metadata", "selfLink"]).is_null());
    let change = |live: &Value| {
        let mut new = live.clone();
        new.set_meta("selfLink", "x");
        Ok(new)
    };
    let updated = store.update_with(&cx, "u", "", change).await.unwrap();
    assert_eq!(updated, created);
    let dry = Context { dry_run: true, ..cx };
    let updated = store.update_with(&dry, "u", "", change).await.unwrap();
    assert_eq!(updated.str_at(&["metadata", "selfLink"]), "x");
}
