//! Connection subresources: `pods/log`, `exec`, `attach`, `portforward`, and the proxies of pods, services and nodes.
//! Each resolves the request to a backend and relays bytes; the protocols inside are the kubelet's or the workload's.
//!
//! [`log`], [`stream`] and [`proxy`] are the handlers. [`kubelet`] resolves a node to its kubelet, [`target`] parses
//! `scheme:name:port`, [`connector`] provides TLS and timeouts, and [`relay`] relays a request.

pub(in crate::controlplane) mod connector;
pub(in crate::controlplane) mod kubelet;
pub(in crate::controlplane) mod log;
pub(in crate::controlplane) mod proxy;
mod relay;
pub(in crate::controlplane) mod stream;
mod target;
