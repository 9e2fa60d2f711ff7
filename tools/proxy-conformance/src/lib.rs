//! Conformance cases for aggregating API gateways: how a gateway must treat the requests that it proxies, one
//! claim per case.
//!
//! A run starts scripted backends in its own process, registers them with the gateway under test
//! ([`environment`]), sends requests and compares what both ends received ([`case`], [`run`]). The gateway is
//! given by a URL and credentials: Torana's tests and the program of this crate use the same [`cases`].
//! `docs/proxy-conformance.md` is the manual.
#![warn(missing_docs)]

pub mod backend;
pub mod case;
pub mod cases;
pub mod client;
pub mod environment;
pub mod pki;
pub mod report;
pub mod run;
pub mod wire;
