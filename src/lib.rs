//! Torana: an aggregating API gateway, wire-compatible with the Kubernetes API server v1.36.
//!
//! Modules are declared in the order a request meets them: this list is the table of contents and the data flow.

// ── foundations: no room above is visible from here ──
/// Generated kinds, descriptors and schema fragments.
pub mod api;
/// The object tree, codecs, selectors, patches, statuses: no I/O, no async.
pub mod apimachinery;
