//! Trust between gateways that share an etcd: each publishes what verifies the credentials that it signs
//! (public token keys and CA certificates, never a private key), and accepts what the others publish. So a
//! token or certificate of one is accepted by all, and so are its backends' answers to either.
//!
//! Entry points: [`SharedTrust::open`] before the stores are loaded, [`SharedTrust::start`] before the port
//! opens. Only generated keys are shared: whoever gives keys by flags gives the same to every gateway, as for
//! kube-apiserver.
//!
//! Records are stored beside the objects but belong to no resource, so that no right on the API allows adding
//! a CA: only who may write to etcd can.

mod record;

use super::Error;
use super::port::Port;
use super::service_accounts::ServiceAccounts;
use super::store::Stores;
use crate::authn::service_account::VerificationKeys;
use crate::cli::CompletedOptions;
use crate::client::{Informer, InformerHandle};
use crate::pki::certs::DynamicCa;
use crate::storage::{self, Entry, MinRevision, Precondition, ResourceConfig, Storage};
use crate::tasks::{self, Signal, TaskGroup};
use imbl::OrdMap;
use record::{TrustRecord, Verifiers, cas, keys, unix_now};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Where the records are. No custom resource can be stored here: its group would have a dot.
const PREFIX: &str = "/registry/torana/trust/";
/// Interval at which a gateway renews its record.
const RENEW: Duration = Duration::from_secs(600);
/// How long a gateway counts as alive after that, as with upstream's identity Leases.
const ALIVE: Duration = Duration::from_secs(3600);
/// Lifetime of the certificates and tokens that a gateway signs if nothing else is configured.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum number of records that are trusted, the most recently renewed ones first.
const MAX_TRUSTED_RECORDS: usize = 256;
/// How often a write of a record is retried after a conflict.
const ATTEMPTS: usize = 5;
/// How long the start waits for the records of others.
const SYNC: Duration = Duration::from_secs(10);

/// The verifiers of this gateway that others complete; `None` where a flag names the keys.
#[derive(Clone)]
struct Extended {
    clients: Option<Arc<DynamicCa>>,
    proxies: Option<Arc<DynamicCa>>,
    serving: Option<Arc<DynamicCa>>,
    tokens: Option<VerificationKeys>,
}

/// The trust that this gateway shares.
pub(crate) struct SharedTrust {
    storage: Arc<dyn Storage>,
    records: Informer<Option<TrustRecord>>,
    feed: InformerHandle<Option<TrustRecord>>,
    extended: Extended,
    host: String,
    trusted_for: Duration,
}

impl SharedTrust {
    /// `None` if there is nothing to share, or nobody to share it with. If `--share-trust` is off, a warning
    /// says what other gateways will not accept.
    pub(crate) fn open(
        options: &CompletedOptions,
        stores: &Stores,
        port: &Port,
        accounts: &ServiceAccounts,
    ) -> Option<Self> {
        // The embedded store belongs to one process, so there is nobody to share with.
        options.storage.etcd.as_ref()?;
        let (authentication, account) = (&options.authentication, &options.authentication.service_account);
        let generated_tokens = account.signing_key.is_none() && account.key_files.is_empty();
        let extended = Extended {
            clients: authentication.client_ca.is_none().then(|| port.client_ca.clone()),
            proxies: authentication
                .request_header
                .client_ca
                .is_none()
                .then(|| port.request_header_ca.clone()),
            serving: port.serving_ca.clone(),
            tokens: generated_tokens.then(|| accounts.keys.clone()),
        };
        let generated = extended.names();
        // All keys were given by flags, which every gateway gets alike.
        if generated.is_empty() {
            return None;
        }
        if !options.storage.share_trust {
            tracing::warn!(
                generated = generated.join(", "),
                "other gateways on this etcd do not accept what this one signs with generated keys: --share-trust is off"
            );
            return None;
        }
        let storage = stores.internal(ResourceConfig {
            prefix: PREFIX.to_owned(),
            fields: None,
            compressed: false,
        });
        let (records, feed) = Informer::new(storage.clone(), |entry: &Entry| TrustRecord::from_entry(entry));
        // Zero means no limit was configured, so the usual lifetime is assumed.
        let longest_token = match account.max_expiration {
            Duration::ZERO => YEAR,
            longest => longest.max(YEAR),
        };
        Some(Self {
            storage,
            records,
            feed,
            extended,
            host: options.host_name.clone(),
            trusted_for: ALIVE + longest_token.max(options.controllers.signing_duration),
        })
    }

    /// Publishes this gateway's verifiers and trusts those of others from now on. Returns once both have
    /// happened, so that no credential is signed that others cannot verify yet. The tasks end with `tasks`.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) async fn start(self, tasks: &TaskGroup) -> Result<(), Error> {
        let Self {
            storage,
            records,
            feed,
            extended,
            host,
            trusted_for,
        } = self;
        let publisher = Publisher {
            storage,
            extended: extended.clone(),
            host,
            trusted_for,
        };
        // First: the others need time to notice.
        let published = publisher.publish().await;
        published.map_err(|e| {
            let why = format!("the keys that verify this gateway's tokens cannot be published: {e}");
            Error::flag("share-trust")(why)
        })?;
        let changed = Arc::new(Notify::new());
        let (notify, synced): (_, Signal) = (changed.clone(), records.synced().clone());
        records.subscribe(move |_| notify.notify_one());
        tasks.spawn_until_stopped("trust of other gateways", feed.run());
        // Not fatal: a gateway that accepts its own credentials only is better than none.
        if tokio::time::timeout(SYNC, synced.wait()).await.is_err() {
            tracing::error!(
                "the trust that other gateways share is not read yet; what they signed is not accepted until then"
            );
        }
        extended.apply(&records).await;
        tasks.spawn_until_stopped("shared trust", async move {
            let mut renewal = tokio::time::interval(RENEW);
            // The first tick is immediate, and the record has just been written.
            renewal.tick().await;
            loop {
                tokio::select! {
                    () = changed.notified() => {
                        // An operator who deletes all records ends the trust in gateways that are gone.
                        if records.get(&publisher.id()).is_none() {
                            publisher.publish_or_log().await;
                        }
                    }
                    _ = renewal.tick() => {
                        publisher.publish_or_log().await;
                        publisher.remove_expired(&records).await;
                    }
                }
                extended.apply(&records).await;
            }
        });
        Ok(())
    }
}

impl Extended {
    /// The names of the keys that are generated here.
    fn names(&self) -> Vec<&'static str> {
        let all = [
            (self.tokens.is_some(), "service account tokens"),
            (self.clients.is_some(), "client certificates"),
            (self.proxies.is_some(), "the identity towards backends"),
            (self.serving.is_some(), "the serving certificate"),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect()
    }

    fn verifiers(&self) -> Verifiers {
        let own = |ca: &Option<Arc<DynamicCa>>| match ca {
            Some(ca) => String::from_utf8_lossy(&ca.own_pem()).into_owned(),
            None => String::new(),
        };
        Verifiers {
            token_keys: self.tokens.as_ref().map(VerificationKeys::own_pem).unwrap_or_default(),
            client_ca: own(&self.clients),
            front_proxy_ca: own(&self.proxies),
            serving_ca: own(&self.serving),
        }
    }

    /// Trusts exactly the CAs and keys in the records, besides this gateway's own. Certificates and keys are
    /// parsed off the reactor.
    async fn apply(&self, records: &Informer<Option<TrustRecord>>) {
        let (extended, records) = (self.clone(), records.snapshot());
        let applied = tasks::off_thread(0, move || extended.trust(&records)).await;
        if applied.is_none() {
            tracing::warn!("the trust that other gateways share was not read; the next change reads it again");
        }
    }

    fn trust(&self, records: &OrdMap<Arc<str>, Arc<Option<TrustRecord>>>) {
        let now = unix_now();
        let mut live: Vec<&TrustRecord> = records.values().filter_map(|r| r.as_ref().as_ref()).collect();
        live.retain(|record| !record.is_expired(now));
        if live.len() > MAX_TRUSTED_RECORDS {
            tracing::warn!(
                records = live.len(),
                "more gateways share their trust than are accepted"
            );
            // The bound keeps a flood of records from slowing down every handshake; gateways that are alive
            // renew, so they stay.
            live.sort_by_key(|record| std::cmp::Reverse(record.renewed));
            live.truncate(MAX_TRUSTED_RECORDS);
        }
        let share = |ca: &Option<Arc<DynamicCa>>, text: fn(&Verifiers) -> &String| {
            if let Some(ca) = ca {
                ca.share(live.iter().filter_map(|r| cas(text(&r.verifiers), &r.host)).collect());
            }
        };
        share(&self.clients, |v| &v.client_ca);
        share(&self.proxies, |v| &v.front_proxy_ca);
        share(&self.serving, |v| &v.serving_ca);
        if let Some(tokens) = &self.tokens {
            tokens.share(
                live.iter()
                    .flat_map(|r| keys(&r.verifiers.token_keys, &r.host))
                    .collect(),
            );
        }
    }
}

/// Writes this gateway's record.
struct Publisher {
    storage: Arc<dyn Storage>,
    extended: Extended,
    host: String,
    trusted_for: Duration,
}

impl Publisher {
    /// The key of this gateway's record.
    fn id(&self) -> String {
        self.extended.verifiers().id()
    }

    async fn publish_or_log(&self) {
        if let Err(error) = self.publish().await {
            tracing::error!(%error, "the keys that verify this gateway's tokens cannot be published");
        }
    }

    async fn publish(&self) -> Result<(), storage::Error> {
        let verifiers = self.extended.verifiers();
        if verifiers.is_empty() {
            return Ok(());
        }
        let key = verifiers.id();
        let record = TrustRecord::new(verifiers, &self.host, self.trusted_for);
        let mut live = self.storage.get(&key, MinRevision::Latest).await?;
        // Two replicas with copied keys have the same record and may renew it at once.
        for _ in 1..ATTEMPTS {
            match self.put(&key, live.as_deref(), &record).await {
                Err(storage::Error::Conflict(now)) => live = now,
                other => return other,
            }
        }
        self.put(&key, live.as_deref(), &record).await
    }

    async fn put(&self, key: &str, live: Option<&Entry>, record: &TrustRecord) -> Result<(), storage::Error> {
        let when = live.map_or(Precondition::Absent, |entry| Precondition::Unchanged(entry.revision));
        self.storage.put(key, when, record.draft(), None).await.map(drop)
    }

    /// Deletes the records that nobody trusts any more.
    async fn remove_expired(&self, records: &Informer<Option<TrustRecord>>) {
        let now = unix_now();
        let snapshot = records.snapshot();
        for (key, _) in snapshot
            .iter()
            .filter(|(_, r)| r.as_ref().as_ref().is_some_and(|r| r.is_expired(now)))
        {
            // Read again: the snapshot may be older than a renewal.
            let live = self.storage.get(key, MinRevision::Latest).await;
            let Ok(Some(entry)) = live else { continue };
            if TrustRecord::from_entry(&entry).is_some_and(|record| record.is_expired(now)) {
                // A conflict means that it was renewed or deleted meanwhile.
                let _ = self.storage.delete(key, entry.revision).await;
            }
        }
    }
}
