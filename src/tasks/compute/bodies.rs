//! Memory that requests occupy before any job starts, such as their bodies: [`Reservation`].

use super::{ComputePool, Error, Flow, Shared};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Reserved bytes: in total and by caller.
#[derive(Default)]
pub(super) struct Bodies {
    all: usize,
    by_flow: HashMap<u64, usize>,
}

/// Bytes occupied by one request; released on drop.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    flow: Flow,
    bytes: usize,
}

impl ComputePool {
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
    /// [`Error::Full`]: the caller, or all callers together, occupy too much. The existing reservation is kept.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let most = self.shared.config.body_bytes_per_flow;
        self.grow_within(bytes, most)
    }

    /// Like [`Reservation::grow`], up to `most` bytes of the caller in total.
    fn grow_within(&mut self, bytes: usize, most: usize) -> Result<(), Error> {
        let config = &self.shared.config;
        let mut bodies = self.shared.bodies.lock();
        if let Flow::Caller(id) = self.flow {
            let of_flow = bodies.by_flow.get(&id).copied().unwrap_or(0);
            let reason = if bodies.all + bytes > config.body_bytes {
                Some("bodies")
            } else if of_flow + bytes > most {
                Some("bodies_of_one_caller")
            } else {
                None
            };
            if let Some(reason) = reason {
                self.shared.metrics.refused(reason);
                return Err(Error::Full);
            }
            bodies.by_flow.insert(id, of_flow + bytes);
        }
        bodies.all += bytes;
        self.bytes += bytes;
        self.shared.metrics.bodies(bytes as i64);
        Ok(())
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

/// Accounts for bytes produced for one caller, such as a response, until the last slice of them is dropped; that is
/// when the client has read them. Buffers below 64 KiB, slices of buffers that others hold, such as the watch cache,
/// and buffers made outside a pool's context are not accounted for.
///
/// # Errors
/// See [`Reservation::grow`]. Responses of one caller may take half of its share, so that unread responses leave room
/// for the caller's next requests.
pub(crate) fn account_for(bytes: impl Into<Bytes>) -> Result<Bytes, Error> {
    const COUNTED: usize = 64 << 10;
    let bytes = bytes.into();
    if bytes.len() < COUNTED || !bytes.is_unique() {
        return Ok(bytes);
    }
    let Some(mut reservation) = super::current().and_then(|current| current.reservation()) else {
        return Ok(bytes);
    };
    let most = reservation.shared.config.body_bytes_per_flow / 2;
    reservation.grow_within(bytes.len(), most)?;
    Ok(Bytes::from_owner(AccountedBytes {
        bytes,
        _reservation: reservation,
    }))
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut bodies = self.shared.bodies.lock();
        bodies.all -= self.bytes;
        if let Flow::Caller(id) = self.flow
            && let Some(of_flow) = bodies.by_flow.get_mut(&id)
        {
            *of_flow -= self.bytes;
            if *of_flow == 0 {
                bodies.by_flow.remove(&id);
            }
        }
        self.shared.metrics.bodies(-(self.bytes as i64));
    }
}
