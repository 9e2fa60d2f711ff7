//! Torana: an aggregating API gateway, wire-compatible with the Kubernetes API server v1.36.
//!
//! Modules are declared in the order a request meets them: this list is the table of contents and the data flow.

// ── starting up ──
// The composition root: three chained servers, one port.
pub mod app;
// The command line: flags, options, and what becomes of each.
pub mod cli;
// The certificates and keys a server without any is given on its first start.
pub mod pki;

// ── accept, TLS ──
// The port: connections, TLS, HTTP, peers.
pub mod serving;

// ── what every room passes on ──
// What is known about a request; handlers, bodies, identities.
pub mod request;
// The generic API server: filter chain, director, container, mux, delegation, health, lifecycle.
pub mod server;

// ── the rooms the filters call, in filter order ──
// Who calls.
pub mod authn;
// Whether they may.
pub mod authz;
// Who saw what: policy, events, backends.
pub mod audit;
// How much may run at once.
pub mod flowcontrol;

// ── the three servers, head of the chain first ──
// The aggregator: other API servers behind this one's address.
pub mod aggregator;
// The built-in groups: rows, behaviour, and the objects a cluster starts with.
pub mod controlplane;
// API groups beyond the built-in ones: kinds described by a JSON schema.
pub mod extensions;

// ── verb → admission → registry → storage ──
// What may change or refuse a write.
pub mod admission;
// REST verbs, discovery and OpenAPI over rows.
pub mod endpoints;
// The generic store: one path for every kind.
pub mod registry;
// Where objects live: one trait, an object is its bytes.
pub mod storage;

// Talking to an API server as a client: this one, from inside, or another over TLS.
pub mod client;

// ── foundations: no room above is visible from here ──
// Generated kinds, descriptors and schema fragments.
pub mod api;
// The object tree, codecs, selectors, patches, statuses: no I/O, no async.
pub mod apimachinery;
// Owned task groups, the compute pool, one-shot signals, work queues.
pub mod tasks;
// Checkpoints at which a long computation can be stopped.
pub mod interrupt;
// The metric registry, with upstream's names.
pub mod telemetry;
