//! The one mutex of the gateway, and its policy for panics: a lock outlives the panic of its holder.
//!
//! A panic is a bug, and it is contained: the chain answers 500 for the request (`server/filters/panic`), a
//! task group logs the task that ended. With a poisoned lock, one such panic would fail every later request
//! that needs the lock, and turn one wrong answer into an outage. [`Mutex::lock`] therefore ignores poison.
//! This is safe because all users follow these rules:
//!
//! - A critical section calls no foreign code: no callback, no `await`, no evaluation of what a client
//!   sent.
//! - It computes first and changes the protected value last, so that a panic in between leaves it unchanged.
//! - What has to hold across several values is written as one value (a struct, or a snapshot that is
//!   swapped).
//!
//! Durable state does not rest on this: a write is a transaction of the engine, which a panic rolls back.
//!
//! Locks that are held across an `await` are tokio's; they have no poison.

pub(crate) use std::sync::MutexGuard;
use std::sync::{PoisonError, TryLockError, WaitTimeoutResult};
use std::time::Duration;

/// `std`'s mutex without poison: see the module's documentation for the rule that its users follow.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Poison is ignored by policy, see the module.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value by exclusive access, without locking.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if another thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// `std`'s condition variable, with the same policy.
#[derive(Debug)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.0
            .wait_timeout(guard, timeout)
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_lock_outlives_the_panic_of_its_holder() {
        let value = Arc::new(Mutex::new(1));
        let of_thread = Arc::clone(&value);
        let panicked = std::thread::spawn(move || {
            let _held = of_thread.lock();
            panic!("while holding the lock");
        })
        .join();
        assert!(panicked.is_err());
        *value.lock() += 1;
        assert_eq!(value.try_lock().as_deref(), Some(&2));
    }

    #[test]
    fn try_lock_finds_nothing_while_another_holds_the_lock() {
        let value = Mutex::new(());
        let _held = value.lock();
        assert!(value.try_lock().is_none());
    }
}
