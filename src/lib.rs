//! Torana: an aggregating API gateway, wire-compatible with the Kubernetes API server v1.36.
//!
//! Modules are declared in the order in which a request passes through them, so this list doubles as a table of
//! contents.

// ── starting up ──
// The composition root: builds the three delegating servers and binds the port.
pub mod app;
// The command line: flags, option groups, subcommands.
pub mod cli;
// Keys and certificates: generated at the first start, reloaded when their files change.
pub mod pki;

// ── accept, TLS ──
// The listening port: TLS, HTTP/1.1, HTTP/2, connection limits, client certificates.
pub mod serving;

// ── shared by every layer below ──
// The request context; the handler trait, bodies, identities.
pub mod request;
// The generic API server: filter chain, director, container, mux, delegation, health, lifecycle.
pub mod server;

// ── called by the filters, in filter order ──
// Authentication.
pub mod authn;
// Authorization.
pub mod authz;
// Audit: policy, events, backends.
pub mod audit;
// API Priority and Fairness.
pub mod flowcontrol;

// ── the three servers, outermost delegate first ──
// The aggregator: proxies API groups to extension API servers.
pub mod aggregator;
// The built-in API groups: their resources, strategies, and the objects that every cluster starts with.
pub mod controlplane;
// Control loops that kube-controller-manager would run: namespaces, default accounts, aggregated roles.
pub mod controllers;
// API groups beyond the built-in ones, whose kinds are described by a JSON schema.
pub mod extensions;

// ── verb → admission → registry → storage ──
// Admission plugins and webhooks: mutate or reject a write.
pub mod admission;
// REST verbs, discovery and OpenAPI, driven by tables of resources.
pub mod endpoints;
// The generic registry: one implementation of the REST verbs for every kind.
pub mod registry;
// Storage backends behind one trait; objects are stored as opaque bytes.
pub mod storage;

// Clients of API servers: in-process, or another server over TLS.
pub mod client;
// WebSocket towards clients: handshake and messages.
pub mod websocket;
// What all proxies share: dialling, TLS, headers, pages, tunnels.
pub mod proxy;

// ── foundations: these import none of the modules above ──
// Certificate signing requests and distinguished names, parsed as strict DER.
pub mod x509;
// Task groups, the compute pool, one-shot signals, work queues, backoff.
pub mod tasks;
// A bounded cache with expiry.
pub(crate) mod cache;
// The metric registry; names and labels are upstream's.
pub mod telemetry;

// Crates of this workspace, under the names they are used by here.
// Dynamic objects, codecs, selectors, patches, statuses: no I/O, no async.
pub use torana_apimachinery as apimachinery;
// The built-in kinds as data: decoding, protobuf, OpenAPI, merge schemas.
pub use torana_kube_schema as api;
// Cancellation points for long synchronous computations; a literal of an object.
pub use torana_apimachinery::{interrupt, json};
