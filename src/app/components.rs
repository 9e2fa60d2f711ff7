//! Probes behind ComponentStatus: the stores, and the components that a control plane runs on the same
//! machine.

use super::store::Stores;
use crate::client::probe;
use crate::controlplane::Probe;
use crate::request::body::BoxError;
use async_trait::async_trait;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

/// A component on this machine, with its port.
struct Local(&'static str, u16);

/// A store, by index. ComponentStatus shows it as `etcd-0` and so on, upstream's names.
struct Store(String, Weak<Stores>, usize);

#[async_trait]
impl Probe for Local {
    fn name(&self) -> &str {
        self.0
    }

    async fn check(&self) -> Result<String, BoxError> {
        Ok(probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.1)), "/healthz").await?)
    }
}

#[async_trait]
impl Probe for Store {
    fn name(&self) -> &str {
        &self.0
    }

    async fn check(&self) -> Result<String, BoxError> {
        let stores = self.1.upgrade().ok_or("the store is closed")?;
        stores.health(self.2)?;
        Ok("ok".to_owned())
    }
}

/// All probes, with upstream's names and ports.
pub(crate) fn all(stores: &Arc<Stores>) -> Vec<Arc<dyn Probe>> {
    let mut all: Vec<Arc<dyn Probe>> = vec![
        Arc::new(Local("controller-manager", 10257)),
        Arc::new(Local("scheduler", 10259)),
    ];
    for i in 0..stores.count() {
        // Weak: a probe that the control plane keeps must not keep a closed store open.
        all.push(Arc::new(Store(format!("etcd-{i}"), Arc::downgrade(stores), i)));
    }
    all
}
