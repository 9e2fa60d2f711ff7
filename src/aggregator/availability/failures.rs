//! Failures that requests and connections report to the availability controller: the APIService is checked
//! now instead of at the next resync.

use crate::aggregator::transports::TransportId;
use crate::apimachinery::value::Str;
use crate::tasks::shrink;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// Failures start at most one check of an APIService in this time. A check that just began has seen what
/// failed.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// While an APIService stays unavailable, the message of its condition is updated at most this often.
const REWORD: Duration = Duration::from_secs(30);

/// Which APIServices use which transport, and when they were last checked.
#[derive(Default)]
pub(super) struct Failures {
    available: HashSet<Str>,
    /// The available APIServices by transport. The others are retried anyway, and thousands of them may share
    /// a transport on which everything fails.
    users: HashMap<TransportId, BTreeSet<Str>>,
    checked: HashMap<Str, Checked>,
    /// Reasons for which each APIService was counted as unavailable: the series to remove with it.
    counted: HashMap<Str, BTreeSet<Str>>,
}

struct Checked {
    transport: TransportId,
    at: Instant,
    worded: Option<Instant>,
}

impl Failures {
    /// A check of an APIService begins, over this transport.
    pub(super) fn checking(&mut self, name: &Str, transport: TransportId) {
        let at = Instant::now();
        let worded = match self.checked.get_mut(name) {
            Some(known) if known.transport == transport => {
                // Kept, so that a check does not reset the pause between rewordings.
                known.at = at;
                return;
            }
            Some(known) => known.worded,
            None => None,
        };
        self.uses_none(name);
        if self.available.contains(name) {
            self.users.entry(transport).or_default().insert(name.clone());
        }
        let checked = Checked { transport, at, worded };
        self.checked.insert(name.clone(), checked);
    }

    /// Called when the APIService is deleted. Returns the reasons given to [`count`](Self::count).
    pub(super) fn forget(&mut self, name: &str) -> BTreeSet<Str> {
        self.set_available(name, false);
        self.checked.remove(name);
        shrink(&mut self.checked);
        let counted = self.counted.remove(name);
        shrink(&mut self.counted);
        counted.unwrap_or_default()
    }

    /// The APIService is counted as unavailable for this reason.
    pub(super) fn count(&mut self, name: &Str, reason: &str) {
        self.counted.entry(name.clone()).or_default().insert(reason.into());
    }

    /// Records the condition in the APIService's status.
    pub(super) fn set_available(&mut self, name: &str, available: bool) {
        if !available {
            self.available.remove(name);
            self.uses_none(name);
        } else if self.available.insert(name.into())
            && let Some(known) = self.checked.get(name)
        {
            // The APIService was checked while unavailable, when its transport was not recorded in `users`.
            self.users.entry(known.transport).or_default().insert(name.into());
        }
    }

    fn uses_none(&mut self, name: &str) {
        let Some(known) = self.checked.get(name) else { return };
        if let Some(users) = self.users.get_mut(&known.transport) {
            users.remove(name);
            // Transports come and go with changes of their APIServices; empty sets would add up.
            if users.is_empty() {
                self.users.remove(&known.transport);
            }
        }
    }

    /// An exchange over this transport failed: the available APIServices to check, and when.
    pub(super) fn failed(&self, transport: TransportId) -> Vec<(Str, Duration)> {
        let now = Instant::now();
        let names = self.users.get(&transport).into_iter().flatten();
        names
            .map(|name| {
                let checked = self.checked.get(name).map(|known| known.at + PAUSE);
                (
                    name.clone(),
                    checked.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)),
                )
            })
            .collect()
    }

    /// Whether the text of an unavailable APIService's condition may be updated now. If so, it counts as
    /// updated.
    pub(super) fn may_reword(&mut self, name: &str) -> bool {
        let now = Instant::now();
        // Not checked by this process yet, so no text of it is there to be kept.
        let Some(known) = self.checked.get_mut(name) else {
            return true;
        };
        if known.worded.is_some_and(|at| now < at + REWORD) {
            return false;
        }
        known.worded = Some(now);
        true
    }
}
