//! [`Term`]: the state that the loops share while this gateway is elected: informers, clients, queues, and the task
//! group that ends with the term. Loops subscribe first ([`Term::inform`]), then [`Term::follow`] starts everything.

use super::loopback::Loopback;
use super::namespaces::Namespace;
use super::objects::Objects;
use super::service_endpoints::SliceMetrics;
use super::{Config, SigningConfig, TaskGroup, storage};
use crate::authn::service_account::Issuer;
use crate::client::{Change, Informer, InformerHandle};
use crate::pki::certs::DynamicCa;
use crate::registry::StoreLookup;
use crate::request::Handler;
use crate::storage::{Entry, Storage};
use crate::sync::Mutex;
use crate::tasks::{Backoff, WorkQueue};
use crate::telemetry::Telemetry;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Backoff of failed items: upstream's default for controllers, with a lower maximum, because the loops of a
/// gateway are not restarted to retry a failed item.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(60));

type Shared = HashMap<(TypeId, &'static str), Arc<dyn Any + Send + Sync>>;
/// The name of a task and its work.
type Task = (String, Pin<Box<dyn Future<Output = ()> + Send>>);

/// One term of the elected gateway.
pub(crate) struct Term {
    tasks: TaskGroup,
    handler: Arc<dyn Handler>,
    telemetry: Telemetry,
    lookup: StoreLookup,
    namespaces: Informer<Namespace>,
    objects: Arc<Objects>,
    /// Values that several loops use, by type and name.
    shared: Mutex<Shared>,
    /// Informers, run by [`Term::follow`] once all loops have subscribed: earlier changes are not reported to
    /// a subscriber.
    pending: Mutex<Vec<Task>>,
    /// As [`Config::root_ca`].
    pub root_ca: Option<Arc<DynamicCa>>,
    /// As [`Config::shared_store`].
    pub shared_store: bool,
    /// As [`Config::issuer`].
    pub issuer: Issuer,
    /// As [`Config::unused_tokens`].
    pub unused_tokens: Duration,
    /// Registered once per gateway; outlives the term.
    pub(crate) slice_metrics: Arc<SliceMetrics>,
    /// As [`Config::signing`].
    pub(crate) signing: Arc<SigningConfig>,
}

impl Term {
    pub(crate) fn new(config: &Config, slice_metrics: &Arc<SliceMetrics>) -> Self {
        let namespaces = storage(&config.lookup, "", "namespaces").expect("namespaces are always served");
        let (namespaces, handle) = Informer::new(namespaces, Namespace::from_entry);
        // Deferred to `follow`: loops have to subscribe first.
        let follow: Task = ("namespaces of the control loops".to_owned(), Box::pin(handle.run()));
        Self {
            tasks: TaskGroup::new("control loops"),
            handler: config.handler.clone(),
            telemetry: config.telemetry.clone(),
            lookup: config.lookup.clone(),
            namespaces,
            objects: Arc::default(),
            shared: Mutex::default(),
            pending: Mutex::new(vec![follow]),
            root_ca: config.root_ca.clone(),
            shared_store: config.shared_store,
            issuer: config.issuer.clone(),
            unused_tokens: config.unused_tokens,
            slice_metrics: slice_metrics.clone(),
            signing: config.signing.clone(),
        }
    }

    /// The tasks of the term.
    pub(crate) fn tasks(&self) -> &TaskGroup {
        &self.tasks
    }

    /// The namespaces, followed once for all loops.
    pub(crate) fn namespaces(&self) -> &Informer<Namespace> {
        &self.namespaces
    }

    /// The metadata of all objects, followed once for all loops.
    pub(crate) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Starts the shared informers. Called once, after the loops have subscribed.
    pub(crate) fn follow(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        for (name, informer) in pending {
            self.tasks.spawn_until_stopped(name, informer);
        }
        // Last, because its observers were registered by the loops.
        self.objects.follow(&self.lookup, &self.tasks);
    }

    /// The informer of a resource; loops that parse its objects in the same way share it. A subscriber sees
    /// every object, as created if it exists already; it must not block.
    pub(crate) fn inform<T: Send + Sync + 'static>(
        &self,
        (group, resource): (&str, &'static str),
        parse: fn(&Entry) -> T,
        subscribe: impl FnOnce(&Informer<T>),
    ) -> Option<Informer<T>> {
        let informer = self.shared(resource, || {
            let (informer, handle) = Informer::new(storage(&self.lookup, group, resource)?, parse);
            self.run_later(resource, handle);
            Some(informer)
        })?;
        subscribe(&informer);
        Some(Informer::clone(&informer))
    }

    /// The informer of a resource for one loop only, whose subscribers may block while `is_busy` holds.
    pub(crate) fn inform_blocking_while<T: Send + Sync + 'static>(
        &self,
        (group, resource): (&str, &'static str),
        parse: fn(&Entry) -> T,
        is_busy: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Option<Informer<T>> {
        let (informer, handle) = Informer::new(storage(&self.lookup, group, resource)?, parse);
        self.run_later(resource, handle.blocking_while(is_busy));
        Some(informer)
    }

    fn run_later<T: Send + Sync + 'static>(&self, resource: &str, handle: InformerHandle<T>) {
        let mut pending = self.pending.lock();
        pending.push((format!("informer of {resource}"), Box::pin(handle.run())));
    }

    /// As [`Self::inform`], for loops that need only the keys of the objects.
    pub(crate) fn inform_keys(
        &self,
        of: (&str, &'static str),
        changed: impl Fn(&Change<'_, ()>) + Send + Sync + 'static,
    ) -> Option<Informer<()>> {
        self.inform(of, |_| (), |informer| informer.subscribe(changed))
    }

    /// The value that `make` returns; it is called once per term.
    pub(crate) fn shared<T: Send + Sync + 'static>(
        &self,
        name: &'static str,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<Arc<T>> {
        // By type, too: loops may follow one resource and keep different parts of its objects.
        let key = (TypeId::of::<T>(), name);
        // The lock is not held over `make`, which may call `shared` itself. Loops start one after the other, so no
        // two callers make the same value.
        let known = self.shared.lock().get(&key).cloned();
        let value = match known {
            Some(value) => value,
            None => {
                let value: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
                self.shared.lock().insert(key, value.clone());
                value
            }
        };
        // Never `None`: the key contains the type.
        value.downcast().ok()
    }

    /// The storage of a built-in resource.
    pub(crate) fn storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
        storage(&self.lookup, group, resource)
    }

    /// A client that is the service account of a loop.
    pub(crate) fn client(&self, service_account: &str) -> Loopback {
        Loopback::service_account(&self.handler, service_account)
    }

    /// A client that is kube-controller-manager itself, for a loop that has no service account.
    pub(crate) fn manager(&self, component: &str) -> Loopback {
        Loopback::manager(&self.handler, component)
    }

    /// A work queue under upstream's name.
    pub(crate) fn queue<T: Clone + Ord>(&self, name: &str) -> WorkQueue<T> {
        WorkQueue::new(BACKOFF, self.telemetry.queue(name))
    }

    /// Processes a queue with this many workers until the term ends.
    pub(crate) fn process<T, E, F>(
        &self,
        name: &'static str,
        queue: &WorkQueue<T>,
        workers: usize,
        work: impl Fn(T) -> F + Clone + Send + Sync + 'static,
    ) where
        T: Clone + Ord + Display + Send + Sync + 'static,
        E: Display + Send,
        F: Future<Output = Result<(), E>> + Send,
    {
        for _ in 0..workers {
            let (queue, work) = (queue.clone(), work.clone());
            self.tasks
                .spawn_until_stopped(name, async move { queue.process(name, work).await });
        }
    }
}
