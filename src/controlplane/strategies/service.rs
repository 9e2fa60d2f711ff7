//! Strategy of Services, which allocates cluster IPs and node ports as part of the write (upstream's
//! `pkg/registry/core/service/storage`).
//!
//! Start at [`Service`]; `allocate` does the allocation, `families` resolves IP families, `prepare` carries
//! allocated fields over an update.
//!
//! Allocations are kept in memory ([`ServiceAllocators`]), loaded from the stored Services at start-up
//! ([`ServiceAllocators::mark_stored_allocations`]). Each has an owner, `namespace/name`, so releasing
//! another Service's number is a no-op. The store is authoritative between gateways: cluster IPs are
//! recorded as IPAddress objects ([`addresses`]), node ports in a bitmap ([`node_ports`]). Cluster IPs come
//! from the ranges of the flags and of ServiceCIDR objects ([`ranges`]).

pub(crate) mod addresses;
pub(crate) mod allocate;
mod families;
pub(crate) mod node_ports;
mod prepare;
mod ranges;

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{IpAllocator, PortAllocator};
use crate::controlplane::{defaults, validation};
use crate::registry::strategy::{Context, NameRule, Outcome, Rules, SideEffects, Strategy, reset_spec_or_status};
use addresses::AddressRegistry;
use allocate::Records;
use async_trait::async_trait;
use node_ports::NodePortRecord;
use std::sync::Arc;

/// Allocators of cluster IPs and node ports.
#[derive(Debug)]
pub(crate) struct ServiceAllocators {
    /// One or two ranges of the flags, of different families; the first one's family is the cluster's
    /// default.
    pub ranges: Vec<IpAllocator>,
    /// Changes to `ranges` made by ServiceCIDR objects.
    pub service_cidrs: ranges::ServiceCidrRanges,
    /// Allocator of node ports (`--service-node-port-range`).
    pub ports: PortAllocator,
}

/// Removes the Endpoints object of a deleted Service.
#[async_trait]
pub(crate) trait EndpointsCleanup: Send + Sync + 'static {
    /// Removes the Endpoints of this name; does nothing if there are none.
    async fn remove(&self, namespace: &str, name: &str);
}

/// Allocates cluster IPs and node ports before a write, and releases them if the write fails.
pub(crate) struct Service {
    allocators: Arc<ServiceAllocators>,
    addresses: Arc<dyn AddressRegistry>,
    node_ports: Arc<NodePortRecord>,
    cleanup: Arc<dyn EndpointsCleanup>,
}

impl Service {
    /// Allocates from `allocators` and records cluster IPs in `addresses`, node ports in `node_ports`.
    /// `cleanup` runs after deletes.
    pub(crate) fn new(
        allocators: Arc<ServiceAllocators>,
        addresses: Arc<dyn AddressRegistry>,
        node_ports: Arc<NodePortRecord>,
        cleanup: Arc<dyn EndpointsCleanup>,
    ) -> Self {
        Self {
            allocators,
            addresses,
            node_ports,
            cleanup,
        }
    }

    /// Releases what `service` holds and `kept` does not. IPAddress objects go first, so that an address that
    /// is free in memory has no record.
    async fn release(&self, service: &Value, kept: Option<&Value>) {
        for ip in allocate::freed_addresses(service, kept) {
            self.addresses.release(ip, service.namespace(), service.name()).await;
        }
        // Memory comes last: until then this gateway refuses the numbers, so none is claimed again before its
        // record is gone.
        let ports = allocate::freed_ports(service, kept);
        if !ports.is_empty() {
            self.node_ports.release(&ports).await;
        }
        self.allocators.release(service, kept);
    }
}

pub(super) fn owner(service: &Value) -> String {
    format!("{}/{}", service.namespace(), service.name())
}

impl Strategy for Service {
    fn rules(&self) -> Rules {
        // Relaxed in v1.36 (`RelaxedServiceNameValidation`): names may begin with a digit.
        Rules::named(NameRule::Label)
    }

    fn default(&self, object: &mut Value) {
        defaults::service::service(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object.set(&["status"], crate::json!({"loadBalancer": {}}));
        prepare::synchronise_cluster_ips(object, None);
        prepare::drop_hidden(object);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::service::service(object, None)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
        // As upstream, the status of a balancer goes with the type.
        if new.str_at(&["spec", "type"]) != "LoadBalancer" {
            new.set(&["status", "loadBalancer"], Value::object());
        }
        prepare::keep_allocated(new, old);
        prepare::synchronise_cluster_ips(new, Some(old));
        prepare::drop_dependent(new, old);
        prepare::drop_hidden(new);
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

    fn subresource_warnings(&self, subresource: &str, new: &Value, _old: &Value) -> Vec<String> {
        match subresource {
            "status" => validation::service::warnings::balancer(new),
            _ => Vec::new(),
        }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_spec_or_status(subresource)
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for Service {
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
        let records = Records {
            addresses: &*self.addresses,
            node_ports: &self.node_ports,
        };
        match old {
            None => self.allocators.begin_create(new, records, cx.dry_run).await,
            Some(old) => self.allocators.begin_update(new, old, records, cx.dry_run).await,
        }
    }

    async fn end(&self, cx: &Context, object: &Value, outcome: Outcome<'_>) {
        if cx.dry_run {
            return;
        }
        match outcome {
            // The new object holds what the write allocated.
            Outcome::Created => {}
            Outcome::Updated { old } => self.release(old, Some(object)).await,
            // The write failed after its allocation, so what it took beyond the stored object is freed.
            Outcome::Abandoned { old } => self.release(object, old).await,
            Outcome::Deleted => {
                self.release(object, None).await;
                self.cleanup.remove(object.namespace(), object.name()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
