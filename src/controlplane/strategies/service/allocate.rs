//! Allocation of cluster IPs and node ports for one write, all or nothing.
//!
//! Entry points: [`ServiceAllocators::begin_create`] and [`ServiceAllocators::begin_update`]. A
//! [`PendingAllocation`] tracks what the write has allocated and releases it on failure
//! ([`PendingAllocation::end`]) or drop. Numbers that an update frees are released only once the write is durable
//! (`updated`): until then the write may fail, and the Service would still need it. A cluster IP belongs to a
//! Service once its IPAddress object exists; the allocator in memory is only a hint. The submodules choose
//! the numbers.

mod cluster_ips;
mod ports;

use super::addresses::AddressRegistry;
use super::families::init_ip_family_fields;
use super::node_ports::NodePortRecord;
use super::prepare::{health_port, needs_cluster_ip, needs_health_check, needs_node_port, node_port};
use super::{ServiceAllocators, owner};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::IpError;
use crate::controlplane::fields::{Seen, strings};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Where allocations are recorded for all gateways.
#[derive(Clone, Copy)]
pub(super) struct Records<'a> {
    pub(super) addresses: &'a dyn AddressRegistry,
    pub(super) node_ports: &'a NodePortRecord,
}

/// The allocations of one write.
///
/// # Cancel safety
/// Dropping it releases the numbers in memory. It cannot await, so IPAddress objects that were already
/// created stay.
struct PendingAllocation<'a> {
    allocators: &'a ServiceAllocators,
    records: Records<'a>,
    owner: String,
    dry_run: bool,
    ips: Vec<IpAddr>,
    ports: BTreeSet<i64>,
}

impl ServiceAllocators {
    /// Marks what a stored Service holds as allocated. Returns a message for each number that is outside the
    /// ranges or held by another Service.
    pub(crate) fn mark_stored_allocations(&self, service: &Value) -> Vec<String> {
        let who = owner(service);
        let mut odd = Vec::new();
        for ip in strings(service.at(&["spec", "clusterIPs"]))
            .into_iter()
            .filter_map(parse_ip)
        {
            match self.allocate_ip(ip, &who) {
                Err(IpError::NotInRange) => odd.push(format!("cluster IP {ip} is not within any configured range")),
                taken => odd.extend(taken.err().map(|e| format!("cluster IP {ip}: {e}"))),
            }
        }
        for port in held_ports(service) {
            odd.extend(
                self.ports
                    .allocate(port, &who)
                    .err()
                    .map(|e| format!("node port {port}: {e}")),
            );
        }
        odd
    }

    /// Resolves the IP families of a new Service and allocates what it needs.
    ///
    /// # Errors
    /// 422 naming the field, or 500 if a range is full.
    pub(super) async fn begin_create(&self, service: &mut Value, records: Records<'_>, dry_run: bool) -> Result<()> {
        // Before anything is allocated, so that an error has nothing to undo. Dry runs resolve the families
        // too.
        init_ip_family_fields(self, service, None)?;
        let mut pending = PendingAllocation::new(self, records, service, dry_run);
        let outcome = pending.all_of_new(service).await;
        pending.end(service, outcome).await
    }

    /// Resolves the IP families of a changed Service and allocates what it needs in addition.
    ///
    /// # Errors
    /// As [`begin_create`](Self::begin_create).
    pub(super) async fn begin_update(
        &self,
        new: &mut Value,
        old: &Value,
        records: Records<'_>,
        dry_run: bool,
    ) -> Result<()> {
        init_ip_family_fields(self, new, Some(old))?;
        let mut pending = PendingAllocation::new(self, records, new, dry_run);
        let outcome = pending.all_of_changed(new, old).await;
        pending.end(new, outcome).await
    }

    /// Releases, in memory, what `service` holds and `kept` does not.
    pub(super) fn release(&self, service: &Value, kept: Option<&Value>) {
        let who = owner(service);
        for ip in freed_addresses(service, kept) {
            self.release_ip(ip, &who);
        }
        let kept_ports = kept.map(held_ports).unwrap_or_default();
        for port in held_ports(service)
            .into_iter()
            // `held_ports` is sorted.
            .filter(|p| kept_ports.binary_search(p).is_err())
        {
            self.ports.release(port, &who);
        }
    }
}

/// Cluster IPs that `service` holds and `kept` does not.
pub(super) fn freed_addresses(service: &Value, kept: Option<&Value>) -> Vec<IpAddr> {
    let kept = kept.map_or_else(Vec::new, |k| strings(k.at(&["spec", "clusterIPs"])));
    let kept: Seen<&str> = kept.into_iter().collect();
    strings(service.at(&["spec", "clusterIPs"]))
        .into_iter()
        .filter(|ip| !kept.contains(ip))
        .filter_map(parse_ip)
        .collect()
}

/// Node ports that `service` holds and `kept` does not.
pub(super) fn freed_ports(service: &Value, kept: Option<&Value>) -> BTreeSet<u16> {
    let kept = kept.map(held_ports).unwrap_or_default();
    let freed = held_ports(service)
        .into_iter()
        .filter(|p| kept.binary_search(p).is_err());
    freed.filter_map(|p| u16::try_from(p).ok()).collect()
}

/// Node ports a Service holds, the health check's included: sorted, without duplicates.
pub(crate) fn held_ports(service: &Value) -> Vec<i64> {
    let mut out: Vec<i64> = Vec::new();
    if needs_node_port(service) {
        out.extend(service.at(&["spec", "ports"]).items().iter().map(node_port));
    }
    if needs_health_check(service) {
        out.push(health_port(service));
    }
    out.retain(|p| *p != 0);
    out.sort_unstable();
    out.dedup();
    out
}

impl<'a> PendingAllocation<'a> {
    fn new(allocators: &'a ServiceAllocators, records: Records<'a>, service: &Value, dry_run: bool) -> Self {
        Self {
            allocators,
            records,
            owner: owner(service),
            dry_run,
            ips: Vec::new(),
            ports: BTreeSet::new(),
        }
    }

    /// Keeps the allocations if `outcome` is `Ok`; otherwise releases them, IPAddress objects included.
    async fn end(mut self, service: &Value, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            // Only the store has to be awaited; `Drop` releases the numbers in memory when this returns.
            for ip in &self.ips {
                let addresses = self.records.addresses;
                addresses.release(*ip, service.namespace(), service.name()).await;
            }
            return outcome;
        }
        // Nothing is left for `Drop` to release.
        self.ips.clear();
        self.ports.clear();
        outcome
    }

    async fn all_of_new(&mut self, service: &mut Value) -> Result<()> {
        // Addresses first: ports are recorded in a single last write, after which nothing can fail any more.
        if needs_cluster_ip(service) {
            self.cluster_ips(service).await?;
        }
        if !needs_node_port(service) && !needs_health_check(service) {
            return Ok(());
        }
        let assign = |me: &mut Self, service: &mut Value| {
            if needs_node_port(service) {
                me.new_node_ports(service)?;
            }
            if needs_health_check(service) {
                me.health_port(service)?;
            }
            Ok(())
        };
        self.claim_ports(service, &assign).await
    }

    /// Releases the ports in memory.
    fn forget_ports(&mut self) {
        for port in std::mem::take(&mut self.ports) {
            self.allocators.ports.release(port, &self.owner);
        }
    }

    async fn all_of_changed(&mut self, new: &mut Value, old: &Value) -> Result<()> {
        if needs_cluster_ip(new) {
            let had = strings(old.at(&["spec", "clusterIPs"]));
            // From ExternalName, the only type without addresses.
            if !needs_cluster_ip(old) {
                self.cluster_ips(new).await?;
            // Upgrade to dual-stack: keep the first address, allocate the second.
            } else if had.len() == 1
                && had[0] != "None"
                && strings(new.at(&["spec", "ipFamilies"])).len() == 2
                && strings(new.at(&["spec", "clusterIPs"])).first() == had.first()
            {
                self.second_cluster_ip(new).await?;
            }
        }
        let needs_health = |new: &Value| needs_health_check(new) && !needs_health_check(old);
        if !needs_node_port(new) && !needs_health(new) {
            return Ok(());
        }
        let assign = |me: &mut Self, new: &mut Value| {
            if needs_node_port(new) {
                me.changed_node_ports(new, old)?;
            }
            if needs_health(new) {
                me.health_port(new)?;
            }
            Ok(())
        };
        self.claim_ports(new, &assign).await
    }
}

impl Drop for PendingAllocation<'_> {
    fn drop(&mut self) {
        // A dry run has allocated nothing; its ports are made up.
        if self.dry_run {
            return;
        }
        for ip in self.ips.drain(..) {
            self.allocators.release_ip(ip, &self.owner);
        }
        self.forget_ports();
    }
}
