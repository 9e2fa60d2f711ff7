//! The composition root: extensions → core → aggregator, one chain in front, one port. The only file that may name every
//! room.

mod authentication;

use crate::cli::{CompletedOptions, OpenPort, Port};
use crate::authz::{self, Authorizer};
use crate::flowcontrol;
use crate::server::chain::ChainConfig;
use crate::server::delegate::EmptyDelegate;
use crate::server::generic::GenericServer;
use crate::server::lifecycle::{Lifecycle, PreShutdownHook, ShutdownTimes};
use crate::storage::embedded::{self, Engine};
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the gateway's own tasks get to end after the last connection is closed.
const TASKS_GRACE: Duration = Duration::from_secs(5);
