//! Secrets of the type `kubernetes.io/service-account-token`
//! (`pkg/controller/serviceaccount/tokens_controller.go`): fills them with a token that does not expire, and
//! deletes them when their ServiceAccount is gone.

use super::Term;
use super::loopback::{Failure, Loopback, Path, found};
use super::secrets::{ACCOUNT, ACCOUNT_UID, AccountToken, Secret};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::authn::service_account::{Claimed, Issuer};
use crate::client::Change;
use crate::json;
use crate::pki::certs::DynamicCa;
use crate::storage::{Entry, MinRevision, Storage};
use crate::sync::Mutex;
use crate::tasks::off_thread;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Both queues of upstream have this name.
const QUEUE: &str = "serviceaccount_tokens_service";
/// Upstream's default of `--concurrent-serviceaccount-token-syncs`.
const WORKERS: usize = 5;

/// A Secret that was changed or deleted, or whose ServiceAccount was.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Item {
    key: Str,
    token: AccountToken,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret {}", self.key)
    }
}

/// The Secrets of each ServiceAccount, by its key.
type ByAccount = Mutex<HashMap<Str, BTreeSet<Str>>>;

fn account_key(key: &str, token: &AccountToken) -> Option<Str> {
    let (namespace, _) = key.split_once('/')?;
    Some(format!("{namespace}/{}", token.account).into())
}

/// Updates the index with a change of a Secret.
fn index(by_account: &ByAccount, change: &Change<'_, Secret>) {
    let account = |secret: Option<&Arc<Secret>>| account_key(change.key, secret?.account()?);
    let (old, new) = (account(change.old), account(change.new));
    if old == new {
        return;
    }
    let mut all = by_account.lock();
    if let Some(account) = old {
        let left = all.get_mut(&account).is_some_and(|secrets| {
            secrets.remove(change.key);
            !secrets.is_empty()
        });
        if !left {
            all.remove(&account);
        }
    }
    if let Some(account) = new {
        all.entry(account).or_default().insert(change.key.into());
    }
}

/// Keeps the Secrets.
struct Tokens {
    secrets: Arc<dyn Storage>,
    accounts: Arc<dyn Storage>,
    issuer: Issuer,
    ca: Option<Arc<DynamicCa>>,
    api: Loopback,
}

/// Starts the loop.
pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Item>(QUEUE);
    let by_account: Arc<ByAccount> = Arc::default();
    let (changed, indexed) = (queue.clone(), by_account.clone());
    let secrets = term.inform(("", "secrets"), Secret::from_entry, |secrets| {
        secrets.subscribe(move |change: &Change<'_, Secret>| {
            index(&indexed, change);
            let token = change.new.or(change.old).and_then(|secret| secret.account());
            if let Some(token) = token.cloned() {
                let key = change.key.into();
                changed.add(Item { key, token });
            }
        });
    });
    let Some(secrets) = secrets else { return };
    let deleted = queue.clone();
    let accounts = term.inform(
        ("", "serviceaccounts"),
        |entry: &Entry| Str::from(entry.decode_parts(&UID).uid()),
        |accounts| {
            accounts.subscribe(move |change: &Change<'_, Str>| {
                if change.old == change.new {
                    return;
                }
                let all = by_account.lock();
                for key in all.get(change.key).into_iter().flatten() {
                    if let Some(token) = secrets.get(key).and_then(|s| s.account().cloned()) {
                        deleted.add(Item {
                            key: key.clone(),
                            token,
                        });
                    }
                }
            });
        },
    );
    let (Some(_), Some(secrets), Some(accounts)) = (
        accounts,
        term.storage("", "secrets"),
        term.storage("", "serviceaccounts"),
    ) else {
        return;
    };
    let tokens = Arc::new(Tokens {
        secrets,
        accounts,
        issuer: term.issuer.clone(),
        ca: term.root_ca.clone(),
        api: term.manager("tokens-controller"),
    });
    term.process(QUEUE, &queue, WORKERS, move |item: Item| {
        let tokens = tokens.clone();
        async move { tokens.sync(&item).await }
    });
}

static UID: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.uid"]));

impl Tokens {
    async fn sync(&self, item: &Item) -> Result<(), Failure> {
        let Some((namespace, name)) = item.key.split_once('/') else {
            return Ok(());
        };
        let account = format!("{namespace}/{}", item.token.account);
        let account = read(&*self.accounts, &account).await?.filter(|a| item.token.is_of(a));
        let secret = read(&*self.secrets, &item.key).await?;
        let secret = secret.filter(|s| s.uid() == item.token.uid);
        let path = Path::core(namespace, "secrets").name(name);
        match (secret, account) {
            (None, None) => Ok(()),
            (None, Some(account)) => self.drop_reference(namespace, account, name).await,
            (Some(_), None) => {
                let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
                    "preconditions": {"uid": (item.token.uid.as_str())}});
                ignoring(self.api.delete(path, &options).await)
            }
            (Some(secret), Some(account)) => {
                let ca = self.ca.as_ref().map(|ca| ca.current().pem.clone());
                let Some(mut filled) = missing(&secret, ca.as_ref()) else {
                    return Ok(());
                };
                if data(&secret, "token").is_empty() {
                    let token = self.sign(&secret, &account).await?;
                    filled.set(&["data", "token"], STANDARD.encode(token));
                }
                filled.set(&["metadata", "annotations", ACCOUNT], account.name());
                filled.set(&["metadata", "annotations", ACCOUNT_UID], account.uid());
                ignoring(self.api.replace(path, &filled).await.map(drop))
            }
        }
    }

    async fn sign(&self, secret: &Value, account: &Value) -> Result<String, Failure> {
        let (issuer, namespace, name) = (
            self.issuer.clone(),
            secret.namespace().to_owned(),
            secret.name().to_owned(),
        );
        let account = Claimed {
            name: account.name().to_owned(),
            uid: account.uid().to_owned(),
        };
        let signed = off_thread(0, move || issuer.issue_legacy(&namespace, &account, &name)).await;
        let signed = signed.ok_or_else(|| Failure::unreadable("the gateway is shutting down"))?;
        signed.map_err(Failure::unreadable)
    }

    /// Removes a deleted Secret from those that its ServiceAccount lists.
    async fn drop_reference(&self, namespace: &str, mut account: Value, secret: &str) -> Result<(), Failure> {
        let all = account.get("secrets").items();
        let others = all.iter().filter(|s| s.str_at(&["name"]) != secret);
        let others: Vec<Value> = others.cloned().collect();
        if others.len() == all.len() {
            return Ok(());
        }
        match others.is_empty() {
            true => drop(account.unset(&["secrets"])),
            false => account.set(&["secrets"], others),
        }
        let path = Path::core(namespace, "serviceaccounts").name(account.name());
        found(self.api.replace(path, &account).await).map(drop)
    }
}

/// Ignores that the object is gone or has changed: its change brings it back here.
fn ignoring(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(e) if matches!(e.code, 404 | 409) => Ok(()),
        other => other,
    }
}

async fn read(storage: &dyn Storage, key: &str) -> Result<Option<Value>, Failure> {
    let live = storage.get(key, MinRevision::Latest).await?;
    Ok(live.map(|entry| entry.decode()))
}

fn data<'a>(secret: &'a Value, key: &str) -> &'a str {
    secret.str_at(&["data", key])
}

/// The Secret with its namespace and the CA; `None` if it lacks nothing, not even a token.
fn missing(secret: &Value, ca: Option<&Bytes>) -> Option<Value> {
    let ca = ca
        .map(|pem| STANDARD.encode(pem))
        .filter(|ca| *ca != data(secret, "ca.crt"));
    if ca.is_none() && !data(secret, "namespace").is_empty() && !data(secret, "token").is_empty() {
        return None;
    }
    let mut filled = secret.clone();
    if let Some(ca) = ca {
        filled.set(&["data", "ca.crt"], ca);
    }
    if data(secret, "namespace").is_empty() {
        filled.set(&["data", "namespace"], STANDARD.encode(secret.namespace()));
    }
    Some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_fields_are_filled_in() {
        let ca = Bytes::from_static(b"PEM");
        let empty = json!({"metadata": {"namespace": "x"}});
        let filled = missing(&empty, Some(&ca)).expect("all is missing");
        assert_eq!((data(&filled, "ca.crt"), data(&filled, "namespace")), ("UEVN", "eA=="));
        let mut whole = missing(&filled, Some(&ca)).expect("the token is missing");
        assert_eq!(whole, filled);
        whole.set(&["data", "token"], "dA==");
        assert_eq!(missing(&whole, Some(&ca)), None);
        let other = Bytes::from_static(b"new");
        let renewed = missing(&whole, Some(&other)).expect("the CA is another");
        assert_eq!((data(&renewed, "ca.crt"), data(&renewed, "token")), ("bmV3", "dA=="));
        assert_eq!(missing(&whole, None), None);
    }
}
