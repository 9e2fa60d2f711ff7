//! A group version served from a temporary directory.

use super::super::ApiGroupVersion;
use crate::admission::plugins::NamespaceLifecycle;
use crate::admission::{Admission, AdmitAll, ObjectLookup};
use crate::api;
use crate::apimachinery::apply::{ApplyRequest, FieldSet, OverlayError, Writer};
use crate::apimachinery::codec::json;
use crate::apimachinery::gvk::{GroupVersion, GroupVersionResource};
use crate::apimachinery::patch::merge;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::Backing;
use crate::registry::strategy::{NameRule, Plain, RestStrategy, Rules, Strategy};
use crate::registry::{Resource, Schema, Store, StoreLookup, Subresource, SubresourceBehaviour, Verbs};
use crate::request::{Authorized, Body, Request, RequestContext, RequestInfo, Response, UnprotectedHandler, UserInfo};
use crate::storage::Storage;
use crate::storage::embedded::{Engine, Options, ResourceConfig};
use http::header::{CONTENT_TYPE, HeaderMap};
use std::sync::Arc;

/// The schema of a built-in type, without managed fields.
struct Typed(&'static api::TypeDef);

impl Schema for Typed {
    fn definition(&self) -> Option<&'static api::TypeDef> {
        Some(self.0)
    }
    fn normalize(&self, object: &mut Value) -> Result<Vec<String>> {
        api::decode::normalize(self.0, object).map_err(|e| Status::bad_request(e.0))
    }
    fn strategic_merge(&self, object: &Value, patch: &Value) -> Option<Result<Value>> {
        let mut merged = object.clone();
        merge::apply(&mut merged, patch.clone());
        Some(Ok(merged))
    }
    fn manage_update(&self, _: Option<&Value>, _: &mut Value, _: &Writer<'_>, _: &FieldSet) {}
    fn apply(&self, live: Option<&Value>, patch: Value, _: &ApplyRequest<'_>) -> Result<Value> {
        let mut out = live.cloned().unwrap_or_else(Value::object);
        merge::apply(&mut out, patch);
        Ok(out)
    }
    fn overlay(&self, object: &Value, config: &Value) -> std::result::Result<Value, OverlayError> {
        let mut out = object.clone();
        merge::apply(&mut out, config.clone());
        Ok(out)
    }
}

pub(crate) struct Namespaces;

impl Strategy for Namespaces {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::Label)
    }
}

pub(crate) fn row(
    plural: &str,
    kind: &str,
    singular: &str,
    namespaced: bool,
    strategy: Arc<dyn RestStrategy>,
) -> Resource {
    let def = api::by_gvk("", "v1", kind).expect("a core kind");
    Resource {
        gvr: GroupVersionResource::new("", "v1", plural),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        singular: singular.into(),
        short_names: vec![],
        categories: vec![],
        namespaced,
        verbs: if namespaced {
            Verbs::ALL
        } else {
            Verbs::ALL.without(Verbs::DELETE_COLLECTION)
        },
        backing: Backing::Stored {
            prefix: format!("/registry/{plural}/"),
        },
        schema: Arc::new(Typed(def)),
        definition: def.name.into(),
        strategy,
        columns: None,
        selectable: None,
        deprecation: None,
        unstructured: false,
        compressed: false,
        returns_deleted: false,
        unconditional_update: true,
        meta_checks: crate::registry::strategy::MetaChecks::BOTH,
        create_on_update: false,
        storage_version_hash: super::super::discovery::resources::storage_version_hash("", "v1", kind).into(),
        subresources: vec![],
    }
}

/// A running service. Dropping it shuts the engine down and removes the directory.
pub(crate) struct Served {
    service: Arc<ApiGroupVersion>,
    engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

/// A response whose body has been read.
pub(crate) struct ReadResponse {
    pub code: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl ReadResponse {
    pub(crate) fn json(&self) -> Value {
        json::decode(self.text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
    pub(crate) fn message(&self) -> String {
        self.json().str_at(&["message"]).to_owned()
    }
}

pub(crate) async fn serve() -> Served {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("a store");
    let store = |r: Resource, admission: Arc<dyn Admission>, storage: Arc<dyn Storage>| {
        let r = Arc::new(r);
        (r.clone(), Arc::new(Store::new(r, storage, admission)))
    };
    let config = |plural: &str| ResourceConfig {
        prefix: format!("/registry/{plural}/"),
        fields: None,
        compressed: false,
    };
    let namespaces = engine.resource(config("namespaces"));
    let stores = StoreLookup::default();
    let cluster = ObjectLookup::new(Arc::new(stores.clone()));
    let lifecycle: Arc<dyn Admission> = Arc::new(NamespaceLifecycle::new(cluster));
    let mut ns = row("namespaces", "Namespace", "namespace", false, Arc::new(Namespaces));
    ns.subresources.push(Subresource {
        name: "status".into(),
        kind: ns.gvk(),
        verbs: Verbs::GET_PATCH_UPDATE,
        behaviour: SubresourceBehaviour::Status,
        printable: true,
    });
    let scale = || Subresource {
        name: "scale".into(),
        kind: GroupVersion::new("autoscaling", "v1").with_kind("Scale"),
        verbs: Verbs::GET_PATCH_UPDATE,
        behaviour: SubresourceBehaviour::Status,
        printable: true,
    };
    let mut cm = row("configmaps", "ConfigMap", "configmap", true, Arc::new(Plain));
    cm.subresources.push(scale());
    // Stands for the custom resources: ConfigMaps would have a strategic merge patch.
    let mut custom = row("customs", "ConfigMap", "custom", true, Arc::new(Plain));
    custom.unstructured = true;
    custom.subresources.push(scale());
    let resources = vec![
        store(cm, lifecycle.clone(), engine.resource(config("configmaps"))),
        store(custom, lifecycle, engine.resource(config("customs"))),
        store(ns, Arc::new(AdmitAll), namespaces),
    ];
    stores.add(resources.iter().map(|(_, store)| store));
    let served = Served {
        service: Arc::new(ApiGroupVersion::new(GroupVersion::new("", "v1"), resources)),
        engine,
        _dir: dir,
    };
    let made = served.post("/api/v1/namespaces", r#"{"metadata":{"name":"ns"}}"#).await;
    assert_eq!(made.code, 201, "{}", made.text);
    served
}

impl Served {
    /// The budget of cached encodings.
    pub(crate) fn budget(&self) -> Arc<crate::storage::Budget> {
        let (_, store) = &self.service.resources[0];
        store.budget().expect("the engine has one").clone()
    }

    pub(crate) fn with_cbor(mut self) -> Self {
        let service = Arc::get_mut(&mut self.service).expect("no request has been sent");
        service.codecs.cbor = true;
        self
    }

    /// Sends a request and returns the response with its body unread.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<bytes::Bytes>,
    ) -> Response {
        let mut req = Request::new(Body::full(body.into()));
        *req.method_mut() = method.parse().expect("a method");
        *req.uri_mut() = path.parse().expect("a path");
        for (k, v) in headers {
            let name: http::HeaderName = k.parse().expect("a header");
            req.headers_mut().insert(name, v.parse().expect("a value"));
        }
        let info = RequestInfo::resolve(req.method(), req.uri()).expect("a resolvable path");
        let context = RequestContext::of_mut(&mut req);
        context.info = Some(Arc::new(info));
        context.warnings = Some(crate::request::Warnings::default());
        let user = UserInfo::system("tester", &[]);
        self.service.clone().serve(req, Authorized::for_test(user)).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> ReadResponse {
        let (head, body) = self.raw(method, path, headers, body.to_owned()).await.into_parts();
        let bytes = body.collect(64 << 20).await.expect("a whole body");
        ReadResponse {
            code: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub(crate) fn rows(&self) -> Vec<Arc<Resource>> {
        self.service.rows().cloned().collect()
    }

    pub(crate) async fn get(&self, path: &str) -> ReadResponse {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> ReadResponse {
        self.send("POST", path, &[(CONTENT_TYPE.as_str(), "application/json")], body)
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> ReadResponse {
        self.send("PUT", path, &[], body).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &str) -> ReadResponse {
        let media = format!("application/{kind}");
        self.send("PATCH", path, &[(CONTENT_TYPE.as_str(), &media)], body).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &str) -> ReadResponse {
        self.send("DELETE", path, &[], body).await
    }

    /// Creates a ConfigMap with one label.
    pub(crate) async fn config_map(&self, name: &str, label: &str) -> ReadResponse {
        let body = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"l":"{label}"}}}},"data":{{"k":"v"}}}}"#);
        let made = self.post("/api/v1/namespaces/ns/configmaps", &body).await;
        assert_eq!(made.code, 201, "{}", made.text);
        made
    }
}
