//! What an aggregating API gateway must do with a request that it proxies, one row per fact.
//!
//! A run starts scripted backends in its own process, registers them with the gateway under test ([`world`]), sends
//! requests and compares what both ends saw ([`row`], [`run`]). The gateway is whatever is named by a URL and credentials:
//! Torana's own tests and the program of this crate use the same [`rows`]. `docs/proxy-conformance.md` says how.
#![warn(missing_docs)]

pub mod backend;
pub mod client;
pub mod pki;
pub mod report;
pub mod row;
pub mod rows;
pub mod run;
pub mod wire;
pub mod world;
