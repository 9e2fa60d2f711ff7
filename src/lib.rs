//! Torana: an aggregating API gateway, wire-compatible with the Kubernetes API server v1.36.
//!
//! Modules are declared in the order a request meets them: this list is the table of contents and the data flow.

// ── what every room passes on ──
/// What is known about a request; handlers, bodies, identities.
pub mod request;

// ── the three servers, head of the chain first ──
/// The aggregator: other API servers behind this one's address.
pub mod aggregator;

// ── verb → admission → registry → storage ──
/// The generic store: one path for every kind.
pub mod registry;
/// Where objects live: one trait, an object is its bytes.
pub mod storage;

/// Reading the gateway's own objects from inside.
pub mod client;

// ── foundations: no room above is visible from here ──
/// The object tree, codecs, selectors, patches, statuses: no I/O, no async.
pub mod apimachinery;
/// Owned task groups, one-shot signals, work queues.
pub mod tasks;
/// The metric registry, with upstream's names.
pub mod telemetry;
