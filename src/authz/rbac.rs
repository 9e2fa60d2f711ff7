//! The RBAC authorizer (upstream's `plugin/pkg/auth/authorizer/rbac`), over an in-memory index of bindings by
//! subject. Entry point: [`Rbac`].
//!
//! Decisions are read-your-writes: an acknowledged change of a role or binding applies to the next decision.
//! The index records how far it has read each of the four resources and compares that with their latest
//! revisions; a decision waits, usually for microseconds, until it has caught up. If it does not within
//! `CATCH_UP_TIMEOUT`, the decision fails with an error rather than use stale data. It waits
//! only for Roles and RoleBindings in the namespace of the request, so large ones do not delay other namespaces.
//!
//! ```text
//! storage ──watch──► informer ──change──► Index (persistent maps) ──swap──► decisions
//!    └────────────── changed() ≤ reached ? ────────────────────────────────────┘
//! ```

mod bindings;
mod escalation;
mod explain;
mod follow;
mod index;
mod objects;
mod postings;
mod resolved;
mod rule;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use escalation::{HeldRules, MissingRules};
#[cfg(test)]
pub(crate) use explain::Explanation;
pub(crate) use follow::Sources;
pub(crate) use index::Index;
pub(crate) use objects::{Binding, Role};
pub(crate) use postings::{BudgetExhausted, StepBudget};
pub use rule::PolicyRule;

use super::attributes::OwnedAttributes;
use super::{Attributes, Authorizer, Rules, Verdict};
use crate::apimachinery::field::aggregate_texts;
use crate::client::CATCH_UP_TIMEOUT;
use crate::request::UserInfo;
use crate::sync::Mutex;
use crate::tasks::off_thread;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use follow::Followed;
use std::sync::{Arc, OnceLock};

/// The RBAC authorizer. Decisions fail until [`Rbac::follow`] was called and its feeds have read the roles.
#[derive(Default)]
pub(crate) struct Rbac {
    index: ArcSwap<Index>,
    /// Serialises writers; readers use the atomic swap.
    writing: Mutex<()>,
    /// Set late: it needs stores, and the chain in front of the stores needs the authorizer.
    followed: OnceLock<Followed>,
}

/// The index is behind storage and did not catch up in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind;

impl std::fmt::Display for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the roles and bindings have not been read yet")
    }
}

impl std::error::Error for Behind {}

impl Rbac {
    /// An authorizer without sources.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// An authorizer with a fixed index, for tests and benchmarks.
    pub(crate) fn fixed(index: Index) -> Arc<Self> {
        let me = Self {
            index: ArcSwap::from_pointee(index),
            ..Self::default()
        };
        // Cannot fail: the cell was created above.
        let _ = me.followed.set(Followed::nothing());
        Arc::new(me)
    }

    /// The index with every write that was acknowledged before this call, of the cluster's roles and bindings and of
    /// those in `namespace` (`""`: of the cluster's only).
    ///
    /// # Errors
    /// [`Behind`] if it does not catch up in time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn fresh(&self, namespace: &str) -> Result<Arc<Index>, Behind> {
        let followed = self.followed.get().ok_or(Behind)?;
        if !followed.is_current(namespace) {
            let caught_up = tokio::time::timeout(CATCH_UP_TIMEOUT, followed.catch_up(namespace)).await;
            caught_up.map_err(|_| Behind)?;
        }
        Ok(self.index.load_full())
    }

    /// The distinct roles bound to a user in a namespace (`""`: cluster-wide only), and the bindings that
    /// could not be resolved.
    ///
    /// # Errors
    /// [`Behind`] if the index does not catch up in time.
    pub(crate) async fn held(&self, user: &UserInfo, namespace: &str) -> Result<(Vec<Arc<Role>>, Vec<String>), Behind> {
        Ok(self.fresh(namespace).await?.held(user, namespace))
    }

    fn set_role(&self, key: &str, role: Option<Arc<Role>>) {
        self.change(|index| index.set_role(key, role));
    }

    /// Calls for bindings of one namespace, and for those of the cluster, must not overlap: each builds on what the one
    /// before has left.
    fn set_binding(&self, key: &str, binding: Option<Arc<Binding>>) {
        // Without the lock: a binding of many subjects takes a while, and changes of others need not wait for it.
        let changed = self.index.load_full().with_binding(key, binding);
        self.change(|index| index.set_scope(changed));
    }

    fn change(&self, edit: impl FnOnce(&mut Index)) {
        let one_at_a_time = self.writing.lock();
        // Cheap: the maps are persistent, so this copies only their roots.
        let mut index = Index::clone(&self.index.load());
        edit(&mut index);
        let before = self.index.swap(Arc::new(index));
        // To free what only the old one has can take as long as it took to make.
        drop(one_at_a_time);
        drop(before);
    }
}

fn decide(index: &Index, attributes: &Attributes<'_>, steps: &mut StepBudget) -> Result<Verdict, BudgetExhausted> {
    if let Some(found) = index.find(attributes, steps)? {
        let by = found.binding.describe(found.subject);
        return Ok(Verdict::allow(format!("RBAC: allowed by {by}")));
    }
    // Only for requests that are not allowed: a missing role may be the reason, and upstream's message names
    // it.
    let dangling = index.dangling(attributes, steps)?;
    Ok(if dangling.is_empty() {
        Verdict::no_opinion("")
    } else {
        Verdict::no_opinion(format!("RBAC: {}", aggregate_texts(dangling)))
    })
}

fn undecided(error: impl Into<String>) -> Verdict {
    Verdict {
        error: Some(error.into()),
        ..Verdict::no_opinion("")
    }
}

/// Makes a decision that exceeds the step budget off the reactor.
async fn decide_off_thread(index: Arc<Index>, attributes: &Attributes<'_>) -> Verdict {
    /// Upper bound of a decision's allocations, in bytes: the names of dangling bindings.
    const MEMORY: usize = 64 << 10;
    let question = OwnedAttributes::of(attributes);
    let work = move || decide(&index, &question.as_attributes(), &mut StepBudget::unbounded());
    match off_thread(MEMORY, work).await {
        Some(Ok(verdict)) => verdict,
        // Cannot happen with an unbounded budget; refused if it does.
        Some(Err(BudgetExhausted)) => undecided("too many roles and bindings apply to this request"),
        None => undecided("the decision was not finished in time"),
    }
}

#[async_trait]
impl Authorizer for Rbac {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let index = match self.fresh(attributes.namespace).await {
            Ok(index) => index,
            Err(behind) => return undecided(behind.to_string()),
        };
        // A caller with tens of thousands of bindings must not block the connections of its I/O thread.
        match decide(&index, attributes, &mut StepBudget::for_io_worker()) {
            Ok(verdict) => verdict,
            Err(BudgetExhausted) => decide_off_thread(index, attributes).await,
        }
    }

    /// `None` if the index is behind, or if the decision exceeds the step budget.
    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        // Check before loading the index: the other order could pair a stale index with a current check.
        let current = self.followed.get()?.is_current(attributes.namespace);
        let decide = || decide(&self.index.load(), attributes, &mut StepBudget::for_io_worker()).ok();
        current.then(decide).flatten()
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        match self.fresh(namespace).await {
            Ok(index) => {
                let listed = index.rules(user, namespace);
                let mut rules = Rules {
                    rules: listed.rules,
                    errors: listed.errors,
                    ..Rules::default()
                };
                if listed.cut {
                    rules.extend(Rules::unknown("the list of rules is too long and was cut"));
                }
                rules
            }
            Err(behind) => Rules::unknown(behind.to_string()),
        }
    }
}
