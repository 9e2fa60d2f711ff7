//! Tests the kinds of `examples/extension-server` on a stand-alone server, through TLS with the library's
//! client and without a gateway.

#[path = "../examples/extension-server/kinds.rs"]
mod kinds;
#[path = "../examples/extension-server/polish.rs"]
mod polish;

use http::Method;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json as json_codec;
use torana::gateway::{Body, GatewayService};
use torana::json;
use torana::sdk::authn::{BearerToken, TokenFile};
use torana::sdk::authz::AlwaysAllow;
use torana::sdk::client::{Client, ClientConfig, ClientError};
use torana::sdk::pki;
use torana::sdk::{ApiServer, Context, Port, Running, Store, StoreEvent};
use tower::ServiceExt as _;

const GADGETS: &str = "/apis/gadgets.example.com/v1/namespaces/default/gadgets";
const WORKSHOPS: &str = "/apis/gadgets.example.com/v1/workshops";

struct Served {
    client: Client,
    running: Running,
    _dir: tempfile::TempDir,
}

fn serve() -> Served {
    serve_with(|_| ())
}

fn serve_with(prepare: impl FnOnce(&mut ApiServer)) -> Served {
    let dir = tempfile::tempdir().expect("a directory");
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let pair = pki::ensure_serving(&dir.path().join("pki"), &["localhost"], &[localhost], SystemTime::now())
        .expect("a certificate");
    let port = Port::bind((localhost, 0).into(), &pair, Vec::new()).expect("a port");
    let mut server = build(dir.path());
    prepare(&mut server);
    let config = ClientConfig {
        server: format!("https://{}", port.local_addr()),
        ca_pem: Some(std::fs::read(&pair.ca).expect("the CA")),
        tls_server_name: None,
        client_identity: None,
        token: Some("secret".into()),
        token_file: None,
    };
    let running = server.open(port);
    Served {
        client: Client::try_new(&config).expect("a client"),
        running,
        _dir: dir,
    }
}

/// A server with its store in this directory.
fn build(dir: &Path) -> ApiServer {
    let tokens = TokenFile::parse("tokens", "secret,jane,u1,dev").expect("a token file");
    ApiServer::builder(dir.join("store"))
        .group_version(kinds::GROUP, kinds::VERSION, kinds::all())
        .build(Arc::new(BearerToken::new(Arc::new(tokens))), Arc::new(AlwaysAllow))
        .expect("the server is built")
}

/// Sends a request of jane's to a server without a port.
async fn call(service: &GatewayService, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", "Bearer secret")
        .header("content-type", "application/json")
        .body(Body::full(json_codec::to_vec(body)))
        .expect("a request");
    let response = service.clone().oneshot(request).await.expect("errors are responses");
    let (head, body) = response.into_parts();
    let body = body.collect(1 << 20).await.expect("a whole body");
    (head.status.as_u16(), json_codec::decode(&body).unwrap_or_default())
}

fn gadget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": size}})
}

fn refusal(e: ClientError) -> (u16, String) {
    match e {
        ClientError::Api(code, status) => (code.as_u16(), status.str_at(&["message"]).to_owned()),
        other => panic!("expected a refusal: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_hooks() {
    let (sender, ran) = std::sync::mpsc::channel();
    let Served { running, .. } = serve_with(|server| {
        server.before_shutdown("say", async move {
            tokio::task::yield_now().await;
            sender.send(()).expect("the test still runs");
        });
    });
    assert!(ran.try_recv().is_err());
    running.shut_down().await;
    assert_eq!(ran.try_recv(), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gadget_can_be_created_updated_and_deleted() {
    let Served { client, running, _dir } = serve();
    let made = client.create(GADGETS, &gadget("one", 3)).await.expect("created");
    assert_eq!(made.at(&["spec"]), &json!({"size": 3, "colour": "red"}));
    assert_eq!(made.at(&["metadata", "generation"]).as_i64(), Some(1));

    let list = client.get(GADGETS).await.expect("listed");
    assert_eq!(
        (list.str_at(&["kind"]), list.get("items").items().len()),
        ("GadgetList", 1)
    );
    let mut events = client
        .watch(&format!(
            "{GADGETS}?watch=1&resourceVersion={}",
            list.str_at(&["metadata", "resourceVersion"])
        ))
        .await
        .expect("a watch");

    let one = format!("{GADGETS}/one");
    let patch = json!({"spec": {"size": 5}, "status": {"phase": "Ignored"}});
    let patched = client.merge_patch(&one, &patch).await.expect("patched");
    assert_eq!(patched.at(&["metadata", "generation"]).as_i64(), Some(2));
    assert!(
        patched.get("status").is_null(),
        "status is written through its subresource only"
    );
    let event = events.next().await.expect("an event");
    assert_eq!(
        (event.str_at(&["type"]), event.at(&["object", "spec", "size"]).as_i64()),
        ("MODIFIED", Some(5))
    );

    let status = json!({"spec": {"size": 9}, "status": {"phase": "Made"}});
    let stated = client
        .merge_patch(&format!("{one}/status"), &status)
        .await
        .expect("status patched");
    assert_eq!(
        (
            stated.at(&["spec", "size"]).as_i64(),
            stated.str_at(&["status", "phase"])
        ),
        (Some(5), "Made")
    );
    assert_eq!(stated.at(&["metadata", "generation"]).as_i64(), Some(2));

    let mut polish = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Polish", "spec": {"times": 2}});
    client
        .create(&format!("{one}/polish"), &polish)
        .await
        .expect("polished");
    assert_eq!(
        client
            .get(&format!("{one}/polish"))
            .await
            .expect("read")
            .at(&["spec", "times"])
            .as_i64(),
        Some(2)
    );
    polish.set(&["spec", "times"], 0i64);
    let (code, why) = refusal(
        client
            .create(&format!("{one}/polish"), &polish)
            .await
            .expect_err("refused"),
    );
    assert_eq!((code, why.contains("spec.times")), (422, true), "{why}");

    let applied = client
        .request(
            Method::PATCH,
            &format!("{one}?fieldManager=me&force=true"),
            "application/apply-patch+yaml",
            Some(&gadget("one", 7)),
        )
        .await
        .expect("applied");
    assert_eq!(applied.at(&["spec", "size"]).as_i64(), Some(7));
    let managers = applied
        .at(&["metadata", "managedFields"])
        .items()
        .iter()
        .map(|m| m.str_at(&["manager"]).to_owned());
    assert!(managers.collect::<Vec<_>>().contains(&"me".to_owned()));

    client.request(Method::DELETE, &one, "", None).await.expect("deleted");
    assert_eq!(refusal(client.get(&one).await.expect_err("gone")).0, 404);
    drop(events);
    running.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_objects_are_refused_with_the_field() {
    let Served { client, running, _dir } = serve();
    let (code, why) = refusal(client.create(GADGETS, &gadget("bad", -1)).await.expect_err("refused"));
    assert_eq!(code, 422);
    assert_eq!(
        why,
        "Gadget.gadgets.example.com \"bad\" is invalid: spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0"
    );
    let mut unknown = gadget("unknown", 1);
    unknown.set(&["spec", "weight"], 1i64);
    let strict = format!("{GADGETS}?fieldValidation=Strict");
    let (code, why) = refusal(client.create(&strict, &unknown).await.expect_err("refused"));
    assert_eq!(code, 400);
    assert!(
        why.ends_with("strict decoding error: unknown field \"spec.weight\""),
        "{why}"
    );
    let workshop = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Workshop", "metadata": {"name": "w"},
        "spec": {"minSize": 5, "maxSize": 2}});
    let (code, why) = refusal(client.create(WORKSHOPS, &workshop).await.expect_err("refused"));
    assert_eq!(
        (
            code,
            why.contains("spec.maxSize: Invalid value: 2: must not be less than spec.minSize")
        ),
        (422, true),
        "{why}"
    );
    running.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_group_is_in_discovery_and_openapi() {
    let Served { client, running, _dir } = serve();
    let groups = client.get("/apis").await.expect("groups");
    assert_eq!(groups.get("groups").items()[0].str_at(&["name"]), "gadgets.example.com");
    let group = client.get("/apis/gadgets.example.com").await.expect("the group");
    assert_eq!(group.str_at(&["preferredVersion", "version"]), "v1");
    let below = client
        .get("/apis/gadgets.example.com/v2")
        .await
        .expect_err("nothing else is below a group");
    assert_eq!(refusal(below).0, 404);
    let resources = client.get("/apis/gadgets.example.com/v1").await.expect("resources");
    let names: Vec<&str> = resources
        .get("resources")
        .items()
        .iter()
        .map(|r| r.str_at(&["name"]))
        .collect();
    assert_eq!(names, ["gadgets", "gadgets/polish", "gadgets/status", "workshops"]);

    let openapi = client
        .get("/openapi/v3/apis/gadgets.example.com/v1")
        .await
        .expect("OpenAPI");
    let schemas = openapi.at(&["components", "schemas"]);
    let gadget = schemas.get("com.example.gadgets.v1.Gadget");
    assert_eq!(
        gadget.str_at(&["properties", "spec", "properties", "size", "description"]),
        "Its size in millimetres."
    );
    dangling(&openapi, schemas);
    assert_eq!(client.get("/readyz").await.expect("ready").str_at(&["message"]), "ok");
    running.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_port_serves_the_verbs_that_have_handlers() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = build(dir.path());
    let service = server.service();
    assert_eq!(call(&service, "POST", GADGETS, &gadget("one", 3)).await.0, 201);
    let (code, resources) = call(&service, "GET", "/apis/gadgets.example.com/v1", &Value::Null).await;
    assert_eq!(code, 200);
    let resources = resources.get("resources").items();
    let polish = resources.iter().find(|r| r.str_at(&["name"]) == "gadgets/polish");
    let polish = polish.expect("the subresource is listed");
    assert_eq!(polish.get("verbs"), &json!(["create", "get"]));
    let object = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Polish", "metadata": {"name": "one"}});
    let path = format!("{GADGETS}/one/polish");
    assert_eq!(call(&service, "PUT", &path, &object).await.0, 405);
    assert_eq!(call(&service, "GET", &path, &Value::Null).await.0, 200);
    server.shut_down().await;
    assert_eq!(call(&service, "GET", &path, &Value::Null).await.0, 503);
}

/// Says `Ready` in the status of every gadget.
async fn control(gadgets: Arc<Store>) {
    let mut events = gadgets.watch_values("").await.expect("a watch");
    while let Some(event) = events.next().await {
        let StoreEvent::Applied(gadget) = event else { continue };
        let ready = |live: &Value| {
            let mut gadget = live.clone();
            gadget.set(&["status", "phase"], "Ready");
            Ok(gadget)
        };
        let cx = Context::system(gadget.str_at(&["metadata", "namespace"]));
        let name = gadget.str_at(&["metadata", "name"]);
        // The gadget may be deleted already.
        let _ = gadgets.update_with(&cx, name, "status", ready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_follows_and_changes_objects_in_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = build(dir.path());
    let service = server.service();
    let gadgets = server.store("gadgets").expect("a kind of the server").clone();
    assert!(server.tasks().spawn_until_stopped("control", control(gadgets.clone())));
    let mut events = gadgets.watch_values("default").await.expect("a watch");
    assert_eq!(events.next().await, Some(StoreEvent::Synced));

    assert_eq!(call(&service, "POST", GADGETS, &gadget("one", 3)).await.0, 201);
    loop {
        let Some(StoreEvent::Applied(gadget)) = events.next().await else {
            panic!("the watch goes on");
        };
        if gadget.str_at(&["status", "phase"]) == "Ready" {
            break;
        }
    }
    assert_eq!(gadgets.list_values("default").await.expect("a list").len(), 1);
    let cx = Context::system("default");
    assert_eq!(gadgets.delete_value(&cx, "one").await, Ok(true));
    assert!(matches!(events.next().await, Some(StoreEvent::Deleted(_))));
    server.shut_down().await;
    assert_eq!(events.next().await, None);
}

/// Fails if a `$ref` in a document points to a schema that does not exist.
fn dangling(v: &Value, schemas: &Value) {
    match v {
        Value::Object(m) => {
            for (key, v) in m.iter() {
                if let (true, Some(name)) = (key == "$ref", v.as_str()) {
                    let name = name.trim_start_matches("#/components/schemas/");
                    assert!(!schemas.get(name).is_null(), "{name} is referenced but not defined");
                }
                dangling(v, schemas);
            }
        }
        Value::Array(a) => a.iter().for_each(|v| dangling(v, schemas)),
        _ => {}
    }
}
