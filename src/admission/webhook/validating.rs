//! Calls all matching validating webhooks at the same time, and waits for all of them (upstream:
//! `admission/plugin/webhook/validating/dispatcher.go`).

use super::Calls;
use super::call::{apply_failure_policy, ask};
use super::configurations::{Active, Snapshot};
use super::selection::Selection;
use crate::admission::versioned::{self, Encoded};
use crate::admission::versions::own;
use crate::admission::{Attributes, ServedKind};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::telemetry::admission_webhooks::WebhookLabels;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::time::Instant;

pub(super) async fn dispatch(
    calls: &Calls,
    snapshot: &Snapshot,
    attributes: &Attributes,
    object: &Value,
) -> Result<()> {
    let mut selection = Selection::new(calls, attributes, "validating");
    // Encoded once per version, however many webhooks see it.
    let mut versions: Vec<(ServedKind, Encoded)> = Vec::new();
    // Webhooks with the index of their version in `versions`.
    let mut matching = Vec::new();
    for (_, active) in snapshot.candidates(&attributes.resource.resource) {
        let Some(target) = selection.select(active, object).await? else {
            continue;
        };
        let version = match versions.iter().position(|(known, _)| *known == target) {
            Some(version) => version,
            None => {
                let from = own(attributes);
                let encoded = versioned::encode(&calls.cluster, attributes, object, &from, &target).await?;
                versions.push((target, encoded));
                versions.len() - 1
            }
        };
        matching.push((active, version));
    }
    if matching.is_empty() {
        return Ok(());
    }
    // Conditions and conversions may have taken the request's time.
    attributes.in_time()?;
    let all = matching.into_iter().enumerate();
    let mut outcomes: FuturesUnordered<_> = all
        .map(|(index, (active, version))| {
            let labels = selection.labels(active);
            one(calls, active, labels, index, attributes, &versions[version])
        })
        .collect();
    let mut first = Ok(());
    while let Some(outcome) = outcomes.next().await {
        // All are awaited, as upstream: a webhook with side effects must not be cut off because another one
        // refused. The first refusal in order of completion wins.
        first = first.and(outcome);
    }
    first
}

async fn one(
    calls: &Calls,
    active: &Active,
    labels: WebhookLabels<'_>,
    index: usize,
    attributes: &Attributes,
    (target, objects): &(ServedKind, Encoded),
) -> Result<(), Status> {
    let began = Instant::now();
    let outcome = ask(calls, active, false, attributes, target, objects).await;
    if apply_failure_policy(calls, active, labels, began.elapsed(), outcome)?.is_none() {
        let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
        attributes.audit.annotate(&key, active.hook.name.as_str());
    }
    Ok(())
}
