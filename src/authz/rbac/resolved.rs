//! [`Resolved`]: the roles of one subject's bindings in one scope, searched one by one or through a merged
//! table. Built by the first decision that needs it and revalidated after changes of roles; the index owns
//! and shares it.

use super::objects::{Binding, Role};
use super::postings::{BudgetExhausted, StepBudget};
use super::table::Table;
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use imbl::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of unresolved bindings named in a reason; the rest are counted.
pub(super) const MAX_DANGLING: usize = 10;

/// Number of roles up to which they are searched one by one; more are merged into one table.
const FEW: usize = 6;
/// Maximum size of one subject's merged table, in strings. Above it, roles are searched one by one.
const MAX_OF_ONE: usize = 50_000;
/// Maximum size of all merged tables, in strings. Without it, every subject bound to the same roles would
/// copy their rules.
const MAX_OF_ALL: usize = 500_000;

/// A binding, and the index of the matching subject in it.
#[derive(Clone)]
pub(super) struct BoundSubject {
    pub binding: Arc<Binding>,
    pub subject: usize,
    /// Key of the role in the index.
    pub role: Option<Str>,
}

/// Size of the merged tables of all subjects, shared by an index and its copies.
#[derive(Clone, Default)]
pub(super) struct Merged(Arc<AtomicUsize>);

/// A reservation from [`Merged`], returned on drop.
struct Share {
    of: Merged,
    weight: usize,
}

pub(super) struct Resolved {
    /// One per distinct role: its first binding.
    grants: Vec<(BoundSubject, Arc<Role>)>,
    /// Messages for bindings to missing roles, up to a limit; the rest are counted.
    pub dangling: Vec<String>,
    pub more_dangling: usize,
    table: Option<(Table, Share)>,
    /// The role version for which this was last found valid.
    version: AtomicU64,
    /// The role of each binding at that version. Holding the `Arc`s keeps their addresses from being reused.
    roles: Vec<Option<Arc<Role>>>,
}

// === impl Merged ===

impl Merged {
    fn take(&self, weight: usize) -> Option<Share> {
        let fits = |all: usize| (weight <= MAX_OF_ONE && all + weight <= MAX_OF_ALL).then_some(all + weight);
        // Relaxed: the counter guards no other memory; it only has to add up.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let of = self.clone();
        Some(Share { of, weight })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

// === impl Resolved ===

fn role<'r>(roles: &'r HashMap<Str, Arc<Role>>, grant: &BoundSubject) -> Option<&'r Arc<Role>> {
    roles.get(grant.role.as_ref()?)
}

impl Resolved {
    pub(crate) fn of<'g>(
        bindings: impl Iterator<Item = &'g BoundSubject>,
        roles: &HashMap<Str, Arc<Role>>,
        version: u64,
        merged: &Merged,
        steps: &mut StepBudget,
    ) -> Result<Self, BudgetExhausted> {
        let mut out = Self {
            grants: Vec::new(),
            dangling: Vec::new(),
            more_dangling: 0,
            table: None,
            version: AtomicU64::new(version),
            roles: Vec::new(),
        };
        let mut seen = HashSet::new();
        let mut reasons = HashSet::new();
        for grant in bindings {
            // About the cost of a hash lookup and two insertions.
            steps.charge(20)?;
            let found = role(roles, grant);
            // Also `None`: a role that appears later must invalidate the result.
            out.roles.push(found.cloned());
            match found {
                Some(role) if seen.insert(Arc::as_ptr(role)) => out.grants.push((grant.clone(), role.clone())),
                Some(_) => {}
                None => {
                    if reasons.insert((grant.binding.role_kind.clone(), grant.binding.role_name.clone())) {
                        if out.dangling.len() < MAX_DANGLING {
                            out.dangling.push(grant.binding.dangling());
                        } else {
                            out.more_dangling += 1;
                        }
                    }
                }
            }
        }
        // A merged table costs memory per subject, and with few roles a search is no faster.
        if out.grants.len() > FEW {
            let weight = out.grants.iter().map(|(_, role)| role.weight).sum();
            // Without a share, the roles are searched one by one: slower, but memory stays bounded.
            if let Some(share) = merged.take(weight) {
                // Reserved before it is charged: if the budget is exhausted, dropping `share` returns the
                // reservation.
                steps.charge(weight * 10)?;
                let rules = out.grants.iter().enumerate();
                let table = Table::of(rules.flat_map(|(at, (_, role))| role.rules.iter().map(move |r| (at, r))));
                out.table = Some((table, share));
            }
        }
        Ok(out)
    }

    /// True if the result is still valid. After a change of any role, the roles of these bindings are
    /// compared by address.
    pub(crate) fn holds<'g>(
        &self,
        bindings: impl Iterator<Item = &'g BoundSubject>,
        roles: &HashMap<Str, Arc<Role>>,
        version: u64,
        steps: &mut StepBudget,
    ) -> Result<bool, BudgetExhausted> {
        // Versions are unique in the process, so an equal version means the very same roles.
        if self.version.load(Ordering::Acquire) == version {
            return Ok(true);
        }
        for (grant, before) in bindings.zip(&self.roles) {
            steps.charge(10)?;
            if role(roles, grant).map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
                return Ok(false);
            }
        }
        // Remember the newer version, so that the next decision takes the shortcut above.
        self.version.store(version, Ordering::Release);
        Ok(true)
    }

    pub(crate) fn find(
        &self,
        attributes: &Attributes<'_>,
        steps: &mut StepBudget,
    ) -> Result<Option<&(BoundSubject, Arc<Role>)>, BudgetExhausted> {
        if let Some((table, _)) = &self.table {
            return Ok(table.find(attributes, steps)?.map(|at| &self.grants[at]));
        }
        for pair in &self.grants {
            if pair.1.find(attributes, steps)?.is_some() {
                return Ok(Some(pair));
            }
        }
        Ok(None)
    }
}
