//! Bootstrap tokens (`pkg/controller/bootstrap`): deletes those that have expired, and signs the ConfigMap
//! `cluster-info` with the others, so that a joining node can verify the ConfigMap with its token before it
//! trusts the CA in it.

use super::expiry::{self, Loop};
use super::loopback::{Failure, Loopback, Path, encode, found};
use super::secrets::{BOOTSTRAP_TOKENS, Secret};
use super::term::Term;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::storage::{MinRevision, Storage};
use crate::tasks::off_thread;
use std::ops::Bound;

// One key for all changes: the queue merges them into one pass over all tokens.
const SIGNER: &str = "bootstrap_signer_queue";
const INFO: &str = "kube-public/cluster-info";
const SIGNATURE: &str = "jws-kubeconfig-";

/// Starts the loop that deletes.
pub(crate) fn start_cleaner(term: &Term) {
    let tokens = Loop {
        queue: "token_cleaner",
        group: "",
        resource: "secrets",
        service_account: "token-cleaner",
        policy: "Background",
    };
    expiry::start(term, tokens, Secret::from_entry);
}

/// Starts the loop that signs.
pub(crate) fn start_signer(term: &Term) {
    let queue = term.queue::<Str>(SIGNER);
    let changed = queue.clone();
    let tokens = term.inform(("", "secrets"), Secret::from_entry, |tokens| {
        tokens.subscribe(move |change: &Change<'_, Secret>| {
            if [change.old, change.new]
                .into_iter()
                .flatten()
                .any(|s| s.bootstrap().is_some())
            {
                changed.add(INFO.into());
            }
        });
    });
    let changed = queue.clone();
    let followed = term.inform_keys(("", "configmaps"), move |change| {
        // A deleted ConfigMap has nothing to sign.
        if change.key == INFO && change.new.is_some() {
            changed.add(INFO.into());
        }
    });
    let (Some(tokens), Some(_), Some(maps)) = (tokens, followed, term.storage("", "configmaps")) else {
        return;
    };
    let api = term.client("bootstrap-signer");
    term.process(SIGNER, &queue, 1, move |key: Str| {
        let (api, tokens, maps) = (api.clone(), tokens.clone(), maps.clone());
        async move { sign(&api, &tokens, &*maps, &key).await }
    });
}

/// Brings the signatures of the ConfigMap `key` up to date.
async fn sign(api: &Loopback, tokens: &Informer<Secret>, maps: &dyn Storage, key: &str) -> Result<(), Failure> {
    // A partial list of tokens would remove valid signatures.
    tokens.synced().wait().await;
    // The cache suffices: `replace` fails on a stale resourceVersion, and the change brings the key back.
    let Some(entry) = maps.get(key, MinRevision::Any).await? else {
        return Ok(());
    };
    let tokens = tokens.clone();
    // Off the reactor, because the kubeconfig is signed once per token.
    let signed = off_thread(entry.json.len(), move || {
        signed(entry.decode(), &tokens).map(|map| encode(&map))
    });
    let Some(map) = signed.await.flatten() else {
        return Ok(());
    };
    let path = Path::core("kube-public", "configmaps").name("cluster-info");
    found(api.replace(path, map).await).map(drop)
}

/// The ConfigMap with the signatures of all valid tokens; `None` if it has them, or has nothing to sign.
fn signed(mut map: Value, tokens: &Informer<Secret>) -> Option<Value> {
    let text = map.at(&["data", "kubeconfig"]).as_str()?.to_owned();
    let mut data = map.get("data").as_object()?.clone();
    // Built anew, so that signatures of expired and deleted tokens disappear.
    data.retain(|key, _| !key.starts_with(SIGNATURE));
    let all = tokens.snapshot();
    // A range of the sorted keys, so that other Secrets of the cluster are not visited.
    let named = all.range::<_, str>((Bound::Included(BOOTSTRAP_TOKENS), Bound::Unbounded));
    let named = named.take_while(|(key, _)| key.starts_with(BOOTSTRAP_TOKENS));
    for token in named.filter_map(|(_, secret)| secret.bootstrap()) {
        if token.signs && token.is_valid() {
            data.insert(format!("{SIGNATURE}{}", token.id), token.sign(&text));
        }
    }
    if map.get("data").as_object() == Some(&data) {
        return None;
    }
    map.set(&["data"], data);
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::reviews::NoStorage;
    use crate::request::{Body, Handler, Request, Response};
    use crate::storage::embedded::{Engine, Options, ResourceConfig};
    use async_trait::async_trait;
    use std::sync::Arc;

    struct Unused;

    #[async_trait]
    impl Handler for Unused {
        async fn handle(&self, _: Request) -> Response {
            Response::new(Body::empty())
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
        let (tokens, _) = Informer::new(Arc::new(NoStorage), Secret::from_entry);
        tokens.synced().fire();
        let handler: Arc<dyn Handler> = Arc::new(Unused);
        let api = Loopback::service_account(&handler, "bootstrap-signer");
        assert!(sign(&api, &tokens, &*maps, INFO).await.is_ok(), "there is none");
        engine.release(prefix);
        assert!(sign(&api, &tokens, &*maps, INFO).await.is_err());
    }
}
