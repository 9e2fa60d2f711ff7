//! Conversions against a webhook on loopback.

use super::*;
use crate::apimachinery::apply::{ApplyRequest, FieldSet, Writer};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::FieldPath;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::client::webhook::testing::{FakeWebhook, webhooks};
use crate::json;
use crate::storage::embedded::{Engine, Options, ResourceConfig};
use crate::storage::{Draft, Error, ListOptions, MinRevision, Precondition, Storage};
use crate::telemetry::Telemetry;
use bytes::Bytes;
use http::{Request, Response};
use std::future::Future;

const V1: usize = 0;
const V2: usize = 1;

fn compiled(name: &str, field: &str) -> CompiledVersion {
    let mut schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 1}}}}});
    schema.set(&["properties", "spec", "properties", field], json!({"type": "string"}));
    let gvk = GroupVersionKind::new("x.io", name, "Thing");
    CompiledVersion {
        name: name.to_owned(),
        schema: Arc::new(KindSchema::parse(gvk, &schema, &FieldPath::default()).unwrap()),
        fields: None,
    }
}

fn definition(conversion: Value) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}});
    let mut definition = json!({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "versions": [
        {"name": "v1", "storage": true, "schema": schema}, {"name": "v2", "storage": false, "schema": schema}]}});
    definition.set(&["spec", "conversion"], conversion);
    definition
}

fn by_webhook(fake: &FakeWebhook, review_versions: Value) -> Value {
    let url = format!("https://{}/convert", fake.address);
    let mut conversion = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": (url.as_str()), "caBundle": (fake.ca_bundle.as_str())}}});
    conversion.set(&["webhook", "conversionReviewVersions"], review_versions);
    definition(conversion)
}

struct Served {
    engine: Arc<Engine>,
    stored: Arc<dyn Storage>,
    versions: [Arc<dyn Storage>; 2],
    telemetry: Telemetry,
    _dir: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

impl Served {
    fn new(definition: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let stored: Arc<dyn Storage> = engine.resource(ResourceConfig {
            prefix: "/registry/x.io/things/".to_owned(),
            fields: None,
            compressed: false,
        });
        let telemetry = Telemetry::new();
        let metrics = ConversionMetrics::new(telemetry.registry());
        let conversions = Conversions::new(webhooks(Ok(Vec::new())), metrics);
        let kind = conversions
            .versions(definition, &[compiled("v1", "one"), compiled("v2", "two")])
            .unwrap();
        Self {
            versions: [V1, V2].map(|i| kind.storage(stored.clone(), i)),
            engine,
            stored,
            telemetry,
            _dir: dir,
        }
    }

    async fn create(&self, version: usize, name: &str) -> Result<Value, String> {
        let mut v = json!({"kind": "Thing", "metadata": {"name": name, "uid": "u", "generation": 1,
            "annotations": {"a": "1"}}, "spec": {}});
        v.set(&["apiVersion"], ["x.io/v1", "x.io/v2"][version]);
        v.set(&["spec", ["one", "two"][version]], "x");
        let draft = Draft::new(&v, Vec::new());
        let put = self.versions[version]
            .put(name, Precondition::Absent, draft, None)
            .await;
        put.map(|e| e.decode()).map_err(|e| e.to_string())
    }

    async fn get(&self, version: usize, name: &str) -> Result<Value, String> {
        match self.versions[version].get(name, MinRevision::Any).await {
            Ok(entry) => Ok(entry.expect("it exists").decode()),
            Err(Error::NotConverted(why)) => Err(why),
            Err(other) => panic!("{other}"),
        }
    }
}

/// A webhook that converts `spec.one` to `spec.two` and back; `change` may falsify its response.
async fn converting<F>(change: F) -> FakeWebhook
where
    F: Fn(&mut Value) + Clone + Send + Sync + 'static,
{
    let respond = move |request: Request<Bytes>| {
        let change = change.clone();
        async move {
            let mut review = json::decode(request.body()).unwrap();
            assert_eq!(
                review.at(&["response"]),
                &json!({"uid": "", "convertedObjects": null, "result": {"metadata": {}}})
            );
            let asked = review.unset(&["request"]).unwrap();
            let desired = asked.str_at(&["desiredAPIVersion"]).to_owned();
            let objects = asked.get("objects").items().iter().map(|o| {
                let mut o = o.clone();
                let names = match desired.as_str() {
                    "x.io/v2" => ["one", "two"],
                    _ => ["two", "one"],
                };
                let value = o.unset(&["spec", names[0]]).unwrap_or_default();
                o.set(&["spec", names[1]], value);
                o.set(&["apiVersion"], desired.as_str());
                o.set(&["spec", "unknown"], true);
                o
            });
            let objects: Vec<Value> = objects.collect();
            let mut response = json!({"result": {"status": "Success"}});
            response.set(&["uid"], asked.get("uid").clone());
            response.set(&["convertedObjects"], objects);
            review.set(&["response"], response);
            change(&mut review);
            Response::new(json::to_vec(&review).into())
        }
    };
    FakeWebhook::start(&["127.0.0.1"], respond).await
}

async fn honest() -> FakeWebhook {
    converting(|_| ()).await
}

#[tokio::test]
async fn a_webhook_converts_objects_stored_in_another_version() {
    for review_version in ["v1", "v1beta1"] {
        let fake = honest().await;
        let served = Served::new(&by_webhook(&fake, json!(["v9", review_version])));
        served.create(V1, "a").await.unwrap();
        assert_eq!(fake.connections(), 0, "the storage version needs no webhook");
        let a = served.get(V2, "a").await.unwrap();
        assert_eq!((a.api_version(), a.str_at(&["spec", "two"])), ("x.io/v2", "x"));
        assert!(a.at(&["spec", "unknown"]).is_null(), "the result is pruned");
        let b = served.create(V2, "b").await.unwrap();
        assert_eq!(b.str_at(&["spec", "two"]), "x");
        let raw = served
            .stored
            .get("b", MinRevision::Any)
            .await
            .unwrap()
            .unwrap()
            .decode();
        assert_eq!((raw.api_version(), raw.str_at(&["spec", "one"])), ("x.io/v1", "x"));
        let listed = served.versions[V2].list(ListOptions::latest("")).await.unwrap();
        assert_eq!(listed.entries.len(), 2);
        let text = String::from_utf8(served.telemetry.text()).unwrap();
        let count = r#"apiserver_conversion_webhook_request_total{failure_type="",result="success"} 3"#;
        assert!(text.contains(count), "{text}");
        let by =
            r#"duration_seconds_count{crd_name="things.x.io",from_version="v1",succeeded="true",to_version="v2"} 2"#;
        assert!(text.contains(by), "{text}");
    }
}

#[tokio::test]
async fn a_webhook_may_change_labels_and_annotations_only() {
    let fake = converting(|review| {
        let objects = review
            .at_mut(&["response", "convertedObjects"])
            .and_then(Value::as_array_mut);
        for object in objects.unwrap() {
            object.set(&["metadata", "labels", "added"], "1");
            object.unset(&["metadata", "annotations"]);
            object.set(&["metadata", "finalizers"], json!(["x.io/f"]));
            object.set(&["metadata", "generation"], 7i64);
        }
    })
    .await;
    let served = Served::new(&by_webhook(&fake, json!(["v1"])));
    served.create(V1, "a").await.unwrap();
    let a = served.get(V2, "a").await.unwrap();
    assert_eq!(a.at(&["metadata", "labels"]), &json!({"added": "1"}));
    assert!(a.at(&["metadata", "annotations"]).is_null());
    assert!(a.finalizers().is_empty());
    assert_eq!(a.at(&["metadata", "generation"]), &1i64.into());
}

type Change = fn(&mut Value);

#[tokio::test]
async fn wrong_responses_are_rejected_with_upstreams_messages() {
    fn object(review: &mut Value) -> &mut Value {
        &mut review
            .at_mut(&["response", "convertedObjects"])
            .unwrap()
            .as_array_mut()
            .unwrap()[0]
    }
    let cases: &[(Change, &str)] = &[
        (
            |r| r.set(&["response", "uid"], "other"),
            "failed: expected response.uid=\"",
        ),
        (|r| r.set(&["response"], Value::Null), "failed: no response provided"),
        (
            |r| {
                r.set(
                    &["response", "result"],
                    json!({"status": "Failure", "message": "not today"}),
                )
            },
            "failed: not today",
        ),
        (
            |r| r.set(&["response", "result"], json!({"status": "Failed"})),
            "failed: response.result.status was 'Failed', not 'Success'",
        ),
        (
            |r| r.set(&["apiVersion"], "apiextensions.k8s.io/v1beta1"),
            "failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        ),
        (
            |r| drop(r.unset(&["apiVersion"])),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, \
             Kind=ConversionReview",
        ),
        (
            |r| r.set(&["response", "convertedObjects"], json!([])),
            "returned 0 objects, expected 1",
        ),
        (
            |r| object(r).set(&["apiVersion"], "x.io/v3"),
            "returned invalid object at index 0: invalid groupVersion (expected x.io/v2, received x.io/v3)",
        ),
        (
            |r| object(r).set(&["kind"], "Other"),
            "returned invalid object at index 0: invalid kind (expected Thing, received Other)",
        ),
        (
            |r| drop(object(r).unset(&["kind"])),
            "Object 'Kind' is missing in '{\"apiVersion\":\"x.io/v2\",",
        ),
        (|r| *object(r) = Value::Null, "unexpected end of JSON input"),
        (
            |r| *object(r) = json!([]),
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            |r| object(r).set(&["metadata", "name"], "b"),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            |r| object(r).set(&["metadata", "namespace"], "n"),
            "returned invalid object: must have the same namespace:  != n",
        ),
        (
            |r| object(r).set(&["metadata", "uid"], "v"),
            "returned invalid object: must have the same UID: u != v",
        ),
        (
            |r| object(r).set(&["metadata", "labels"], json!({"a": 1})),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            |r| object(r).set(&["metadata", "annotations"], json!([])),
            "returned invalid metadata: invalid metadata.annotations of type []interface {} in converted object",
        ),
        (
            |r| object(r).set(&["metadata", "labels"], json!({"a": "-"})),
            "returned invalid metadata: metadata.labels: Invalid value: \"-\": ",
        ),
    ];
    for (change, expected) in cases {
        let fake = converting(*change).await;
        let served = Served::new(&by_webhook(&fake, json!(["v1"])));
        served.create(V1, "a").await.unwrap();
        let why = served.get(V2, "a").await.unwrap_err();
        // Decoding errors are reported without the prefix.
        let is_prefixed = ["failed", "returned"].iter().any(|word| expected.starts_with(word));
        let prefix = if is_prefixed {
            "conversion webhook for x.io/v1, Kind=Thing "
        } else {
            ""
        };
        let expected = format!("{prefix}{expected}");
        assert!(why.starts_with(&expected), "{why}\nexpected {expected}");
        // Reads in the storage version are not affected.
        assert!(served.get(V1, "a").await.is_ok());
    }
}

#[tokio::test]
async fn failed_calls_name_the_url_and_the_cause() {
    async fn read<F, R>(respond: F) -> (String, String)
    where
        F: Fn(Request<Bytes>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Bytes>> + Send + 'static,
    {
        let fake = FakeWebhook::start(&["127.0.0.1"], respond).await;
        let served = Served::new(&by_webhook(&fake, json!(["v1"])));
        served.create(V1, "a").await.unwrap();
        let url = format!("https://{}/convert?timeout=30s", fake.address);
        (served.get(V2, "a").await.unwrap_err(), url)
    }
    let prefix = "conversion webhook for x.io/v1, Kind=Thing failed: ";
    let (why, _) = read(|_| async { Response::builder().status(500).body("boom".into()).unwrap() }).await;
    assert_eq!(
        why,
        format!("{prefix}an error on the server (\"boom\") has prevented the request from succeeding")
    );
    let (why, _) = read(|_| async { Response::new("garbage".into()) }).await;
    assert!(
        why.starts_with(&format!("{prefix}couldn't get version/kind; json parse error: ")),
        "{why}"
    );
    let (why, url) = read(|_| async { Response::new(vec![b'['; 2 << 20].into()) }).await;
    assert!(
        why.starts_with(&format!("{prefix}Post \"{url}\": the response is larger than ")),
        "{why}"
    );
}

#[test]
fn ownership_follows_a_field_to_its_other_name() {
    let metrics = ConversionMetrics::new(Telemetry::new().registry());
    let conversions = Conversions::new(webhooks(Ok(Vec::new())), metrics);
    let mut definition = definition(json!({"strategy": "None"}));
    let rules = "[{from: v1, to: v2, rules: [{move: {from: .spec.one, to: .spec.two}}]}]";
    definition.set(&["metadata", "annotations", declarative::ANNOTATION], rules);
    let field = json!({"type": "string"});
    for (version, name) in definition
        .at_mut(&["spec", "versions"])
        .and_then(Value::as_array_mut)
        .unwrap()
        .iter_mut()
        .zip(["one", "two"])
    {
        version.set(
            &["schema", "openAPIV3Schema", "properties", "spec", "properties", name],
            field.clone(),
        );
    }
    let versions = [compiled("v1", "one"), compiled("v2", "two")];
    let versions = conversions.versions(&definition, &versions).unwrap();
    let (v1, v2) = (versions.schema(V1), versions.schema(V2));
    let reset = FieldSet::new();
    let by = |manager: &'static str, api_version: &'static str, force| ApplyRequest {
        writer: Writer {
            manager,
            subresource: "",
            now: "2026-01-01T00:00:00Z",
            api_version,
        },
        force,
        reset: &reset,
    };
    let config = |version: &str, field: &str, value: &str| {
        let mut config = json!({"apiVersion": (format!("x.io/{version}")), "kind": "Thing", "metadata": {"name": "a"}});
        config.set(&["spec", field], value);
        config
    };
    let live = v1
        .apply(None, config("v1", "one", "x"), &by("old", "x.io/v1", false))
        .unwrap();
    let mut live = live.clone();
    live.set(&["spec", "two"], live.at(&["spec", "one"]).clone());
    live.unset(&["spec", "one"]);
    live.set(&["apiVersion"], "x.io/v2");
    let refused = v2.apply(Some(&live), config("v2", "two", "y"), &by("new", "x.io/v2", false));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, 409, "{refused:?}");
    let forced = v2
        .apply(Some(&live), config("v2", "two", "y"), &by("new", "x.io/v2", true))
        .unwrap();
    let owners: Vec<&str> = forced
        .at(&["metadata", "managedFields"])
        .items()
        .iter()
        .filter(|entry| !entry.at(&["fieldsV1", "f:spec"]).is_null())
        .map(|entry| entry.str_at(&["manager"]))
        .collect();
    assert_eq!(owners, ["new"], "the field has changed hands under both names");
}

#[test]
fn definitions_that_cannot_be_converted_are_refused() {
    let metrics = ConversionMetrics::new(Telemetry::new().registry());
    let conversions = Conversions::new(webhooks(Ok(Vec::new())), metrics);
    for (conversion, why) in [
        (
            json!({"strategy": "Other"}),
            "unknown conversion strategy \"Other\" for CRD things.x.io",
        ),
        (
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x", "caBundle": "bm9uZQ=="}}}),
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block",
        ),
    ] {
        let refused = conversions.versions(&definition(conversion), &[compiled("v1", "one")]);
        assert_eq!(refused.err().unwrap().to_string(), why);
    }
}
