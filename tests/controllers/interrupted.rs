//! kill -9 in the middle of the loops' work: the loops of the next process complete it.

use super::support::{Gateway, wait_for};
use super::{exists, gateway};
use futures_util::StreamExt as _;
use torana::apimachinery::Value;
use torana::json;
use torana::sdk::client::{Client, ClientConfig};

const OBJECTS: usize = 1000;
/// Creations in flight.
const WRITERS: usize = 32;

/// The ConfigMaps of a namespace, by HTTP.
struct Maps {
    collection: String,
    runtime: tokio::runtime::Runtime,
}

impl Maps {
    fn of(namespace: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self {
            collection: format!("/api/v1/namespaces/{namespace}/configmaps"),
            runtime: runtime.expect("a runtime"),
        }
    }

    fn client(g: &Gateway) -> Client {
        let config = ClientConfig::from_kubeconfig(&g.kubeconfig()).expect("the gateway wrote it");
        Client::try_new(&config).expect("it is complete")
    }

    fn create(&self, g: &Gateway, metadata: &Value) {
        self.runtime.block_on(async {
            let api = Self::client(g);
            let creations = (0..OBJECTS).map(|n| {
                let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": (metadata.clone())});
                map.set(&["metadata", "name"], format!("map-{n}"));
                let (api, collection) = (&api, self.collection.as_str());
                async move { api.create(collection, &map).await.map(drop) }
            });
            let mut all = futures_util::stream::iter(creations).buffer_unordered(WRITERS);
            while let Some(created) = all.next().await {
                created.expect("it is created");
            }
        });
    }

    /// Those of [`Self::create`] that exist.
    fn left(&self, g: &Gateway) -> Vec<Value> {
        let list = self
            .runtime
            .block_on(async { Self::client(g).get(&self.collection).await });
        let list = list.expect("it is served");
        let named = |v: &&Value| v.str_at(&["metadata", "name"]).starts_with("map-");
        list.get("items").items().iter().filter(named).cloned().collect()
    }
}

#[test]
fn a_namespace_that_was_being_deleted_is_deleted_by_the_next_process() {
    let (dir, mut g) = gateway();
    let mut interrupted = 0;
    for round in 0..3 {
        let name = format!("full-{round}");
        let maps = Maps::of(&name);
        g.kubectl(&["create", "namespace", &name]);
        maps.create(&g, &json!({}));
        g.kubectl(&["delete", "namespace", &name, "--wait=false"]);
        if round > 0 {
            wait_for("the first objects are deleted", || maps.left(&g).len() < OBJECTS);
        }
        drop(g);
        // Without loops, to see the state that the killed ones left.
        g = Gateway::start(dir.path());
        interrupted += usize::from(exists(&g, &["namespace", &name]));
        drop(g);
        g = Gateway::start_with(dir.path(), &["--controllers=*"]);
        g.kubectl(&["wait", "--for=delete", &format!("namespace/{name}"), "--timeout=60s"]);
        assert!(maps.left(&g).is_empty());
    }
    assert!(interrupted > 0, "no deletion was interrupted");
}

#[test]
fn an_interrupted_cascade_is_completed_by_the_next_process() {
    let (dir, mut g) = gateway();
    let mut interrupted = 0;
    for policy in ["background", "foreground", "orphan"] {
        g.kubectl(&["create", "namespace", policy]);
        let maps = Maps::of(policy);
        let owner = ["configmap", "owner", "-n", policy];
        g.kubectl(&[&["create"], &owner[..]].concat());
        let uid = g.kubectl(&[&["get"], &owner[..], &["-o", "jsonpath={.metadata.uid}"]].concat());
        let reference =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": true});
        maps.create(&g, &json!({"ownerReferences": [(reference)]}));
        let owned = |g: &Gateway| {
            let left = maps.left(g);
            left.iter()
                .filter(|v| !v.at(&["metadata", "ownerReferences"]).items().is_empty())
                .count()
        };
        let cascade = format!("--cascade={policy}");
        g.kubectl(&[&["delete"], &owner[..], &[&cascade, "--wait=false"]].concat());
        wait_for("the first dependents are handled", || owned(&g) < OBJECTS);
        drop(g);
        g = Gateway::start(dir.path());
        interrupted += usize::from(owned(&g) > 0);
        drop(g);
        g = Gateway::start_with(dir.path(), &["--controllers=*"]);
        wait_for("no dependent has an owner", || owned(&g) == 0);
        wait_for("the owner is gone", || !exists(&g, &owner));
        let kept = if policy == "orphan" { OBJECTS } else { 0 };
        assert_eq!(maps.left(&g).len(), kept, "{policy}");
    }
    assert!(interrupted > 0, "no cascade was interrupted");
}
