//! Name lookups of this machine, limited in number: each blocks a thread in `getaddrinfo`, and a name server that does
//! not answer keeps it there for a minute. The same threads do the TLS handshakes of clients, so names that hang must
//! not take all of them. Entry points: [`system`] and [`Lookups::find`].
//!
//! Callers of one name share a lookup, as in Go's `net`. Half of the places are reserved for names that resolved when
//! they were last looked up, so that dead names do not delay those of backends that work.

use crate::cache::TtlCache;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

/// Names that are looked up at once; an eighth of tokio's blocking threads.
const MAX_LOOKUPS: usize = 64;
/// Names that are remembered as resolving, and for how long.
const MAX_PROVEN: usize = 4096;
const PROVEN: Duration = Duration::from_secs(24 * 3600);

/// Why no addresses were found. In Go's words, as far as it has the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    /// Any other error of the resolver.
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

/// A slot, with the permit that an unproven name needs beside it.
type Place = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// The lookups under way.
pub(crate) struct Lookups {
    slots: Arc<Semaphore>,
    /// Limits the slots of names that are not proven.
    unproven: Arc<Semaphore>,
    proven: Arc<Proven>,
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

/// The names that resolved when they were last looked up.
struct Proven(TtlCache<Arc<str>, bool>);

impl Proven {
    fn has(&self, host: &str) -> bool {
        self.0.get(host) == Some(true)
    }

    fn resolved(&self, host: Arc<str>) {
        self.0.insert(host, true, PROVEN);
    }

    fn failed(&self, host: &str) {
        // Unknown names are not inserted: any number of dead ones would evict those that work.
        if self.has(host) {
            self.0.insert(host.into(), false, PROVEN);
        }
    }
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
            unproven: Arc::new(Semaphore::new(most.div_ceil(2))),
            proven: Arc::new(Proven(TtlCache::new(MAX_PROVEN))),
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
                // The semaphores are never closed.
                let Ok(Ok(place)) = timeout_at(deadline, self.place(host)).await else {
                    return Err(LookupError::Busy);
                };
                self.begin(host, place)
            }
        };
        let ended = match timeout_at(deadline, pending.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => (*ended).clone(),
            // The resolver panicked, or the runtime is shutting down.
            Ok(Err(_)) => None,
            Err(_) => {
                self.proven.failed(host);
                return Err(LookupError::Timeout);
            }
        };
        let found = ended.unwrap_or(Err(LookupError::NoSuchHost))?;
        Ok(found.to_vec())
    }

    /// Waits for a place, in order of arrival.
    async fn place(&self, host: &str) -> Result<Place, AcquireError> {
        let unproven = match self.proven.has(host) {
            true => None,
            // First, so that a name holds no slot while it waits for this.
            false => Some(self.unproven.clone().acquire_owned().await?),
        };
        Ok((self.slots.clone().acquire_owned().await?, unproven))
    }

    /// Starts a lookup, or joins one that was started while the caller waited for the place.
    fn begin(&self, host: &str, place: Place) -> Pending {
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
        let (resolve, proven) = (self.resolve.clone(), self.proven.clone());
        // Detached: `getaddrinfo` cannot be stopped, and it occupies its place until it returns.
        drop(tokio::task::spawn_blocking(move || {
            let found = resolve(&entry.host);
            match &found {
                Ok(_) => proven.resolved(entry.host.clone()),
                Err(_) => proven.failed(&entry.host),
            }
            // Before the result is known, so that whoever comes after it asks again, and finds the place free.
            drop((entry, place));
            result.send_replace(Some(found.map(Into::into).map_err(|_| LookupError::NoSuchHost)));
        }));
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn hanging_lookups_occupy_one_slot_per_name_within_the_limit() {
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

    #[tokio::test]
    async fn hanging_lookups_do_not_delay_names_that_have_resolved() {
        let (answer, answers) = mpsc::channel::<Vec<SocketAddr>>();
        let (answers, gone) = (Mutex::new(answers), Arc::new(AtomicBool::new(false)));
        let is_gone = gone.clone();
        let address = SocketAddr::from(([192, 0, 2, 1], 0));
        let lookups = Lookups::new(2, move |host| match host {
            "works.example" if is_gone.load(Ordering::Relaxed) => Err(io::Error::other("no such name")),
            "works.example" => Ok(vec![address]),
            _ => answers.lock().recv().map_err(io::Error::other),
        });
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));

        assert_eq!(lookups.find("works.example", later).await, Ok(vec![address]));
        assert_eq!(lookups.find("a.example", now).await, Err(LookupError::Timeout));
        assert_eq!(lookups.find("b.example", now).await, Err(LookupError::Busy));
        assert_eq!(lookups.find("works.example", later).await, Ok(vec![address]));

        gone.store(true, Ordering::Relaxed);
        let unknown = lookups.find("works.example", later).await;
        assert_eq!(unknown, Err(LookupError::NoSuchHost));
        assert_eq!(lookups.find("works.example", now).await, Err(LookupError::Busy));
        drop(answer);
    }
}
