//! REST over resources: routing, content negotiation, verbs, discovery and OpenAPI (upstream:
//! `apiserver/pkg/endpoints`).
//!
//! Entry points: [`ApiGroupVersion`] serves one group version, [`install`] mounts it.
//! [`discovery::AggregatedDiscovery`] and [`openapi::OpenApiV3`] are documents that several servers
//! contribute to. Storage, validation and admission belong to the registry.

pub(crate) mod body;
mod call;
mod custom;
pub(crate) mod discovery;
mod dispatch;
pub(crate) mod finish;
pub(crate) mod group_version;
pub(crate) mod install;
pub(crate) mod negotiate;
mod offload;
pub(crate) mod openapi;
pub(crate) mod options;
pub(crate) mod respond;
mod route;
mod verbs;
pub(crate) mod zpages;

pub(crate) use group_version::ApiGroupVersion;

#[cfg(test)]
mod tests;
