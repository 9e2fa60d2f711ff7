//! The `Available` condition of APIServices: constant for local ones, the result of probes for remote ones.
//!
//! An APIService is checked every 30 s, after changes of it, its Service, its EndpointSlices or the objects
//! it refers to, and when a request or connection to its backend fails (`failures`). Each probe has a
//! deadline and delays only its own key, so a dead backend does not slow down the others.
//!
//! A change between available and unavailable takes two checks with the same result, 700 ms apart. While a
//! backend cannot be reached it is checked once a second. Entry points: [`Availability::new`],
//! [`Availability::start`]; the check itself is in `check`.

mod check;
mod failures;
#[cfg(test)]
mod tests;

use super::apiservice::{ApiService, Condition, ServiceReference};
use super::dependent_index::DependentIndex;
use super::resolver::{EndpointSlice, Service, ServiceIndex, ServiceResolver};
use super::transports::{TransportError, TransportId, Transports};
use super::writer::ApiServiceWriter;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Str;
use crate::client::{Change, Informer};
use crate::proxy::transport::Transport;
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::{Backoff, Signal, TaskGroup, WorkQueue};
use crate::telemetry::Telemetry;
use failures::Failures;
use std::sync::Arc;
use std::time::Duration;

/// Upstream has five. Probes of hung backends take seconds, and other APIServices should not wait for a
/// worker.
const WORKERS: usize = 64;
const RESYNC: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(30));
/// Probe interval of unreachable backends: recovery is noticed within a second.
const RETRY: Backoff = Backoff::doubling(Duration::from_millis(125), Duration::from_secs(1));
/// The time between two checks that have to agree before an APIService changes between available and
/// unavailable.
const CONFIRM: Duration = Duration::from_millis(700);

/// The two availability controllers, local and remote.
pub(crate) struct Availability {
    informer: Informer<ApiService>,
    index: ServiceIndex,
    resolver: Arc<dyn ServiceResolver>,
    transports: Arc<Transports>,
    writer: Arc<dyn ApiServiceWriter>,
    telemetry: Telemetry,
    local: WorkQueue<Str>,
    remote: WorkQueue<Str>,
    by_service: DependentIndex<Box<str>>,
    failures: Mutex<Failures>,
}

/// Why the check of an APIService is to be repeated soon.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    /// There can be no connection to the backend.
    #[error(transparent)]
    Transport(TransportError),
    /// The probes failed: the message of the condition.
    #[error("{0}")]
    Probe(Str),
    /// The condition could not be written.
    #[error(transparent)]
    Write(Status),
}

/// Dependencies of the controllers.
pub(crate) struct Parts {
    /// Informer of APIServices; must not run yet.
    pub informer: Informer<ApiService>,
    /// Informer of Services; must not run yet.
    pub services: Informer<Service>,
    /// Informer of EndpointSlices; must not run yet.
    pub endpoint_slices: Informer<EndpointSlice>,
    /// Services and EndpointSlices by key, for reading.
    pub index: ServiceIndex,
    /// Resolves backends, as for requests.
    pub resolver: Arc<dyn ServiceResolver>,
    /// Connections, shared with requests.
    pub transports: Arc<Transports>,
    pub writer: Arc<dyn ApiServiceWriter>,
    pub telemetry: Telemetry,
}

/// Selects one of the two controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerKind {
    /// APIServices served in this process.
    Local,
    /// APIServices with a backend.
    Remote,
}

impl Availability {
    /// Creates the controllers. They do not run yet, but queue changes.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let a = Arc::new(Self {
            informer: parts.informer.clone(),
            index: parts.index,
            resolver: parts.resolver,
            transports: parts.transports,
            writer: parts.writer,
            local: WorkQueue::new(BACKOFF, parts.telemetry.queue("LocalAvailabilityController")),
            remote: WorkQueue::new(RETRY, parts.telemetry.queue("RemoteAvailabilityController")),
            telemetry: parts.telemetry,
            by_service: DependentIndex::default(),
            failures: Mutex::default(),
        });
        // Weak: the controllers own the transports, which hold this hook.
        let me = Arc::downgrade(&a);
        a.transports.on_failure(move |transport| {
            if let Some(me) = me.upgrade() {
                me.failed(transport);
            }
        });
        let me = a.clone();
        parts.informer.subscribe(move |c| me.note(c));
        let me = a.clone();
        parts.services.subscribe(move |c| me.service_changed(c.key));
        let me = a.clone();
        parts.endpoint_slices.subscribe(move |c| {
            // Both states: a change of its label moves a slice to another Service.
            for slice in [c.old, c.new].into_iter().flatten() {
                me.service_changed(&slice.service);
            }
        });
        a
    }

    fn note(&self, change: &Change<'_, ApiService>) {
        let service = |s: Option<&Arc<ApiService>>| s.and_then(|s| Some(s.service.as_ref()?.key().into()));
        self.by_service
            .update(change.key, service(change.old), service(change.new));
        if let Some(new) = change.new {
            self.failures().set_available(change.key, new.is_available());
        }
        // To both: the change may have moved the APIService from one to the other.
        self.local.add(change.key.into());
        self.remote.add(change.key.into());
    }

    /// Queues one APIService for a check, since an object it refers to has changed.
    pub(crate) fn enqueue(&self, name: &Str) {
        self.remote.add(name.clone());
    }

    /// Queues all remote APIServices for a check, since something that probes depend on has changed.
    pub(crate) fn enqueue_all(&self) {
        for s in self.informer.snapshot().values().filter(|s| s.service.is_some()) {
            self.remote.add(s.name.clone());
        }
    }

    /// Queues the available APIServices that use a transport on which an exchange failed.
    fn failed(&self, transport: TransportId) {
        let users = self.failures().failed(transport);
        for (name, delay) in users {
            self.remote.add_after(name, delay);
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock()
    }

    fn service_changed(&self, key: &str) {
        for name in self.by_service.dependents(key) {
            self.remote.add(name);
        }
    }

    /// Starts a controller's workers and its periodic resync. They end with `tasks`.
    pub(crate) fn start(self: &Arc<Self>, kind: ControllerKind, tasks: &TaskGroup) {
        let queue = self.queue(kind).clone();
        for _ in 0..WORKERS {
            let (me, queue) = (self.clone(), queue.clone());
            tasks.spawn(format!("{kind:?} availability worker"), async move {
                while let Some(name) = queue.next().await {
                    me.work(kind, &name).await;
                    queue.done(&name);
                }
            });
        }
        let (me, stop) = (self.clone(), tasks.stop_signal().clone());
        tasks.spawn(format!("{kind:?} availability resync"), async move {
            me.resync(kind, &stop).await;
            // Ends the workers, which first finish the check they are at.
            me.queue(kind).shut_down();
        });
    }

    async fn resync(&self, kind: ControllerKind, stop: &Signal) {
        // The first tick is immediate, and covers objects whose events came before the start.
        let mut every = tokio::time::interval(RESYNC);
        loop {
            // Stop has priority, so that nothing is queued during shutdown.
            tokio::select! {
                biased;
                () = stop.wait() => return,
                _ = every.tick() => {
                    if kind == ControllerKind::Remote {
                        self.transports.purge();
                    }
                    for s in self.informer.snapshot().values() {
                        self.queue(kind).add(s.name.clone());
                    }
                }
            }
        }
    }

    async fn work(&self, kind: ControllerKind, name: &Str) {
        let queue = self.queue(kind);
        match self.sync(kind, name).await {
            Ok(()) => queue.forget(name),
            Err(why) => {
                tracing::debug!(%name, "availability check failed: {why}");
                queue.add_rate_limited(name.clone());
            }
        }
    }

    fn queue(&self, kind: ControllerKind) -> &WorkQueue<Str> {
        match kind {
            ControllerKind::Local => &self.local,
            ControllerKind::Remote => &self.remote,
        }
    }

    /// Checks one APIService and updates its condition. An error is retried with backoff.
    async fn sync(&self, kind: ControllerKind, name: &str) -> Result<(), SyncError> {
        let Some(s) = self.informer.get(name) else {
            // Missing if it was never set, hence the ignored error.
            let _ = self.telemetry.unavailable_apiservice.remove_label_values(&[name]);
            for reason in self.failures().forget(name) {
                let labels = [name, reason.as_str()];
                let _ = self.telemetry.unavailable_apiservice_total.remove_label_values(&labels);
            }
            return Ok(());
        };
        // Every change is queued for both controllers; each skips the APIServices of the other.
        match (kind, &s.service) {
            (ControllerKind::Local, None) => self.write(&s, &Condition::local()).await,
            (ControllerKind::Remote, Some(service)) => {
                let transport = self.transports.identified(&s);
                let condition = match (transport, check::service_condition(service, &self.index)) {
                    // No retry: a change of the annotations or the objects they name queues the APIService
                    // again.
                    (Err(TransportError::Annotations(error)), _) => {
                        tracing::info!(%name, "an APIService cannot be served: {}", error.detail);
                        Condition::new("False", error.reason, error.message)
                    }
                    (_, Some(found)) => found,
                    (Ok((id, transport)), None) => {
                        self.failures().checking(&s.name, id);
                        self.confirmed(&s, service, &transport).await
                    }
                    (Err(e), None) => return Err(SyncError::Transport(e)),
                };
                self.write(&s, &condition).await?;
                // Only a failed probe is retried: all other conditions change with an event, which queues the
                // APIService.
                match condition.reason.as_str() {
                    "FailedDiscoveryCheck" => Err(SyncError::Probe(condition.message)),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The condition of a backend. One that would change whether the APIService is available is checked
    /// again, so that a single lost or lucky exchange changes nothing.
    async fn confirmed(&self, s: &ApiService, service: &ServiceReference, transport: &Transport) -> Condition {
        let first = check::probe_condition(s, service, &*self.resolver, transport).await;
        let changes = s
            .available
            .as_ref()
            .is_some_and(|known| known.status != first.condition.status);
        // A slow check has already waited for five probes; repeating it would double the time without need.
        if !changes || first.timed_out {
            return first.condition;
        }
        tokio::time::sleep(CONFIRM).await;
        let second = check::probe_condition(s, service, &*self.resolver, transport)
            .await
            .condition;
        match &s.available {
            Some(known) if known.status == second.status => known.clone(),
            _ => second,
        }
    }

    async fn write(&self, s: &ApiService, condition: &Condition) -> Result<(), SyncError> {
        // The gauge is set even if the condition is unchanged: after a restart it has no value yet.
        let up = condition.status == "True";
        self.telemetry
            .unavailable_apiservice
            .with_label_values(&[s.name.as_str()])
            .set(i64::from(!up));
        match &s.available {
            Some(known) if known == condition => return Ok(()),
            // Each write is an event for every watch of APIServices, so a failure that only changes its
            // wording is not written every time.
            Some(known) if check::is_reworded(known, condition) && !self.failures().may_reword(&s.name) => {
                return Ok(());
            }
            _ => {}
        }
        let was_available = match self.writer.set_condition(&s.name, condition).await {
            Ok(was_available) => was_available,
            // Deleted since it was checked.
            Err(e) if e.reason == "NotFound" => return Ok(()),
            Err(e) => return Err(SyncError::Write(e)),
        };
        // Only at a transition, as upstream counts it; by what was stored, since the informer may not have told of the
        // last write yet, nor of that of another gateway.
        if was_available && !up {
            let reason = match condition.reason.as_str() {
                "" => "UnknownReason",
                r => r,
            };
            self.failures().count(&s.name, reason);
            self.telemetry
                .unavailable_apiservice_total
                .with_label_values(&[s.name.as_str(), reason])
                .inc();
        }
        Ok(())
    }
}
