//! [`RequestInfo`]: the verb, resource and scope of a request line, parsed as in upstream's
//! `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`.
//!
//! Entry point: [`RequestInfo::resolve`]. The request-info filter stores the result in the request's
//! [`RequestContext`](super::RequestContext), where [`RequestInfo::of`] finds it.

mod query;
mod resolve;
#[cfg(test)]
mod tests;

pub(crate) use query::{decode_path, first_value, pairs};
pub(crate) use resolve::ResolveError;

use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::value::Str;

/// The parsed request line. Strings are empty where the path does not specify a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path after percent-decoding.
    pub path: Str,
    /// True for `/api/<v>/<resource>…` and `/apis/<g>/<v>/<resource>…`.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, or the
    /// lower-case method of a non-resource request.
    pub verb: Str,
    /// `api` (the legacy core group) or `apis`.
    pub api_prefix: Str,
    /// API group; empty for the core group.
    pub api_group: Str,
    /// API version, such as `v1beta1`.
    pub api_version: Str,
    /// Namespace; empty for cluster-scoped requests and for requests across all namespaces.
    pub namespace: Str,
    /// Resource name in lower-case plural, such as `pods`.
    pub resource: Str,
    /// Subresource, such as `status` or `log`.
    pub subresource: Str,
    /// Object name. On collection reads, also the value of a `metadata.name=` field selector.
    pub name: Str,
    /// The path segments from the resource on.
    pub parts: Vec<Str>,
    /// The raw `fieldSelector` of list, watch and deletecollection.
    pub field_selector: Str,
    /// The raw `labelSelector` of list, watch and deletecollection.
    pub label_selector: Str,
}

impl RequestInfo {
    /// The resource and its group.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.api_group, &self.resource)
    }

    /// True for watches, proxies and streaming subresources: they have no deadline and take no in-flight
    /// slot.
    pub fn is_long_running(&self) -> bool {
        if self.is_resource {
            matches!(self.verb.as_str(), "watch" | "proxy")
                || matches!(
                    self.subresource.as_str(),
                    "attach" | "exec" | "proxy" | "log" | "portforward"
                )
        } else {
            // Profiles are collected for as long as the client asks (upstream: `BasicLongRunningRequestCheck`).
            self.path.starts_with("/debug/pprof/")
        }
    }
}
