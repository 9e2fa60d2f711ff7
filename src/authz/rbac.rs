//! Roles and bindings: upstream's RBAC (`plugin/pkg/auth/authorizer/rbac`), over an index of who is bound to what.
//!
//! A write that a client was told of counts for the next decision: the index knows how far it has read each of the four
//! resources, compares that with how far they are, and a decision waits (microseconds, as a rule) until it has caught up.
//! What cannot catch up within `PATIENCE` is answered with an error, never from the past.
//!
//! ```text
//! storage ──watch──► informer ──change──► Index (persistent maps) ──swap──► decisions
//!    └────────────── changed() ≤ reached ? ────────────────────────────────────┘
//! ```

mod cover;
mod explain;
mod follow;
mod index;
mod objects;
mod postings;
mod resolved;
mod table;
#[cfg(test)]
mod tests;

pub use cover::{Held, Missing};
pub use explain::{Explanation, Near};
pub use follow::{Feeds, Sources};
pub use index::{Applies, Found, Index, Listed};
pub use objects::{Binding, PolicyRule, Role, Subject};
pub use postings::{Spent, Steps};

use super::attributes::Question;
use super::{Attributes, Authorizer, Rules, Verdict};
use crate::request::UserInfo;
use crate::tasks::off_thread;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use follow::Followed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How long a decision waits for the index to catch up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Decides by roles. Shared; nobody may do anything before it is told where roles are kept and has read them.
#[derive(Default)]
pub struct Rbac {
    index: ArcSwap<Index>,
    /// Serialises changes; readers never take it.
    writing: Mutex<()>,
    followed: OnceLock<Followed>,
}

/// The index is behind, and did not catch up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind;

impl std::fmt::Display for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the roles and bindings have not been read yet")
    }
}

impl std::error::Error for Behind {}

impl Rbac {
    /// One that knows nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// One with a fixed index, for tests and measurements.
    pub fn fixed(index: Index) -> Arc<Self> {
        let me = Self {
            index: ArcSwap::from_pointee(index),
            ..Self::default()
        };
        // Nobody else has the cell.
        let _ = me.followed.set(Followed::nothing());
        Arc::new(me)
    }

    /// The roles and bindings with everything that was acknowledged before this call.
    ///
    /// # Errors
    /// [`Behind`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn fresh(&self) -> Result<Arc<Index>, Behind> {
        let followed = self.followed.get().ok_or(Behind)?;
        if !followed.is_current() {
            let caught_up = tokio::time::timeout(PATIENCE, followed.catch_up()).await;
            caught_up.map_err(|_| Behind)?;
        }
        Ok(self.index.load_full())
    }

    /// The roles somebody has in a namespace (`""`: the cluster), each once, and what could not be resolved.
    ///
    /// # Errors
    /// [`Behind`].
    pub async fn held(&self, user: &UserInfo, namespace: &str) -> Result<(Vec<Arc<Role>>, Vec<String>), Behind> {
        Ok(self.fresh().await?.held(user, namespace))
    }

    fn change(&self, edit: impl FnOnce(&mut Index)) {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut index = Index::clone(&self.index.load());
        edit(&mut index);
        self.index.store(Arc::new(index));
    }
}

/// A list of errors, as Go's aggregates print.
pub(crate) fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn decide(index: &Index, asked: &Attributes<'_>, steps: &mut Steps) -> Result<Verdict, Spent> {
    if let Some(found) = index.find(asked, steps)? {
        let by = found.binding.describe(found.subject);
        return Ok(Verdict::allow(format!("RBAC: allowed by {by}")));
    }
    let dangling = index.dangling(asked, steps)?;
    Ok(if dangling.is_empty() {
        Verdict::no_opinion("")
    } else {
        Verdict::no_opinion(format!("RBAC: {}", aggregate(&dangling)))
    })
}

fn undecided(error: impl Into<String>) -> Verdict {
    Verdict {
        error: Some(error.into()),
        ..Verdict::no_opinion("")
    }
}

/// Decides off the reactor what takes longer than a reactor may be held.
async fn decide_off_thread(index: Arc<Index>, asked: &Attributes<'_>) -> Verdict {
    /// What a decision allocates at most, in bytes: the names of dangling bindings.
    const MEMORY: usize = 64 << 10;
    let question = Question::of(asked);
    let work = move || decide(&index, &question.asked(), &mut Steps::unbounded());
    match off_thread(MEMORY, work).await {
        Some(Ok(verdict)) => verdict,
        Some(Err(Spent)) => undecided("the roles and bindings that apply are too many"),
        None => undecided("the decision was not finished in time"),
    }
}

#[async_trait]
impl Authorizer for Rbac {
    async fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        let index = match self.fresh().await {
            Ok(index) => index,
            Err(behind) => return undecided(behind.to_string()),
        };
        match decide(&index, asked, &mut Steps::of_reactor()) {
            Ok(verdict) => verdict,
            Err(Spent) => decide_off_thread(index, asked).await,
        }
    }

    /// Nothing where the index is behind, and where the decision would take long.
    fn at_once(&self, asked: &Attributes<'_>) -> Option<Verdict> {
        let current = self.followed.get()?.is_current();
        let decide = || decide(&self.index.load(), asked, &mut Steps::of_reactor()).ok();
        current.then(decide).flatten()
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        match self.fresh().await {
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
