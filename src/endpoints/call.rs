//! One request on its way through a verb: its head, its query, who calls, and what it is about.

use super::negotiate::{Negotiated, Offer, negotiate};
use super::options::Query;
use super::route::Route;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::{Context, Resource, Store};
use crate::request::{Authorized, Warnings};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Call {
    pub parts: http::request::Parts,
    pub query: Query,
    pub route: Route,
    pub cx: Context,
    /// Watches without a timeout end between this and twice this.
    pub min_request_timeout: Duration,
}

impl Call {
    pub fn new(parts: http::request::Parts, route: Route, authorized: &Authorized, timeout: Duration) -> Self {
        let cx = Context {
            user: authorized.user().clone(),
            namespace: route.namespace.clone(),
            warnings: parts.extensions.get::<Warnings>().cloned().unwrap_or_default(),
            dry_run: false,
        };
        if let Some(text) = route.served.0.strategy.deprecation() {
            cx.warnings.add(text);
        }
        Self {
            query: Query::parse(parts.uri.query().unwrap_or("")),
            parts,
            route,
            cx,
            min_request_timeout: timeout,
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
        negotiate(&self.parts.headers, &self.query, offer)
    }

    /// The name in the path, as storage takes it.
    pub fn check_name(&self) -> Result<()> {
        let name = self.name();
        if name.is_empty() {
            return Err(Status::bad_request("name must be provided"));
        }
        match crate::apimachinery::validation::path_segment_name(name).first() {
            None => Ok(()),
            Some(why) => Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {why}"))),
        }
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
