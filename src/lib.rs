//! Torana: an aggregating API gateway, wire-compatible with the Kubernetes API server v1.36.
//!
//! Modules are declared in the order a request meets them: this list is the table of contents and the data flow.

// ── starting up ──
/// The certificates and keys a server without any is given on its first start.
pub mod pki;

// ── accept, TLS ──
/// The port: connections, TLS, HTTP, peers.
pub mod serving;

/// Talking to an API server as a client.
pub mod client;

// ── what every room passes on ──
/// What is known about a request; handlers, bodies, identities.
pub mod request;

/// API groups beyond the built-in ones: kinds described by a JSON schema.
pub mod extensions;

// ── verb → admission → registry → storage ──
/// What may change or refuse a write.
pub mod admission;
/// The generic store: one path for every kind.
pub mod registry;
/// Where objects live: one trait, an object is its bytes.
pub mod storage;

// ── foundations: no room above is visible from here ──
/// Generated kinds, descriptors and schema fragments.
pub mod api;
/// The object tree, codecs, selectors, patches, statuses: no I/O, no async.
pub mod apimachinery;
