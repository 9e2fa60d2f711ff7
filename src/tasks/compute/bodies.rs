//! Memory that requests occupy before any job starts, such as their bodies: [`Reservation`].

use super::{ComputePool, Current, Error, Flow, Shared};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a response waits until its caller has read others.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Reserved bytes: in total and by caller.
#[derive(Default)]
pub(super) struct Bodies {
    all: usize,
    by_flow: HashMap<u64, OfFlow>,
}

/// Reserved bytes of one caller. Exists while there are any.
#[derive(Default)]
struct OfFlow {
    bytes: usize,
    /// Notified when the caller has capacity again. Created by the first response that waits.
    capacity: Option<Arc<Notify>>,
}

impl Bodies {
    fn of_flow(&self, id: u64) -> usize {
        self.by_flow.get(&id).map_or(0, |flow| flow.bytes)
    }

    /// True if a caller may produce another part of a response. One without any may always, so that callers
    /// who do not read their responses cannot stop the others.
    fn has_room(&self, id: u64, config: &super::Config) -> bool {
        let of_flow = self.of_flow(id);
        // Half of the caller's bytes, as in `account_for`: the rest is for its next requests.
        of_flow == 0 || (of_flow < config.body_bytes_per_flow / 2 && self.all < config.body_bytes)
    }

    fn add(&mut self, flow: Flow, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Flow::Caller(id) = flow {
            self.by_flow.entry(id).or_default().bytes += bytes;
        }
        self.all += bytes;
    }

    /// Releases bytes and notifies the responses that may continue.
    fn remove(&mut self, flow: Flow, bytes: usize, config: &super::Config) {
        let was_full = self.all >= config.body_bytes;
        self.all -= bytes;
        let notify = |of_flow: &OfFlow| of_flow.capacity.iter().for_each(|capacity| capacity.notify_waiters());
        if let Flow::Caller(id) = flow
            && let Some(of_flow) = self.by_flow.get_mut(&id)
        {
            let limit = config.body_bytes_per_flow / 2;
            let was_above = of_flow.bytes >= limit;
            of_flow.bytes -= bytes;
            // Only on crossing the limit; otherwise each of thousands of chunks would wake every waiting
            // response.
            if of_flow.bytes == 0 || (was_above && of_flow.bytes < limit) {
                notify(of_flow);
            }
            if of_flow.bytes == 0 {
                self.by_flow.remove(&id);
            }
        }
        if was_full && self.all < config.body_bytes {
            // Everyone is notified and looks again; the first ones use up the capacity.
            self.by_flow.values().for_each(notify);
        }
    }
}

/// Bytes occupied by one request; released on drop.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    flow: Flow,
    bytes: usize,
}

impl ComputePool {
    /// Bytes reserved by all callers.
    #[cfg(test)]
    pub(crate) fn response_bytes(&self) -> usize {
        self.0.shared.bodies.lock().all
    }

    /// Creates a reservation of zero bytes.
    pub(crate) fn reservation(&self, flow: Flow) -> Reservation {
        Reservation {
            shared: Arc::clone(&self.0.shared),
            flow,
            bytes: 0,
        }
    }
}

impl Reservation {
    /// Reserves more bytes.
    ///
    /// # Errors
    /// [`Error::Full`]: the caller, or all callers together, occupy too much. The existing reservation is
    /// kept.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let most = self.shared.config.body_bytes_per_flow;
        self.grow_within(bytes, most)
    }

    /// Like [`Reservation::grow`], up to `most` bytes of the caller in total.
    fn grow_within(&mut self, bytes: usize, most: usize) -> Result<(), Error> {
        let config = &self.shared.config;
        let mut bodies = self.shared.bodies.lock();
        // `System` is never refused: the server's own work must not depend on what callers occupy.
        if let Flow::Caller(id) = self.flow {
            let reason = if bodies.all + bytes > config.body_bytes {
                Some("bodies")
            } else if bodies.of_flow(id) + bytes > most {
                Some("bodies_of_one_caller")
            } else {
                None
            };
            if let Some(reason) = reason {
                self.shared.metrics.refused(reason);
                return Err(Error::Full);
            }
        }
        bodies.add(self.flow, bytes);
        drop(bodies);
        self.account(bytes);
        Ok(())
    }

    /// Reserves bytes that exist already, without a limit: see [`Current::room_for_response`].
    fn grow_unchecked(&mut self, bytes: usize) {
        self.shared.bodies.lock().add(self.flow, bytes);
        self.account(bytes);
    }

    fn account(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.shared.metrics.bodies(bytes as i64);
    }
}

impl Current {
    /// A reservation of zero bytes on the account of this flow; `None` if the pool has ended.
    pub(crate) fn reservation(&self) -> Option<Reservation> {
        Some(self.pool()?.reservation(self.flow))
    }

    /// Waits until the caller has read enough of its earlier responses for another part of a response, which
    /// [`account_for_part`] counts. Meanwhile the flow is one of the [`HeldBackFlows`](super::HeldBackFlows),
    /// and its next requests wait in their queues.
    ///
    /// # Errors
    /// [`Error::Full`] after 30 s.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn room_for_response(&self) -> Result<(), Error> {
        let Some((pool, Flow::Caller(id))) = self.pool().map(|pool| (pool, self.flow)) else {
            return Ok(());
        };
        let shared = Arc::clone(&pool.0.shared);
        // A response that waits must not keep a pool alive that is being stopped.
        drop(pool);
        let wait_if_full = || {
            let mut bodies = shared.bodies.lock();
            if bodies.has_room(id, &shared.config) {
                return None;
            }
            let of_flow = bodies.by_flow.entry(id).or_default();
            let notify = Arc::clone(of_flow.capacity.get_or_insert_default());
            // Created under the lock: later notifications reach it.
            Some(notify.notified_owned())
        };
        let Some(mut notified) = wait_if_full() else {
            return Ok(());
        };
        // From here on the flow counts as held back, until the wait ends or is dropped.
        let _held_back = self.runnable.as_ref().map(|jobs| jobs.hold_back());
        let wait = async {
            loop {
                notified.await;
                // Another response may have taken the capacity first.
                match wait_if_full() {
                    Some(next) => notified = next,
                    None => return,
                }
            }
        };
        tokio::time::timeout(MAX_WAIT, wait).await.map_err(|_| {
            shared.metrics.refused("bodies_of_one_caller");
            Error::Full
        })
    }
}

/// A buffer with its reservation.
struct AccountedBytes {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for AccountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Accounts for bytes produced for one caller, such as a response, until the last slice of them is dropped;
/// that is when the client has read them. Buffers below 64 KiB, slices of buffers that others hold, such as
/// the watch cache, and buffers made outside a pool's context are not accounted for.
///
/// # Errors
/// See [`Reservation::grow`]. Responses of one caller may take half of its share, so that unread responses
/// leave room for the caller's next requests.
pub(crate) fn account_for(bytes: impl Into<Bytes>) -> Result<Bytes, Error> {
    let bytes = bytes.into();
    let Some(mut reservation) = reservation_for(&bytes) else {
        return Ok(bytes);
    };
    let most = reservation.shared.config.body_bytes_per_flow / 2;
    reservation.grow_within(bytes.len(), most)?;
    Ok(accounted(bytes, reservation))
}

/// The same for a part of a response for which there was [room](Current::room_for_response).
pub(crate) fn account_for_part(bytes: Bytes) -> Bytes {
    let Some(mut reservation) = reservation_for(&bytes) else {
        return bytes;
    };
    reservation.grow_unchecked(bytes.len());
    accounted(bytes, reservation)
}

/// An empty reservation; `None` if the buffer is not accounted for.
fn reservation_for(bytes: &Bytes) -> Option<Reservation> {
    const COUNTED: usize = 64 << 10;
    // A buffer that others hold is not freed when this response ends.
    if bytes.len() < COUNTED || !bytes.is_unique() {
        return None;
    }
    super::current()?.reservation()
}

fn accounted(bytes: Bytes, reservation: Reservation) -> Bytes {
    Bytes::from_owner(AccountedBytes {
        bytes,
        _reservation: reservation,
    })
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut bodies = self.shared.bodies.lock();
        bodies.remove(self.flow, self.bytes, &self.shared.config);
        drop(bodies);
        self.shared.metrics.bodies(-(self.bytes as i64));
    }
}
