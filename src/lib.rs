//! Torana: an aggregating API gateway, wire-compatible with the Kubernetes API server v1.36.
//!
//! The public API is small: [`gateway`] runs a gateway inside a program, [`sdk`] is for API servers of one's
//! own, [`commands`] are the subcommands of the `torana` binary. Everything else is private, so that the
//! compiler finds unused items.
//!
//! Modules are declared in the order in which a request passes through them, so this list doubles as a table
//! of contents. What many of them share stands at the end, below its users.

// ── the public API ──
pub mod commands;
pub mod gateway;
pub mod sdk;
#[doc(hidden)]
pub mod testing;

// ── starting up ──
// The composition root: builds the three delegating servers and binds the port.
mod app;
// The command line: flags, option groups, subcommands.
mod cli;

// ── accept, TLS ──
// The listening port: TLS, HTTP/1.1, HTTP/2, connection limits, client certificates.
mod serving;

// ── filter chain and routing ──
// The generic API server: filter chain, director, container, mux, delegation, health, lifecycle.
mod server;

// ── called by the filters, in filter order ──
// Authentication.
mod authn;
// Authorization.
mod authz;
// Audit: policy, events, backends.
mod audit;
// API Priority and Fairness.
mod flowcontrol;

// ── the three servers, outermost delegate first ──
// The aggregator: proxies API groups to extension API servers.
mod aggregator;
// The built-in API groups: their resources, strategies, and the objects that every cluster starts with.
mod controlplane;
// Control loops that kube-controller-manager would run: namespaces, default accounts, aggregated roles.
mod controllers;
// Custom resources: their definitions, and conversion between their versions.
mod extensions;

// ── verb → registry, which calls admission → storage ──
// REST verbs, discovery and OpenAPI, driven by tables of resources.
mod endpoints;
// Structural schemas: kinds described by a JSON schema.
mod schema;
// The generic registry: one implementation of the REST verbs for every kind.
mod registry;
// Admission plugins and webhooks: mutate or reject a write.
mod admission;
// Storage backends behind one trait; objects are stored as opaque bytes.
mod storage;

// Clients of API servers: in-process, or another server over TLS.
mod client;
// WebSocket towards clients: handshake and messages.
mod websocket;
// Shared by all proxies: dialling, TLS, headers, pages, tunnels.
mod proxy;

// ── shared by many of the modules above ──
// Keys and certificates: generated at the first start, reloaded when their files change.
mod pki;
// The request context; the handler trait, bodies, identities.
mod request;

// ── foundations: these import none of the modules above ──
// Certificate signing requests and distinguished names, parsed as strict DER.
mod x509;
// Task groups, the compute pool, one-shot signals, work queues, backoff.
mod tasks;
// A bounded cache with expiry.
mod cache;
// The metric registry; names and labels are upstream's.
mod telemetry;
// The mutex: a lock outlives the panic of its holder.
mod sync;

// Crates of this workspace, under the names they are used by here.
// Dynamic objects, codecs, selectors, patches, statuses: no I/O, no async.
pub use torana_apimachinery as apimachinery;
// The built-in kinds as data: decoding, protobuf, OpenAPI, merge schemas.
pub use torana_kube_schema as api;
// Cancellation points for long synchronous computations; a literal of an object.
pub use torana_apimachinery::{interrupt, json};
