//! [`ApiGroupVersion`]: the handler of one group version, for discovery of its resources and all verbs on
//! them.
//!
//! Order of the checks: route, RequestInfo agreement, patch type, `Accept`; then the verb runs through
//! `dispatch`.

use super::call::Call;
use super::discovery::resources::Described;
use super::negotiate::{Codecs, router_check};
use super::options::Query;
use super::route::{self, Action, NoRoute, Route, no_route};
use super::{discovery, dispatch, respond, verbs};
use crate::apimachinery::gvk::{GroupResource, GroupVersion};
use crate::apimachinery::status::{Result, Status};
use crate::authz::{Attributes, Authorizer, Decision, forbidden};
use crate::registry::resource::Resource;
use crate::registry::{AuthorizeCreate, Store};
use crate::request::{Authorized, Body, Request, RequestContext, RequestInfo, Response, UnprotectedHandler, UserInfo};
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use async_trait::async_trait;
use http::Method;
use std::sync::Arc;
use std::time::Duration;

/// Serves `/api/v1` or `/apis/<group>/<version>` and everything below.
///
/// Requires `info` in the request's [`RequestContext`]; uses `warnings` and `ending` if present.
#[derive(Clone)]
pub(crate) struct ApiGroupVersion {
    /// The group version served.
    pub gv: GroupVersion,
    /// The resources with their stores.
    pub resources: Vec<(Arc<Resource>, Arc<Store>)>,
    /// Authorizes creates by update or apply, and streams opened by GET.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Watches without a timeout get a random one between this and twice this (`--min-request-timeout`).
    pub min_request_timeout: Duration,
    /// The optional encodings that are enabled.
    pub codecs: Codecs,
    /// Counts watch events and requests for deprecated APIs.
    pub telemetry: Option<Telemetry>,
    /// Fires when the resources are replaced, so that watches end. `None` if that does not happen.
    pub retired: Option<Signal>,
    /// Owns the tasks of watches over WebSocket. `None` leaves them at HTTP.
    pub(crate) upgrades: Option<TaskGroup>,
}

impl ApiGroupVersion {
    /// A group version with upstream's default timeout of 30 minutes, without authorizer and telemetry.
    pub(crate) fn new(gv: GroupVersion, resources: Vec<(Arc<Resource>, Arc<Store>)>) -> Self {
        Self {
            gv,
            resources,
            authorizer: None,
            min_request_timeout: Duration::from_secs(1800),
            codecs: Codecs::default(),
            telemetry: None,
            retired: None,
            upgrades: None,
        }
    }

    /// Sets the authorizer for creates by update or apply.
    pub(crate) fn with_authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// The root path, such as `/apis/apps/v1`.
    pub(crate) fn root(&self) -> String {
        self.gv.path()
    }

    /// The resources without their stores.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter().map(|(r, _)| r)
    }

    async fn route(&self, req: Request, authorized: &Authorized) -> Response {
        let root = self.root();
        // The raw path: segments are decoded one by one in `route::find`, so an encoded slash does not split a name.
        let below = req.uri().path().strip_prefix(root.as_str()).unwrap_or("").to_owned();
        if below.is_empty() || below == "/" {
            return self.list_resources(&req);
        }
        let (parts, body) = req.into_parts();
        let refuse = |s: Status| {
            let query = Query::parse(parts.uri.query().unwrap_or(""));
            respond::status_with(self.codecs, &s, &parts.headers, &query)
        };
        let found = match route::find(&self.resources, &below) {
            Ok(r) => r,
            Err(n) => return refuse(no_route(n)),
        };
        let Some(info) = RequestContext::of(&parts).info.clone() else {
            return refuse(Status::internal("no RequestInfo found in the context"));
        };
        // RequestInfo has already evaluated `?watch=`, including the query of deprecated paths.
        let action = match route::action(&found, &parts.method, info.verb == "watch") {
            Ok(a) => a,
            Err(n) => return refuse(no_route(n)),
        };
        // Should the two path parsers disagree, authorization checked something else than this route.
        if !route::agrees(&found, action, &info) {
            return refuse(no_route(NoRoute::Path));
        }
        // go-restful's router checks Content-Type (415) before Accept (406).
        if action == Action::Patch && !verbs::patch::is_known(&parts.headers, self.codecs) {
            let mut s = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            s.details_mut();
            return refuse(s);
        }
        // Connections do their own negotiation.
        if action != Action::Connect {
            let lists = matches!(action, Action::List | Action::Watch);
            if let Err(s) = router_check(&parts.headers, lists, self.codecs) {
                return refuse(s);
            }
        }
        self.run(action, parts, body, found, authorized, &info).await
    }

    /// Runs the verb of a routed request.
    pub(super) async fn run(
        &self,
        action: Action,
        parts: http::request::Parts,
        body: Body,
        found: Route,
        authorized: &Authorized,
        info: &RequestInfo,
    ) -> Response {
        let mut call = Call::new(parts, found, authorized, self.min_request_timeout);
        call.codecs = self.codecs;
        call.retired = self.retired.clone();
        call.upgrades = self.upgrades.clone();
        if let Some(telemetry) = &self.telemetry {
            self.count(telemetry, action, &mut call);
        }
        // The authorization filter checked `update` or `patch`; creating needs `create` as well. Whether the request
        // creates is known only in the update loop, so the check is passed along.
        if let (Some(authorizer), Action::Update | Action::Patch) = (&self.authorizer, action) {
            call.authorize_create = Some(Arc::new(CreateCheck {
                authorizer: authorizer.clone(),
                user: authorized.user().clone(),
                info: RequestInfo {
                    verb: "create".into(),
                    ..info.clone()
                },
            }));
        }
        if let (Some(authorizer), Action::Connect, &Method::GET) = (&self.authorizer, action, &call.parts.method) {
            call.authorize_create = Some(Arc::new(StreamCheck {
                authorizer: authorizer.clone(),
                user: authorized.user().clone(),
                info: RequestInfo {
                    verb: "create".into(),
                    ..info.clone()
                },
            }));
        }
        // The call moves into the verb, but errors still have to be negotiated.
        let (headers, query) = (call.parts.headers.clone(), call.query.clone());
        match dispatch::run(action, call, body).await {
            Ok(response) => response,
            Err(s) => respond::status_with(self.codecs, &s, &headers, &query),
        }
    }

    fn count(&self, telemetry: &Telemetry, action: Action, call: &mut Call) {
        let resource = call.resource().clone();
        let (group, version, name) = (&self.gv.group, &self.gv.version, &resource.gvr.resource);
        if action == Action::Watch {
            // Only for requests that reached a route, so that the labels are names of resources and their number is
            // bounded.
            call.watch_metrics = Some(telemetry.watch(group, version, name));
        }
        if !matches!(action, Action::Get | Action::List | Action::Watch) {
            call.late = Some(telemetry.requests.late());
        }
        if resource.deprecation().is_some() {
            call.cx.audit.annotate("k8s.io/deprecated", "true");
            let labels = [group.as_str(), "", name.as_str(), call.subresource(), version.as_str()];
            telemetry.requested_deprecated_apis.with_label_values(&labels).set(1);
        }
    }

    fn list_resources(&self, req: &Request) -> Response {
        let query = Query::of(req);
        if req.method() != Method::GET {
            return respond::status(&no_route(NoRoute::Method), req.headers(), &query);
        }
        if let Err(s) = router_check(req.headers(), false, self.codecs) {
            return respond::status(&s, req.headers(), &query);
        }
        let list = discovery::resources::list(&self.gv, self.rows().map(|row| Described::of(row)));
        discovery::plain(&list, req.headers(), &query)
    }
}

/// Authorizes the verb `create` for an update that creates.
struct CreateCheck {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<UserInfo>,
    info: RequestInfo,
}

#[async_trait]
impl AuthorizeCreate for CreateCheck {
    async fn authorize_create(&self) -> Result<()> {
        let asked = Attributes::of(&self.user, &self.info);
        let verdict = self.authorizer.authorize(&asked).await;
        match verdict.decision {
            Decision::Allow => Ok(()),
            _ => Err(forbidden(&asked, &verdict.reason)),
        }
    }
}

/// Authorizes the verb `create` for a stream opened by GET (as browsers do), because it grants the same
/// access as a POST.
struct StreamCheck {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<UserInfo>,
    info: RequestInfo,
}

#[async_trait]
impl AuthorizeCreate for StreamCheck {
    async fn authorize_create(&self) -> Result<()> {
        let asked = Attributes::of(&self.user, &self.info);
        let verdict = self.authorizer.authorize(&asked).await;
        match verdict.decision {
            Decision::Allow => Ok(()),
            _ => {
                let gr = GroupResource::new(&self.info.api_group, &self.info.resource);
                Err(Status::forbidden(&gr, &self.info.name, &verdict.reason))
            }
        }
    }
}

#[async_trait]
impl UnprotectedHandler for ApiGroupVersion {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        self.route(req, &authorized).await
    }
}
