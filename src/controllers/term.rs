//! [`Term`]: what the loops share for as long as this gateway is elected.

use super::loopback::Loopback;
use super::namespaces::Namespace;
use super::objects::Objects;
use super::{Config, SigningConfig, TaskGroup, storage};
use crate::client::Informer;
use crate::registry::StoreLookup;
use crate::request::Handler;
use crate::storage::{Entry, Storage};
use crate::tasks::{Backoff, WorkQueue};
use crate::telemetry::Telemetry;
use ::time::OffsetDateTime;
use bytes::Bytes;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Backoff of failed items, upstream's default for controllers with a lower maximum: nobody restarts the loops of a
/// gateway to have a failed item tried again.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(60));

type Shared = HashMap<(TypeId, &'static str), Arc<dyn Any + Send + Sync>>;
/// The name of a task and its work.
type Task = (String, Pin<Box<dyn Future<Output = ()> + Send>>);

/// The time until `at`; zero if it has passed.
pub fn until(at: OffsetDateTime) -> Duration {
    Duration::try_from(at - OffsetDateTime::now_utc()).unwrap_or_default()
}

/// One term of the elected gateway.
pub struct Term {
    tasks: TaskGroup,
    handler: Arc<dyn Handler>,
    telemetry: Telemetry,
    lookup: StoreLookup,
    namespaces: Informer<Namespace>,
    objects: Arc<Objects>,
    /// What several loops use, by its type and name.
    shared: Mutex<Shared>,
    /// Informers, run by [`Term::follow`] once all loops have subscribed: earlier changes are not reported to a subscriber.
    pending: Mutex<Vec<Task>>,
    /// As [`Config::root_ca`].
    pub root_ca: Option<Bytes>,
    /// As [`Config::shared_store`].
    pub shared_store: bool,
    /// As [`Config::signing`].
    pub signing: Arc<SigningConfig>,
}

impl Term {
    pub fn new(config: &Config) -> Self {
        let namespaces = storage(&config.lookup, "", "namespaces").expect("namespaces are always served");
        let (namespaces, handle) = Informer::new(namespaces, Namespace::from_entry);
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
            signing: config.signing.clone(),
        }
    }

    /// The tasks of the term.
    pub fn tasks(&self) -> &TaskGroup {
        &self.tasks
    }

    /// The namespaces, followed once for all loops.
    pub fn namespaces(&self) -> &Informer<Namespace> {
        &self.namespaces
    }

    /// The metadata of all objects, followed once for all loops.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Begins to follow what the loops share. Called once, after they have subscribed.
    pub fn follow(&self) {
        let pending = std::mem::take(&mut *self.pending.lock().expect("no code panics while holding this lock"));
        for (name, informer) in pending {
            self.tasks.spawn_until_stopped(name, informer);
        }
        self.objects.follow(&self.lookup, &self.tasks);
    }

    /// Follows a resource; loops that keep the same parts of its objects share the informer. A subscriber sees every object,
    /// as created if it exists already; it must not block.
    pub fn inform<T: Send + Sync + 'static>(
        &self,
        (group, resource): (&str, &'static str),
        parse: fn(&Entry) -> T,
        subscribe: impl FnOnce(&Informer<T>),
    ) -> Option<Informer<T>> {
        let informer = self.shared(resource, || {
            let (informer, handle) = Informer::new(storage(&self.lookup, group, resource)?, parse);
            let mut pending = self.pending.lock().expect("no code panics while holding this lock");
            pending.push((format!("informer of {resource}"), Box::pin(handle.run())));
            Some(informer)
        })?;
        subscribe(&informer);
        Some(Informer::clone(&informer))
    }

    /// What `make` makes, once per term.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        name: &'static str,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<Arc<T>> {
        let key = (TypeId::of::<T>(), name);
        let lock = || self.shared.lock().expect("no code panics while holding this lock");
        let known = lock().get(&key).cloned();
        let value = match known {
            Some(value) => value,
            None => {
                let value: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
                lock().insert(key, value.clone());
                value
            }
        };
        value.downcast().ok()
    }

    /// The storage of a built-in resource.
    pub fn storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
        storage(&self.lookup, group, resource)
    }

    /// A client that is the service account of a loop.
    pub fn client(&self, service_account: &str) -> Loopback {
        Loopback::service_account(&self.handler, service_account)
    }

    /// A work queue under upstream's name.
    pub fn queue<T: Clone + Eq + Hash>(&self, name: &str) -> WorkQueue<T> {
        WorkQueue::new(BACKOFF, self.telemetry.queue(name))
    }

    /// Processes a queue with this many workers until the term ends.
    pub fn process<T, E, F>(
        &self,
        name: &'static str,
        queue: &WorkQueue<T>,
        workers: usize,
        work: impl Fn(T) -> F + Clone + Send + Sync + 'static,
    ) where
        T: Clone + Eq + Hash + Display + Send + Sync + 'static,
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
