//! Connection subresources: `pods/log`, `exec`, `attach`, `portforward`, and the proxies of pods, services
//! and nodes. Each resolves the request to a backend and relays bytes; the protocols inside are the kubelet's
//! or the workload's.
//!
//! [`log`], [`stream`] and [`proxy`] are the handlers. [`kubelet`] resolves a node to its kubelet, [`target`]
//! parses `scheme:name:port`, [`connector`] provides TLS and timeouts, and [`relay`] relays a request. For
//! kubelets that do not speak WebSocket, [`translate`] does `exec` and `attach` in SPDY (with the results of
//! [`outcome`]), and [`tunnelled`] `portforward`.

pub(in crate::controlplane) mod connector;
pub(in crate::controlplane) mod kubelet;
pub(in crate::controlplane) mod log;
mod outcome;
pub(in crate::controlplane) mod proxy;
mod relay;
pub(in crate::controlplane) mod stream;
mod target;
mod translate;
mod tunnelled;
