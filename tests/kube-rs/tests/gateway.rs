//! Unmodified kube-rs against a gateway process with the example extension server behind it: typed and
//! dynamic clients, discovery, watcher and reflector, for core and aggregated resources.
//!
//! `TORANA_BIN` and `TORANA_EXAMPLE` name the binaries; `make test` builds them and sets both.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::{reflector, watcher};
use kube::{Client, Config, Discovery, ResourceExt};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Child processes that are killed when the test ends.
struct Processes {
    children: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Drop for Processes {
    fn drop(&mut self) {
        for c in self.children.iter_mut().rev() {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

fn binary(var: &str, default: &str) -> PathBuf {
    let path = std::env::var_os(var).map_or_else(
        || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../target/debug")
                .join(default)
        },
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} does not exist: build it (make test does) or set {var}",
        path.display()
    );
    path
}

fn spawn(command: &mut Command, log: &Path) -> Child {
    let log = std::fs::File::create(log).expect("the log can be created");
    let err = log.try_clone().expect("the log can be shared");
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(err)
        .spawn()
        .expect("the binary starts")
}

async fn wait_for<F, Fut>(what: &str, mut ready: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let until = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < until, "{what} within a minute");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn gateway(example: bool) -> (Processes, Client) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let child = spawn(
        Command::new(binary("TORANA_BIN", "torana"))
            .arg("serve")
            .args(["--secure-port=0", "--bind-address=127.0.0.1"])
            .arg(format!("--data-dir={}", data.display())),
        &dir.path().join("torana.log"),
    );
    let mut p = Processes {
        children: vec![child],
        dir,
    };
    let kubeconfig = data.join("admin.kubeconfig");
    wait_for("the kubeconfig is written", || async { kubeconfig.exists() }).await;
    let config = Config::from_custom_kubeconfig(
        Kubeconfig::read_from(&kubeconfig).expect("the kubeconfig parses"),
        &KubeConfigOptions::default(),
    )
    .await
    .expect("the kubeconfig is complete");
    let client = Client::try_from(config).expect("a client");
    wait_for("the gateway is ready", || async {
        client.request_text(http_get("/readyz")).await.is_ok_and(|t| t == "ok")
    })
    .await;
    if example {
        let child = spawn(
            Command::new(binary("TORANA_EXAMPLE", "examples/extension-server"))
                .arg(format!("--kubeconfig={}", kubeconfig.display()))
                .arg(format!("--data-dir={}", p.dir.path().join("example").display()))
                .args(["--secure-port=0", "--register"]),
            &p.dir.path().join("example.log"),
        );
        p.children.push(child);
        wait_for("the aggregated group answers", || async {
            client
                .request_text(http_get("/apis/gadgets.example.com/v1"))
                .await
                .is_ok()
        })
        .await;
    }
    (p, client)
}

fn http_get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).expect("a valid request")
}

fn config_map(name: &str, key: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        },
        data: Some([(key.to_owned(), value.to_owned())].into()),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_objects_are_created_read_patched_watched_and_deleted() {
    let (_p, client) = gateway(false).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let ns = Namespace {
        metadata: ObjectMeta {
            name: Some("kube-rs".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    let ns = namespaces
        .create(&PostParams::default(), &ns)
        .await
        .expect("the namespace is created");
    assert_eq!(ns.status.and_then(|s| s.phase).as_deref(), Some("Active"));

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-rs");
    let made = maps
        .create(&PostParams::default(), &config_map("a", "k", "1"))
        .await
        .expect("created");
    let version = made.resource_version().expect("a stored object has a version");
    let patched = maps
        .patch(
            "a",
            &PatchParams::default(),
            &Patch::Merge(json!({"data": {"k": "2", "gone": null}})),
        )
        .await
        .expect("merge patch");
    assert_eq!(
        patched.data.as_ref().and_then(|d| d.get("k")).map(String::as_str),
        Some("2")
    );
    let strategic = maps
        .patch(
            "a",
            &PatchParams::default(),
            &Patch::Strategic(json!({"metadata": {"labels": {"x": "y"}}})),
        )
        .await
        .expect("strategic patch");
    assert_eq!(strategic.labels().get("x").map(String::as_str), Some("y"));

    let mut stale = made.clone();
    stale.data = Some([("k".to_owned(), "3".to_owned())].into());
    let refused = maps
        .replace("a", &PostParams::default(), &stale)
        .await
        .expect_err("the version is stale");
    assert!(
        matches!(&refused, kube::Error::Api(e) if e.code == 409 && e.reason == "Conflict"),
        "{refused:?}"
    );

    let mut events = maps
        .watch(&WatchParams::default().timeout(10), &version)
        .await
        .expect("a watch")
        .boxed();
    for _ in 0..2 {
        let event = events.try_next().await.expect("an event").expect("not the end");
        assert!(matches!(event, WatchEvent::Modified(_)), "{event:?}");
    }
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let event = events.try_next().await.expect("an event").expect("not the end");
    assert!(
        matches!(event, WatchEvent::Deleted(ref m) if m.name_any() == "a"),
        "{event:?}"
    );
    assert!(maps.get_opt("a").await.expect("a clean answer").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_and_selected() {
    let (_p, client) = gateway(false).await;
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    for i in 0..7 {
        let mut s = Secret {
            metadata: ObjectMeta {
                name: Some(format!("s{i}")),
                ..Default::default()
            },
            ..Default::default()
        };
        s.labels_mut().insert("odd".into(), (i % 2 == 1).to_string());
        secrets.create(&PostParams::default(), &s).await.expect("created");
    }
    let mut names = Vec::new();
    let mut params = ListParams::default().limit(3);
    loop {
        let page = secrets.list(&params).await.expect("a page");
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|t| !t.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"]);
    let odd = secrets
        .list(&ListParams::default().labels("odd=true"))
        .await
        .expect("selected");
    assert_eq!(
        odd.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ["s1", "s3", "s5"]
    );
    let one = secrets
        .list(&ListParams::default().fields("metadata.name=s4"))
        .await
        .expect("selected");
    assert_eq!(one.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_follows_the_store() {
    let (_p, client) = gateway(false).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let (reader, writer) = reflector::store::<ConfigMap>();
    let mut stream = reflector(
        writer,
        watcher(maps.clone(), watcher::Config::default().streaming_lists()),
    )
    .boxed();
    let follow = tokio::spawn(async move { while let Some(Ok(_)) = stream.next().await {} });
    for i in 0..20 {
        maps.create(&PostParams::default(), &config_map(&format!("m{i}"), "k", "v"))
            .await
            .expect("created");
    }
    maps.delete("m3", &DeleteParams::default()).await.expect("deleted");
    wait_for("the reflector holds the 19 that are left", || async {
        reader.len() == 19
    })
    .await;
    assert!(reader.state().iter().all(|m| m.name_any() != "m3"));
    follow.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregated_group_is_discovered_and_used_like_a_built_in_one() {
    let (_p, client) = gateway(true).await;
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery");
    let gvk = GroupVersionKind::gvk("gadgets.example.com", "v1", "Gadget");
    let (resource, _) = discovery.resolve_gvk(&gvk).expect("the aggregated kind is discovered");
    let gadgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let list = gadgets.list(&ListParams::default()).await.expect("listed");
    let version = list.metadata.resource_version.expect("a list has a version");
    let mut events = gadgets
        .watch(&WatchParams::default().timeout(20), &version)
        .await
        .expect("a watch")
        .boxed();

    let gadget = DynamicObject::new("first", &resource).data(json!({"spec": {"size": 3}}));
    gadgets
        .create(&PostParams::default(), &gadget)
        .await
        .expect("created through the gateway");
    let event = events.try_next().await.expect("an event").expect("not the end");
    assert!(
        matches!(event, WatchEvent::Added(ref g) if g.name_any() == "first"),
        "{event:?}"
    );

    let bad = DynamicObject::new("bad", &resource).data(json!({"spec": {"size": -1}}));
    let refused = gadgets
        .create(&PostParams::default(), &bad)
        .await
        .expect_err("validation refuses it");
    assert!(
        matches!(&refused, kube::Error::Api(e) if e.code == 422 && e.reason == "Invalid"),
        "{refused:?}"
    );

    gadgets
        .patch(
            "first",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"size": 5}})),
        )
        .await
        .expect("patched through the gateway");
    let event = events.try_next().await.expect("an event").expect("not the end");
    assert!(matches!(event, WatchEvent::Modified(_)), "{event:?}");
    gadgets
        .delete("first", &DeleteParams::default())
        .await
        .expect("deleted through the gateway");
}
