//! Services: the kind with the most behaviour, because cluster IPs and node ports are given out while it is written.
//!
//! What is taken is known from the stored Services: it is read once at start ([`ServiceNumbers::adopt`]) and kept in memory
//! from then on. Every taken number knows its owner, `namespace/name`, so that giving back what another Service holds does
//! nothing. Cluster IPs are recorded as IPAddress objects besides ([`addresses`]), and come from the ranges that ServiceCIDR
//! objects offer ([`ranges`]).

pub(crate) mod addresses;
mod allocate;
mod families;
mod prepare;
mod ranges;

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{IpRange, PortRange};
use crate::controlplane::fields::restore;
use crate::controlplane::{defaults, validation};
use crate::registry::strategy::{Context, NameRule, Strategy};
use addresses::Addresses;
use async_trait::async_trait;
use std::sync::{Arc, OnceLock};

/// Cluster IPs and node ports.
#[derive(Debug)]
pub struct ServiceNumbers {
    /// One or two ranges of different families; the first one's family is the cluster's default.
    pub ranges: Vec<IpRange>,
    /// What ServiceCIDR objects change about them.
    pub followed: ranges::Followed,
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
    addresses: Arc<dyn Addresses>,
    cleanup: Arc<OnceLock<Arc<dyn EndpointsCleanup>>>,
}

impl Service {
    /// Gives out of `numbers` and records in `addresses`. `cleanup` is filled in once there are stores.
    pub fn new(
        numbers: Arc<ServiceNumbers>,
        addresses: Arc<dyn Addresses>,
        cleanup: Arc<OnceLock<Arc<dyn EndpointsCleanup>>>,
    ) -> Self {
        Self {
            numbers,
            addresses,
            cleanup,
        }
    }

    /// Gives back what `service` holds and `kept` does not: the records first, so that nobody is given what is recorded.
    async fn give_back(&self, service: &Value, kept: Option<&Value>) {
        for ip in allocate::freed_addresses(service, kept) {
            self.addresses.release(ip, service.namespace(), service.name()).await;
        }
        self.numbers.give_back(service, kept);
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

    fn part_warnings(&self, subresource: &str, new: &Value, _old: &Value) -> Vec<String> {
        match subresource {
            "status" => validation::service::warnings::balancer(new),
            _ => Vec::new(),
        }
    }

    async fn begin_create(&self, cx: &Context, object: &mut Value) -> Result<()> {
        let addresses = &*self.addresses;
        self.numbers.begin_create(object, addresses, cx.dry_run).await
    }

    async fn begin_update(&self, cx: &Context, new: &mut Value, old: &Value) -> Result<()> {
        let addresses = &*self.addresses;
        self.numbers.begin_update(new, old, addresses, cx.dry_run).await
    }

    async fn abandoned(&self, cx: &Context, object: &Value, old: Option<&Value>) {
        if !cx.dry_run {
            self.give_back(object, old).await;
        }
    }

    async fn updated(&self, cx: &Context, new: &Value, old: &Value) {
        if !cx.dry_run {
            self.give_back(old, Some(new)).await;
        }
    }

    async fn deleted(&self, cx: &Context, object: &Value) {
        if cx.dry_run {
            return;
        }
        self.give_back(object, None).await;
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
