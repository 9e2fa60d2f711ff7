//! [`Reinvocation`]: what the plugins of the mutating phase tell its second round.
//!
//! A plugin that changes an object can ask for another round ([`Reinvocation::request`]). The chain then
//! calls all mutating plugins exactly once more, including the built-in ones, as upstream's
//! `admission.reinvoker`. [`Rounds`] remembers which of its hooks a plugin has to call again.

use crate::apimachinery::value::Value;
use crate::sync::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rounds of one write's mutating phase.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    requested: AtomicBool,
    second_round: AtomicBool,
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Reinvocation {
    /// Asks for another round. In the second round this has no effect.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// True in the second round.
    pub(crate) fn is_second_round(&self) -> bool {
        self.second_round.load(Ordering::Relaxed)
    }

    /// Begins the second round, if it was asked for and has not begun before.
    pub(super) fn begin_second_round(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && !self.second_round.swap(true, Ordering::Relaxed)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Box<dyn Any + Send>>> {
        self.kept.lock()
    }

    /// Keeps a plugin's state for the second round, one value of each type.
    pub(crate) fn keep<T: Any + Send>(&self, state: T) {
        self.kept().push(Box::new(state));
    }

    /// Takes the state that was kept in the first round.
    pub(crate) fn take<T: Any + Send>(&self) -> Option<T> {
        let mut kept = self.kept();
        let place = kept.iter().position(|state| state.is::<T>())?;
        kept.swap_remove(place).downcast().ok().map(|state| *state)
    }
}

/// Which hooks of a plugin, webhooks or policies, the second round calls again; hooks are named by the
/// plugin. `Of` tells the plugins apart.
pub(crate) struct Rounds<Of> {
    /// Hooks that were called, and may be called again.
    called: HashSet<String>,
    /// The hooks to be called again.
    marked: HashSet<String>,
    /// The object after the last hook; kept only if a hook may be called again.
    output: Option<Value>,
    again: bool,
    of: PhantomData<fn() -> Of>,
}

impl<Of> Default for Rounds<Of> {
    fn default() -> Self {
        Self {
            called: HashSet::new(),
            marked: HashSet::new(),
            output: None,
            again: false,
            of: PhantomData,
        }
    }
}

impl<Of: 'static> Rounds<Of> {
    /// Begins a round with this object. If other plugins changed it since the first round, all hooks are
    /// marked.
    pub(crate) fn begin(reinvocation: &Reinvocation, object: &Value) -> Self {
        let mut rounds: Self = reinvocation.take().unwrap_or_default();
        rounds.again = reinvocation.is_second_round();
        if rounds.again && rounds.output.as_ref().is_some_and(|output| output != object) {
            rounds.mark_called();
        }
        rounds
    }

    /// True in the second round.
    pub(crate) fn is_second(&self) -> bool {
        self.again
    }

    /// True if this round has nothing to call.
    pub(crate) fn are_over(&self) -> bool {
        self.again && self.marked.is_empty()
    }

    /// Whether this round calls a hook. One that was not called in the first round is not called in the
    /// second, even if it matches then.
    pub(crate) fn includes(&self, hook: &str) -> bool {
        !self.again || self.marked.contains(hook)
    }

    /// Records the call of a hook that may be called again.
    pub(crate) fn called(&mut self, hook: String) {
        self.called.insert(hook);
    }

    /// Marks the hooks that were called so far: the object has changed since.
    pub(crate) fn mark_called(&mut self) {
        self.marked.extend(self.called.drain());
    }

    /// Ends the round with this object.
    pub(crate) fn end(mut self, reinvocation: &Reinvocation, object: &Value) {
        if !self.again {
            self.output = (!self.called.is_empty()).then(|| object.clone());
            reinvocation.keep(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_kept_by_type_and_taken_once() {
        let rounds = Reinvocation::default();
        rounds.keep(7_u32);
        rounds.keep("x");
        assert_eq!(rounds.take::<u32>(), Some(7));
        assert_eq!(rounds.take::<u32>(), None);
        assert_eq!(rounds.take::<&str>(), Some("x"));
    }

    #[test]
    fn there_is_one_second_round_if_it_was_requested() {
        let rounds = Reinvocation::default();
        assert!(!rounds.begin_second_round());
        rounds.request();
        assert!(!rounds.is_second_round());
        assert!(rounds.begin_second_round());
        assert!(rounds.is_second_round());
        rounds.request();
        assert!(!rounds.begin_second_round());
    }
}
