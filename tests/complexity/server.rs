//! A complete gateway in this process, called through the head of its filter chain. Measurements cover
//! everything except connections and TLS.

use crate::catalogue::Resource;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use tokio::runtime::Runtime;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::gateway::{self, Command, CompletedOptions, Gateway, GatewayService, parse};
use torana::testing::request::{Body, RemoteAddr, Request, RequestContext};
use tower::ServiceExt as _;

/// The namespace of the test objects, as in `tests/testdata/every-kind.yaml`.
pub(crate) const NAMESPACE: &str = "every";

/// A user with all permissions that is exempt from the escalation check.
const ADMIN: &str = "admin";
/// A user with all permissions whose roles are compared with its own rules.
const CALLER: &str = "caller";

/// Admission plugins that are off by default and refuse nothing that the tests send.
const PLUGINS: &str = "ExtendedResourceToleration,LimitPodHardAntiAffinityTopology,OwnerReferencesPermissionEnforcement,\
                       PodNodeSelector,PodTolerationRestriction";

/// A request that can be sent repeatedly.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub accept: &'static str,
    pub body: Bytes,
}

#[derive(Debug)]
pub(crate) struct GatewayResponse {
    pub code: u16,
    pub body: Bytes,
}

impl GatewayResponse {
    /// The body as an object, or null if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        json::decode(&self.body).unwrap_or_default()
    }

    /// Whether the request succeeded.
    pub(crate) fn is_fine(&self) -> bool {
        self.code < 300
    }
}

/// A running gateway.
pub(crate) struct Server {
    runtime: Runtime,
    gateway: Option<Gateway>,
    service: GatewayService,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            self.runtime.block_on(gateway.shut_down());
        }
    }
}

fn start_flags(dir: &Path) -> CompletedOptions {
    let tokens = dir.join("tokens.csv");
    let lines = format!("{ADMIN},{ADMIN},1,\"system:masters\"\n{CALLER},{CALLER},2,\"{CALLER}s\"\n");
    std::fs::write(&tokens, lines).expect("the tokens are written");
    let args = [
        "torana".to_owned(),
        "serve".to_owned(),
        "--secure-port=0".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--feature-gates=CBORServingAndStorage=true".to_owned(),
        format!("--enable-admission-plugins={PLUGINS}"),
        format!("--token-auth-file={}", tokens.display()),
        format!("--data-dir={}", dir.join("data").display()),
    ];
    match parse(args.into_iter().map(OsString::from)) {
        Ok(Command::Serve(options)) => options.complete().expect("the flags fit together"),
        _ => panic!("these are flags of serve"),
    }
}

impl Server {
    /// Starts a gateway in a temporary directory and waits until it is ready.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            // Deeply nested values are walked recursively, in the large frames of an unoptimised build.
            .thread_stack_size(64 << 20)
            .enable_all()
            .build()
            .expect("a runtime");
        let options = start_flags(dir.path());
        let gateway = runtime.block_on(gateway::start(options)).expect("the gateway starts");
        let server = Self {
            service: gateway.service(),
            runtime,
            gateway: Some(gateway),
            _dir: dir,
        };
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while server.get("/readyz").code != 200 {
            assert!(std::time::Instant::now() < limit, "it is not ready after a minute");
            std::thread::yield_now();
        }
        server.admit_the_caller();
        server
    }

    /// Grants [`CALLER`] every verb except those that switch off the escalation check.
    fn admit_the_caller(&self) {
        let role = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"caller"},
            "rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch","create","update","patch","delete",
            "approve","sign","use"]},{"nonResourceURLs":["*"],"verbs":["get"]}]}"#;
        let binding = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"caller"},
            "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"caller"},
            "subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"caller"}]}"#;
        for (plural, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
            let made = self.send_as(ADMIN, &call("POST", path, body.as_bytes().to_vec()));
            assert_eq!(made.code, 201, "{:?}", made.body);
        }
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // The authorizer learns of the new role from its watch.
        while self.get("/api/v1/namespaces").code != 200 {
            assert!(
                std::time::Instant::now() < limit,
                "the role has no effect after a minute"
            );
            std::thread::yield_now();
        }
    }

    /// Creates an object as the administrator.
    pub(crate) fn create(&self, resource: &Resource, object: &Value) -> GatewayResponse {
        let path = resource.collection();
        self.send_as(ADMIN, &call("POST", path, json::to_vec(object)))
    }

    pub(crate) fn get(&self, path: &str) -> GatewayResponse {
        self.send(&call("GET", path.to_owned(), Vec::new()))
    }

    /// Sends a request as an ordinary user and reads the whole response.
    pub(crate) fn send(&self, call: &Call) -> GatewayResponse {
        self.send_as(CALLER, call)
    }

    fn send_as(&self, token: &str, call: &Call) -> GatewayResponse {
        let mut req = Request::new(Body::full(call.body.clone()));
        *req.method_mut() = call.method.parse().expect("a method");
        *req.uri_mut() = call.path.parse().expect("a path");
        let bearer = format!("Bearer {token}");
        for (name, value) in [
            (AUTHORIZATION, bearer.as_str()),
            (CONTENT_TYPE, call.content_type),
            (ACCEPT, call.accept),
        ] {
            req.headers_mut().insert(name, value.parse().expect("a header"));
        }
        // The connection layer is bypassed, so the context that it provides is set here.
        RequestContext::of_mut(&mut req).remote = Some(RemoteAddr(SocketAddr::from(([127, 0, 0, 1], 1))));
        let service = self.service.clone();
        let answer = self.runtime.block_on(self.runtime.spawn(async move {
            let response = service.oneshot(req).await.expect("errors are responses");
            let (head, body) = response.into_parts();
            let body = body.collect(256 << 20).await.expect("a whole body");
            (head.status.as_u16(), body)
        }));
        let (code, body) = answer.expect("no request panics");
        GatewayResponse { code, body }
    }
}

/// A request with a JSON body.
pub(crate) fn call(method: &'static str, path: String, body: Vec<u8>) -> Call {
    Call {
        method,
        path,
        content_type: "application/json",
        accept: "application/json",
        body: body.into(),
    }
}
