//! Connections to where pods run: `pods/log`, `exec`, `attach`, `portforward`, and the proxies of pods, services and
//! nodes. The server judges the request, finds the other end, and passes bytes on; what they mean is the kubelet's.
//!
//! [`links`] knows how the other ends are spoken to, [`kubelet`] where a node's is, [`target`] reads names with schemes
//! and ports, [`pass`] passes a request on.

pub(in crate::controlplane) mod kubelet;
pub(in crate::controlplane) mod links;
pub(in crate::controlplane) mod log;
mod pass;
pub(in crate::controlplane) mod proxy;
pub(in crate::controlplane) mod stream;
mod target;
