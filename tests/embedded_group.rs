//! Tests the group of `examples/embedded-group` in a gateway's own process, over HTTP and with kubectl.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

#[path = "../examples/embedded-group/notes.rs"]
mod notes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::time::Duration;
use tokio::time::Instant;
use torana::apimachinery::Value;
use torana::gateway::{self, Command, CompletedOptions, Gateway, parse};
use torana::json;
use torana::sdk::ApiGroup;
use torana::sdk::client::{Client, ClientConfig, ClientError};

const NOTES: &str = "/apis/notes.example.com/v1/namespaces/default/notes";
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.notes.example.com";

struct Served {
    gateway: Gateway,
    client: Client,
    dir: PathBuf,
}

fn options(dir: &Path, more: &[&str]) -> CompletedOptions {
    let data = format!("--data-dir={}", dir.join("data").display());
    let args = ["torana", "serve", "--secure-port=0", "--bind-address=127.0.0.1", &data];
    match parse(args.iter().chain(more).map(OsString::from)).unwrap() {
        Command::Serve(options) => options.complete().unwrap(),
        _ => panic!("these are flags of serve"),
    }
}

async fn serve(dir: &Path) -> Served {
    let gateway = gateway::start_with(options(dir, &[]), vec![notes::group()])
        .await
        .unwrap();
    let client = Client::try_new(&ClientConfig::from_kubeconfig(gateway.kubeconfig()).unwrap()).unwrap();
    let served = Served {
        gateway,
        client,
        dir: dir.to_owned(),
    };
    served
        .until("it is ready", async || served.client.get("/readyz").await.is_ok())
        .await;
    served
}

impl Served {
    /// Polls until the condition holds; panics after a minute.
    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let limit = Instant::now() + Duration::from_secs(60);
        while !holds().await {
            assert!(Instant::now() < limit, "{what} (waited a minute)");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Runs kubectl. Returns its standard output, or its standard error if it fails.
    async fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        let (kubeconfig, cache) = (self.gateway.kubeconfig().to_owned(), self.dir.join("kube-cache"));
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let ran = tokio::task::spawn_blocking(move || {
            let program = Program::new("kubectl")
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .arg("--cache-dir")
                .arg(cache)
                .args(args)
                .stdin(Stdio::null())
                .output();
            program.expect("kubectl is installed (make tools)")
        });
        let out = ran.await.unwrap();
        match out.status.success() {
            true => Ok(String::from_utf8(out.stdout).unwrap()),
            false => Err(String::from_utf8(out.stderr).unwrap()),
        }
    }

    /// The status code of a GET.
    async fn code(&self, path: &str) -> u16 {
        match self.client.get(path).await {
            Ok(_) => 200,
            Err(ClientError::Api(code, _)) => code.as_u16(),
            Err(e) => e.code().unwrap_or_else(|| panic!("{path}: {e}")),
        }
    }
}

fn note(name: &str, text: &str) -> Value {
    json!({"apiVersion": "notes.example.com/v1", "kind": "Note", "metadata": {"name": name}, "spec": {"text": text}})
}

fn refusal(e: ClientError) -> (u16, String) {
    match e {
        ClientError::Api(code, status) => (code.as_u16(), status.str_at(&["message"]).to_owned()),
        other => panic!("expected a refusal: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_group_is_served_like_a_built_in_one() {
    let dir = tempfile::tempdir().unwrap();
    let s = serve(dir.path()).await;
    let client = &s.client;

    // Create with defaults, list, watch, patch, and an invalid object.
    let made = client.create(NOTES, &note("one", "hello")).await.unwrap();
    assert_eq!(made.get("spec"), &json!({"text": "hello", "pinned": false}));
    let list = client.get(NOTES).await.unwrap();
    let kind = (list.str_at(&["kind"]), list.get("items").items().len());
    assert_eq!(kind, ("NoteList", 1));
    let since = list.str_at(&["metadata", "resourceVersion"]);
    let mut events = client
        .watch(&format!("{NOTES}?watch=1&resourceVersion={since}"))
        .await
        .unwrap();
    let pin = json!({"spec": {"pinned": true}});
    client.merge_patch(&format!("{NOTES}/one"), &pin).await.unwrap();
    let event = events.next().await.unwrap();
    let seen = (
        event.str_at(&["type"]),
        event.at(&["object", "spec", "pinned"]).as_bool(),
    );
    assert_eq!(seen, ("MODIFIED", Some(true)));
    let (code, message) = refusal(client.create(NOTES, &note("blank", " ")).await.unwrap_err());
    assert_eq!(code, 422);
    assert!(
        message.contains("spec.text: Invalid value: \" \": must hold a word"),
        "{message}"
    );
    // The gateway's own admission applies to the group's writes.
    let elsewhere = NOTES.replace("default", "nowhere");
    let (code, message) = refusal(client.create(&elsewhere, &note("one", "hello")).await.unwrap_err());
    assert_eq!((code, message.as_str()), (404, "namespaces \"nowhere\" not found"));

    let manifest = dir.path().join("note.json");
    let text = torana::apimachinery::codec::json::to_vec(&note("two", "applied"));
    std::fs::write(&manifest, text).unwrap();
    for field_managed in ["--server-side", "--server-side=false"] {
        let file = manifest.to_str().unwrap();
        let applied = s.kubectl(&["apply", field_managed, "-f", file, "-n", "default"]).await;
        assert!(applied.unwrap().starts_with("note.notes.example.com/two "));
    }
    let table = s.kubectl(&["get", "nt", "-n", "default"]).await.unwrap();
    let row: Vec<&str> = table.lines().last().unwrap().split_whitespace().take(3).collect();
    assert_eq!(row, ["two", "applied", "false"]);
    let explained = s.kubectl(&["explain", "note.spec.text"]).await.unwrap();
    assert!(explained.contains("The words."), "{explained}");

    // The objects survive a restart.
    assert!(s.gateway.shut_down().await);
    let s = serve(dir.path()).await;
    assert_eq!(s.client.get(NOTES).await.unwrap().get("items").items().len(), 2);
    s.gateway.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_group_is_registered_and_can_be_moved_out_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let s = serve(dir.path()).await;
    let client = &s.client;

    let groups = client.get("/apis").await.unwrap();
    let groups = groups.get("groups").items();
    let group = groups.iter().find(|g| g.str_at(&["name"]) == notes::GROUP).unwrap();
    assert_eq!(
        group.str_at(&["preferredVersion", "groupVersion"]),
        "notes.example.com/v1"
    );
    assert_eq!(s.code("/apis/notes.example.com").await, 200);
    let resources = client.get("/apis/notes.example.com/v1").await.unwrap();
    let names: Vec<&str> = resources
        .get("resources")
        .items()
        .iter()
        .map(|r| r.str_at(&["name"]))
        .collect();
    assert_eq!(names, ["notes", "notes/status"]);
    // kubectl reads the aggregated discovery document.
    let listed = s
        .kubectl(&["api-resources", "--api-group=notes.example.com", "--no-headers"])
        .await
        .unwrap();
    let listed: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(listed, ["notes", "nt", "notes.example.com/v1", "true", "Note"]);
    let index = client.get("/openapi/v3").await.unwrap();
    let path = index
        .at(&["paths", "apis/notes.example.com/v1", "serverRelativeURL"])
        .as_str()
        .unwrap();
    let document = client.get(path).await.unwrap();
    let schema = ["components", "schemas", "com.example.notes.v1.Note"];
    assert!(!document.at(&schema).is_null());
    let document = client.get("/openapi/v2").await.unwrap();
    assert!(!document.at(&["definitions", "com.example.notes.v1.Note"]).is_null());

    // The group is registered like a built-in one, with the priorities that the program configured.
    s.until("it is registered", async || s.code(API_SERVICE).await == 200)
        .await;
    let registered = client.get(API_SERVICE).await.unwrap();
    let label = registered
        .at(&["metadata", "labels"])
        .str_at(&["kube-aggregator.kubernetes.io/automanaged"]);
    assert_eq!(label, "onstart");
    let spec =
        json!({"group": "notes.example.com", "version": "v1", "groupPriorityMinimum": 1500, "versionPriority": 20});
    assert_eq!(registered.get("spec"), &spec);
    let condition = &registered.at(&["status", "conditions"]).items()[0];
    assert_eq!(
        (condition.str_at(&["reason"]), condition.str_at(&["status"])),
        ("Local", "True")
    );

    // The APIService is pointed at a server that does not exist, and back.
    client.create(NOTES, &note("one", "hello")).await.unwrap();
    let away = json!({"spec": {"service": {"namespace": "default", "name": "absent", "port": 443}, "insecureSkipTLSVerify": true}});
    client.merge_patch(API_SERVICE, &away).await.unwrap();
    s.until("requests go to the other server", async || s.code(NOTES).await == 503)
        .await;
    let back = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
    client.merge_patch(API_SERVICE, &back).await.unwrap();
    s.until("it is served here again", async || s.code(NOTES).await == 200)
        .await;
    client.merge_patch(API_SERVICE, &away).await.unwrap();
    s.until("requests go to the other server", async || s.code(NOTES).await == 503)
        .await;
    s.kubectl(&["delete", "apiservice", "v1.notes.example.com"])
        .await
        .unwrap();
    s.until(
        "the group is served again after the APIService is deleted",
        async || s.code(NOTES).await == 200,
    )
    .await;
    assert_eq!(client.get(NOTES).await.unwrap().get("items").items().len(), 1);
    s.gateway.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_authorize_access_to_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let s = serve(dir.path()).await;
    s.client.create(NOTES, &note("one", "hello")).await.unwrap();
    let as_jane = ["get", "notes", "-n", "default", "--as=jane"];
    let error = s.kubectl(&as_jane).await.unwrap_err();
    assert!(
        error.contains("(Forbidden)")
            && error.contains("cannot list resource \"notes\" in API group \"notes.example.com\""),
        "{error}"
    );
    let role = [
        "create",
        "role",
        "notes",
        "-n",
        "default",
        "--verb=get,list",
        "--resource=notes.notes.example.com",
    ];
    s.kubectl(&role).await.unwrap();
    let binding = [
        "create",
        "rolebinding",
        "jane",
        "-n",
        "default",
        "--role=notes",
        "--user=jane",
    ];
    s.kubectl(&binding).await.unwrap();
    s.until("the role applies", async || s.kubectl(&as_jane).await.is_ok())
        .await;
    let error = s
        .kubectl(&["delete", "note", "one", "-n", "default", "--as=jane"])
        .await
        .unwrap_err();
    assert!(error.contains("cannot delete resource \"notes\""), "{error}");
    s.gateway.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_cannot_be_served_is_a_one_line_error() {
    let apps = || ApiGroup::new("apps", "v1", []);
    for (groups, why) in [
        (vec![apps()], "double registration of apps/v1"),
        (
            vec![notes::group(), notes::group()],
            "double registration of notes.notes.example.com",
        ),
        (
            vec![ApiGroup::new("Notes", "v1", [])],
            "Notes/v1 cannot be served: a lowercase RFC 1123 subdomain must",
        ),
        (
            vec![notes::group().with_priorities(0, 1)],
            "notes.example.com/v1 cannot be served: priorities are at least 1",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Err(error) = gateway::start_with(options(dir.path(), &[]), groups).await else {
            panic!("served: {why}")
        };
        let message = error.to_string();
        assert!(message.starts_with(why), "{message}");
    }
}
