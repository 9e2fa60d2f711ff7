//! The components whose statuses are told: the store, and what a control plane runs beside the API server on one machine.

use crate::client::probe;
use crate::controlplane::Probe;
use crate::storage::embedded::Engine;
use async_trait::async_trait;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

/// A component on this machine, by its port.
struct Local(&'static str, u16);

/// The store, by the name it has in other clusters.
struct Store(Weak<Engine>);

#[async_trait]
impl Probe for Local {
    fn name(&self) -> &str {
        self.0
    }

    async fn ask(&self) -> Result<String, String> {
        probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.1)), "/healthz").await
    }
}

#[async_trait]
impl Probe for Store {
    fn name(&self) -> &str {
        "etcd-0"
    }

    async fn ask(&self) -> Result<String, String> {
        match self.0.upgrade() {
            Some(engine) => engine.health().map(|()| "ok".to_owned()),
            None => Err("the store is closed".to_owned()),
        }
    }
}

/// All of them, with upstream's names and ports.
pub fn all(engine: &Arc<Engine>) -> Vec<Arc<dyn Probe>> {
    vec![
        Arc::new(Local("controller-manager", 10257)),
        Arc::new(Local("scheduler", 10259)),
        Arc::new(Store(Arc::downgrade(engine))),
    ]
}
