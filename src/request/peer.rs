//! What is known about the other end, stamped into each request's extensions.

use arc_swap::ArcSwapOption;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

/// The client's end of the connection. IPv4 clients of a dual-stack socket have their IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr(pub SocketAddr);

/// The chain the client presented, its own certificate first. The client has proven to hold the key; nobody has yet
/// verified the chain. Absent where the client presented none.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<Vec<CertificateDer<'static>>>);

/// Issuers that clients' certificates are verified against.
pub trait TrustAnchors: Send + Sync + 'static {
    /// The issuers.
    fn roots(&self) -> &[TrustAnchor<'static>];
}

/// Issuers that may be replaced while the server runs. A replacement is another `Arc`.
pub trait ClientCaSource: Send + Sync + 'static {
    /// Those of this moment.
    fn current(&self) -> Arc<dyn TrustAnchors>;
}

type Slot = Arc<dyn Any + Send + Sync>;

/// Told what requests show about their connection.
pub trait Standing: Send + Sync + 'static {
    /// A request on the connection was authenticated as this user, who is not the anonymous one.
    fn authenticated(&self, user: &str);
}

/// A place to remember, for as long as the connection lives, what was derived from its facts: one value per type.
///
/// Values that depend on something that may be swapped (a CA pool) carry what they were derived from, and their
/// reader compares; this type forgets nothing by itself.
#[derive(Clone, Default)]
pub struct ConnectionCache(Arc<Remembered>);

#[derive(Default)]
struct Remembered {
    slots: ArcSwapOption<Vec<Slot>>,
    standing: Option<Arc<dyn Standing>>,
}

impl ConnectionCache {
    /// An empty one, of a connection whose server wants to know who uses it.
    pub fn with_standing(standing: Arc<dyn Standing>) -> Self {
        Self(Arc::new(Remembered {
            slots: ArcSwapOption::empty(),
            standing: Some(standing),
        }))
    }

    /// A request on the connection was authenticated as this user, who is not the anonymous one.
    pub fn authenticated(&self, user: &str) {
        if let Some(standing) = &self.0.standing {
            standing.authenticated(user);
        }
    }

    /// The remembered value of type `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let slots = self.0.slots.load();
        let slot = slots.as_ref()?.iter().find(|slot| slot.is::<T>())?;
        Arc::clone(slot).downcast::<T>().ok()
    }

    /// Remembers a value in place of the former one of its type.
    pub fn set<T: Any + Send + Sync>(&self, value: Arc<T>) {
        self.0.slots.rcu(|old| {
            let mut slots: Vec<Slot> = old.as_deref().cloned().unwrap_or_default();
            slots.retain(|slot| !slot.is::<T>());
            slots.push(value.clone());
            Some(Arc::new(slots))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_remembers_one_value_per_type() {
        let cache = ConnectionCache::default();
        assert!(cache.get::<u32>().is_none());
        cache.set(Arc::new(1u32));
        cache.set(Arc::new("a".to_owned()));
        cache.clone().set(Arc::new(2u32));
        assert_eq!(cache.get::<u32>().as_deref(), Some(&2));
        assert_eq!(cache.get::<String>().as_deref().map(String::as_str), Some("a"));
    }
}
