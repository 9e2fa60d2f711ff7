//! The ConfigMap `kube-root-ca.crt` of every namespace: the CA certificates with which Pods verify this
//! server (`pkg/controller/certificates/rootcacertpublisher`).

use super::loopback::{Failure, Loopback, Path, encode, found};
use super::sized;
use super::term::Term;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::json;
use crate::storage::{MinRevision, Storage};

const QUEUE: &str = "root_ca_cert_publisher";
const NAME: &str = "kube-root-ca.crt";
/// Namespaces that are queued before the task yields.
const BATCH: usize = 256;
const DESCRIPTION: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
                    the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
                    Kubernetes clusters.";

pub(crate) fn start(term: &Term) {
    let Some(ca) = &term.root_ca else {
        tracing::warn!("{NAME} is not published: the CA of --tls-cert-file is unknown; set --root-ca-file");
        return;
    };
    let queue = term.queue::<Str>(QUEUE);
    let added = queue.clone();
    term.namespaces().subscribe(move |change| {
        // As upstream: new ones in any phase, changed ones only while they are active.
        if let Some(namespace) = change.new.filter(|n| change.old.is_none() || n.active) {
            added.add(namespace.name.clone());
        }
    });
    let changed = queue.clone();
    let followed = term.inform_keys(("", "configmaps"), move |change| {
        if let Some((namespace, NAME)) = change.key.split_once('/') {
            changed.add(namespace.into());
        }
    });
    let (Some(_), Some(maps)) = (followed, term.storage("", "configmaps")) else {
        return;
    };
    let api = term.client("root-ca-cert-publisher");
    let namespaces = term.namespaces().clone();
    let (mut changes, every, all) = (ca.subscribe(), queue.clone(), namespaces.clone());
    term.tasks().spawn_until_stopped("root CA", async move {
        while changes.changed().await.is_ok() {
            for (n, namespace) in all.snapshot().keys().enumerate() {
                every.add(namespace.as_ref().into());
                if n % BATCH == BATCH - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let ca = ca.clone();
    term.process(QUEUE, &queue, 1, move |namespace: Str| {
        let (api, maps, ca, namespaces) = (api.clone(), maps.clone(), ca.clone(), namespaces.clone());
        async move {
            // A deleted namespace takes the ConfigMap with it, whose deletion event comes here.
            if namespaces.get(&namespace).is_none() {
                return Ok(());
            }
            let wanted = json!({"ca.crt": (String::from_utf8_lossy(&ca.current().pem))});
            publish(&api, &*maps, &namespace, wanted).await
        }
    });
}

/// Brings the ConfigMap of a namespace up to date.
async fn publish(api: &Loopback, maps: &dyn Storage, namespace: &str, wanted: Value) -> Result<(), Failure> {
    let path = Path::core(namespace, "configmaps");
    // A failed read is retried: taken for a missing ConfigMap it would end with the 409 of the create.
    let live = maps.get(&format!("{namespace}/{NAME}"), MinRevision::Any).await?;
    let of = wanted.clone();
    let corrected = sized::read(live, move |live| corrected(live.decode(), &of).map(|map| encode(&map)));
    let written = match corrected.await? {
        None => api.create(path, &published(namespace, wanted)).await,
        Some(Some(map)) => api.replace(path.name(NAME), map).await,
        Some(None) => return Ok(()),
    };
    match found(written) {
        // Somebody else was faster: their change brings the namespace back here if the content is wrong.
        Err(e) if e.code == 409 || e.has_reason("NamespaceTerminating") => Ok(()),
        other => other.map(drop),
    }
}

fn published(namespace: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": (data),
        "metadata": {"name": NAME, "namespace": namespace, "annotations": {DESCRIPTION: TEXT}}})
}

/// The ConfigMap with the content that it should have; `None` if it has.
fn corrected(mut live: Value, wanted: &Value) -> Option<Value> {
    // As upstream, any description will do: users may have written their own.
    if live.get("data") == wanted && live.annotation(DESCRIPTION).is_some_and(|text| !text.is_empty()) {
        return None;
    }
    live.set(&["data"], wanted.clone());
    live.set(&["metadata", "annotations", DESCRIPTION], TEXT);
    Some(live)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Body, Handler, Request, Response};
    use crate::storage::embedded::{Engine, Options, ResourceConfig};
    use async_trait::async_trait;
    use std::sync::Arc;

    /// Has the ConfigMap already.
    struct Server;

    #[async_trait]
    impl Handler for Server {
        async fn handle(&self, _: Request) -> Response {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = http::StatusCode::CONFLICT;
            response
        }
    }

    #[tokio::test]
    async fn an_unreadable_config_map_is_retried() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(dir.path(), Options::default()).expect("opens");
        let prefix = "/registry/configmaps/";
        let maps = engine.resource(ResourceConfig {
            prefix: prefix.to_owned(),
            fields: None,
            compressed: false,
        });
        engine.release(prefix);
        let handler: Arc<dyn Handler> = Arc::new(Server);
        let api = Loopback::service_account(&handler, "root-ca-cert-publisher");
        assert!(publish(&api, &*maps, "a", json!({})).await.is_err());
    }

    #[test]
    fn changed_content_is_corrected_and_other_annotations_stay() {
        let wanted = json!({"ca.crt": "PEM"});
        let map = published("a", wanted.clone());
        assert_eq!(corrected(map.clone(), &wanted), None);

        let mut other_text = map.clone();
        other_text.set(&["metadata", "annotations", DESCRIPTION], "mine");
        assert_eq!(corrected(other_text, &wanted), None);

        let mut changed = map.clone();
        changed.set(&["data", "more"], "x");
        changed.set(&["metadata", "annotations", "mine"], "y");
        let back = corrected(changed, &wanted).expect("it differs");
        assert_eq!(back.get("data"), &wanted);
        assert_eq!(back.annotation("mine"), Some("y"));
    }
}
