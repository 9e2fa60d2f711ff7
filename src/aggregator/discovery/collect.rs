//! Collects backends' discovery documents into the aggregated document of `/apis`. Documents are polled in
//! the background, cached per service with their ETag, and parsed only when they have changed. If a backend
//! fails, its group version stays listed as stale.
//!
//! Entry points: [`Collector::new`], [`Collector::run_first_pass`]. Conversion of document forms is left to
//! `convert`.

#[cfg(test)]
mod tests;

use super::convert;
use crate::aggregator::apiservice::{ApiService, ServiceReference};
use crate::aggregator::disk_cache::DiskCache;
use crate::aggregator::documents::DocumentKind;
use crate::aggregator::documents::{CollectError, PublishedKind, Rejected, bounds};
use crate::aggregator::own_requests::{self, AGGREGATOR, AGGREGATOR_WITHOUT_GROUPS, FetchedDocument, ResponseLimits};
use crate::aggregator::resolver::ServiceResolver;
use crate::aggregator::sync_status::SyncStatus;
use crate::aggregator::transports::Transports;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::endpoints::discovery::aggregated::{Priorities, Source, hash};
use crate::sync::Mutex;
use crate::tasks::{Backoff, TaskGroup, WorkQueue, shrink};
use crate::telemetry::Telemetry;
use http::header;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Upstream has two workers, which two hung backends would keep busy.
const WORKERS: usize = 16;
const PERIOD: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), PERIOD);
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// The discovery controller: upstream's `discoveryManager`
/// (`kube-aggregator/pkg/apiserver/handler_discovery.go`).
pub(crate) struct Collector {
    informer: Informer<ApiService>,
    resolver: Arc<dyn ServiceResolver>,
    transports: Arc<Transports>,
    document: Arc<AggregatedDiscovery>,
    disk_cache: DiskCache,
    sync_status: SyncStatus,
    /// Whether a backend that fails stays listed with its last good resources.
    keeps_last_good: bool,
    queue: WorkQueue<Str>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    services: HashMap<ServiceReference, Arc<Cached>>,
    /// Number of APIServices that use each service.
    users: HashMap<ServiceReference, usize>,
    /// Parsed lists of backends that do not support the aggregated form, by APIService.
    lists: HashMap<Str, Arc<List>>,
    /// When an APIService was last queued for a change. A document whose fetch started later is fresh enough.
    dirty: HashMap<Str, Instant>,
    /// Last good entry of each APIService.
    good: HashMap<Str, Value>,
    /// APIServices for which the disk cache was read.
    restored: HashSet<Str>,
}

struct Cached {
    etag: String,
    /// Hash of the document from which `versions` were parsed.
    source: String,
    started: Instant,
    versions: Arc<Versions>,
}

/// A parsed APIResourceList, the resources of one group version.
struct List {
    /// Hash of the document from which `entry` was parsed.
    source: String,
    entry: Value,
}

/// Discovery entries by group and version.
type Versions = HashMap<(String, String), Value>;

impl State {
    /// Records that an APIService uses `now` instead of `before`. The cached documents of a service are
    /// dropped with its last user.
    fn move_user(&mut self, before: Option<ServiceReference>, now: Option<ServiceReference>) {
        if let Some(service) = now {
            *self.users.entry(service).or_default() += 1;
        }
        let Some(service) = before else { return };
        let Some(users) = self.users.get_mut(&service) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.users.remove(&service);
            // A backend's document goes with the last of the APIServices that share it.
            self.services.remove(&service);
            shrink(&mut self.users);
            shrink(&mut self.services);
        }
    }

    fn forget(&mut self, name: &Str) {
        self.dirty.remove(name);
        self.good.remove(name);
        self.lists.remove(name);
        self.restored.remove(name);
        shrink(&mut self.dirty);
        shrink(&mut self.good);
        shrink(&mut self.lists);
    }
}

impl Collector {
    /// Creates a collector. It does not fetch yet, but queues changes. `keeps_last_good`: a backend that
    /// fails stays listed with its last good resources, also after a restart.
    pub(crate) fn new(
        informer: Informer<ApiService>,
        resolver: Arc<dyn ServiceResolver>,
        transports: Arc<Transports>,
        document: Arc<AggregatedDiscovery>,
        (disk_cache, keeps_last_good): (DiskCache, bool),
        sync_status: SyncStatus,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let c = Arc::new(Self {
            informer: informer.clone(),
            resolver,
            transports,
            document,
            disk_cache,
            sync_status,
            keeps_last_good,
            queue: WorkQueue::new(BACKOFF, telemetry.queue("discovery-manager")),
            state: Mutex::default(),
        });
        let me = c.clone();
        informer.subscribe(move |change| me.note(change));
        c
    }

    fn note(&self, change: &Change<'_, ApiService>) {
        match (change.old, change.new) {
            (Some(old), None) if old.service.is_some() => self.drop_entry(old),
            (_, Some(new)) if new.service.is_some() => {
                if change.old.is_none() {
                    // Listed as stale at once, even before the first fetch.
                    self.publish(new, self.stale(new));
                }
                self.lock().dirty.insert(change.key.into(), Instant::now());
                // Forgotten first: a failure's back-off must not delay the fetch after a change.
                self.queue.forget(&change.key.into());
                self.queue.add(change.key.into());
            }
            // Now served in this process: the backend's entry must not hide our own.
            (Some(old), Some(new)) if old.service.is_some() => self.drop_entry(new),
            _ => {}
        }
        let service = |s: Option<&Arc<ApiService>>| s.and_then(|s| s.service.clone());
        let (before, now) = (service(change.old), service(change.new));
        if before != now {
            self.lock().move_user(before, now);
        }
    }

    fn drop_entry(&self, s: &ApiService) {
        self.document.remove_group_version(Source::AGGREGATED, &gv(s));
        self.lock().forget(&s.name);
        self.queue.remove(&s.name);
        self.disk_cache.remove(DocumentKind::Discovery, &s.name);
        self.sync_status.remove(&s.name);
    }

    /// Fetches from all remote APIServices concurrently, once; then starts polling in `tasks`.
    ///
    /// # Cancel safety
    /// When dropped, the first pass is abandoned and polling does not start.
    pub(crate) async fn run_first_pass(self: &Arc<Self>, tasks: &TaskGroup) {
        let all = self.informer.snapshot();
        let first = all.values().filter(|s| s.service.is_some()).map(|s| self.sync(&s.name));
        // All at once, and each with its own time limit: the server is not ready before this pass, so it must
        // not take longer than the slowest backend.
        futures_util::future::join_all(first).await;
        for _ in 0..WORKERS {
            let me = self.clone();
            tasks.spawn("discovery worker", async move {
                while let Some(name) = me.queue.next().await {
                    match me.sync(&name).await {
                        Ok(true) => {
                            me.queue.forget(&name);
                            me.queue.add_after(name.clone(), PERIOD);
                        }
                        Ok(false) => me.queue.forget(&name),
                        Err(why) => {
                            tracing::debug!(%name, "discovery failed: {why}");
                            me.queue.add_rate_limited(name.clone());
                        }
                    }
                    me.queue.done(&name);
                }
            });
        }
        let (queue, stop) = (self.queue.clone(), tasks.stop_signal().clone());
        tasks.spawn("discovery queue", async move {
            stop.wait().await;
            queue.shut_down();
        });
    }

    /// Fetches the entry of one APIService. Returns false if there is nothing to poll.
    async fn sync(&self, name: &str) -> Result<bool, CollectError> {
        let Some(s) = self.informer.get(name) else {
            return Ok(false);
        };
        let Some(service) = &s.service else {
            return Ok(false);
        };
        self.restore(&s).await;
        let outcome = if s.available.is_none() {
            // Not probed yet. The first write of the condition queues the APIService again.
            Err(CollectError::NotProbed)
        } else {
            self.fetch(&s, service).await
        };
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let result = failure.as_deref().map_or(Ok(()), Err);
        self.sync_status.note(&s.name, DocumentKind::Discovery, result);
        let is_remote = || self.informer.get(name).is_some_and(|now| now.service.is_some());
        if is_remote() {
            match &outcome {
                Ok(entry) => {
                    self.publish(&s, entry.clone());
                    let before = self.lock().good.insert(s.name.clone(), entry.clone());
                    // Written only if changed: most polls confirm what is known.
                    if before.as_ref() != Some(entry) {
                        self.disk_cache.save(DocumentKind::Discovery, &s, entry.clone()).await;
                    }
                }
                Err(_) => self.publish(&s, self.stale(&s)),
            }
        }
        // Check again after the awaits: the APIService may have become local or disappeared, and its event
        // may have been handled before this entry was published.
        if !is_remote() {
            self.drop_entry(&s);
        }
        outcome.map(|_| true)
    }

    /// Loads the last good entry from the disk cache, once per APIService.
    async fn restore(&self, s: &Arc<ApiService>) {
        // Before the first await: another worker must not read the file again.
        if !self.lock().restored.insert(s.name.clone()) {
            return;
        }
        let (disk_cache, of) = (self.disk_cache.clone(), s.clone());
        let kept = self.disk_cache.documents().run_blocking(move || {
            let kept = disk_cache.load(DocumentKind::Discovery, &of)?;
            // The file may be from a version with other limits.
            match bounds::version(&of.group, &kept) {
                Ok(()) => Some(kept),
                Err(why) => {
                    tracing::warn!(name = %of.name, "a cached discovery document is ignored: {why}");
                    None
                }
            }
        });
        if let Some(Some(kept)) = kept.await {
            self.lock().good.entry(s.name.clone()).or_insert(kept);
            self.sync_status.restored(&s.name, DocumentKind::Discovery);
        }
    }

    /// The entry for a backend that does not answer: its last good one, marked as stale. Upstream lists the
    /// version without resources; clients that check the mark see no difference, and the others keep working.
    fn stale(&self, s: &ApiService) -> Value {
        match self.lock().good.get(&s.name).filter(|_| self.keeps_last_good) {
            Some(good) => {
                let mut entry = good.clone();
                entry.set(&["freshness"], "Stale");
                entry
            }
            None => convert::bare(&s.version, "Stale"),
        }
    }

    async fn fetch(&self, s: &ApiService, service: &ServiceReference) -> Result<Value, CollectError> {
        let transport = self.transports.of(s)?;
        // Before the request: a change while it is under way makes the response stale.
        let now = Instant::now();
        let (cached, dirty) = {
            let state = self.lock();
            let dirty = state.dirty.get(&s.name).copied();
            (state.services.get(service).cloned(), dirty)
        };
        // APIServices of one backend share a document; the first to fetch it spares the others.
        let fresh = |c: &Cached| dirty.is_some_and(|d| c.started > d) && c.started.elapsed() < PERIOD;
        if let Some(c) = cached.as_deref().filter(|c| fresh(c)) {
            return Ok(entry_of(&c.versions, s));
        }
        let mut headers = vec![(header::ACCEPT, ACCEPT)];
        if let Some(c) = cached.as_deref().filter(|c| !c.etag.is_empty()) {
            headers.push((header::IF_NONE_MATCH, &c.etag));
        }
        let resolver = &*self.resolver;
        let documents = self.disk_cache.documents();
        let within = || ResponseLimits::new(LIMIT, documents.max_bytes(DocumentKind::Discovery), documents.large());
        let response =
            own_requests::get(&transport, resolver, service, "/apis", AGGREGATOR, &headers, within()).await?;
        let cached = match (response.status, cached) {
            (304, Some(c)) => Cached {
                etag: c.etag.clone(),
                source: c.source.clone(),
                started: now,
                versions: c.versions.clone(),
            },
            // Upstream, too, takes a 503 for an outage, and only other failures for a backend without the
            // aggregated form.
            (503, _) => return Err(status(503, "/apis")),
            (200, cached) if is_aggregated(&response.headers) => {
                let etag = response.headers.get(header::ETAG).and_then(|v| v.to_str().ok());
                let etag = etag.unwrap_or("").to_owned();
                let parser = documents.clone();
                let parsed = documents.run_blocking(move || {
                    let source = hash(&response.body);
                    // Backends without ETags send the whole document at each poll; an unchanged one is not
                    // parsed again.
                    if let Some(same) = cached.filter(|c| c.source == source) {
                        return Ok((source, same.versions.clone()));
                    }
                    let document = parser.parse(PublishedKind::Groups, &response.body)?;
                    bounds::groups(&document)?;
                    Ok::<_, Rejected>((source, Arc::new(convert::versions(document))))
                });
                let (source, versions) = parsed.await.ok_or(CollectError::ShuttingDown)??;
                Cached {
                    etag,
                    source,
                    started: now,
                    versions,
                }
            }
            _ => {
                // No aggregated form: the list of this group version alone.
                let accept = [(header::ACCEPT, "application/json")];
                let path = s.discovery_path();
                let response = own_requests::get(
                    &transport,
                    resolver,
                    service,
                    &path,
                    AGGREGATOR_WITHOUT_GROUPS,
                    &accept,
                    within(),
                )
                .await?;
                if response.status != 200 {
                    return Err(status(response.status, &path));
                }
                // Not shared with other APIServices of the backend: the list holds this version only.
                return Ok(self.listed(s, response).await?.entry.clone());
            }
        };
        let entry = entry_of(&cached.versions, s);
        let mut state = self.lock();
        // The last user may have gone during the request; nobody would remove the entry then.
        if state.users.contains_key(service) {
            state.services.insert(service.clone(), Arc::new(cached));
        }
        Ok(entry)
    }

    /// Parses a list of resources, unless it equals the previous one.
    async fn listed(&self, s: &ApiService, response: FetchedDocument) -> Result<Arc<List>, CollectError> {
        let known = self.lock().lists.get(&s.name).cloned();
        let (group, version, documents) = (s.group.clone(), s.version.clone(), self.disk_cache.documents());
        let parser = documents.clone();
        let parsed = documents.run_blocking(move || {
            let source = hash(&response.body);
            if let Some(same) = known.filter(|l| l.source == source) {
                return Ok(same);
            }
            let document = parser.parse(PublishedKind::Resources, &response.body)?;
            bounds::list(&document)?;
            let entry = convert::from_resource_list(&document, &version)?;
            bounds::version(&group, &entry)?;
            Ok::<_, Rejected>(Arc::new(List { source, entry }))
        });
        let list = parsed.await.ok_or(CollectError::ShuttingDown)??;
        self.lock().lists.insert(s.name.clone(), list.clone());
        Ok(list)
    }

    fn publish(&self, s: &ApiService, entry: Value) {
        let priorities = Priorities {
            group: s.group_priority,
            version: s.version_priority,
        };
        self.document
            .set_group_version(Source::AGGREGATED, &gv(s), priorities, entry);
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn status(status: u16, path: &str) -> CollectError {
    let path = path.to_owned();
    CollectError::Status { status, path }
}

fn gv(s: &ApiService) -> GroupVersion {
    GroupVersion::new(&s.group, &s.version)
}

fn entry_of(versions: &Versions, s: &ApiService) -> Value {
    // As upstream: a backend that answers is current, even if its document lacks the version.
    versions
        .get(&(s.group.to_string(), s.version.to_string()))
        .cloned()
        .unwrap_or_else(|| convert::bare(&s.version, "Current"))
}

/// Whether this is an aggregated discovery document. The parameters may have any order.
fn is_aggregated(headers: &http::HeaderMap) -> bool {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("");
    let mut parts = content_type.split(';').map(str::trim);
    let base = parts.next() == Some("application/json");
    let params: HashMap<&str, &str> = parts.filter_map(|p| p.split_once('=')).collect();
    base && params.get("g") == Some(&"apidiscovery.k8s.io")
        && params.get("as") == Some(&"APIGroupDiscoveryList")
        && matches!(params.get("v"), Some(&("v2" | "v2beta1")))
}
