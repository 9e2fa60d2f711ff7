//! Evaluation of a write against all quotas of its namespace, and the resulting usage. Upstream's
//! `CheckRequest`, without I/O. Entry point: [`evaluate`].

use super::amounts::{Amounts, amounts, format_amounts, growth, masked};
use super::config::LimitedResource;
use super::evaluator::Evaluator;
use super::scopes::Selector;
use crate::admission::{Attributes, Operation};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The write to evaluate.
pub(super) struct Write<'a> {
    pub(super) attributes: &'a Attributes,
    pub(super) object: &'a Value,
    pub(super) old: Option<&'a Value>,
}

/// Why a write is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// 403 with this message.
    Forbidden(String),
    /// 500 with this message, as upstream.
    Failed(String),
}

/// True if the quota applies to the object: at least one of its resources and all of its scopes match.
fn is_about(quota: &Value, hard: &Amounts, evaluator: &Evaluator<'_>, object: &Value) -> bool {
    hard.keys().any(|name| evaluator.counts(name))
        && Selector::of_quota(quota)
            .iter()
            .all(|s| evaluator.matches_scope(s, object))
}

/// A quota that applies to the object.
struct ApplicableQuota<'q> {
    index: usize,
    quota: &'q Value,
    hard: Amounts,
    used: Amounts,
    delta: Amounts,
}

/// Rejects usage of resources and scopes that the configuration limits but no applicable quota covers.
fn uncovered(
    limited: &[LimitedResource],
    write: &Write<'_>,
    evaluator: &Evaluator<'_>,
    usage: &Amounts,
    applicable: &[ApplicableQuota<'_>],
    covered_scopes: &BTreeSet<String>,
) -> Option<Rejection> {
    let own = |l: &&LimitedResource| write.attributes.is_for(&l.group, &l.resource);
    let used = || usage.iter().filter(|(_, q)| q.signum() > 0).map(|(name, _)| name);
    let names: BTreeSet<&String> = limited
        .iter()
        .filter(own)
        .flat_map(|l| used().filter(|name| l.contains.iter().any(|text| name.contains(text))))
        .filter(|name| !applicable.iter().any(|c| c.hard.contains_key(*name)))
        .collect();
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        let why = format!("insufficient quota to consume: {}", names.join(","));
        return Some(Rejection::Forbidden(why));
    }
    // Of all entries, also those for other resources: upstream's `CheckRequest` does not filter here.
    let scopes = limited.iter().flat_map(|l| &l.scopes);
    let scopes = scopes.filter(|s| evaluator.matches_scope(s, write.object) && !covered_scopes.contains(&s.scope));
    let scopes: Vec<String> = scopes.map(ToString::to_string).collect();
    (!scopes.is_empty()).then(|| {
        let scopes = scopes.join(" ");
        Rejection::Failed(format!("insufficient quota to match these scopes: [{scopes}]"))
    })
}

/// The quotas that apply to the object, and the scopes that any quota of the namespace has.
///
/// # Errors
/// An applicable quota cannot be checked: the object lacks what it counts, or its usage is not known yet.
fn applicable<'q>(
    quotas: &[&'q Value],
    write: &Write<'_>,
    evaluator: &Evaluator<'_>,
    limited: &[LimitedResource],
) -> Result<(Vec<ApplicableQuota<'q>>, BTreeSet<String>), Rejection> {
    let mut applicable = Vec::new();
    let mut covered_scopes = BTreeSet::new();
    for (index, &quota) in quotas.iter().enumerate() {
        let hard = amounts(quota.at(&["status", "hard"]));
        if !limited.is_empty() {
            let selectors = Selector::of_quota(quota).into_iter();
            let matching = selectors.filter(|s| evaluator.matches_scope(s, write.object));
            // Also of quotas that do not apply to the object: a scope is covered by any quota that has it.
            covered_scopes.extend(matching.map(|s| s.scope));
        }
        if !is_about(quota, &hard, evaluator, write.object) {
            continue;
        }
        let counted = || hard.keys().map(String::as_str).filter(|name| evaluator.counts(name));
        let name = quota.name();
        // Before the usage is computed: without values the object would be charged nothing.
        if let Some(why) = evaluator.missing(counted(), write.object) {
            return Err(Rejection::Forbidden(format!("failed quota: {name}: {why}")));
        }
        let used = amounts(quota.at(&["status", "used"]));
        // A new quota, which the controller has not counted yet. Admitting now would exceed it later.
        if counted().any(|name| !used.contains_key(name)) {
            let names: Vec<&str> = counted().collect();
            let why = format!("status unknown for quota: {name}, resources: {}", names.join(","));
            return Err(Rejection::Forbidden(why));
        }
        applicable.push(ApplicableQuota {
            index,
            quota,
            hard,
            used,
            delta: Amounts::new(),
        });
    }
    Ok((applicable, covered_scopes))
}

impl ApplicableQuota<'_> {
    /// The usage with the increase; `None` if it stays the same.
    ///
    /// # Errors
    /// The increase exceeds the quota.
    fn charged(&self) -> Result<Option<Amounts>, Rejection> {
        let requested = masked(&self.delta, &self.hard);
        let mut used = self.used.clone();
        // The whole usage is stored again, so resources that this write does not touch are kept.
        for (name, quantity) in &requested {
            let sum = used.get(name).map_or(*quantity, |q| q.plus(*quantity));
            used.insert(name.clone(), sum);
        }
        let exceeded: BTreeMap<String, ()> = requested
            .keys()
            // Both are present: `requested` is masked by `hard`, and `used` contains all requested names.
            .filter(|name| used.get(*name) > self.hard.get(*name))
            .map(|name| (name.clone(), ()))
            .collect();
        if !exceeded.is_empty() {
            return Err(Rejection::Forbidden(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                self.quota.name(),
                format_amounts(&masked(&requested, &exceeded)),
                format_amounts(&masked(&self.used, &exceeded)),
                format_amounts(&masked(&self.hard, &exceeded))
            )));
        }
        Ok((used != self.used).then_some(used))
    }
}

/// Evaluates a write. Returns the new usage of each quota whose usage changes.
pub(super) fn evaluate(
    quotas: &[&Value],
    write: &Write<'_>,
    evaluator: &Evaluator<'_>,
    limited: &[LimitedResource],
) -> Result<Vec<Option<Amounts>>, Rejection> {
    // By the index of `quotas`, of which most may not apply.
    let mut charges: Vec<Option<Amounts>> = vec![None; quotas.len()];
    let (mut applicable, covered_scopes) = applicable(quotas, write, evaluator, limited)?;
    if applicable.is_empty() && limited.is_empty() {
        return Ok(charges);
    }

    let usage = evaluator.usage(write.object);
    // An amount below zero would give quota back.
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, q)| q.signum() < 0)
        .map(|(k, _)| &**k)
        .collect();
    if !negative.is_empty() {
        let why = format!("quota usage is negative for resource(s): {}", negative.join(","));
        return Err(Rejection::Forbidden(why));
    }
    // An update is charged for the increase, unless the quota did not apply to the old object.
    let old = write.old.filter(|_| write.attributes.operation == Operation::Update);
    let added = old.map(|old| growth(&usage, &evaluator.usage(old)));
    for one in &mut applicable {
        // An object that enters the quota's scope by an update is charged in full.
        let was = old.is_some_and(|old| is_about(one.quota, &one.hard, evaluator, old));
        let delta = added.as_ref().filter(|_| was).unwrap_or(&usage);
        one.delta = delta.clone();
        one.delta.retain(|_, q| q.signum() != 0);
    }
    // Such a write is admitted even if the quota is exceeded already, for example after it was lowered.
    let changes_nothing = match applicable.is_empty() {
        true => added.as_ref().unwrap_or(&usage).values().all(|q| q.signum() == 0),
        false => applicable.iter().all(|one| one.delta.is_empty()),
    };
    if changes_nothing {
        return Ok(charges);
    }
    if let Some(denial) = uncovered(limited, write, evaluator, &usage, &applicable, &covered_scopes) {
        return Err(denial);
    }
    for one in applicable {
        charges[one.index] = one.charged()?;
    }
    Ok(charges)
}
