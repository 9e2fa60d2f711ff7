//! What the bindings of one subject in one scope resolve to: roles, asked one by one or through a table of all of them.

use super::index::MOST_DANGLING;
use super::objects::{Binding, Role};
use super::postings::{Spent, Steps};
use super::table::Table;
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use imbl::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Roles up to which they are asked one by one; more get a table of their own.
const FEW: usize = 6;
/// Strings in the merged table of one subject; who has more has his roles asked one by one.
const MOST_OF_ONE: usize = 50_000;
/// Strings in all merged tables: every subject that is bound to the same roles would have a copy of their rules.
const MOST_OF_ALL: usize = 500_000;

/// A binding, and which of its subjects it is.
#[derive(Clone)]
pub(super) struct Grant {
    pub binding: Arc<Binding>,
    pub subject: usize,
    /// Where its role is found.
    pub role: Option<Str>,
}

/// What merged tables weigh, over all subjects of an index and its successors.
#[derive(Clone, Default)]
pub(super) struct Merged(Arc<AtomicUsize>);

/// A part of it, given back when dropped.
struct Share {
    of: Merged,
    weight: usize,
}

pub(super) struct Resolved {
    /// One for each role: the first binding of it.
    grants: Vec<(Grant, Arc<Role>)>,
    /// Why bindings say nothing: their roles are not there. Some of the reasons, and the number of the others.
    pub dangling: Vec<String>,
    pub more_dangling: usize,
    table: Option<(Table, Share)>,
    /// The version of the roles for which this was last found to hold.
    version: AtomicU64,
    /// The role of each binding at that time.
    roles: Vec<Option<Arc<Role>>>,
}

// === impl Merged ===

impl Merged {
    fn take(&self, weight: usize) -> Option<Share> {
        let fits = |all: usize| (weight <= MOST_OF_ONE && all + weight <= MOST_OF_ALL).then_some(all + weight);
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

fn role<'r>(roles: &'r HashMap<Str, Arc<Role>>, grant: &Grant) -> Option<&'r Arc<Role>> {
    roles.get(grant.role.as_ref()?)
}

impl Resolved {
    pub fn of<'g>(
        bindings: impl Iterator<Item = &'g Grant>,
        roles: &HashMap<Str, Arc<Role>>,
        version: u64,
        merged: &Merged,
        steps: &mut Steps,
    ) -> Result<Self, Spent> {
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
            steps.take(20)?;
            let found = role(roles, grant);
            out.roles.push(found.cloned());
            match found {
                Some(role) if seen.insert(Arc::as_ptr(role)) => out.grants.push((grant.clone(), role.clone())),
                Some(_) => {}
                None => {
                    if reasons.insert((grant.binding.role_kind.clone(), grant.binding.role_name.clone())) {
                        if out.dangling.len() < MOST_DANGLING {
                            out.dangling.push(grant.binding.dangling());
                        } else {
                            out.more_dangling += 1;
                        }
                    }
                }
            }
        }
        if out.grants.len() > FEW {
            let weight = out.grants.iter().map(|(_, role)| role.weight).sum();
            if let Some(share) = merged.take(weight) {
                steps.take(weight * 10)?;
                let rules = out.grants.iter().enumerate();
                let table = Table::of(rules.flat_map(|(at, (_, role))| role.rules.iter().map(move |r| (at, r))));
                out.table = Some((table, share));
            }
        }
        Ok(out)
    }

    /// True where it holds for these roles still. After a change of any role, the roles of these bindings are compared.
    pub fn holds<'g>(
        &self,
        bindings: impl Iterator<Item = &'g Grant>,
        roles: &HashMap<Str, Arc<Role>>,
        version: u64,
        steps: &mut Steps,
    ) -> Result<bool, Spent> {
        if self.version.load(Ordering::Acquire) == version {
            return Ok(true);
        }
        for (grant, before) in bindings.zip(&self.roles) {
            steps.take(10)?;
            if role(roles, grant).map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
                return Ok(false);
            }
        }
        self.version.store(version, Ordering::Release);
        Ok(true)
    }

    pub fn find(&self, asked: &Attributes<'_>, steps: &mut Steps) -> Result<Option<&(Grant, Arc<Role>)>, Spent> {
        if let Some((table, _)) = &self.table {
            return Ok(table.find(asked, steps)?.map(|at| &self.grants[at]));
        }
        for pair in &self.grants {
            if pair.1.find(asked, steps)?.is_some() {
                return Ok(Some(pair));
            }
        }
        Ok(None)
    }
}
