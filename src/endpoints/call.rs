//! One request on its way through a verb: its head, its query, who calls, and what it is about.

use super::negotiate::{Codecs, Negotiated, Offer, negotiate_among};
use super::options::Query;
use super::route::Route;
use crate::api::TypeDef;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::Backing;
use crate::registry::{Context, MayCreate, Resource, Store, SubresourceBehaviour};
use crate::request::{Authorized, Facts};
use crate::telemetry::WatchMetrics;
use crate::telemetry::requests::LateResults;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Call {
    pub parts: http::request::Parts,
    pub query: Query,
    pub route: Route,
    pub cx: Context,
    /// Asked before an update creates.
    pub may_create: Option<Arc<dyn MayCreate>>,
    /// Watches without a timeout end between this and twice this.
    pub min_request_timeout: Duration,
    /// Encodings that are on.
    pub codecs: Codecs,
    /// Counters of a watch.
    pub watch_metrics: Option<WatchMetrics>,
    /// Counts changes that came about when nobody waited for them any more.
    pub late: Option<LateResults>,
}

impl Call {
    pub fn new(parts: http::request::Parts, route: Route, authorized: &Authorized, timeout: Duration) -> Self {
        let facts = Facts::of(&parts);
        let cx = Context {
            user: authorized.user().clone(),
            namespace: route.namespace.clone(),
            warnings: facts.warnings.clone().unwrap_or_default(),
            audit: facts.audit.clone().unwrap_or_default(),
            dry_run: false,
            verb: match parts.method {
                http::Method::POST => "create",
                http::Method::PATCH => "patch",
                http::Method::DELETE => "delete",
                _ => "update",
            },
        };
        if let Some(text) = route.served.0.strategy.deprecation() {
            cx.warnings.add(text);
        }
        Self {
            query: Query::parse(parts.uri.query().unwrap_or("")),
            parts,
            route,
            cx,
            may_create: None,
            min_request_timeout: timeout,
            codecs: Codecs::default(),
            watch_metrics: None,
            late: None,
        }
    }

    pub fn resource(&self) -> &Arc<Resource> {
        &self.route.served.0
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.route.served.1
    }

    pub fn name(&self) -> &str {
        &self.route.name
    }

    pub fn subresource(&self) -> &str {
        self.route.subresource().map_or("", |s| s.name)
    }

    /// The kind this endpoint speaks.
    pub fn kind(&self) -> GroupVersionKind {
        self.route
            .subresource()
            .map_or_else(|| self.resource().gvk(), |s| s.kind.clone())
    }

    pub fn negotiate(&self, offer: Offer) -> Result<Negotiated> {
        let offer = match offer {
            Offer::Objects if self.definition().is_none() => Offer::CustomObjects,
            Offer::Events if self.definition().is_none() => Offer::CustomEvents,
            other => other,
        };
        negotiate_among(self.codecs, &self.parts.headers, &self.query, offer)
    }

    /// The type this endpoint speaks; custom kinds have none.
    pub fn definition(&self) -> Option<&'static TypeDef> {
        match self.route.subresource().map(|s| &s.kind) {
            Some(kind) if *kind != self.resource().gvk() => {
                crate::api::protobuf::definition(&kind.api_version(), &kind.kind)
            }
            _ => self.resource().schema.definition(),
        }
    }

    /// What answers can look like: reviews and subresources with a handler of their own have no table.
    pub fn offer(&self) -> Offer {
        let sub = self.route.subresource().map(|s| &s.behaviour);
        let answered = matches!(self.resource().backing, Backing::Answered(_));
        match sub {
            Some(SubresourceBehaviour::Custom(handler)) if handler.columns().is_none() => Offer::Metadata,
            _ if answered => Offer::Metadata,
            _ => Offer::Objects,
        }
    }

    /// The row as answers show it: a subresource of a kind of its own has a table of its own.
    pub fn shown(&self) -> Arc<Resource> {
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

    /// The name in the path, as storage takes it.
    pub fn check_name(&self) -> Result<()> {
        let name = self.name();
        if name.is_empty() {
            return Err(Status::bad_request("name must be provided"));
        }
        Store::check_name(name)
    }

    /// The body's namespace against the request's; fills it in.
    pub fn check_namespace(&self, object: &mut Value) -> Result<()> {
        let wanted = self.route.namespace.as_str();
        if wanted.is_empty() {
            object.unset_meta("namespace");
            return Ok(());
        }
        match object.namespace() {
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

    /// The body's name against the path's.
    pub fn check_body_name(&self, object: &Value) -> Result<()> {
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
