//! RequestInfo: what a path and method ask for, as upstream's
//! `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go` reads them.
//!
//! The request-info filter leaves it in the request's [`Facts`]; [`RequestInfo::of`] reads it.

mod query;
mod resolve;
#[cfg(test)]
mod tests;

pub use query::{decode_path, first_value, pairs};
pub use resolve::ResolveError;

use super::facts::Facts;
use super::handler::Request;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::value::Str;
use std::sync::Arc;

/// What is asked for. Strings are empty where the path does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The decoded path.
    pub path: Str,
    /// True for `/api/<v>/<resource>…` and `/apis/<g>/<v>/<resource>…`.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, or the lower-case
    /// method of a non-resource request.
    pub verb: Str,
    /// `api` or `apis`.
    pub api_prefix: Str,
    /// Group, empty for core.
    pub api_group: Str,
    /// Version.
    pub api_version: Str,
    /// Namespace.
    pub namespace: Str,
    /// Resource, lower-case plural.
    pub resource: Str,
    /// Subresource.
    pub subresource: Str,
    /// Object name; also from a `metadata.name=` field selector.
    pub name: Str,
    /// Path segments from the resource on.
    pub parts: Vec<Str>,
    /// The raw `fieldSelector` of list, watch and deletecollection.
    pub field_selector: Str,
    /// The raw `labelSelector` of list, watch and deletecollection.
    pub label_selector: Str,
}

impl RequestInfo {
    /// What the request-info filter left.
    pub fn of(req: &Request) -> Option<&Arc<Self>> {
        Facts::of(req).info.as_ref()
    }

    /// The resource and its group.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.api_group, &self.resource)
    }

    /// Watches, proxies and the streaming subresources: no deadline, no in-flight slot.
    pub fn is_long_running(&self) -> bool {
        if self.is_resource {
            matches!(self.verb.as_str(), "watch" | "proxy")
                || matches!(
                    self.subresource.as_str(),
                    "attach" | "exec" | "proxy" | "log" | "portforward"
                )
        } else {
            self.path.starts_with("/debug/pprof/")
        }
    }
}
