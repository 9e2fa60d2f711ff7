//! Connection-level data stamped into each request: the client's address, its certificates, and a typed cache
//! that lives as long as the connection ([`ConnectionCache`]).

use arc_swap::ArcSwapOption;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

/// The client's address. IPv4-mapped addresses of a dual-stack socket are converted to IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr(pub SocketAddr);

/// The client's certificate chain, leaf first. The TLS handshake proved possession of the key, but the chain
/// is not yet verified against any CA; the x509 authenticator does that. Absent if the client presented none.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<Vec<CertificateDer<'static>>>);

/// CA certificates against which client certificates are verified.
pub trait TrustAnchors: Send + Sync + 'static {
    /// The CA certificates in the form that `rustls` verifies against.
    fn roots(&self) -> &[TrustAnchor<'static>];
}

/// A source of CA certificates that can be reloaded while the server runs. A reload yields a different `Arc`,
/// so callers detect it by pointer comparison.
pub trait ClientCaSource: Send + Sync + 'static {
    /// The current set of CA certificates.
    fn current(&self) -> Arc<dyn TrustAnchors>;
}

type Slot = Arc<dyn Any + Send + Sync>;

/// Observes how a connection's requests authenticate.
pub trait AuthenticationObserver: Send + Sync + 'static {
    /// A request on the connection was authenticated as `user` (never the anonymous user).
    fn authenticated(&self, user: &str);
}

/// Typed per-connection cache, one value per type; it lives as long as the connection.
///
/// The cache never invalidates by itself. A value derived from something that can be reloaded (a CA pool)
/// must carry its source, so that the reader can compare it with the current one.
#[derive(Clone, Default)]
pub struct ConnectionCache(Arc<Inner>);

#[derive(Default)]
struct Inner {
    slots: ArcSwapOption<Vec<Slot>>,
    observer: Option<Arc<dyn AuthenticationObserver>>,
}

impl ConnectionCache {
    /// An empty cache whose connection reports authenticated users to `observer`.
    pub fn with_observer(observer: Arc<dyn AuthenticationObserver>) -> Self {
        Self(Arc::new(Inner {
            slots: ArcSwapOption::empty(),
            observer: Some(observer),
        }))
    }

    /// Reports that a request was authenticated as `user` (never the anonymous user).
    pub fn authenticated(&self, user: &str) {
        if let Some(observer) = &self.0.observer {
            observer.authenticated(user);
        }
    }

    /// The cached value of type `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let slots = self.0.slots.load();
        // A scan: a connection caches two or three values.
        let slot = slots.as_ref()?.iter().find(|slot| slot.is::<T>())?;
        Arc::clone(slot).downcast::<T>().ok()
    }

    /// Stores a value, replacing the previous one of its type.
    pub fn set<T: Any + Send + Sync>(&self, value: Arc<T>) {
        // Copy on write: streams of an HTTP/2 connection read concurrently, and writes are rare.
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
    fn a_connection_caches_one_value_per_type() {
        let cache = ConnectionCache::default();
        assert!(cache.get::<u32>().is_none());
        cache.set(Arc::new(1u32));
        cache.set(Arc::new("a".to_owned()));
        cache.clone().set(Arc::new(2u32));
        assert_eq!(cache.get::<u32>().as_deref(), Some(&2));
        assert_eq!(cache.get::<String>().as_deref().map(String::as_str), Some("a"));
    }
}
