//! [`Call`]: the state of one request on its way through a verb, with the checks that verbs share.

use super::negotiate::{Codecs, Negotiated, Offer, negotiate_with};
use super::options::Query;
use super::route::Route;
use crate::api::TypeDef;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::Backing;
use crate::registry::{AuthorizeCreate, BodyEmpties, Context, Resource, Store, SubresourceBehaviour};
use crate::request::{Authorized, RequestContext};
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::WatchMetrics;
use crate::telemetry::requests::LateResults;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Call {
    pub parts: http::request::Parts,
    pub query: Query,
    pub route: Route,
    pub cx: Context,
    /// Authorizes the create that an update turns into.
    pub authorize_create: Option<Arc<dyn AuthorizeCreate>>,
    /// Watches without a timeout get a random one between this and twice this.
    pub min_request_timeout: Duration,
    /// The optional encodings that are enabled.
    pub codecs: Codecs,
    /// Counters of watch events; `None` for other verbs, or without telemetry.
    pub watch_metrics: Option<WatchMetrics>,
    /// Fires when the resource is replaced (a custom resource whose definition changes): its watches end.
    pub retired: Option<Signal>,
    /// Owns the tasks of upgraded connections; `None` if watches are not upgraded.
    pub(crate) upgrades: Option<TaskGroup>,
    /// Counts the results of mutations that completed after their client stopped waiting.
    pub late: Option<LateResults>,
}

impl Call {
    pub(crate) fn new(parts: http::request::Parts, route: Route, authorized: &Authorized, timeout: Duration) -> Self {
        let context = RequestContext::of(&parts);
        let cx = Context {
            user: authorized.user().clone(),
            namespace: route.namespace.clone(),
            warnings: context.warnings.clone().unwrap_or_default(),
            audit: context.audit.clone().unwrap_or_default(),
            empties: BodyEmpties::default(),
            // Set by the verb when it has parsed its options.
            dry_run: false,
            deadline: context.deadline,
            verb: match parts.method {
                http::Method::POST => "create",
                http::Method::PATCH => "patch",
                http::Method::DELETE => "delete",
                // Only writes use this verb; `delete` also covers deletecollection.
                _ => "update",
            },
        };
        // Deprecated kinds warn on every request, including failing ones.
        if let Some(text) = route.served.0.deprecation() {
            cx.warnings.add(text);
        }
        Self {
            query: Query::parse(parts.uri.query().unwrap_or("")),
            parts,
            route,
            cx,
            authorize_create: None,
            min_request_timeout: timeout,
            codecs: Codecs::default(),
            watch_metrics: None,
            retired: None,
            upgrades: None,
            late: None,
        }
    }

    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.route.served.0
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.route.served.1
    }

    pub(crate) fn name(&self) -> &str {
        &self.route.name
    }

    pub(crate) fn subresource(&self) -> &str {
        self.route.subresource().map_or("", |s| s.name.as_str())
    }

    /// The kind of the endpoint's request and response bodies.
    pub(crate) fn kind(&self) -> GroupVersionKind {
        self.route
            .subresource()
            .map_or_else(|| self.resource().gvk(), |s| s.kind.clone())
    }

    pub(crate) fn negotiate(&self, offer: Offer) -> Result<Negotiated> {
        let offer = match offer {
            Offer::Objects if self.definition().is_none() => Offer::CustomObjects,
            Offer::Events if self.definition().is_none() => Offer::CustomEvents,
            other => other,
        };
        negotiate_with(self.codecs, &self.parts.headers, &self.query, offer)
    }

    /// The built-in type of the endpoint's objects; `None` for custom kinds.
    pub(crate) fn definition(&self) -> Option<&'static TypeDef> {
        match self.route.subresource().map(|s| &s.kind) {
            // For example `Scale`, which is built in also below a custom resource.
            Some(kind) if *kind != self.resource().gvk() => {
                crate::api::protobuf::definition(&kind.api_version(), &kind.kind)
            }
            _ => self.resource().schema.definition(),
        }
    }

    /// The representations offered: reviews and some subresources have no table.
    pub(crate) fn offer(&self) -> Offer {
        let has_table = match self.route.subresource() {
            Some(sub) => sub.has_table(),
            // Upstream's storage of reviews cannot convert them to tables.
            None => !matches!(self.resource().backing, Backing::CreateOnly(_)),
        };
        if has_table { Offer::Objects } else { Offer::Metadata }
    }

    /// The resource as responses print it: a custom subresource brings its own columns.
    pub(crate) fn response_resource(&self) -> Arc<Resource> {
        let resource = self.resource();
        let columns = match self.route.subresource().map(|s| &s.behaviour) {
            Some(SubresourceBehaviour::Custom(handler)) => handler.columns(),
            _ => None,
        };
        columns.map_or_else(
            || resource.clone(),
            |columns| {
                Arc::new(Resource {
                    columns: Some(columns),
                    ..Resource::clone(resource)
                })
            },
        )
    }

    /// Checks that the path has a name.
    ///
    /// # Errors
    /// 400 if it has none.
    pub(crate) fn require_name(&self) -> Result<()> {
        match self.name() {
            "" => Err(Status::bad_request("name must be provided")),
            _ => Ok(()),
        }
    }

    /// Checks that the name in the path is a valid storage key. Upstream's store does so when it needs the
    /// key: after the media type and the body.
    ///
    /// # Errors
    /// 400 if it is not.
    pub(crate) fn check_name(&self) -> Result<()> {
        self.require_name()?;
        Store::check_name(self.name())
    }

    /// Checks the namespace of the body against that of the request, and sets it if missing (upstream:
    /// `EnsureObjectNamespaceMatchesRequestNamespace` in `registry/rest/meta.go`).
    pub(crate) fn check_namespace(&self, object: &mut Value) -> Result<()> {
        let wanted = self.route.namespace.as_str();
        // Cluster-scoped: a namespace in the body is dropped.
        if wanted.is_empty() {
            object.unset_meta("namespace");
            return Ok(());
        }
        match object.namespace() {
            // Filled in, as upstream's `EnsureObjectNamespaceMatchesRequestNamespace` does.
            "" => object.set_meta("namespace", wanted),
            ns if ns == wanted => {}
            _ => {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        Ok(())
    }

    /// Checks the name in the body against that in the path (upstream: `checkName` in `endpoints/handlers/rest.go`).
    pub(crate) fn check_body_name(&self, object: &Value) -> Result<()> {
        match object.name() {
            "" => Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.name()
            ))),
            n if n == self.name() => Ok(()),
            n => Err(Status::bad_request(format!(
                "the name of the object ({n}) does not match the name on the URL ({})",
                self.name()
            ))),
        }
    }
}
