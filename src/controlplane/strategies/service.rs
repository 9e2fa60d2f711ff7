//! Services: the kind with the most behaviour, because cluster IPs and node ports are given out while it is written.
//!
//! What is taken is known from the stored Services alone: it is read once at start ([`ServiceNumbers::adopt`]) and kept
//! in memory from then on. Every taken number knows its owner, `namespace/name`, so that giving back what another Service
//! holds does nothing.

mod allocate;
mod families;
mod prepare;

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{IpRange, PortRange};
use crate::controlplane::fields::restore;
use crate::controlplane::{defaults, validation};
use crate::registry::strategy::{Context, NameRule, Strategy};
use async_trait::async_trait;
use std::sync::{Arc, OnceLock};

/// Cluster IPs and node ports.
#[derive(Debug)]
pub struct ServiceNumbers {
    /// One or two ranges of different families; the first one's family is the cluster's default.
    pub ranges: Vec<IpRange>,
    /// Node ports.
    pub ports: PortRange,
}

/// Removes the Endpoints a deleted Service leaves.
#[async_trait]
pub trait EndpointsCleanup: Send + Sync + 'static {
    /// Removes them; their absence is fine.
    async fn remove(&self, namespace: &str, name: &str);
}

/// Behaviour of Services.
pub struct Service {
    numbers: Arc<ServiceNumbers>,
    cleanup: Arc<OnceLock<Arc<dyn EndpointsCleanup>>>,
}

impl Service {
    /// Gives out of `numbers`. `cleanup` is filled in once there are stores.
    pub fn new(numbers: Arc<ServiceNumbers>, cleanup: Arc<OnceLock<Arc<dyn EndpointsCleanup>>>) -> Self {
        Self { numbers, cleanup }
    }
}

pub(super) fn owner(service: &Value) -> String {
    format!("{}/{}", service.namespace(), service.name())
}

#[async_trait]
impl Strategy for Service {
    fn name_rule(&self) -> NameRule {
        // Relaxed in v1.36: names may begin with a digit.
        NameRule::Label
    }

    fn default(&self, object: &mut Value) {
        defaults::service::service(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object.set(&["status"], crate::json!({"loadBalancer": {}}));
        prepare::synchronise_cluster_ips(object, None);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::service::service(object, None)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
        if new.str_at(&["spec", "type"]) != "LoadBalancer" {
            new.set(&["status", "loadBalancer"], Value::object());
        }
        prepare::keep_allocated(new, old);
        prepare::synchronise_cluster_ips(new, Some(old));
        prepare::drop_dependent(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::service::service_update(new, old)
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["spec"]);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::service::service_status(new, old)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        validation::service::warnings::service(new)
    }

    async fn begin_create(&self, cx: &Context, object: &mut Value) -> Result<()> {
        self.numbers.begin_create(object, cx.dry_run)
    }

    async fn begin_update(&self, cx: &Context, new: &mut Value, old: &Value) -> Result<()> {
        self.numbers.begin_update(new, old, cx.dry_run)
    }

    async fn abandoned(&self, cx: &Context, object: &Value, old: Option<&Value>) {
        if !cx.dry_run {
            self.numbers.give_back(object, old);
        }
    }

    async fn updated(&self, cx: &Context, new: &Value, old: &Value) {
        if !cx.dry_run {
            self.numbers.give_back(old, Some(new));
        }
    }

    async fn deleted(&self, cx: &Context, object: &Value) {
        if cx.dry_run {
            return;
        }
        self.numbers.give_back(object, None);
        if let Some(cleanup) = self.cleanup.get() {
            cleanup.remove(object.namespace(), object.name()).await;
        }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec"],
            _ => &["status"],
        }
    }
}

#[cfg(test)]
mod tests;
