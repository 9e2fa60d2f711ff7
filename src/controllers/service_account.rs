//! The default ServiceAccount of every active namespace
//! (`pkg/controller/serviceaccount/serviceaccounts_controller.go`).

use super::loopback::{Path, found};
use super::term::Term;
use crate::apimachinery::value::Str;
use crate::json;

const QUEUE: &str = "serviceaccount";
const NAME: &str = "default";

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let (namespaces, added) = (term.namespaces().clone(), queue.clone());
    term.namespaces().subscribe(move |change| {
        if let Some(namespace) = change.new.filter(|n| n.active) {
            added.add(namespace.name.clone());
        }
    });
    let removed = queue.clone();
    let accounts = term.inform_keys(("", "serviceaccounts"), move |change| {
        if let (None, Some((namespace, NAME))) = (change.new, change.key.split_once('/')) {
            removed.add(namespace.into());
        }
    });
    let Some(accounts) = accounts else { return };
    let api = term.client("service-account-controller");
    term.process(QUEUE, &queue, 1, move |namespace: Str| {
        let (api, accounts, namespaces) = (api.clone(), accounts.clone(), namespaces.clone());
        async move {
            // Before that, every account would look missing, and creating it would fail.
            accounts.synced().wait().await;
            let exists = accounts.get(&format!("{namespace}/{NAME}")).is_some();
            if exists || namespaces.get(&namespace).is_none_or(|n| !n.active) {
                return Ok(());
            }
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": (namespace.as_str())}});
            // The namespace may be gone.
            match found(api.create(Path::core(&namespace, "serviceaccounts"), &account).await) {
                Err(e) if e.code == 409 || e.has_reason("NamespaceTerminating") => Ok(()),
                other => other.map(drop),
            }
        }
    });
}
