//! [`Flights`]: conversions in progress at another process, shared by all readers of the same objects.
//! Hundreds of watchers of one event then cost one call of a webhook.
//!
//! A conversion continues as long as at least one reader waits for it, even if the reader that started it is
//! gone.

use crate::storage::{Entry, Error};
use crate::sync::{Mutex, MutexGuard};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::sync::Arc;

/// The converted entries of a batch, in its order.
pub(super) type Converted = Result<Arc<[Arc<Entry>]>, Error>;
type Flight = BoxFuture<'static, Converted>;

/// Conversions that are not finished, by the address of each stored entry: while one is, it keeps its
/// entries.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<usize, (WeakShared<Flight>, usize)>>);

/// A conversion that a reader waits for.
pub(super) struct Boarding {
    /// Conversions of others that contain an entry of this reader: its position, itself, and its index there.
    pub joined: Vec<(usize, Arc<Entry>, Shared<Flight>, usize)>,
    /// The positions of the entries that this reader converts, and the conversion.
    pub own: Option<(Vec<usize>, Shared<Flight>)>,
}

fn address(entry: &Arc<Entry>) -> usize {
    Arc::as_ptr(entry) as usize
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, (WeakShared<Flight>, usize)>> {
        self.0.lock()
    }

    /// Joins the conversions under way, and prepares that of the rest with `convert`.
    pub(crate) fn board(
        &self,
        todo: Vec<(usize, Arc<Entry>)>,
        convert: impl FnOnce(Vec<Arc<Entry>>) -> Flight,
    ) -> Boarding {
        let mut flights = self.lock();
        let (mut joined, mut positions, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for (position, entry) in todo {
            let flight = flights.get(&address(&entry));
            match flight.and_then(|(flight, index)| Some((flight.upgrade()?, *index))) {
                // The index is the position in the other reader's batch.
                Some((flight, index)) => joined.push((position, entry, flight, index)),
                None => {
                    positions.push(position);
                    entries.push(entry);
                }
            }
        }
        let mut own = None;
        if !entries.is_empty() {
            let addresses: Vec<usize> = entries.iter().map(address).collect();
            let flight = convert(entries).shared();
            // Weak: the map must not keep a conversion going that nobody waits for.
            if let Some(weak) = flight.downgrade() {
                // Entries whose conversion starts are registered under the same lock, so that two readers
                // never convert one entry.
                let indices = addresses.into_iter().enumerate();
                flights.extend(indices.map(|(index, address)| (address, (weak.clone(), index))));
            }
            own = Some((positions, flight));
        }
        Boarding { joined, own }
    }

    /// Forgets a conversion that is finished, and those that were given up.
    pub(crate) fn land(&self, entries: &[Arc<Entry>]) {
        let mut flights = self.lock();
        for entry in entries {
            flights.remove(&address(entry));
        }
        // Readers that were dropped land nothing; their entries would stay, and their addresses be reused.
        flights.retain(|_, (flight, _)| flight.upgrade().is_some());
    }
}
