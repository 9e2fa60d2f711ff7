//! The restful container: web services claim a root path and everything below it. A claimed path never falls
//! through to the mux, even if the web service does not serve it (upstream's go-restful behaviour,
//! `k8s.io/apiserver/pkg/server/handler.go`). The one exception is the root `/apis`, which claims only
//! `/apis` and `/apis/`.
//!
//! Start reading at [`Claims::claimant`].

use crate::request::UnprotectedHandler;
use crate::sync::Mutex;
use arc_swap::ArcSwap;
use imbl::OrdMap;
use std::sync::Arc;

/// A handler for everything below one root. It must answer unknown paths and methods itself, with
/// [`crate::server::respond::route_not_found`] and [`crate::server::respond::method_not_allowed`].
#[derive(Clone)]
pub(crate) struct WebService {
    /// The root path without a trailing slash: `/api/v1`, `/apis/apps`, `/version`.
    pub root: String,
    /// Serves the root and everything below it.
    pub handler: Arc<dyn UnprotectedHandler>,
}

/// The web services of one server. They can be added and removed while it serves.
#[derive(Default)]
pub(crate) struct Container {
    claims: ArcSwap<Claims>,
    /// Serialises writers; readers never lock.
    writing: Mutex<()>,
}

/// An immutable snapshot of the claimed roots.
#[derive(Clone, Default)]
pub(crate) struct Claims {
    roots: OrdMap<String, WebService>,
}

impl Container {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a web service, replacing the one with the same root.
    pub(crate) fn replace(&self, ws: WebService) {
        self.change(|c| {
            c.roots.insert(ws.root.clone(), ws);
        });
    }

    pub(crate) fn claims(&self) -> arc_swap::Guard<Arc<Claims>> {
        self.claims.load()
    }

    /// The claimed roots, sorted.
    pub(crate) fn roots(&self) -> Vec<String> {
        self.claims.load().roots.keys().cloned().collect()
    }

    fn change<R>(&self, f: impl FnOnce(&mut Claims) -> R) -> R {
        let _guard = self.writing.lock();
        // Cheap: the map shares its nodes with the clone.
        let mut claims = Claims::clone(&self.claims.load());
        let out = f(&mut claims);
        self.claims.store(Arc::new(claims));
        out
    }
}

impl Claims {
    /// The web service that claims a decoded path: the one with the longest matching root.
    pub(crate) fn claimant(&self, path: &str) -> Option<&WebService> {
        let mut end = path.len();
        loop {
            // The greatest root that is not after the path. If a longer root claimed the path it would sort
            // after this one, so on a mismatch any remaining claimant is at most as long as the prefix the
            // two have in common.
            let (root, ws) = self.roots.get_prev(&path[..end])?;
            let same = root.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
            let claims = same == root.len();
            if claims && ends_segment(path, same) && (root != "/apis" || matches!(&path[same..], "" | "/")) {
                return Some(ws);
            }
            // In bounds: a root that is not a prefix of the path differs from it within the path, because a root that
            // only continues the path would sort after it. The differing byte counts, as it may be the slash that
            // ends a shorter root.
            let reach = if claims { same } else { same + 1 };
            end = path.as_bytes()[..reach].iter().rposition(|b| *b == b'/')?;
        }
    }
}

fn ends_segment(path: &str, at: usize) -> bool {
    path.as_bytes().get(at).is_none_or(|b| *b == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Request, Response};
    use crate::server::respond::FnHandler;
    use proptest::prelude::*;

    fn ws(root: &str) -> WebService {
        WebService {
            root: root.into(),
            handler: Arc::new(FnHandler(|_: &Request| Response::default())),
        }
    }

    #[test]
    fn roots_match_whole_path_segments() {
        let c = Container::new();
        for root in ["/apis", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"] {
            c.replace(ws(root));
        }
        for (path, want) in [
            ("/apis", Some("/apis")),
            ("/apis/", Some("/apis")),
            ("/apis//", None),
            ("//apis", None),
            ("/apis/nope", None),
            ("/apis/apps", Some("/apis/apps")),
            ("/apis/apps/", Some("/apis/apps")),
            ("/apis/apps/v2", Some("/apis/apps")),
            ("/apis/apps/v1", Some("/apis/apps/v1")),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", Some("/apis/apps/v1")),
            ("/apis/appsx", None),
            ("/api/v1/pods", Some("/api/v1")),
            ("/api/v2", Some("/api")),
            ("/version/x", Some("/version")),
            ("/versions", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(c.claims().claimant(path).map(|w| w.root.as_str()), want, "{path}");
        }
    }

    proptest! {
        #[test]
        fn the_longest_root_wins(roots in proptest::collection::btree_set("(/[ab.-]{1,2}){1,3}|/apis", 0..8), path in "(/apis|/[ab.-]{0,2}){0,4}/?") {
            let c = Container::new();
            for root in &roots {
                c.replace(ws(root));
            }
            let claims = |root: &&String| {
                let rest = path.strip_prefix(root.as_str());
                rest.is_some_and(|rest| matches!(rest, "" | "/") || (rest.starts_with('/') && *root != "/apis"))
            };
            let want = roots.iter().filter(claims).max_by_key(|root| root.len());
            let claims = c.claims();
            prop_assert_eq!(claims.claimant(&path).map(|ws| &ws.root), want);
        }
    }
}
