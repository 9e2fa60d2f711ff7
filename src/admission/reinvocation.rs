//! [`Reinvocation`]: state that the mutating plugins carry from the first round to the second.
//!
//! A plugin that changes an object can request another round ([`Reinvocation::request`]). The chain then
//! calls all mutating plugins exactly once more, including the built-in ones, as upstream's
//! `admission.reinvoker`. [`Rounds`] records which of its hooks a plugin has to call again.

use crate::apimachinery::value::Value;
use crate::sync::Mutex;
use std::any::Any;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rounds of one write's mutating phase.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    requested: AtomicBool,
    second_round: AtomicBool,
    states: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Reinvocation {
    /// Requests another round. In the second round this has no effect.
    pub(crate) fn request(&self) {
        // Relaxed: one task drives the rounds of a write.
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

    /// Saves a plugin's state for the second round, one value of each type.
    pub(crate) fn save<T: Any + Send>(&self, state: T) {
        self.states.lock().push(Box::new(state));
    }

    /// Takes the state that was saved in the first round.
    pub(crate) fn take<T: Any + Send>(&self) -> Option<T> {
        let mut states = self.states.lock();
        // Linear over the two plugins that have a state.
        let index = states.iter().position(|state| state.is::<T>())?;
        states.swap_remove(index).downcast().ok().map(|state| *state)
    }
}

/// Which hooks (webhooks or policies) of a plugin the second round calls again. The plugin names its hooks.
/// `Plugin` is a marker type, so that each plugin has a state of its own in [`Reinvocation`].
pub(crate) struct Rounds<Plugin> {
    /// Hooks that were called and may be called again.
    called: HashSet<String>,
    /// The hooks to be called again.
    marked: HashSet<String>,
    /// The object after the last hook, if a hook may be called again.
    output: Option<Value>,
    is_second: bool,
    // A function pointer, so that `Rounds` is `Send` whatever the marker type is.
    plugin: PhantomData<fn() -> Plugin>,
}

impl<Plugin> Default for Rounds<Plugin> {
    fn default() -> Self {
        Self {
            called: HashSet::new(),
            marked: HashSet::new(),
            output: None,
            is_second: false,
            plugin: PhantomData,
        }
    }
}

impl<Plugin: 'static> Rounds<Plugin> {
    /// Begins a round with this object. If other plugins changed it since the first round, all hooks are
    /// marked.
    pub(crate) fn begin(reinvocation: &Reinvocation, object: &Value) -> Self {
        let mut rounds: Self = reinvocation.take().unwrap_or_default();
        rounds.is_second = reinvocation.is_second_round();
        if rounds.is_second && rounds.output.as_ref().is_some_and(|output| output != object) {
            rounds.mark_called();
        }
        rounds
    }

    /// True in the second round.
    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }

    /// True if this is the second round and no hook is marked.
    pub(crate) fn are_over(&self) -> bool {
        self.is_second && self.marked.is_empty()
    }

    /// Whether this round calls a hook. One that was not called in the first round is not called in the
    /// second, even if it matches then.
    pub(crate) fn includes(&self, hook: &str) -> bool {
        !self.is_second || self.marked.contains(hook)
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
        if !self.is_second {
            // The copy is only needed to detect later changes, so it is avoided if nothing may be called again.
            self.output = (!self.called.is_empty()).then(|| object.clone());
            reinvocation.save(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_saved_by_type_and_taken_once() {
        let rounds = Reinvocation::default();
        rounds.save(7_u32);
        rounds.save("x");
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
