//! REST verbs, discovery and OpenAPI over rows.
//!
//! Entry points: [`ApiGroupVersion`] serves one group version; [`discovery::AggregatedDiscovery`] and
//! [`openapi::OpenApiV3`] are documents that several servers put together. What an object looks like at rest and which
//! rules it keeps is the registry's.

pub mod body;
mod call;
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
