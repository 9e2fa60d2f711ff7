//! Resolves Services to `host:port`, from the gateway's own Services and EndpointSlices. Follows
//! `apiserver/pkg/util/proxy/proxy.go`. Entry point: [`ClusterResolver`].
//!
//! Objects are parsed when they change, so a request costs one or two map lookups.

mod objects;

pub(crate) use objects::{EndpointSlice, Service, ServicePort, ServiceType};

use super::apiservice::ServiceReference;
use crate::client::Informer;
use arc_swap::ArcSwap;
use imbl::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a Service currently has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ResolveError(pub String);

/// Resolves a Service to its addresses.
pub(crate) trait ServiceResolver: Send + Sync + 'static {
    /// Returns one `host:port`, chosen again on each call.
    ///
    /// # Errors
    /// [`ResolveError`].
    fn resolve(&self, service: &ServiceReference) -> Result<Arc<str>, ResolveError>;

    /// Returns all addresses to choose from.
    ///
    /// # Errors
    /// [`ResolveError`].
    fn endpoints(&self, service: &ServiceReference) -> Result<Endpoints, ResolveError> {
        self.resolve(service).map(Endpoints::One)
    }
}

/// The addresses that a request may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoints {
    One(Arc<str>),
    /// One of several; never empty.
    Any(Arc<[Arc<str>]>),
}

impl Endpoints {
    /// All addresses; at least one.
    pub(crate) fn all(&self) -> &[Arc<str>] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Any(all) => all,
        }
    }
}

impl From<Endpoints> for Arc<[Arc<str>]> {
    fn from(endpoints: Endpoints) -> Self {
        match endpoints {
            Endpoints::One(one) => [one].into(),
            Endpoints::Any(all) => all,
        }
    }
}

/// Services and their EndpointSlices, as currently stored.
#[derive(Clone)]
pub(crate) struct ServiceIndex {
    services: Informer<Service>,
    slices: Arc<ArcSwap<SlicesByService>>,
}

type SlicesByService = HashMap<Box<str>, Arc<Vec<Arc<EndpointSlice>>>>;

/// Resolves `default/kubernetes:443` to this server and everything else through the index.
pub(crate) struct ClusterResolver {
    index: ServiceIndex,
    loopback: Arc<str>,
    to_endpoints: bool,
    next: AtomicUsize,
    /// Cached lists of ready endpoints, valid until the Service or one of its slices changes.
    ready: ArcSwap<HashMap<ServiceReference, Ready>>,
}

#[derive(Clone)]
struct Ready {
    service: Arc<Service>,
    slices: Arc<Vec<Arc<EndpointSlice>>>,
    addresses: Arc<[Arc<str>]>,
}

impl ServiceIndex {
    /// Creates an index over these informers, which must not run yet.
    pub(crate) fn new(services: Informer<Service>, endpoint_slices: &Informer<EndpointSlice>) -> Self {
        let slices: Arc<ArcSwap<SlicesByService>> = Arc::default();
        let mine = slices.clone();
        endpoint_slices.subscribe(move |change| {
            // A persistent map: the copy shares all other Services with the snapshots that readers hold.
            let mut all = SlicesByService::clone(&mine.load());
            // Removed from its old Service first: a change of its label may have moved it to another.
            if let Some(old) = change.old {
                let rest: Vec<_> = all
                    .get(&*old.service)
                    .into_iter()
                    .flat_map(|v| v.iter())
                    .filter(|s| s.key != old.key)
                    .cloned()
                    .collect();
                if rest.is_empty() {
                    all.remove(&*old.service);
                } else {
                    all.insert(old.service.clone(), Arc::new(rest));
                }
            }
            // Without the label of a Service nothing can be routed to it.
            if let Some(new) = change.new
                && !new.service.is_empty()
            {
                let mut slices = all.get(&*new.service).map(|v| v.to_vec()).unwrap_or_default();
                slices.push(new.clone());
                all.insert(new.service.clone(), Arc::new(slices));
            }
            mine.store(Arc::new(all));
        });
        Self { services, slices }
    }

    /// The Service with this key.
    pub(crate) fn service(&self, key: &str) -> Option<Arc<Service>> {
        self.services.get(key)
    }

    /// The EndpointSlices of a Service.
    pub(crate) fn slices(&self, key: &str) -> Arc<Vec<Arc<EndpointSlice>>> {
        self.slices.load().get(key).cloned().unwrap_or_default()
    }
}

impl ClusterResolver {
    /// `loopback` is this server's own `host:port`. With `to_endpoints`, requests go to
    /// endpoints instead of cluster IPs.
    pub(crate) fn new(index: ServiceIndex, loopback: impl Into<Arc<str>>, to_endpoints: bool) -> Self {
        Self {
            index,
            loopback: loopback.into(),
            to_endpoints,
            next: AtomicUsize::new(0),
            ready: ArcSwap::default(),
        }
    }

    /// The ready endpoints of the first address family that has any; never an empty list. The Service and its
    /// slices are read once: a second read could see a later state, and its answer would not apply to the
    /// first.
    fn ready(&self, wanted: &ServiceReference) -> Result<Arc<[Arc<str>]>, ResolveError> {
        let service = self.lookup(wanted)?;
        let slices = self.index.slices(wanted.key());
        // Pointers suffice as the validator: the informers replace an object's `Arc` on every change.
        if let Some(made) = self.ready.load().get(wanted)
            && Arc::ptr_eq(&made.service, &service)
            && Arc::ptr_eq(&made.slices, &slices)
        {
            return Ok(made.addresses.clone());
        }
        let port = routed_port(&service, wanted)?;
        let of = |preferred: bool| -> Vec<Arc<str>> {
            let family = slices
                .iter()
                .filter(|s| service.families.first().is_none_or(|f| s.address_type == *f) == preferred);
            let ports = family.filter_map(|s| Some((s, s.port_named(&port.name)?)));
            let ready = ports.flat_map(|(s, number)| {
                let usable = s.endpoints.iter().filter(|e| e.ready && !e.address.is_empty());
                usable.map(move |e| join(&e.address, number).into())
            });
            ready.collect()
        };
        let mut addresses = of(true);
        if addresses.is_empty() {
            addresses = of(false);
        }
        if addresses.is_empty() {
            return Err(no_endpoints(wanted));
        }
        // Sorted and without duplicates: during a rolling update an endpoint may be in two slices.
        addresses.sort();
        addresses.dedup();
        let made = Ready {
            service,
            slices,
            addresses: addresses.into(),
        };
        self.ready.rcu(|all| {
            // Purged here, since nothing else removes the entries of deleted Services.
            let mut all = HashMap::clone(all);
            all.retain(|other, _| self.index.service(other.key()).is_some());
            all.update(wanted.clone(), made.clone())
        });
        Ok(made.addresses)
    }

    fn cluster_ip(&self, wanted: &ServiceReference) -> Result<Arc<str>, ResolveError> {
        let service = self.lookup(wanted)?;
        match &service.kind {
            ServiceType::ExternalName(host) => Ok(service.outside(host, wanted.port)),
            ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => {
                if service.cluster_ip == "None" && service.kind == ServiceType::ClusterIp {
                    return Err(ResolveError("cannot route to service with ClusterIP \"None\"".into()));
                }
                // By number: in this mode neither the port's name nor its target port matters.
                let port = service.port(wanted.port).ok_or_else(|| no_port(wanted))?;
                Ok(port.address.clone())
            }
            ServiceType::Other(t) => Err(ResolveError(format!("unsupported service type {t:?}"))),
        }
    }

    fn endpoint(&self, wanted: &ServiceReference) -> Result<Arc<str>, ResolveError> {
        let service = self.lookup(wanted)?;
        let port = routed_port(&service, wanted)?;
        let slices = self.index.slices(wanted.key());
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        // Round robin: each request starts one further within a family and within a slice. The Service's
        // first address family has precedence.
        let (first, rest): (Vec<_>, Vec<_>) = slices
            .iter()
            .partition(|s| service.families.first().is_none_or(|f| s.address_type == *f));
        for family in [first, rest] {
            for i in 0..family.len() {
                let slice = family[(next + i) % family.len()];
                let Some(number) = slice.port_named(&port.name) else {
                    continue;
                };
                let n = slice.endpoints.len();
                // If `n` is 0, the closure that divides by it is not called.
                let ready = (0..n)
                    .map(|k| &slice.endpoints[(next + k) % n])
                    .find(|e| e.ready && !e.address.is_empty());
                if let Some(e) = ready {
                    return Ok(join(&e.address, number).into());
                }
            }
        }
        Err(no_endpoints(wanted))
    }

    fn lookup(&self, wanted: &ServiceReference) -> Result<Arc<Service>, ResolveError> {
        self.index
            .service(wanted.key())
            .ok_or_else(|| ResolveError(format!("service {:?} not found", wanted.name.as_str())))
    }
}

impl ServiceResolver for ClusterResolver {
    fn resolve(&self, service: &ServiceReference) -> Result<Arc<str>, ResolveError> {
        if let Some(target) = &service.target {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            return Ok(target.addresses[next % target.addresses.len()].clone());
        }
        // Upstream's `NewLoopbackServiceResolver`: this port only.
        if service.port == 443 && service.key() == "default/kubernetes" {
            return Ok(self.loopback.clone());
        }
        if self.to_endpoints {
            self.endpoint(service)
        } else {
            self.cluster_ip(service)
        }
    }

    fn endpoints(&self, service: &ServiceReference) -> Result<Endpoints, ResolveError> {
        if let Some(target) = &service.target {
            return Ok(match &*target.addresses {
                [one] => Endpoints::One(one.clone()),
                _ => Endpoints::Any(target.addresses.clone()),
            });
        }
        // A cluster IP is one address; the network chooses among the endpoints.
        if !self.to_endpoints || (service.port == 443 && service.key() == "default/kubernetes") {
            return self.resolve(service).map(Endpoints::One);
        }
        let ready = self.ready(service)?;
        Ok(match &*ready {
            [one] => Endpoints::One(one.clone()),
            _ => Endpoints::Any(ready),
        })
    }
}

/// The port of a Service whose requests go to its endpoints.
fn routed_port<'s>(service: &'s Service, wanted: &ServiceReference) -> Result<&'s ServicePort, ResolveError> {
    match &service.kind {
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => {}
        ServiceType::ExternalName(_) => {
            return Err(ResolveError("unsupported service type \"ExternalName\"".into()));
        }
        ServiceType::Other(t) => return Err(ResolveError(format!("unsupported service type {t:?}"))),
    }
    service.port(wanted.port).ok_or_else(|| no_port(wanted))
}

fn no_endpoints(wanted: &ServiceReference) -> ResolveError {
    ResolveError(format!("no endpoints available for service {:?}", wanted.name.as_str()))
}

fn no_port(wanted: &ServiceReference) -> ResolveError {
    ResolveError(format!(
        "no service port {} found for service {:?}",
        wanted.port,
        wanted.name.as_str()
    ))
}

/// Joins host and port, with brackets around IPv6 addresses.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests;
