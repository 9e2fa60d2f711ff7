//! Name lookups of this machine, limited in number: each blocks a thread in `getaddrinfo`, and a name server that does
//! not answer keeps it there for a minute. The same threads do the TLS handshakes of clients, so names that hang must
//! not take all of them. Entry points: [`system`] and [`Lookups::find`].
//!
//! Callers of one name share a lookup, as in Go's `net`.

use crate::sync::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

/// Names that are looked up at once; an eighth of tokio's blocking threads.
const MAX_LOOKUPS: usize = 64;

/// Why no addresses were found. In Go's words, as far as it has the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    /// Whatever else the resolver reports.
    #[error("no such host")]
    NoSuchHost,
    /// The resolver did not answer in time.
    #[error("i/o timeout")]
    Timeout,
    /// Other names occupied the resolver for all of the time.
    #[error("too many lookups in progress")]
    Busy,
}

type Found = Result<Arc<[SocketAddr]>, LookupError>;
/// `None` while the lookup is under way.
type Pending = watch::Receiver<Option<Found>>;

/// The lookups under way.
pub(crate) struct Lookups {
    slots: Arc<Semaphore>,
    /// By name; at most one per slot.
    pending: Arc<Mutex<HashMap<Arc<str>, Pending>>>,
    resolve: Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>,
}

/// The lookups of this process.
pub(crate) fn system() -> &'static Lookups {
    static SYSTEM: LazyLock<Lookups> =
        LazyLock::new(|| Lookups::new(MAX_LOOKUPS, |host| Ok((host, 0_u16).to_socket_addrs()?.collect())));
    &SYSTEM
}

/// A name in [`Lookups::pending`], which leaves it when dropped.
struct Entry {
    host: Arc<str>,
    pending: Arc<Mutex<HashMap<Arc<str>, Pending>>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.host);
    }
}

impl Lookups {
    fn new(most: usize, resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(most)),
            pending: Arc::default(),
            resolve: Arc::new(resolve),
        }
    }

    /// The addresses of `host`, with port 0.
    ///
    /// # Errors
    /// [`LookupError`].
    ///
    /// # Cancel safety
    /// Cancel safe: a lookup that nobody waits for any more ends by itself.
    pub(crate) async fn find(&self, host: &str, deadline: Instant) -> Result<Vec<SocketAddr>, LookupError> {
        // Needs no thread.
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, 0)]);
        }
        let joined = self.pending.lock().get(host).cloned();
        let mut pending = match joined {
            Some(pending) => pending,
            None => {
                // In order of arrival.
                let slot = timeout_at(deadline, self.slots.clone().acquire_owned()).await;
                // The semaphore is never closed.
                let Ok(Ok(slot)) = slot else {
                    return Err(LookupError::Busy);
                };
                self.begin(host, slot)
            }
        };
        let ended = match timeout_at(deadline, pending.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => (*ended).clone(),
            // The resolver panicked, or the runtime is shutting down.
            Ok(Err(_)) => None,
            Err(_) => return Err(LookupError::Timeout),
        };
        let found = ended.unwrap_or(Err(LookupError::NoSuchHost))?;
        Ok(found.to_vec())
    }

    /// Starts a lookup, or joins one that was started while the caller waited for the slot.
    fn begin(&self, host: &str, slot: OwnedSemaphorePermit) -> Pending {
        let mut under_way = self.pending.lock();
        if let Some(pending) = under_way.get(host) {
            return pending.clone();
        }
        let (result, pending) = watch::channel(None);
        let host: Arc<str> = host.into();
        under_way.insert(host.clone(), pending.clone());
        drop(under_way);
        let entry = Entry {
            host,
            pending: self.pending.clone(),
        };
        let resolve = self.resolve.clone();
        // Detached: `getaddrinfo` cannot be stopped, and it occupies its slot until it returns.
        drop(tokio::task::spawn_blocking(move || {
            let found = resolve(&entry.host);
            // Before the result is known, so that whoever comes after it asks again.
            drop(entry);
            result.send_replace(Some(found.map(Into::into).map_err(|_| LookupError::NoSuchHost)));
            drop(slot);
        }));
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn names_that_hang_occupy_one_slot_each_and_no_more_than_there_are() {
        let (answer, answers) = mpsc::channel();
        let (calls, answers) = (Arc::new(AtomicUsize::new(0)), Mutex::new(answers));
        let counted = calls.clone();
        let lookups = Lookups::new(1, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            // As if the name did not exist, should the test fail meanwhile.
            answers.lock().recv().map_err(io::Error::other)
        });
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let address = SocketAddr::from(([192, 0, 2, 1], 0));

        assert_eq!(lookups.find("a.example", now).await, Err(LookupError::Timeout));
        assert_eq!(lookups.find("b.example", now).await, Err(LookupError::Busy));
        assert_eq!(lookups.find("192.0.2.1", now).await, Ok(vec![address]));

        let both = async {
            // After the others have joined the lookup that hangs.
            answer.send(vec![address]).unwrap();
        };
        let (one, other, ()) = tokio::join!(lookups.find("a.example", later), lookups.find("a.example", later), both);
        assert_eq!((one, other), (Ok(vec![address]), Ok(vec![address])));
        assert_eq!(calls.load(Ordering::Relaxed), 1);

        drop(answer);
        let unknown = lookups.find("b.example", later).await;
        assert_eq!(unknown, Err(LookupError::NoSuchHost), "the slot was given back");
    }
}
