//! A gateway in this process with a server of webhooks.

use crate::server::Server;
use bytes::Bytes;
use http_body_util::Full;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::gateway::{self, Command, Gateway, parse};
use torana::json;
use tower::ServiceExt as _;

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A gateway, and a webhook server that it can call.
pub(crate) struct World {
    pub gateway: Gateway,
    pub server: Server,
    pub dir: tempfile::TempDir,
}

#[derive(Debug)]
pub(crate) struct GatewayResponse {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| Vec::new()).await
    }

    /// Starts a gateway with the flags that are made for its directory.
    pub(crate) async fn start_with(more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, "admintoken,admin,admin-uid,\"system:masters\"\n").unwrap();
        let mut flags = vec![
            "torana".to_owned(),
            "serve".to_owned(),
            "--secure-port=0".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--token-auth-file={}", tokens.display()),
            format!("--data-dir={}", dir.path().join("data").display()),
        ];
        flags.extend(more(dir.path()));
        let Command::Serve(options) = parse(flags.into_iter().map(OsString::from)).unwrap() else {
            panic!("these are flags of serve")
        };
        let world = Self {
            gateway: gateway::start(options.complete().unwrap()).await.unwrap(),
            server: Server::start(),
            dir,
        };
        let limit = Instant::now() + Duration::from_secs(60);
        while world.get("/readyz").await.code != 200 || world.get("/api/v1/namespaces/default").await.code != 200 {
            assert!(
                Instant::now() < limit,
                "it is not ready after a minute: {:?} {:?}",
                world.get("/readyz?verbose").await,
                world.get("/api/v1/namespaces/default").await
            );
            tokio::task::yield_now().await;
        }
        world
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> GatewayResponse {
        self.send_accepting("application/json", method, path, body).await
    }

    pub(crate) async fn send_accepting(&self, accept: &str, method: &str, path: &str, body: &Value) -> GatewayResponse {
        let media = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = if body.is_null() {
            Bytes::new()
        } else {
            json::to_vec(body).into()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "Bearer admintoken")
            .header("content-type", media)
            .header("accept", accept)
            .body(Full::new(body))
            .unwrap();
        let response = self.gateway.service().oneshot(request).await.unwrap();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|w| w.to_str().unwrap().to_owned()).collect();
        let code = response.status().as_u16();
        let body = response.into_body().collect(1 << 20).await.unwrap();
        GatewayResponse {
            code,
            body: json::decode(&body).unwrap_or_default(),
            warnings,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> GatewayResponse {
        self.send("GET", path, &Value::Null).await
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> GatewayResponse {
        self.send("POST", path, object).await
    }

    /// A webhook that is served at this path and wants to see configmaps.
    pub(crate) fn hook(&self, name: &str, path: &str) -> Value {
        let url = format!("https://127.0.0.1:{}/{path}", self.server.port);
        // Short only where there is no answer to wait for: on a busy machine, an answer may take a second.
        let timeout = if path == "hang" { 1 } else { 10 };
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": timeout,
            "clientConfig": {"url": url, "caBundle": (self.server.bundle)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]})
    }

    pub(crate) async fn configure(&self, kind: ConfigurationKind, name: &str, hooks: Vec<Value>) {
        let configuration = json!({"metadata": {"name": name}, "webhooks": (Value::from(hooks))});
        let created = self.create(&kind.path(), &configuration).await;
        assert_eq!(created.code, 201, "{created:?}");
    }

    pub(crate) async fn remove(&self, kind: ConfigurationKind, name: &str) {
        let removed = self
            .send("DELETE", &format!("{}/{name}", kind.path()), &Value::Null)
            .await;
        assert_eq!(removed.code, 200, "{removed:?}");
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConfigurationKind {
    Mutating,
    Validating,
}

impl ConfigurationKind {
    pub(crate) fn path(self) -> String {
        let plural = match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        };
        format!("/apis/admissionregistration.k8s.io/v1/{plural}")
    }
}

pub(crate) fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

/// The webhook with another value of a member.
pub(crate) fn with(mut hook: Value, member: &str, value: impl Into<Value>) -> Value {
    hook.set(&[member], value);
    hook
}
