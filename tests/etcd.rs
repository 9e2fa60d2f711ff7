//! A gateway on etcd as operators and clients see it: start-up errors, behaviour during partitions, values
//! written by other servers, metrics, encryption and revocation.

#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]

mod support;

#[path = "etcd/cut.rs"]
mod cut;
#[path = "support/etcd.rs"]
mod etcd_process;
#[path = "etcd/foreign.rs"]
mod foreign;
#[path = "etcd/kms.rs"]
mod kms;
#[path = "support/kms.rs"]
mod kms_server;
#[path = "etcd/metrics.rs"]
mod metrics;
#[path = "etcd/progress.rs"]
mod progress;
#[path = "etcd/revocation.rs"]
mod revocation;
#[path = "support/revocation.rs"]
#[allow(dead_code, reason = "the background noise is not used here")]
mod revocation_rounds;
#[path = "etcd/start.rs"]
mod start;
#[path = "etcd/tool.rs"]
mod tool;
#[path = "etcd/trust.rs"]
mod trust;
#[path = "security/wire.rs"]
#[allow(dead_code, reason = "only the callers are used here")]
mod wire;
