//! ResourceQuota: rejects writes that would exceed a namespace's quotas and charges admitted ones to their
//! `status.used`.
//!
//! Only `status.hard` is enforced, which a controller copies from the spec; a quota without it has no effect.
//! Usage is charged before the object is stored and never given back here. If the write fails afterwards, or
//! when the object is deleted, the controller recomputes the usage.
//!
//! Upstream serialises charges per namespace through one worker. Here, each write charges its quotas itself
//! by compare-and-swap, and evaluates again on conflict. Of two conflicting writes, one always makes
//! progress. Quotas come from the cache first, where an old one fails the compare-and-swap; a write is
//! rejected, or evaluated again, only with the latest ones.

mod amounts;
mod config;
mod evaluate;
mod evaluator;
mod pods;
mod recount;
mod scopes;
mod usage;

pub(crate) use config::QuotaConfig;
pub(crate) use recount::Recount;

use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::storage::{Entry, Error, ListOptions, Precondition};
use crate::tasks::compute;
use amounts::Amounts;
use async_trait::async_trait;
use evaluate::{Rejection, Write, evaluate};
use evaluator::Evaluator;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a write retries to charge its quotas before it fails.
const RETRY_TIME_LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct ResourceQuota {
    cluster: ObjectLookup,
    config: QuotaConfig,
}

/// A stored quota, with the entry that the compare-and-swap is based on.
struct Quota {
    entry: Arc<Entry>,
    object: Value,
}

/// The consistency of a read of quotas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadConsistency {
    Cached,
    Latest,
}

impl ResourceQuota {
    /// Reads and charges quotas in `cluster`. `config` lists the resources that may only be used under a
    /// quota.
    pub(crate) fn new(cluster: ObjectLookup, config: QuotaConfig) -> Self {
        Self { cluster, config }
    }

    async fn quotas(&self, namespace: &str, consistency: ReadConsistency) -> Result<Vec<Quota>> {
        let entries = match consistency {
            ReadConsistency::Cached => self.cluster.list_entries("", "resourcequotas", namespace).await?,
            ReadConsistency::Latest => {
                let storage = self.cluster.storage("", "resourcequotas")?;
                // Before the list: etcd is asked first, and whoever awaits the answer collects the objects.
                compute::leave_reactor_to_list(storage.count()).await;
                let listed = storage.list(ListOptions::latest(namespace)).await;
                listed.map_err(Status::internal)?.entries
            }
        };
        compute::leave_reactor_to_decode(entries.iter().map(|entry| entry.json.len()).sum()).await;
        let quotas = entries.into_iter().map(|entry| Quota {
            object: entry.decode(),
            entry,
        });
        Ok(quotas.collect())
    }

    /// Stores the new usage. `Ok(false)` if the quota was changed concurrently.
    async fn charge(&self, quota: &Quota, used: &Amounts) -> Result<bool> {
        let draft = usage::charged(&quota.entry, &quota.object, used);
        // The evaluation is only valid for this revision.
        let when = Precondition::Unchanged(quota.entry.revision);
        let storage = self.cluster.storage("", "resourcequotas")?;
        match storage.put(&quota.entry.key, when, draft, None).await {
            Ok(_) => Ok(true),
            Err(Error::Conflict(_)) => Ok(false),
            Err(error) => Err(Status::internal(error)),
        }
    }

    async fn evaluate(&self, attributes: &Attributes, object: &Value, evaluator: &Evaluator<'_>) -> Result<()> {
        let write = Write {
            attributes,
            object,
            old: attributes.old_object.as_deref(),
        };
        let until = Instant::now() + RETRY_TIME_LIMIT;
        let mut consistency = ReadConsistency::Cached;
        let mut quotas = self.quotas(&attributes.namespace, consistency).await?;
        loop {
            // The common case: nothing is decoded or evaluated for namespaces without quotas.
            if quotas.is_empty() && self.config.limited.is_empty() {
                return Ok(());
            }
            let objects: Vec<&Value> = quotas.iter().map(|q| &q.object).collect();
            let charges = match evaluate(&objects, &write, evaluator, &self.config.limited) {
                Ok(charges) => charges,
                Err(Rejection::Forbidden(_)) if consistency == ReadConsistency::Cached => {
                    consistency = ReadConsistency::Latest;
                    quotas = self.quotas(&attributes.namespace, consistency).await?;
                    continue;
                }
                Err(Rejection::Forbidden(why)) => return Err(forbidden(attributes, object, why)),
                Err(Rejection::Failed(why)) => return Err(Status::raw_error(why)),
            };
            // A dry run is evaluated but never charged.
            if attributes.dry_run {
                return Ok(());
            }
            let mut missed = HashSet::new();
            consistency = ReadConsistency::Latest;
            // One after the other. If one fails the others stay charged, which the controller's recount repairs;
            // undoing them could race with it.
            for (quota, used) in quotas.iter().zip(&charges) {
                if let Some(used) = used
                    && !self.charge(quota, used).await?
                {
                    missed.insert(quota.entry.key.clone());
                }
            }
            if missed.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Status::internal("resource quota evaluation timed out"));
            }
            // Retry only the missed quotas, as the others are charged already. A quota deleted meanwhile
            // drops out.
            quotas = self.quotas(&attributes.namespace, consistency).await?;
            quotas.retain(|q| missed.contains(&q.entry.key));
        }
    }
}

/// True for resources that are not subject to quota.
fn is_ignored(attributes: &Attributes) -> bool {
    matches!(
        (&*attributes.resource.group, &*attributes.resource.resource),
        ("", "bindings" | "componentstatuses" | "events")
            | ("events.k8s.io", "events")
            | ("authentication.k8s.io" | "authorization.k8s.io", _)
    )
}

/// Subresources do not count, except `pods/resize`, which changes a pod's requests.
fn is_counted(attributes: &Attributes) -> bool {
    let sub = &*attributes.subresource;
    let counted = sub.is_empty() || sub == "resize" && attributes.is_for("", "pods");
    counted && !attributes.namespace.is_empty() && !attributes.is("", "namespaces") && !is_ignored(attributes)
}

#[async_trait]
impl Admission for ResourceQuota {
    fn handles(&self, attributes: &Attributes) -> bool {
        let written = match attributes.operation {
            Operation::Create => true,
            Operation::Update => Evaluator::follows_updates(&attributes.resource),
            _ => false,
        };
        written && is_counted(attributes)
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let resource = attributes.resource.group_resource();
        let evaluator = Evaluator::of(&resource);
        match evaluator.handles(attributes, object) {
            true => self.evaluate(attributes, object, &evaluator).await,
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
