//! Routes of APIServices: `/apis/<g>/<v>` and below to a proxy handler, `/apis/<g>` to the group's document.
//! Entry point: [`Registration::new`].
//!
//! Runs synchronously in the informer's callback, so a change of an object takes effect at once and as a
//! whole.

#[cfg(test)]
mod tests;

use super::apiservice::ApiService;
use super::backend_stats::StatsRegistry;
use super::discovery::GroupHandler;
use super::proxy::{ProxyHandler, ProxyShared, Remote, Settings};
use super::transports::{TransportError, Transports};
use crate::apimachinery::value::Str;
use crate::client::{Change, Informer};
use crate::server::mux::{DynHandler, PathRecorderMux, Registration as Route};
use crate::sync::Mutex;
use crate::tasks::shrink;
use crate::telemetry::QueueMetrics;
use std::collections::HashMap;
use std::sync::Arc;

/// Keeps the mux in sync with the APIServices.
pub(crate) struct Registration {
    informer: Informer<ApiService>,
    mux: Arc<PathRecorderMux>,
    shared: Arc<ProxyShared>,
    transports: Arc<Transports>,
    backend_stats: Arc<StatsRegistry>,
    handlers: Mutex<Handlers>,
    /// Held while settings are computed and stored, so that older settings cannot overwrite newer ones.
    applying: Mutex<()>,
}

#[derive(Default)]
struct Handlers {
    by_name: HashMap<Str, Registered>,
    /// Number of APIServices of each group.
    groups: HashMap<Str, usize>,
}

struct Registered {
    handler: Arc<ProxyHandler>,
    group: Str,
}

impl Handlers {
    /// Returns whether the APIService is the first of its group.
    fn add(&mut self, name: Str, registered: Registered) -> bool {
        let of_group = self.groups.entry(registered.group.clone()).or_default();
        *of_group += 1;
        let is_first = *of_group == 1;
        self.by_name.insert(name, registered);
        is_first
    }

    /// Returns the group of the APIService, and whether it was the last one of it.
    fn remove(&mut self, name: &str) -> Option<(Str, bool)> {
        let Registered { group, .. } = self.by_name.remove(name)?;
        let of_group = self.groups.get_mut(&group)?;
        *of_group -= 1;
        let is_last = *of_group == 0;
        if is_last {
            self.groups.remove(&group);
        }
        shrink(&mut self.by_name);
        shrink(&mut self.groups);
        Some((group, is_last))
    }
}

impl Registration {
    /// Subscribes to `informer`, which must not run yet. `queue` reports the metrics of upstream's work
    /// queue; there is no queue.
    pub(crate) fn new(
        informer: Informer<ApiService>,
        mux: Arc<PathRecorderMux>,
        shared: Arc<ProxyShared>,
        transports: Arc<Transports>,
        backend_stats: Arc<StatsRegistry>,
        queue: QueueMetrics,
    ) -> Arc<Self> {
        let registration = Arc::new(Self {
            informer: informer.clone(),
            mux,
            shared,
            transports,
            backend_stats,
            handlers: Mutex::default(),
            applying: Mutex::default(),
        });
        let following = registration.clone();
        informer.subscribe(move |change| queue.record_inline(|| following.apply(change)));
        registration
    }

    /// The proxy handler of an APIService, if registered.
    pub(crate) fn handler(&self, name: &str) -> Option<Arc<ProxyHandler>> {
        self.lock().by_name.get(name).map(|r| r.handler.clone())
    }

    /// Rebuilds the settings of all APIServices, after the client certificate has changed.
    pub(crate) fn refresh(&self) {
        for s in self.informer.snapshot().values() {
            self.renew(&s.name);
        }
    }

    /// Rebuilds the settings of one APIService, after an object that it refers to has changed.
    pub(crate) fn renew(&self, name: &str) {
        let _guard = self.serialize();
        if let (Some(handler), Some(s)) = (self.handler(name), self.informer.get(name)) {
            handler.set(self.settings(&s));
        }
    }

    fn apply(&self, change: &Change<'_, ApiService>) {
        match change.new {
            Some(s) => self.add(s),
            None => self.remove(change.key),
        }
    }

    fn add(&self, s: &Arc<ApiService>) {
        let guard = self.serialize();
        // The handler and its routes stay, so that requests under way to this path never meet a gap.
        if let Some(handler) = self.handler(&s.name) {
            return handler.set(self.settings(s));
        }
        let handler = Arc::new(ProxyHandler::new(self.shared.clone(), self.settings(s)));
        let registered = Registered {
            handler: handler.clone(),
            group: s.group.clone(),
        };
        let group_is_new = self.lock().add(s.name.clone(), registered);
        // The mux has a lock of its own; holding both would delay `renew` for nothing.
        drop(guard);
        let route = |path: String, prefix, listed, handler: &DynHandler| Route {
            path,
            prefix,
            listed,
            handler: handler.clone(),
        };
        let (path, handler): (_, DynHandler) = (path_of(s), handler);
        let mut routes = vec![
            route(path.clone(), false, true, &handler),
            route(format!("{path}/"), true, false, &handler),
        ];
        // One change of the mux: no request sees the version's route without that of its group.
        if group_is_new && !s.is_legacy() {
            let group: DynHandler = Arc::new(GroupHandler::new(
                s.group.clone(),
                self.informer.clone(),
                self.shared.delegate.clone(),
            ));
            // Upstream's routes: a group's document is exact, with and without a slash; only a version covers
            // what is below it.
            routes.push(route(format!("/apis/{}", s.group), false, true, &group));
            routes.push(route(format!("/apis/{}/", s.group), false, false, &group));
        }
        self.mux.change_all(routes, &[]);
    }

    fn remove(&self, name: &str) {
        let removed = self.lock().remove(name);
        let Some((of_group, last)) = removed else { return };
        self.backend_stats.remove(name);
        // The object is gone, so its path is derived from its name, `<version>.<group>`.
        let path = match name {
            "v1." => "/api".to_owned(),
            _ => format!("/apis/{of_group}/{}", name.split('.').next().unwrap_or(name)),
        };
        let below = format!("{path}/");
        let (group, group_slash) = (format!("/apis/{of_group}"), format!("/apis/{of_group}/"));
        let mut paths = vec![path.as_str(), &below];
        if last && name != "v1." {
            paths.extend([group.as_str(), &group_slash]);
        }
        self.mux.change_all(Vec::new(), &paths);
    }

    fn settings(&self, s: &ApiService) -> Settings {
        match &s.service {
            None => Settings::Local,
            Some(service) => {
                let transport = self.transports.of(s);
                // Details are reported in the condition, not to callers.
                let is_described = !matches!(transport, Err(TransportError::Annotations(_)));
                let stats = self.backend_stats.of(&s.name);
                // Each time, because the annotation may have changed.
                stats.limit_requests(s.backend.max_requests.unwrap_or(self.backend_stats.limits().requests));
                Settings::Remote(Arc::new(Remote {
                    service: service.clone(),
                    available: s.is_available() && is_described,
                    transport,
                    stats,
                }))
            }
        }
    }

    fn serialize(&self) -> crate::sync::MutexGuard<'_, ()> {
        self.applying.lock()
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, Handlers> {
        self.handlers.lock()
    }
}

/// The path of an APIService. That of the legacy core claims all of `/api`.
fn path_of(s: &ApiService) -> String {
    if s.is_legacy() {
        "/api".into()
    } else {
        format!("/apis/{}/{}", s.group, s.version)
    }
}
