//! [`Reinvocation`]: what the plugins of the mutating phase tell its second round.
//!
//! A plugin that changes an object can ask for another round ([`Reinvocation::request`]). The chain then calls all mutating
//! plugins exactly once more, including the built-in ones, as upstream's `admission.reinvoker`.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The rounds of one write's mutating phase.
#[derive(Debug, Default)]
pub struct Reinvocation {
    requested: AtomicBool,
    second_round: AtomicBool,
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Reinvocation {
    /// Asks for another round. In the second round this has no effect.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// True in the second round.
    pub fn is_second_round(&self) -> bool {
        self.second_round.load(Ordering::Relaxed)
    }

    /// Begins the second round, if it was asked for and has not begun before.
    pub(super) fn begin_second_round(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && !self.second_round.swap(true, Ordering::Relaxed)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Box<dyn Any + Send>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a plugin's state for the second round, one value of each type.
    pub fn keep<T: Any + Send>(&self, state: T) {
        self.kept().push(Box::new(state));
    }

    /// Takes the state that was kept in the first round.
    pub fn take<T: Any + Send>(&self) -> Option<T> {
        let mut kept = self.kept();
        let place = kept.iter().position(|state| state.is::<T>())?;
        kept.swap_remove(place).downcast().ok().map(|state| *state)
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
