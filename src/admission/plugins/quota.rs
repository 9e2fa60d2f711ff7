//! What a namespace may hold: writes beyond its ResourceQuotas are refused, and what is let in is charged to their
//! `status.used`. As upstream's `ResourceQuota` plugin.
//!
//! Only `status.hard` is enforced, which a controller fills: a quota without it restrains nothing. Usage is charged
//! before the object is stored and never given back here; where the write fails after all, or the object goes, the
//! controller counts anew.
//!
//! Upstream lets one worker at a time charge a namespace. Here each write charges by itself, with a compare-and-swap of
//! each quota, and looks at the quota again where another write came first: of two writes that meet, one gets on.

mod config;
mod evaluator;
mod judge;
mod pods;
mod scopes;
mod usage;

pub use config::{LimitedResource, QuotaConfig};

use crate::admission::{Admission, Attributes, Cluster, Operation, forbidden};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::storage::{Entry, Error, ListOptions, Precondition};
use async_trait::async_trait;
use evaluator::Evaluator;
use judge::{Denial, Write, judge};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time a write keeps trying to charge its quotas.
const LONGEST: Duration = Duration::from_secs(10);

/// The plugin.
pub struct ResourceQuota {
    cluster: Cluster,
    config: QuotaConfig,
}

/// A quota as it is stored.
struct Quota {
    entry: Arc<Entry>,
    object: Value,
}

impl ResourceQuota {
    /// Reads and charges quotas there.
    pub fn new(cluster: Cluster, config: QuotaConfig) -> Self {
        Self { cluster, config }
    }

    async fn quotas(&self, namespace: &str) -> Result<Vec<Quota>> {
        let storage = self.cluster.storage("", "resourcequotas")?;
        let listed = storage.list(ListOptions::latest(namespace)).await;
        let entries = listed.map_err(Status::internal)?.entries;
        let quotas = entries.into_iter().map(|entry| Quota {
            object: entry.decode(),
            entry,
        });
        Ok(quotas.collect())
    }

    /// Stores the quota with what is used now. `Ok(false)`: somebody else changed it first.
    async fn charge(&self, quota: &Quota, used: &judge::Amounts) -> Result<bool> {
        let draft = usage::charged(&quota.entry, &quota.object, used);
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
        let until = Instant::now() + LONGEST;
        let mut quotas = self.quotas(&attributes.namespace).await?;
        loop {
            if quotas.is_empty() && self.config.limited.is_empty() {
                return Ok(());
            }
            let objects: Vec<&Value> = quotas.iter().map(|q| &q.object).collect();
            let charges = judge(&objects, &write, evaluator, &self.config.limited).map_err(|denial| match denial {
                Denial::Forbidden(why) => forbidden(attributes, object, why),
                Denial::Failed(why) => Status::raw_error(why),
            })?;
            if attributes.dry_run {
                return Ok(());
            }
            let mut missed: Vec<Box<str>> = Vec::new();
            for (quota, used) in quotas.iter().zip(&charges) {
                if let Some(used) = used
                    && !self.charge(quota, used).await?
                {
                    missed.push(quota.entry.key.clone());
                }
            }
            if missed.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Status::internal("resource quota evaluation timed out"));
            }
            // The others are charged already; one that is gone needs no charge.
            quotas = self.quotas(&attributes.namespace).await?;
            quotas.retain(|q| missed.contains(&q.entry.key));
        }
    }
}

/// True for what no quota counts.
fn is_ignored(attributes: &Attributes) -> bool {
    matches!(
        (&*attributes.resource.group, &*attributes.resource.resource),
        ("", "bindings" | "componentstatuses" | "events")
            | ("events.k8s.io", "events")
            | ("authentication.k8s.io" | "authorization.k8s.io", _)
    )
}

/// Subresources are of no interest, but for the one that changes what a pod asks for.
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
