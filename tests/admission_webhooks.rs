//! Admission webhooks of a gateway in this process, called over TLS at a server in this test: one that patches, refuses,
//! hangs, dies, answers garbage, too much, a redirect, another UID, or a patch that does not apply.

#![allow(clippy::unwrap_used)] // `allow-unwrap-in-tests` does not cover helper functions

#[path = "admission_webhooks/server.rs"]
mod server;

use bytes::Bytes;
use http_body_util::Full;
use server::Server;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::app::{self, Gateway};
use torana::cli::{self, Command};
use torana::json;
use tower::ServiceExt as _;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

struct World {
    gateway: Gateway,
    server: Server,
    _dir: tempfile::TempDir,
}

#[derive(Debug)]
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl World {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, "admintoken,admin,admin-uid,\"system:masters\"\n").unwrap();
        let flags = [
            "torana".to_owned(),
            "serve".to_owned(),
            "--secure-port=0".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--token-auth-file={}", tokens.display()),
            format!("--data-dir={}", dir.path().join("data").display()),
        ];
        let Command::Serve(options) = cli::parse(flags.into_iter().map(OsString::from)).unwrap() else {
            panic!("these are flags of serve")
        };
        let world = Self {
            gateway: app::start(options.complete().unwrap()).await.unwrap(),
            server: Server::start(),
            _dir: dir,
        };
        let limit = Instant::now() + Duration::from_secs(60);
        while world.get("/readyz").await.code != 200 || world.get("/api/v1/namespaces/default").await.code != 200 {
            assert!(Instant::now() < limit, "it is not ready after a minute");
            tokio::task::yield_now().await;
        }
        world
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
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
            .body(Full::new(body))
            .unwrap();
        let response = self.gateway.service().oneshot(request).await.unwrap();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|w| w.to_str().unwrap().to_owned()).collect();
        let code = response.status().as_u16();
        let body = response.into_body().collect(1 << 20).await.unwrap();
        Answer {
            code,
            body: json::decode(&body).unwrap_or_default(),
            warnings,
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &Value::Null).await
    }

    async fn create(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, object).await
    }

    /// A webhook that is served at this path and wants to see configmaps.
    fn hook(&self, name: &str, path: &str) -> Value {
        let url = format!("https://127.0.0.1:{}/{path}", self.server.port);
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "clientConfig": {"url": url, "caBundle": (self.server.bundle)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]})
    }

    async fn configure(&self, kind: Kind, name: &str, hooks: Vec<Value>) {
        let configuration = json!({"metadata": {"name": name}, "webhooks": (Value::from(hooks))});
        let created = self.create(&kind.path(), &configuration).await;
        assert_eq!(created.code, 201, "{created:?}");
    }

    async fn remove(&self, kind: Kind, name: &str) {
        let removed = self
            .send("DELETE", &format!("{}/{name}", kind.path()), &Value::Null)
            .await;
        assert_eq!(removed.code, 200, "{removed:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Mutating,
    Validating,
}

impl Kind {
    fn path(self) -> String {
        let plural = match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        };
        format!("/apis/admissionregistration.k8s.io/v1/{plural}")
    }
}

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn with(mut hook: Value, member: &str, value: impl Into<Value>) -> Value {
    hook.set(&[member], value);
    hook
}

/// What a client is told about a webhook that misbehaves in one way.
struct Misbehaviour {
    path: &'static str,
    kind: Kind,
    /// The end of the message with failure policy `Fail`.
    text: &'static str,
    /// Whether the failure policy `Ignore` admits the write.
    ignorable: bool,
}

const MISBEHAVIOURS: &[Misbehaviour] = &[
    Misbehaviour {
        path: "hang",
        kind: Kind::Validating,
        text: "/hang?timeout=1s\": context deadline exceeded",
        ignorable: true,
    },
    Misbehaviour {
        path: "die",
        kind: Kind::Mutating,
        text: "/die?timeout=1s\": EOF",
        ignorable: true,
    },
    Misbehaviour {
        path: "garbage",
        kind: Kind::Validating,
        text: "",
        ignorable: true,
    },
    Misbehaviour {
        path: "large",
        kind: Kind::Mutating,
        text: "bytes",
        ignorable: true,
    },
    Misbehaviour {
        path: "redirect",
        kind: Kind::Validating,
        text: "the server responded with the status code 307 but did not return more information",
        ignorable: true,
    },
    Misbehaviour {
        path: "uid",
        kind: Kind::Validating,
        text: "got \"another\"",
        ignorable: true,
    },
    Misbehaviour {
        path: "undecodable-patch",
        kind: Kind::Mutating,
        text: "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type \
               []handlers.jsonPatchOp",
        ignorable: true,
    },
    Misbehaviour {
        path: "misplaced-patch",
        kind: Kind::Mutating,
        text: "Internal error occurred: replace operation does not apply: doc is missing path: /spec/none: missing value",
        ignorable: false,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn misbehaviour_follows_the_failure_policy_and_is_told_in_upstreams_words() {
    let w = World::start().await;
    for (i, m) in MISBEHAVIOURS.iter().enumerate() {
        for policy in ["Fail", "Ignore"] {
            let hook = with(w.hook("h.example.com", m.path), "failurePolicy", policy);
            w.configure(m.kind, "misbehaves", vec![hook]).await;
            let name = format!("c-{i}-{}", policy.to_lowercase());
            // Acknowledged configurations judge the next request.
            let answer = w.create(CONFIGMAPS, &configmap(&name)).await;
            w.remove(m.kind, "misbehaves").await;
            let message = answer.body.str_at(&["message"]);
            if policy == "Ignore" && m.ignorable {
                assert_eq!(answer.code, 201, "{}: {answer:?}", m.path);
                continue;
            }
            assert_eq!(
                (answer.code, answer.body.str_at(&["reason"])),
                (500, "InternalError"),
                "{}: {answer:?}",
                m.path
            );
            let begins = match m.ignorable {
                true => "Internal error occurred: failed calling webhook \"h.example.com\": ",
                false => "Internal error occurred: ",
            };
            assert!(
                message.starts_with(begins) && message.ends_with(m.text),
                "{}: {message}",
                m.path
            );
        }
    }
    // With no configuration left, nothing is called.
    let calls = w.server.calls();
    assert_eq!(w.create(CONFIGMAPS, &configmap("free")).await.code, 201);
    assert_eq!(w.server.calls(), calls);
    assert!(w.gateway.shut_down().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_carry_the_webhooks_status_and_warnings() {
    let w = World::start().await;
    w.configure(Kind::Validating, "refuses", vec![w.hook("no.example.com", "refuse")])
        .await;
    let refused = w.create(CONFIGMAPS, &configmap("a")).await;
    assert_eq!(refused.code, 418);
    assert_eq!(
        refused.body.str_at(&["message"]),
        "admission webhook \"no.example.com\" denied the request: no coffee here"
    );
    assert_eq!(refused.body.str_at(&["reason"]), "Teapot");
    assert_eq!(refused.warnings, ["299 - \"be warned\""]);
    assert_eq!(w.get(&format!("{CONFIGMAPS}/a")).await.code, 404);
    // Its configuration is exempt and can be deleted, whatever a webhook says.
    let all = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
    let hook = with(w.hook("all.example.com", "refuse"), "rules", all);
    w.configure(Kind::Validating, "refuses-all", vec![hook]).await;
    assert_eq!(
        w.create("/api/v1/namespaces", &json!({"metadata": {"name": "x"}}))
            .await
            .code,
        418
    );
    w.remove(Kind::Validating, "refuses-all").await;
    assert!(w.gateway.shut_down().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_apply_in_order_and_changes_reinvoke_earlier_webhooks() {
    let w = World::start().await;
    // `count` appends to `data.seen`, so that the order of the calls can be read from the result.
    let first = with(
        w.hook("first.example.com", "append/1"),
        "reinvocationPolicy",
        "IfNeeded",
    );
    let second = w.hook("second.example.com", "append/2");
    w.configure(Kind::Mutating, "b-second", vec![second]).await;
    w.configure(Kind::Mutating, "a-first", vec![first]).await;
    let created = w.create(CONFIGMAPS, &configmap("ordered")).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert_eq!(created.body.str_at(&["data", "seen"]), "121");
    assert_eq!(created.body.at(&["bogus"]), &Value::Null, "unknown fields are dropped");
    // What webhooks add belongs to nobody.
    let owned = created.body.at(&["metadata", "managedFields"]).items()[0].at(&["fieldsV1", "f:data"]);
    assert!(
        owned.get("f:seen").is_null() && !owned.get("f:k").is_null(),
        "{owned:?}"
    );
    assert!(w.gateway.shut_down().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn equivalent_rules_see_custom_resources_in_the_version_they_name() {
    let w = World::start().await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"note": {"type": "string"}}}}}}})
    };
    let definition = json!({"metadata": {"name": "engines.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "engines", "kind": "Engine"},
        "versions": [version("v1", true), version("v1beta1", false)]}});
    let made = w
        .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .await;
    assert_eq!(made.code, 201, "{made:?}");
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["engines"]}]);
    let hook = with(w.hook("engines.example.com", "note"), "rules", rules);
    w.configure(Kind::Mutating, "engines", vec![hook]).await;
    let path = "/apis/example.com/v1beta1/namespaces/default/engines";
    let engine = json!({"apiVersion": "example.com/v1beta1", "kind": "Engine", "metadata": {"name": "e"}, "spec": {}});
    let limit = Instant::now() + Duration::from_secs(30);
    let created = loop {
        let created = w.create(path, &engine).await;
        if created.code != 404 {
            break created;
        }
        assert!(
            Instant::now() < limit,
            "the definition is not established after half a minute"
        );
        tokio::task::yield_now().await;
    };
    assert_eq!(created.code, 201, "{created:?}");
    assert_eq!(created.body.str_at(&["apiVersion"]), "example.com/v1beta1");
    // The webhook notes the version in which it saw the object, and that of the request.
    assert_eq!(
        created.body.str_at(&["spec", "note"]),
        "example.com/v1 Engine v1 v1beta1"
    );
    assert!(w.gateway.shut_down().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_configurations_judge_the_next_request_under_load() {
    let w = World::start().await;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let load = async {
        let mut n = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let secret = json!({"metadata": {"name": (format!("s{n}"))}});
            assert_eq!(w.create("/api/v1/namespaces/default/secrets", &secret).await.code, 201);
            n += 1;
        }
    };
    let race = async {
        for round in 0..25 {
            w.configure(Kind::Validating, "race", vec![w.hook("race.example.com", "refuse")])
                .await;
            let name = format!("r{round}");
            assert_eq!(
                w.create(CONFIGMAPS, &configmap(&name)).await.code,
                418,
                "round {round}: created"
            );
            let path = format!("{}/race", Kind::Validating.path());
            let hooks = Value::from(vec![w.hook("race.example.com", "allow")]);
            let changed = w.send("PATCH", &path, &json!({"webhooks": hooks})).await;
            assert_eq!(changed.code, 200, "{changed:?}");
            assert_eq!(
                w.create(CONFIGMAPS, &configmap(&name)).await.code,
                201,
                "round {round}: changed"
            );
            let changed = w
                .send(
                    "PATCH",
                    &path,
                    &json!({"webhooks": (Value::from(vec![w.hook("race.example.com", "refuse")]))}),
                )
                .await;
            assert_eq!(changed.code, 200, "{changed:?}");
            w.remove(Kind::Validating, "race").await;
            let name = format!("d{round}");
            assert_eq!(
                w.create(CONFIGMAPS, &configmap(&name)).await.code,
                201,
                "round {round}: deleted"
            );
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(load, race);
    assert!(w.gateway.shut_down().await);
}
