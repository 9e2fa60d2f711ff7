//! The dispatch to webhooks, which are HTTPS servers in this process.

use super::*;
use crate::admission::testing::{cluster, request};
use crate::admission::{Chain, Operation};
use crate::apimachinery::codec::json;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::authz::AlwaysAllow;
use crate::client::webhook::testing::{FakeWebhook, webhooks};
use crate::json;
use crate::request::{AuditLevel, AuditTrail};
use crate::sync::Mutex;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use config::Configuration;
use http::{Request, Response};
use prometheus::Registry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The plugins over fixed configurations.
struct World {
    calls: Calls,
    snapshot: Snapshot,
    registry: Registry,
}

impl World {
    fn new(configurations: &[(&str, Vec<Value>)]) -> Self {
        let configurations: Vec<_> = configurations
            .iter()
            .map(|(name, hooks)| {
                let hooks = Value::from(hooks.clone());
                Arc::new(Configuration::parse(
                    &json!({"metadata": {"name": name}, "webhooks": hooks}),
                ))
            })
            .collect();
        let registry = Registry::new();
        Self {
            calls: Calls {
                cluster: cluster(&[]),
                webhooks: Arc::new(SharedWebhooks::new(webhooks(Ok(Vec::new())), LIMITS)),
                authorizer: Arc::new(AlwaysAllow),
                metrics: AdmissionWebhookMetrics::new(&registry),
                conditions: MatchConditionMetrics::new(&registry),
            },
            snapshot: Snapshot::default().updated(configurations.iter()),
            registry,
        }
    }

    async fn mutate(&self, attributes: &Attributes, object: &Value) -> Result<Value> {
        let mut object = object.clone();
        mutating::dispatch(&self.calls, &self.snapshot, attributes, &mut object).await?;
        Ok(object)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        validating::dispatch(&self.calls, &self.snapshot, attributes, object).await
    }

    fn metrics(&self) -> String {
        text_of(&self.registry)
    }
}

fn text_of(registry: &Registry) -> String {
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather());
    text.expect("metrics are text")
}

fn hook(name: &str, of: &FakeWebhook, edits: Value) -> Value {
    let url = format!("https://{}/", of.address);
    let mut hook = json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url, "caBundle": (of.ca_bundle)},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]});
    for (key, value) in edits.as_object().into_iter().flat_map(|m| m.iter()) {
        hook.set(&[key], value.clone());
    }
    hook
}

fn review(response: Value) -> Response<Bytes> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Response::new(json::to_vec(&review).into())
}

/// A webhook that answers each review with the result of `respond` for its request.
async fn webhook(respond: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> FakeWebhook {
    FakeWebhook::start(&["127.0.0.1"], move |req: Request<Bytes>| {
        let sent = json::decode(req.body()).unwrap();
        let mut response = respond(sent.get("request"));
        response.set(&["uid"], sent.str_at(&["request", "uid"]));
        async move { review(response) }
    })
    .await
}

fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": (BASE64_STANDARD.encode(json::to_vec(operations)))})
}

/// A webhook that appends `mark` to `seen`.
async fn appends(mark: &'static str) -> FakeWebhook {
    webhook(move |request| {
        let seen = format!("{}{mark}", request.str_at(&["object", "seen"]));
        patch(&json!([{"op": "add", "path": "/seen", "value": seen}]))
    })
    .await
}

fn create() -> Attributes {
    let mut write = request(Operation::Create, "", "configmaps", "c");
    write.kind = GroupVersionKind::new("", "v1", "ConfigMap");
    write
}

#[tokio::test]
async fn mutating_webhooks_see_the_changes_of_earlier_ones() {
    let (a, b) = (appends("a").await, appends("b").await);
    let world = World::new(&[
        (
            "first",
            vec![hook("1.x.io", &a, json!({})), hook("2.x.io", &b, json!({}))],
        ),
        ("second", vec![hook("3.x.io", &a, json!({}))]),
    ]);
    let write = Attributes {
        audit: AuditTrail::new(AuditLevel::Request, false),
        ..create()
    };
    let object = world.mutate(&write, &json!({})).await.unwrap();
    assert_eq!(object.str_at(&["seen"]), "aba");
    let annotations = write.audit.snapshot().annotations;
    assert_eq!(
        annotations["mutation.webhook.admission.k8s.io/round_0_index_1"],
        r#"{"configuration":"first","mutated":true,"webhook":"2.x.io"}"#
    );
    assert_eq!(
        annotations["patch.webhook.admission.k8s.io/round_0_index_2"],
        r#"{"configuration":"second","patch":[{"op":"add","path":"/seen","value":"aba"}],"patchType":"JSONPatch","webhook":"3.x.io"}"#
    );
}

/// Collects what is logged in this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn audit_annotations_with_invalid_keys_are_dropped_with_a_warning() {
    let long = "k".repeat(64);
    let annotations = json!({"fine": "1", "in/two": "2", "": "3", "not good": "4", (long.as_str()): "5", "-x": "6"});
    let of = webhook(move |_| json!({"allowed": true, "auditAnnotations": (annotations.clone())})).await;
    let world = World::new(&[("c", vec![hook("1.x.io", &of, json!({}))])]);
    let write = Attributes {
        audit: AuditTrail::new(AuditLevel::Metadata, false),
        ..create()
    };
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let logged = tracing::subscriber::set_default(subscriber);
    world.validate(&write, &json!({})).await.unwrap();
    drop(logged);

    let annotations = write.audit.snapshot().annotations;
    let kept: Vec<_> = annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(kept, [("1.x.io/fine", "1")]);
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    for key in ["in/two", "", "not good", &long, "-x"] {
        let expected = format!(
            "an invalid key and is dropped webhook=1.x.io key={:?}",
            format!("1.x.io/{key}")
        );
        assert!(log.contains(&expected), "{expected}\n{log}");
    }
    assert_eq!(log.matches("is dropped").count(), 5, "{log}");
}

/// A built-in plugin that changes the object in the second round.
struct ChangesAgain;

#[async_trait]
impl Admission for ChangesAgain {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        if attributes.reinvocation.is_second_round() {
            object.set(&["again"], true);
        }
        Ok(())
    }
}

/// The dispatch as a plugin.
struct Dispatch(World);

#[async_trait]
impl Admission for Dispatch {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        mutating::dispatch(&self.0.calls, &self.0.snapshot, attributes, object).await
    }
}

async fn both_rounds(plugins: Vec<Arc<dyn Admission>>) -> String {
    let mut object = json!({});
    Chain::new(plugins).mutate(&create(), &mut object).await.unwrap();
    object.str_at(&["seen"]).to_owned()
}

#[tokio::test]
async fn if_needed_webhooks_are_called_again_after_a_later_change() {
    let marks = [appends("a").await, appends("b").await, appends("c").await];
    let [a, b, c] = &marks;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let (a, b, c) = (
        hook("a.x.io", a, again.clone()),
        hook("b.x.io", b, json!({})),
        hook("c.x.io", c, again),
    );
    let dispatch = |hooks: &[&Value]| -> Arc<dyn Admission> {
        let hooks = hooks.iter().copied().cloned().collect();
        Arc::new(Dispatch(World::new(&[("all", hooks)])))
    };
    assert_eq!(both_rounds(vec![dispatch(&[&a, &b])]).await, "aba");
    // The last webhook to change the object is not called again, unless a plugin changes it in the second round.
    assert_eq!(both_rounds(vec![dispatch(&[&b, &c])]).await, "bc");
    assert_eq!(both_rounds(vec![dispatch(&[&a, &b, &c])]).await, "abcac");
    assert_eq!(
        both_rounds(vec![Arc::new(ChangesAgain), dispatch(&[&b, &c])]).await,
        "bcc"
    );
}

/// The line that counts one refusal of a validating webhook.
fn one_refusal(name: &str) -> String {
    format!(
        "apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",name=\"{name}\",operation=\"CREATE\",\
         rejection_code=\"400\",type=\"validating\"}} 1"
    )
}

#[tokio::test]
async fn validating_webhooks_are_called_side_by_side_and_the_first_error_wins() {
    let counted: Arc<OnceLock<Registry>> = Arc::default();
    let by_now = counted.clone();
    let slow = FakeWebhook::start(&["127.0.0.1"], move |req: Request<Bytes>| {
        let by_now = by_now.clone();
        async move {
            // Not after a fixed time: the other webhook may take any time to connect to.
            let quick = one_refusal("quick.x.io");
            while !by_now.get().is_some_and(|r| text_of(r).contains(&quick)) {
                tokio::task::yield_now().await;
            }
            let uid = json::decode(req.body()).unwrap().str_at(&["request", "uid"]).to_owned();
            review(json!({"uid": uid, "allowed": false, "status": {"message": "slow"}}))
        }
    })
    .await;
    let quick = webhook(|_| json!({"allowed": false, "status": {"reason": "Quick"}, "warnings": ["w"]})).await;
    let world = World::new(&[(
        "all",
        vec![
            hook("slow.x.io", &slow, json!({})),
            hook("quick.x.io", &quick, json!({})),
        ],
    )]);
    counted.set(world.registry.clone()).unwrap();
    let write = create();
    let refused = world.validate(&write, &json!({})).await.unwrap_err();
    assert_eq!(
        refused.message,
        "admission webhook \"quick.x.io\" denied the request: Quick"
    );
    assert_eq!(refused.code, 400);
    assert_eq!(write.warnings.take(), ["w"]);
    let metrics = world.metrics();
    for name in ["slow.x.io", "quick.x.io"] {
        assert!(metrics.contains(&one_refusal(name)), "{metrics}");
    }
}

#[tokio::test]
async fn deletions_cannot_be_patched_and_dry_runs_need_known_side_effects() {
    let a = appends("a").await;
    let world = World::new(&[(
        "all",
        vec![hook(
            "a.x.io",
            &a,
            json!({"failurePolicy": "Ignore", "sideEffects": "Some"}),
        )],
    )]);
    let delete = Attributes {
        operation: Operation::Delete,
        old_object: Some(Arc::new(json!({"metadata": {"name": "c"}}))),
        ..create()
    };
    let refused = world.mutate(&delete, &Value::Null).await.unwrap_err();
    assert_eq!(
        refused.message,
        "Internal error occurred: admission webhook \"a.x.io\" attempted to modify the object, which is not supported for \
         this operation"
    );
    let dry = Attributes {
        dry_run: true,
        ..create()
    };
    let refused = world.mutate(&dry, &json!({})).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (400, "admission webhook \"a.x.io\" does not support dry run")
    );
}

#[tokio::test]
async fn ignored_failures_end_when_the_request_is_over() {
    let silent = FakeWebhook::start(&["127.0.0.1"], |_| std::future::pending()).await;
    let world = World::new(&[("all", vec![hook("a.x.io", &silent, json!({"failurePolicy": "Ignore"}))])]);
    let write = Attributes {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..create()
    };
    let late = world.mutate(&write, &json!({})).await.unwrap_err();
    assert_eq!((late.code, late.reason), (504, "Timeout"));
    let over = world.validate(&write, &json!({})).await.unwrap_err();
    assert_eq!(over.code, 504);
    assert!(
        world
            .metrics()
            .contains("apiserver_admission_webhook_fail_open_count{name=\"a.x.io\",type=\"admit\"} 1")
    );
}

#[tokio::test]
async fn webhooks_of_other_resources_are_not_called_and_equivalents_see_their_version() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let fake = webhook(move |request| {
        let text = format!(
            "{} {}",
            request.str_at(&["kind", "group"]),
            request.str_at(&["object", "apiVersion"])
        );
        record.lock().push(text);
        patch(&json!([{"op": "add", "path": "/note", "value": "x"}]))
    })
    .await;
    let rules =
        json!([{"apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["events"]}]);
    let world = World::new(&[("all", vec![hook("a.x.io", &fake, json!({"rules": rules}))])]);
    world.mutate(&create(), &json!({})).await.unwrap();
    assert!(seen.lock().is_empty());
    let mut event = request(Operation::Create, "", "events", "e");
    event.kind = GroupVersionKind::new("", "v1", "Event");
    let object = world
        .mutate(&event, &json!({"apiVersion": "v1", "kind": "Event"}))
        .await
        .unwrap();
    assert_eq!(*seen.lock(), ["events.k8s.io events.k8s.io/v1"]);
    assert_eq!(
        (object.api_version(), object.str_at(&["note"])),
        ("v1", "x"),
        "and is converted back"
    );
}

#[tokio::test]
async fn webhooks_of_other_resources_are_not_evaluated() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let fake = webhook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        json!({"allowed": true})
    })
    .await;
    let elsewhere = |i: usize| {
        let rule = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": [(format!("r{i}"))]}]);
        hook(&format!("h{i}.x.io"), &fake, json!({"rules": rule}))
    };
    let world = World::new(&[("all", (0..100).map(elsewhere).collect())]);
    assert_eq!(world.snapshot.candidates("configmaps").count(), 0);
    assert!(!world.snapshot.index.has_candidates("configmaps"));
    assert_eq!(world.snapshot.candidates("r7").count(), 1);
    world.validate(&create(), &json!({})).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

fn conditions(expressions: &[&str], failure: &str) -> Value {
    let named = |(i, e): (usize, &&str)| json!({"name": (format!("c{i}")), "expression": (*e)});
    let all: Vec<Value> = expressions.iter().enumerate().map(named).collect();
    json!({"failurePolicy": failure, "matchConditions": all})
}

#[tokio::test]
async fn webhooks_are_called_only_if_their_conditions_hold() {
    let marks = appends("x").await;
    for (expressions, seen) in [
        (
            &["object.kind == 'ConfigMap'", "request.userInfo.username == 'admin'"][..],
            "x",
        ),
        (&["true", "!has(object.data)"], ""),
        (&["object.nothere == 1", "false"], ""),
        (&["authorizer.requestResource.check('delete').allowed()"], "x"),
    ] {
        let world = World::new(&[("c", vec![hook("h.x.io", &marks, conditions(expressions, "Fail"))])]);
        let object = world.mutate(&create(), &json!({"kind": "ConfigMap", "data": {}})).await;
        assert_eq!(object.unwrap().str_at(&["seen"]), seen, "{expressions:?}");
        let excluded = "apiserver_admission_match_condition_exclusions_total{kind=\"webhook\",name=\"h.x.io\",\
                        operation=\"CREATE\",type=\"admit\"} 1";
        assert_eq!(world.metrics().contains(excluded), seen.is_empty());
    }
}

/// Upstream builds a 403 about the request's resource, whose text is the errors.
#[tokio::test]
async fn failure_policy_decides_about_conditions_that_fail() {
    let marks = appends("x").await;
    let failing = ["object.a == 1", "true", "object.b == 1"];
    let world = World::new(&[("c", vec![hook("h.x.io", &marks, conditions(&failing, "Fail"))])]);
    let refused = world.validate(&create(), &json!({})).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "configmaps \"c\" is forbidden: [expression 'object.a == 1' resulted in error: no such key: a, \
             expression 'object.b == 1' resulted in error: no such key: b]"
        )
    );
    let metrics = world.metrics();
    assert!(
        metrics.contains("match_condition_evaluation_errors_total{kind=\"webhook\",name=\"h.x.io\",operation=\"CREATE\",type=\"validating\"} 2"),
        "{metrics}"
    );
    let world = World::new(&[("c", vec![hook("h.x.io", &marks, conditions(&failing, "Ignore"))])]);
    assert_eq!(world.mutate(&create(), &json!({})).await.unwrap(), json!({}));
}

#[tokio::test]
async fn match_conditions_see_the_changes_of_earlier_webhooks() {
    let (first, second) = (appends("a").await, appends("b").await);
    let unless_seen = conditions(&["!has(object.seen)"], "Fail");
    let world = World::new(&[(
        "c",
        vec![
            hook("1.x.io", &first, unless_seen.clone()),
            hook("2.x.io", &second, unless_seen),
        ],
    )]);
    assert_eq!(
        world.mutate(&create(), &json!({})).await.unwrap().str_at(&["seen"]),
        "a"
    );
}
