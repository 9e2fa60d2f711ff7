//! A gateway on etcd as its operator and its clients see it: how it starts, what it says through a partition, what it makes
//! of values that others have written, and what it counts.

#![allow(clippy::unwrap_used)] // the lint's exception for tests does not see helpers beside them

mod support;

#[path = "etcd/cut.rs"]
mod cut;
#[path = "support/etcd.rs"]
mod etcd_process;
#[path = "etcd/figures.rs"]
mod figures;
#[path = "etcd/foreign.rs"]
mod foreign;
#[path = "etcd/kms.rs"]
mod kms;
#[path = "support/kms.rs"]
mod kms_server;
#[path = "etcd/revocation.rs"]
mod revocation;
#[path = "support/revocation.rs"]
#[allow(dead_code, reason = "noise is not needed here")]
mod revocation_rounds;
#[path = "etcd/start.rs"]
mod start;
#[path = "etcd/tool.rs"]
mod tool;
#[path = "security/wire.rs"]
#[allow(dead_code, reason = "callers are all that is needed here")]
mod wire;
