//! The path-recorder mux: exact paths first, then the longest prefix, then the next server in the delegation
//! (upstream's `k8s.io/apiserver/pkg/server/mux/pathrecorder.go`). Paths are not cleaned, and the method is
//! not considered.
//!
//! A lookup reads one snapshot and hashes the path once per depth that has registered prefixes, longest
//! first. A change shares all but a few nodes with the previous snapshot. The cost of neither grows with the
//! number of paths.

use super::depth::{Depths, slashes, slashes_back};
use super::not_found::NotFound;
use crate::request::{Authorized, Request, ResponseFuture, UnprotectedHandler};
use crate::server::respond;
use crate::sync::Mutex;
use arc_swap::ArcSwap;
use imbl::{HashMap, OrdSet};
use std::sync::Arc;

/// A handler below the filter chain.
pub(crate) type DynHandler = Arc<dyn UnprotectedHandler>;

/// The mux of one server. Paths can be added and removed while it serves.
pub(crate) struct PathRecorderMux {
    // Swapped as a whole, so that a request reads one consistent table without a lock.
    routes: ArcSwap<Routes>,
    /// Serialises writers; readers never lock.
    writing: Mutex<()>,
}

#[derive(Clone)]
struct Routes {
    exact: HashMap<Arc<str>, DynHandler>,
    exact_depths: Depths,
    prefixes: HashMap<Arc<str>, DynHandler>,
    /// Bounds the lookups: a request path with thousands of slashes costs no more than the deepest prefix.
    prefix_depths: Depths,
    listed: OrdSet<Arc<str>>,
    not_found: DynHandler,
}

impl PathRecorderMux {
    pub(crate) fn new() -> Self {
        Self {
            routes: ArcSwap::from_pointee(Routes {
                exact: HashMap::new(),
                exact_depths: Depths::default(),
                prefixes: HashMap::new(),
                prefix_depths: Depths::default(),
                listed: OrdSet::new(),
                // Replaced by the delegate's handler once the server is composed.
                not_found: Arc::new(NotFound),
            }),
            writing: Mutex::new(()),
        }
    }

    /// Sets the handler of unregistered paths.
    pub(crate) fn set_not_found(&self, handler: DynHandler) {
        self.change(|r| r.not_found = handler);
    }

    /// Registers and lists a path.
    pub(crate) fn handle(&self, path: impl Into<String>, handler: DynHandler) {
        self.change(|r| r.insert(Registration::exact(path, true, handler)));
    }

    /// Registers a path without listing it.
    pub(crate) fn unlisted_handle(&self, path: impl Into<String>, handler: DynHandler) {
        self.change(|r| r.insert(Registration::exact(path, false, handler)));
    }

    /// Registers and lists everything below `prefix`; a trailing slash is added if missing.
    pub(crate) fn handle_prefix(&self, prefix: impl Into<String>, handler: DynHandler) {
        self.change(|r| r.insert(Registration::prefix(prefix, true, handler)));
    }

    /// Registers everything below `prefix` without listing it; a trailing slash is added if missing.
    pub(crate) fn unlisted_handle_prefix(&self, prefix: impl Into<String>, handler: DynHandler) {
        self.change(|r| r.insert(Registration::prefix(prefix, false, handler)));
    }

    /// Removes the exact path and the prefix with this spelling.
    #[cfg(test)]
    pub(crate) fn unregister(&self, path: &str) {
        self.change(|r| r.remove(path));
    }

    /// Applies several changes in one swap, so that no request sees only some of them.
    pub(crate) fn change_all(&self, add: impl IntoIterator<Item = Registration>, remove: &[&str]) {
        self.change(|r| {
            for path in remove {
                r.remove(path);
            }
            for registration in add {
                r.insert(registration);
            }
        });
    }

    /// The listed paths, sorted.
    pub(crate) fn listed_paths(&self) -> Vec<String> {
        self.routes.load().listed.iter().map(|p| p.to_string()).collect()
    }

    /// The handler of a path; `None` if it falls through to the next server in the delegation.
    #[cfg(test)]
    pub(crate) fn lookup(&self, path: &str) -> Option<DynHandler> {
        self.routes.load().find(path).cloned()
    }

    fn change(&self, f: impl FnOnce(&mut Routes)) {
        let _guard = self.writing.lock();
        // Cheap: maps and set share their nodes with the clone. Under the lock, because of two concurrent changes
        // that start from the same snapshot one would be lost.
        let mut routes = Routes::clone(&self.routes.load());
        f(&mut routes);
        self.routes.store(Arc::new(routes));
    }
}

/// A path to register with [`PathRecorderMux::change_all`].
pub(crate) struct Registration {
    /// The path; ends in a slash for a prefix.
    pub path: String,
    /// True to match everything below the path, but not the path without its trailing slash.
    pub prefix: bool,
    /// Whether the index at `/` lists the path.
    pub listed: bool,
    pub handler: DynHandler,
}

impl Registration {
    pub(crate) fn exact(path: impl Into<String>, listed: bool, handler: DynHandler) -> Self {
        Self {
            path: path.into(),
            prefix: false,
            listed,
            handler,
        }
    }

    /// Everything below a path that ends in a slash.
    pub(crate) fn prefix(path: impl Into<String>, listed: bool, handler: DynHandler) -> Self {
        Self {
            path: path.into(),
            prefix: true,
            listed,
            handler,
        }
    }
}

impl Default for PathRecorderMux {
    fn default() -> Self {
        Self::new()
    }
}

impl Routes {
    fn insert(&mut self, registration: Registration) {
        let mut path = registration.path;
        if registration.prefix && !path.ends_with('/') {
            path.push('/');
        }
        let path: Arc<str> = path.into();
        if registration.listed {
            self.listed.insert(path.clone());
        }
        let (paths, depths) = match registration.prefix {
            false => (&mut self.exact, &mut self.exact_depths),
            true => (&mut self.prefixes, &mut self.prefix_depths),
        };
        // A replaced path must not be counted twice, or its depth would remain after it is removed.
        if paths.insert(path.clone(), registration.handler).is_none() {
            depths.add(&path);
        }
    }

    fn remove(&mut self, path: &str) {
        self.listed.remove(path);
        if self.exact.remove(path).is_some() {
            self.exact_depths.remove(path);
        }
        if self.prefixes.remove(path).is_some() {
            self.prefix_depths.remove(path);
        }
    }

    /// Upstream tries prefixes with the most slashes first, and longer ones before shorter. Among the
    /// prefixes of one path that order is the same as longest first.
    fn find(&self, path: &str) -> Option<&DynHandler> {
        // Saves hashing a path that cannot match: most requests fall through to a prefix.
        if self.exact_depths.has(slashes(path))
            && let Some(h) = self.exact.get(path)
        {
            return Some(h);
        }
        // Longest first. Only depths that some prefix has are hashed, so a long path costs no more than a short one.
        slashes_back(path, self.prefix_depths.most())
            .filter(|(depth, _)| self.prefix_depths.has(*depth))
            .find_map(|(_, at)| self.prefixes.get(&path[..=at]))
    }
}

impl UnprotectedHandler for PathRecorderMux {
    fn serve<'t>(self: Arc<Self>, req: Request, authorized: Authorized) -> ResponseFuture<'t>
    where
        Self: 't,
    {
        self.handler_for(&req).serve(req, authorized)
    }
}

impl PathRecorderMux {
    fn handler_for(&self, req: &Request) -> DynHandler {
        // The handler is cloned out of the snapshot: a guard held during the request would keep old snapshots alive.
        let routes = self.routes.load();
        routes.find(respond::path(req)).unwrap_or(&routes.not_found).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Response;
    use proptest::prelude::*;

    fn named(name: &'static str) -> DynHandler {
        Arc::new(respond::FnHandler(move |_: &Request| Response::new(name.into())))
    }

    fn answer(mux: &PathRecorderMux, path: &str) -> Option<DynHandler> {
        mux.lookup(path)
    }

    #[test]
    fn exact_paths_win_over_prefixes_and_longer_prefixes_over_shorter() {
        let mux = PathRecorderMux::new();
        let (a, b, c) = (named("a"), named("b"), named("c"));
        mux.handle("/apis/g/v", a.clone());
        mux.unlisted_handle_prefix("/apis/g/", b.clone());
        mux.handle_prefix("/apis/g/v/", c.clone());
        for (path, want) in [
            ("/apis/g/v", Some(&a)),
            ("/apis/g/v/", Some(&c)),
            ("/apis/g/v/x/y", Some(&c)),
            ("/apis/g/vv", Some(&b)),
            ("/apis/g/", Some(&b)),
            ("/apis/g", None),
            ("//apis/g/v", None),
            ("/apis", None),
        ] {
            let got = answer(&mux, path);
            assert_eq!(
                got.as_ref().map(Arc::as_ptr).map(<*const dyn UnprotectedHandler>::addr),
                want.map(Arc::as_ptr).map(<*const dyn UnprotectedHandler>::addr),
                "{path}"
            );
        }
        assert_eq!(mux.listed_paths(), ["/apis/g/v", "/apis/g/v/"]);
    }

    #[test]
    fn an_unregistered_path_falls_through_again() {
        let mux = PathRecorderMux::new();
        mux.handle("/a", named("a"));
        mux.unlisted_handle_prefix("/a/", named("b"));
        mux.unregister("/a");
        mux.unregister("/a/");
        assert!(mux.lookup("/a").is_none() && mux.lookup("/a/b").is_none());
        assert!(mux.listed_paths().is_empty());
    }

    proptest! {
        #[test]
        fn lookup_agrees_with_upstreams_linear_search(prefixes in proptest::collection::vec("/([a-b]/){0,3}", 0..6), path in "/[a-b/]{0,8}") {
            let mux = PathRecorderMux::new();
            let handlers: Vec<_> = prefixes.iter().map(|p| (p.clone(), named("x"))).collect();
            for (p, h) in &handlers {
                mux.handle_prefix(p.clone(), h.clone());
            }
            let mut sorted: Vec<&String> = prefixes.iter().collect();
            sorted.sort_by_key(|p| std::cmp::Reverse((slashes(p), p.len(), (*p).clone())));
            let want = sorted.into_iter().find(|p| path.starts_with(p.as_str()));
            let got = mux.lookup(&path);
            prop_assert_eq!(got.is_some(), want.is_some());
            if let (Some(got), Some(want)) = (got, want) {
                let last = handlers.iter().rev().find(|(p, _)| p == want).unwrap();
                prop_assert!(Arc::ptr_eq(&got, &last.1));
            }
        }
    }
}
