//! Secrets of the type `kubernetes.io/service-account-token`
//! (`pkg/controller/serviceaccount/tokens_controller.go`): fills them with a token that does not expire, and
//! deletes them when their ServiceAccount is gone.

use super::Term;
use super::loopback::{Failure, Loopback, Path, encode, found};
use super::secrets::{ACCOUNT, ACCOUNT_UID, AccountToken, Secret};
use super::sized;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::authn::service_account::{Claimed, Issuer};
use crate::client::{Change, Informer};
use crate::json;
use crate::pki::certs::DynamicCa;
use crate::storage::{Entry, MinRevision, Storage};
use crate::sync::Mutex;
use crate::tasks::{WorkQueue, off_thread};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use imbl::OrdSet;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Both queues of upstream have this name.
const QUEUE: &str = "serviceaccount_tokens_service";
/// Upstream's default of `--concurrent-serviceaccount-token-syncs`.
const WORKERS: usize = 5;

/// Secrets that are queued before the task yields.
const BATCH: usize = 64;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// A Secret that was changed or deleted, or whose ServiceAccount was.
    Secret(Str, AccountToken),
    /// A ServiceAccount that was changed or deleted.
    Account(Str),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(key, _) => write!(f, "secret {key}"),
            Self::Account(key) => write!(f, "secrets of {key}"),
        }
    }
}

/// The Secrets of each ServiceAccount, by its key. The sets are persistent, so a reader clones one under the lock
/// and walks it without. The map is a tree, which never moves all accounts at once, as a hash table that grows does.
type ByAccount = Mutex<BTreeMap<Str, OrdSet<Str>>>;

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
            // Only accounts with token Secrets have an entry; the subscriber below relies on that.
            all.remove(&account);
        }
    }
    if let Some(account) = new {
        all.entry(account).or_default().insert(change.key.into());
    }
}

/// State that the workers share.
struct Tokens {
    secrets: Arc<dyn Storage>,
    accounts: Arc<dyn Storage>,
    known: Informer<Secret>,
    by_account: Arc<ByAccount>,
    queue: WorkQueue<Item>,
    issuer: Issuer,
    ca: Option<Arc<DynamicCa>>,
    api: Loopback,
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Item>(QUEUE);
    let by_account: Arc<ByAccount> = Arc::default();
    let (changed, indexed) = (queue.clone(), by_account.clone());
    let known = term.inform(("", "secrets"), Secret::from_entry, |secrets| {
        secrets.subscribe(move |change: &Change<'_, Secret>| {
            // Before the queue: a worker that looks the account up must find the Secret.
            index(&indexed, change);
            let token = change.new.or(change.old).and_then(|secret| secret.account());
            if let Some(token) = token.cloned() {
                changed.add(Item::Secret(change.key.into(), token));
            }
        });
    });
    let Some(known) = known else { return };
    let (changed, indexed) = (queue.clone(), by_account.clone());
    let accounts = term.inform(
        ("", "serviceaccounts"),
        // Only the UID is kept: no other change of a ServiceAccount matters to its Secrets.
        |entry: &Entry| Str::from(entry.decode_parts(&UID).uid()),
        |accounts| {
            accounts.subscribe(move |change: &Change<'_, Str>| {
                // There may be thousands of Secrets, so a worker queues each.
                if change.old != change.new && indexed.lock().contains_key(change.key) {
                    changed.add(Item::Account(change.key.into()));
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
        known,
        by_account,
        queue: queue.clone(),
        issuer: term.issuer.clone(),
        ca: term.root_ca.clone(),
        api: term.manager("tokens-controller"),
    });
    term.process(QUEUE, &queue, WORKERS, move |item: Item| {
        let tokens = tokens.clone();
        async move {
            match item {
                Item::Secret(key, token) => tokens.sync(&key, token).await,
                Item::Account(key) => {
                    tokens.queue_secrets(&key).await;
                    Ok(())
                }
            }
        }
    });
}

static UID: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.uid"]));
static NAMES: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.{name,uid}"]));

/// A Secret that lacks something.
struct Incomplete {
    /// With everything but a token.
    filled: Value,
    lacks_token: bool,
    size: usize,
}

impl Tokens {
    /// Queues the Secrets of a ServiceAccount.
    async fn queue_secrets(&self, account: &str) {
        let all = self.by_account.lock().get(account).cloned().unwrap_or_default();
        for (n, key) in all.iter().enumerate() {
            if let Some(token) = self.known.get(key).and_then(|s| s.account().cloned()) {
                self.queue.add(Item::Secret(key.clone(), token));
            }
            if n % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn sync(&self, key: &str, token: AccountToken) -> Result<(), Failure> {
        let Some((namespace, name)) = key.split_once('/') else {
            return Ok(());
        };
        let account = format!("{namespace}/{}", token.account);
        // The latest state, not the cache's: a cache that lags behind would delete Secrets of a new account.
        let live = self.accounts.get(&account, MinRevision::Latest).await?;
        let uid = token.uid.clone();
        let account = sized::read(live.clone(), move |entry| claimed(entry, &token))
            .await?
            .flatten();
        let secret = self.secrets.get(key, MinRevision::Latest).await?;
        let (ca, own) = (self.ca.as_ref().map(|ca| ca.current().pem.clone()), uid.clone());
        let secret = sized::read(secret, move |entry| {
            let secret = entry.decode();
            // A recreated Secret has an item of its own in the queue.
            (secret.uid() == own).then(|| incomplete(&secret, ca.as_ref(), entry.json.len()))
        });
        let secret = secret.await?.flatten();
        let path = Path::core(namespace, "secrets").name(name);
        match (secret, account) {
            (None, None) => Ok(()),
            (None, Some(account)) => self.drop_reference(namespace, &account, live, name).await,
            (Some(_), None) => {
                let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
                    // Another Secret may have taken the name since it was read.
                    "preconditions": {"uid": (uid.as_str())}});
                ignoring(self.api.delete(path, &options).await)
            }
            (Some(None), Some(_)) => Ok(()),
            (Some(Some(secret)), Some(account)) => {
                let token = match secret.lacks_token {
                    // Only if needed: a signature costs a millisecond of a core with RSA.
                    true => Some(self.sign(namespace, name, account.clone()).await?),
                    false => None,
                };
                let (size, mut filled) = (secret.size, secret.filled);
                let filled = sized::compute(size, move || {
                    if let Some(token) = token {
                        filled.set(&["data", "token"], STANDARD.encode(token));
                    }
                    // The name as the account has it, and the UID, which the Secret may lack.
                    filled.set(&["metadata", "annotations", ACCOUNT], account.name);
                    filled.set(&["metadata", "annotations", ACCOUNT_UID], account.uid);
                    encode(&filled)
                });
                ignoring(self.api.replace(path, filled.await?).await)
            }
        }
    }

    async fn sign(&self, namespace: &str, name: &str, account: Claimed) -> Result<String, Failure> {
        let (issuer, namespace, name) = (self.issuer.clone(), namespace.to_owned(), name.to_owned());
        // RSA signatures are too slow for a reactor.
        let signed = off_thread(0, move || issuer.issue_legacy(&namespace, &account, &name)).await;
        let signed = signed.ok_or_else(|| Failure::unreadable("the gateway is shutting down"))?;
        signed.map_err(Failure::unreadable)
    }

    /// Removes a deleted Secret from those that its ServiceAccount lists.
    async fn drop_reference(
        &self,
        namespace: &str,
        account: &Claimed,
        live: Option<Arc<Entry>>,
        secret: &str,
    ) -> Result<(), Failure> {
        let secret = secret.to_owned();
        let left = sized::read(live, move |entry| {
            without(entry.decode(), &secret).map(|account| encode(&account))
        });
        let Some(account_left) = left.await?.flatten() else {
            return Ok(());
        };
        let path = Path::core(namespace, "serviceaccounts").name(&account.name);
        // Carries the resourceVersion that was read, so a concurrent change of the list is not lost.
        found(self.api.replace(path, account_left).await).map(drop)
    }
}

/// The name and UID of a ServiceAccount, if the token is one of it.
fn claimed(entry: &Entry, token: &AccountToken) -> Option<Claimed> {
    let account = entry.decode_parts(&NAMES);
    token.is_of_uid(account.uid()).then(|| Claimed {
        name: account.name().to_owned(),
        uid: account.uid().to_owned(),
    })
}

/// A ServiceAccount without a Secret in its list; `None` if it does not list it.
fn without(mut account: Value, secret: &str) -> Option<Value> {
    let all = account.get("secrets").items();
    let others = all.iter().filter(|s| s.str_at(&["name"]) != secret);
    let others: Vec<Value> = others.cloned().collect();
    if others.len() == all.len() {
        return None;
    }
    match others.is_empty() {
        true => drop(account.unset(&["secrets"])),
        false => account.set(&["secrets"], others),
    }
    Some(account)
}

fn incomplete(secret: &Value, ca: Option<&Bytes>, size: usize) -> Option<Incomplete> {
    let filled = missing(secret, ca)?;
    let lacks_token = data(secret, "token").is_empty();
    Some(Incomplete {
        filled,
        lacks_token,
        size,
    })
}

/// Ignores that the object is gone or has changed: its change brings it back here.
fn ignoring(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(e) if matches!(e.code, 404 | 409) => Ok(()),
        other => other,
    }
}

fn data<'a>(secret: &'a Value, key: &str) -> &'a str {
    secret.str_at(&["data", key])
}

/// The Secret with its namespace and the CA; `None` if it lacks nothing, not even a token.
fn missing(secret: &Value, ca: Option<&Bytes>) -> Option<Value> {
    let ca = ca
        .map(|pem| STANDARD.encode(pem))
        // Renewed CAs replace old ones. Without a known CA, whatever is stored stays.
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

    #[test]
    fn only_the_secret_is_removed_from_its_account() {
        let account = json!({"secrets": [{"name": "a"}, {"name": "b"}]});
        let left = without(account.clone(), "a").expect("it lists it");
        assert_eq!(left, json!({"secrets": [{"name": "b"}]}));
        assert_eq!(without(left, "b"), Some(json!({})));
        assert_eq!(without(account, "c"), None);
    }
}
