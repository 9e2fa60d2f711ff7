//! REST over resources: routing, content negotiation, verbs, discovery and OpenAPI (upstream:
//! `apiserver/pkg/endpoints`).
//!
//! Entry points: [`ApiGroupVersion`] serves one group version, [`install`] mounts it.
//! [`discovery::AggregatedDiscovery`] and [`openapi::OpenApiV3`] are documents that several servers contribute to.
//! Storage, validation and admission belong to the registry.

pub mod body;
mod call;
mod custom;
pub mod discovery;
pub mod finish;
pub mod group_version;
pub mod install;
pub mod negotiate;
mod offload;
pub mod openapi;
pub mod options;
pub mod respond;
mod route;
mod verbs;
pub mod zpages;

pub use group_version::ApiGroupVersion;

#[cfg(test)]
mod tests;
