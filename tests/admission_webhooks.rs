//! Admission webhooks of a gateway in this process, called over TLS at a server in this test: one that
//! patches, refuses, hangs, dies, or answers with garbage, too much data, a redirect, another UID, or a patch
//! that does not apply. `reviews` tests the content of reviews, `identity` how the gateway finds webhooks and
//! authenticates to them.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

#[path = "admission_webhooks/identity.rs"]
mod identity;
#[path = "admission_webhooks/reviews.rs"]
mod reviews;
#[path = "admission_webhooks/server.rs"]
mod server;
#[path = "admission_webhooks/world.rs"]
mod world;

use std::time::{Duration, Instant};
use torana::apimachinery::value::Value;
use torana::json;
use world::{CONFIGMAPS, ConfigurationKind, World, configmap, with};

/// The error that a client gets when a webhook misbehaves in one way.
struct Misbehaviour {
    path: &'static str,
    kind: ConfigurationKind,
    /// The end of the message with failure policy `Fail`.
    text: &'static str,
    /// Whether the failure policy `Ignore` admits the write.
    ignorable: bool,
}

const MISBEHAVIOURS: &[Misbehaviour] = &[
    Misbehaviour {
        path: "hang",
        kind: ConfigurationKind::Validating,
        text: "/hang?timeout=1s\": context deadline exceeded",
        ignorable: true,
    },
    Misbehaviour {
        path: "die",
        kind: ConfigurationKind::Mutating,
        text: "/die?timeout=10s\": EOF",
        ignorable: true,
    },
    Misbehaviour {
        path: "garbage",
        kind: ConfigurationKind::Validating,
        text: "",
        ignorable: true,
    },
    Misbehaviour {
        path: "large",
        kind: ConfigurationKind::Mutating,
        text: "bytes",
        ignorable: true,
    },
    Misbehaviour {
        path: "redirect",
        kind: ConfigurationKind::Validating,
        text: "the server responded with the status code 307 but did not return more information",
        ignorable: true,
    },
    Misbehaviour {
        path: "uid",
        kind: ConfigurationKind::Validating,
        text: "got \"another\"",
        ignorable: true,
    },
    Misbehaviour {
        path: "undecodable-patch",
        kind: ConfigurationKind::Mutating,
        text: "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type \
               jsonpatch.Patch",
        ignorable: true,
    },
    Misbehaviour {
        path: "misplaced-patch",
        kind: ConfigurationKind::Mutating,
        text: "Internal error occurred: replace operation does not apply: doc is missing path: /spec/none: missing value",
        ignorable: false,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn misbehaviour_follows_the_failure_policy_with_upstreams_messages() {
    let w = World::start().await;
    for (i, m) in MISBEHAVIOURS.iter().enumerate() {
        for policy in ["Fail", "Ignore"] {
            let hook = with(w.hook("h.example.com", m.path), "failurePolicy", policy);
            w.configure(m.kind, "misbehaves", vec![hook]).await;
            let name = format!("c-{i}-{}", policy.to_lowercase());
            // Acknowledged configurations apply to the next request.
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
    w.configure(
        ConfigurationKind::Validating,
        "refuses",
        vec![w.hook("no.example.com", "refuse")],
    )
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
    w.configure(ConfigurationKind::Validating, "refuses-all", vec![hook])
        .await;
    assert_eq!(
        w.create("/api/v1/namespaces", &json!({"metadata": {"name": "x"}}))
            .await
            .code,
        418
    );
    w.remove(ConfigurationKind::Validating, "refuses-all").await;
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
    w.configure(ConfigurationKind::Mutating, "b-second", vec![second]).await;
    w.configure(ConfigurationKind::Mutating, "a-first", vec![first]).await;
    let created = w.create(CONFIGMAPS, &configmap("ordered")).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert_eq!(created.body.str_at(&["data", "seen"]), "121");
    assert_eq!(created.body.at(&["bogus"]), &Value::Null, "unknown fields are dropped");
    // Fields that webhooks add have no owner.
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
    w.configure(ConfigurationKind::Mutating, "engines", vec![hook]).await;
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
async fn acknowledged_configurations_apply_to_the_next_request_under_load() {
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
            w.configure(
                ConfigurationKind::Validating,
                "race",
                vec![w.hook("race.example.com", "refuse")],
            )
            .await;
            let name = format!("r{round}");
            assert_eq!(
                w.create(CONFIGMAPS, &configmap(&name)).await.code,
                418,
                "round {round}: created"
            );
            let path = format!("{}/race", ConfigurationKind::Validating.path());
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
            w.remove(ConfigurationKind::Validating, "race").await;
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
