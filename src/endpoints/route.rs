//! Routing below a group version: [`find`] resolves a path, [`action`] the method, and [`agrees`] compares
//! the result with the RequestInfo that was authorized.

use crate::apimachinery::status::Status;
use crate::registry::resource::Resource;
use crate::registry::{Store, Subresource, SubresourceBehaviour, Verbs};
use crate::request::RequestInfo;
use crate::request::info::decode_path;
use http::Method;
use std::borrow::Cow;
use std::sync::Arc;

/// A resource with its store.
pub(crate) type ServedResource = (Arc<Resource>, Arc<Store>);

/// The part of a resource that a path addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/<resource>` or `/namespaces/<ns>/<resource>`
    Collection,
    /// `…/<name>`
    Item,
    /// `…/<name>/<subresource>`, as an index into the resource's subresources.
    Subresource(usize),
}

/// A resolved path below a group version.
#[derive(Clone)]
pub(crate) struct Route {
    pub served: ServedResource,
    pub target: Target,
    pub namespace: String,
    pub name: String,
    /// The path after the subresource with its leading slash, or empty.
    pub rest: String,
    /// True for the deprecated `/watch/` paths.
    pub watch_path: bool,
}

/// The verb of a request on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    Connect,
}

/// The reason a request has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    Path,
    Method,
}

impl Route {
    pub(crate) fn subresource(&self) -> Option<&Subresource> {
        match self.target {
            Target::Subresource(i) => self.served.0.subresources.get(i),
            _ => None,
        }
    }
}

/// Resolves a raw (still encoded) path below the group version.
pub(crate) fn find(resources: &[ServedResource], raw: &str) -> Result<Route, NoRoute> {
    let mut segments = Vec::new();
    for segment in raw.trim_start_matches('/').split('/') {
        match decode_path(segment).map(Cow::into_owned) {
            // A segment with an encoded slash matches no route.
            Some(s) if !s.contains('/') => segments.push(s),
            _ => return Err(NoRoute::Path),
        }
    }
    // Slashes at the end do not count, as for go-restful.
    let mut slashes = 0;
    while segments.len() > 1 && segments.last().is_some_and(String::is_empty) {
        segments.pop();
        slashes += 1;
    }
    let mut rest: &[String] = &segments;
    let watch_path = rest.first().is_some_and(|s| s == "watch") && rest.len() > 1;
    if watch_path {
        rest = &rest[1..];
    }
    // Linear: a group version has some dozens of resources at most, and comparing them costs less than hashing.
    let row = |plural: &str| resources.iter().find(|(r, _)| r.gvr.resource == plural);
    let mut namespace = "";
    let mut scoped = false;
    if rest.len() >= 3 && rest[0] == "namespaces" {
        // `/namespaces/<name>/<subresource>` addresses the Namespace itself, not a resource in it.
        let own = row("namespaces").is_some_and(|(r, _)| r.subresource(&rest[2]).is_some());
        if !own {
            namespace = &rest[1];
            scoped = true;
            rest = &rest[2..];
        }
    }
    let served = rest.first().and_then(|p| row(p)).ok_or(NoRoute::Path)?;
    let resource = &served.0;
    // A cluster-scoped resource must not be reachable under a namespace: authorization would be checked there.
    if scoped && !resource.namespaced {
        return Err(NoRoute::Path);
    }
    let target = match rest.len() {
        1 => Target::Collection,
        2 => Target::Item,
        _ => {
            let place = resource.subresources.iter().position(|s| s.name == rest[2]);
            let place = place.ok_or(NoRoute::Path)?;
            let deep = match &resource.subresources[place].behaviour {
                SubresourceBehaviour::Connect(c) => c.takes_path(),
                _ => false,
            };
            if rest.len() > 3 && !deep {
                return Err(NoRoute::Path);
            }
            Target::Subresource(place)
        }
    };
    // Without a namespace, only the collection across all namespaces exists.
    if resource.namespaced && namespace.is_empty() && target != Target::Collection {
        return Err(NoRoute::Path);
    }
    let mut tail: String = rest.iter().skip(3).flat_map(|s| ["/", s]).collect();
    // A backend sees them all, except the one behind the name of the subresource.
    if tail.is_empty() && slashes < 2 {
        slashes = 0;
    }
    tail.extend(std::iter::repeat_n('/', slashes));
    Ok(Route {
        served: served.clone(),
        target,
        namespace: namespace.to_owned(),
        name: rest.get(1).cloned().unwrap_or_default(),
        rest: tail,
        watch_path,
    })
}

/// Resolves the verb of a method on a route.
pub(crate) fn action(route: &Route, method: &Method, watch: bool) -> Result<Action, NoRoute> {
    let resource = &route.served.0;
    let pick = |all: &[(Method, Verbs, Action)], verbs: Verbs| {
        // 404 if the path supports no method at all, 405 if it does not support this one.
        if !all.iter().any(|(_, v, _)| verbs.has(*v)) {
            return Err(NoRoute::Path);
        }
        let hit = all.iter().find(|(m, v, _)| m == method && verbs.has(*v));
        hit.map(|(_, _, a)| *a).ok_or(NoRoute::Method)
    };
    if route.watch_path {
        // Upstream's installer registers no `/watch/` paths for subresources.
        let watchable = resource.verbs.has(Verbs::WATCH) && !matches!(route.target, Target::Subresource(_));
        return match (watchable, method == Method::GET) {
            (true, true) => Ok(Action::Watch),
            (true, false) => Err(NoRoute::Method),
            (false, _) => Err(NoRoute::Path),
        };
    }
    let list = if watch { Action::Watch } else { Action::List };
    match route.target {
        // Across all namespaces objects can only be listed.
        Target::Collection if resource.namespaced && route.namespace.is_empty() => {
            pick(&[(Method::GET, Verbs::LIST, list)], resource.verbs)
        }
        Target::Collection => pick(
            &[
                (Method::GET, Verbs::LIST, list),
                (Method::POST, Verbs::CREATE, Action::Create),
                (Method::DELETE, Verbs::DELETE_COLLECTION, Action::DeleteCollection),
            ],
            resource.verbs,
        ),
        Target::Item => pick(
            &[
                (Method::GET, Verbs::GET, Action::Get),
                (Method::PUT, Verbs::UPDATE, Action::Update),
                (Method::PATCH, Verbs::PATCH, Action::Patch),
                (Method::DELETE, Verbs::DELETE, Action::Delete),
            ],
            resource.verbs,
        ),
        Target::Subresource(i) => {
            let sub = &resource.subresources[i];
            let all = [
                (Method::GET, Verbs::GET),
                (Method::POST, Verbs::CREATE),
                (Method::PUT, Verbs::UPDATE),
                (Method::PATCH, Verbs::PATCH),
                (Method::DELETE, Verbs::DELETE),
            ];
            if let SubresourceBehaviour::Connect(connector) = &sub.behaviour {
                // Proxies forward any method; these two have no verb of their own.
                let any = [Method::HEAD, Method::OPTIONS];
                let listed = all.iter().any(|(m, v)| m == method && sub.verbs.has(*v));
                let every = connector.takes_path() && any.contains(method);
                return if listed || every {
                    Ok(Action::Connect)
                } else {
                    Err(NoRoute::Method)
                };
            }
            let actions = [
                Action::Get,
                Action::Create,
                Action::Update,
                Action::Patch,
                Action::Delete,
            ];
            let table: Vec<_> = all
                .into_iter()
                .zip(actions)
                .map(|((m, v), action)| (m, v, action))
                .collect();
            pick(&table, sub.verbs)
        }
    }
}

/// True if the route is what authorization checked. Paths are parsed twice, by the RequestInfo filter and
/// here; if the two disagree, nothing is served.
pub(crate) fn agrees(route: &Route, action: Action, info: &RequestInfo) -> bool {
    let resource = &route.served.0;
    // For a request to a Namespace itself, RequestInfo reports its name as the namespace.
    let of_namespaces = resource.gvr.group.is_empty() && resource.gvr.resource == "namespaces";
    let listing = matches!(action, Action::List | Action::Watch | Action::DeleteCollection);
    let sub = route.subresource().map_or("", |s| s.name.as_str());
    info.is_resource
        && info.api_group == resource.gvr.group.as_str()
        && info.api_version == resource.gvr.version.as_str()
        && info.resource == resource.gvr.resource.as_str()
        && info.subresource == sub
        && (info.namespace == route.namespace || of_namespaces)
        // RequestInfo takes the name of a list from its field selector, so that a list of one object can be
        // authorized by name.
        && (info.name == route.name || (listing && route.name.is_empty()))
}

/// The router's Status for a path or method that is not served.
pub(crate) fn no_route(n: NoRoute) -> Status {
    let mut s = match n {
        NoRoute::Path => Status::new(404, "NotFound", "the server could not find the requested resource"),
        NoRoute::Method => Status::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
    };
    s.details_mut();
    s
}
