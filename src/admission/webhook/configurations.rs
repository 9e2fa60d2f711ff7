//! [`Configurations`]: the compiled webhook configurations of one kind. A change makes the next request
//! rebuild the [`Snapshot`], so that a burst of changes costs one rebuild.

use super::advice;
use super::config::{Configuration, Hook};
use super::stats::Stats;
use crate::admission::matching::PluralIndex;
use crate::admission::{CATCH_UP_TIMEOUT, ObjectLookup};
use crate::apimachinery::value::Value;
use crate::client::webhook::{SharedWebhooks, UnusableConfig, Webhook};
use crate::client::{Informer, InformerHandle};
use crate::storage::Storage;
use crate::tasks::{Derived, Signal};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The webhook configurations of one kind. Empty, and not ready, until [`follow`](Self::follow) was called
/// and the feed runs.
#[derive(Default)]
pub(crate) struct Configurations {
    /// Set late: it needs a store, and the stores need the plugins that read this.
    followed: OnceLock<Followed>,
    snapshot: Derived<Snapshot>,
}

struct Followed {
    storage: Arc<dyn Storage>,
    informer: Informer<Configuration>,
}

/// Feeds [`Configurations`] while it runs.
pub(crate) struct Feed(InformerHandle<Configuration>);

/// All webhooks of a kind: the configurations in the order of their names, and the webhooks of each in its
/// order.
#[derive(Default)]
pub(super) struct Snapshot {
    pub hooks: Vec<Arc<Active>>,
    pub index: PluralIndex,
}

/// A webhook in use. It survives changes of other configurations.
pub(super) struct Active {
    pub hook: Arc<Hook>,
    /// Set by the first call: connecting at parse time would load certificates of webhooks that are never called.
    connection: OnceLock<Result<Arc<Webhook>, UnusableConfig>>,
    /// The statistics of the webhook, which survive changes of its configuration.
    pub stats: Arc<Stats>,
}

/// The informer did not catch up in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotReady;

impl Feed {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        self.0.run().await;
    }
}

impl Active {
    /// The connection to the webhook.
    ///
    /// # Errors
    /// If the `clientConfig` cannot be used.
    pub(crate) fn connection(&self, webhooks: &SharedWebhooks) -> Result<&Arc<Webhook>, &UnusableConfig> {
        let connect = || match &self.hook.client {
            Ok(config) => webhooks.get(config),
            Err(e) => Err(e.clone()),
        };
        self.connection.get_or_init(connect).as_ref()
    }
}

impl Configurations {
    /// Follows the stored configurations. The signal fires when they have been read. Must be called once;
    /// later calls have no effect on requests.
    pub(crate) fn follow(self: &Arc<Self>, storage: Arc<dyn Storage>) -> (Feed, Signal) {
        let (informer, handle) = Informer::new(storage.clone(), Configuration::from_entry);
        // The cycle through the informer is harmless: both live as long as the process.
        let me = self.clone();
        // Only marks the snapshot as old: this runs in the informer, which must not wait for a rebuild.
        informer.subscribe(move |_| me.snapshot.invalidate());
        let synced = informer.synced().clone();
        // An error means a second call, which is documented to have no effect.
        let _ = self.followed.set(Followed { storage, informer });
        (Feed(handle), synced)
    }

    /// False only if it is certain that no webhook can match this resource.
    pub(crate) fn may_match(&self, plural: &str) -> bool {
        // An informer that lags may lack a webhook that was acknowledged, so only a current one can exclude
        // it.
        let snapshot = self.current().and_then(|_| self.snapshot.current());
        snapshot.is_none_or(|s| s.index.has_candidates(plural))
    }

    /// The source, if it has seen everything that was acknowledged.
    fn current(&self) -> Option<&Followed> {
        self.followed.get().filter(|f| f.informer.is_current(&*f.storage))
    }

    /// All webhooks of the configurations that were acknowledged before this call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn fresh(&self) -> Result<Arc<Snapshot>, NotReady> {
        let followed = self.followed.get().ok_or(NotReady)?;
        if self.current().is_none() {
            let caught_up = followed.informer.catch_up(&*followed.storage);
            let in_time = tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await;
            in_time.map_err(|_| NotReady)?;
        }
        // One configuration may name a hundred thousand resources.
        Ok(self.snapshot.get_off_reactor(updated_from(followed)).await)
    }

    /// Statistics of the calls of each webhook, in the order of calls, and the advice about it, for which objects are
    /// read through `cluster`. `kind` is `Mutating` or `Validating`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn status(&self, kind: &str, cluster: &ObjectLookup) -> Vec<Value> {
        let Some(followed) = self.followed.get() else {
            return Vec::new();
        };
        let snapshot = self.snapshot(followed);
        let mut documents = Vec::with_capacity(snapshot.hooks.len());
        for active in &snapshot.hooks {
            let connection = active.connection.get().and_then(|c| c.as_deref().ok());
            // Not `connection()`: a status page must not be the one that opens it.
            let mut document = active.stats.document(&active.hook, connection);
            document.set(&["type"], kind);
            if let Some(warning) = advice::warning(cluster, &active.hook).await {
                document.set(&["warning"], warning);
            }
            documents.push(document);
        }
        documents
    }

    fn snapshot(&self, followed: &Followed) -> Arc<Snapshot> {
        self.snapshot.get(updated_from(followed))
    }
}

fn updated_from(followed: &Followed) -> impl FnOnce(&Snapshot) -> Snapshot + Send {
    move |before: &Snapshot| before.updated(followed.informer.snapshot().values())
}

impl Snapshot {
    /// The snapshot of these configurations, which are in the order of their names.
    pub(crate) fn updated<'c>(&self, configurations: impl Iterator<Item = &'c Arc<Configuration>>) -> Self {
        let known: HashMap<&str, &Arc<Active>> = self.hooks.iter().map(|a| (a.hook.id.as_str(), a)).collect();
        let hooks = configurations
            .flat_map(|c| &c.hooks)
            .map(|hook| match known.get(hook.id.as_str()) {
                // The informer parses a configuration only when it changes.
                Some(active) if Arc::ptr_eq(&active.hook, hook) => Arc::clone(active),
                before => Arc::new(Active {
                    hook: hook.clone(),
                    connection: OnceLock::new(),
                    // The connection is new, because the address or the CA may have changed.
                    stats: before.map(|active| active.stats.clone()).unwrap_or_default(),
                }),
            });
        let hooks: Vec<_> = hooks.collect();
        let index = PluralIndex::new(hooks.iter().map(|a| &a.hook.criteria));
        Self { hooks, index }
    }

    /// The webhooks that can match a resource, with their positions.
    pub(crate) fn candidates(&self, plural: &str) -> impl Iterator<Item = (usize, &Arc<Active>)> {
        self.index
            .candidates(plural)
            .map(|position| (position, &self.hooks[position]))
    }
}
