//! Allocation of cluster IPs and node ports for one write, all or nothing.
//!
//! Entry points: [`ServiceAllocators::begin_create`] and [`ServiceAllocators::begin_update`]. A [`PendingAllocation`]
//! tracks what the write has allocated and releases it on failure ([`PendingAllocation::end`]) or drop. What an update
//! frees is released only once the write is durable (`updated`): until then the write may fail, and the Service would
//! still need it. A cluster IP belongs to a Service once its IPAddress object exists; the allocator in memory is only a
//! hint.

use super::addresses::AddressRegistry;
use super::families::{init_ip_family_fields, invalid};
use super::node_ports::NodePortRecord;
use super::prepare::{health_port, needs_cluster_ip, needs_health_check, needs_node_port, node_port};
use super::{ServiceAllocators, owner};
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{IpError, IpFamily, PortError};
use crate::controlplane::fields::{Seen, strings};
use std::collections::{BTreeSet, HashMap};
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
/// Dropping it releases the numbers in memory. It cannot await, so IPAddress objects that were already created stay.
struct PendingAllocation<'a> {
    allocators: &'a ServiceAllocators,
    records: Records<'a>,
    owner: String,
    dry_run: bool,
    ips: Vec<IpAddr>,
    ports: BTreeSet<i64>,
}

impl ServiceAllocators {
    /// Marks what a stored Service holds as allocated. Returns a message for each number that is outside the ranges or
    /// held by another Service.
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

fn allocates_node_ports(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => service.at(&["spec", "allocateLoadBalancerNodePorts"]).as_bool() != Some(false),
        _ => false,
    }
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

    /// Claims the ports that `assign` takes, in the store: what other gateways hold is taken, and if one of them is faster,
    /// ports are assigned anew.
    async fn claim_ports(
        &mut self,
        service: &mut Value,
        assign: &(dyn Fn(&mut Self, &mut Value) -> Result<()> + Sync),
    ) -> Result<()> {
        let record = self.records.node_ports;
        let _turn = record.turn().await;
        loop {
            let mut claim = record.read().await?;
            self.allocators.ports.adopt(&claim.ports);
            let mut assigned = service.clone();
            assign(self, &mut assigned)?;
            if !self.dry_run && !self.ports.is_empty() {
                claim
                    .ports
                    .extend(self.ports.iter().filter_map(|p| u16::try_from(*p).ok()));
                if !record.write(claim).await? {
                    self.forget_ports();
                    continue;
                }
            }
            *service = assigned;
            return Ok(());
        }
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

    async fn cluster_ips(&mut self, service: &mut Value) -> Result<()> {
        let requested: Vec<String> = strings(service.at(&["spec", "clusterIPs"]))
            .into_iter()
            .map(str::to_owned)
            .collect();
        if requested.first().is_some_and(|ip| ip == "None") {
            return Ok(());
        }
        let families = strings(service.at(&["spec", "ipFamilies"]))
            .into_iter()
            .filter_map(IpFamily::parse)
            .collect::<Vec<_>>();
        let mut all = Vec::new();
        for (i, family) in families.into_iter().enumerate() {
            all.push(
                self.cluster_ip(service, family, requested.get(i).map(String::as_str))
                    .await?,
            );
        }
        service.set(&["spec", "clusterIP"], all.first().map(String::as_str));
        service.set(&["spec", "clusterIPs"], all);
        Ok(())
    }

    async fn second_cluster_ip(&mut self, service: &mut Value) -> Result<()> {
        let mut all: Vec<String> = strings(service.at(&["spec", "clusterIPs"]))
            .into_iter()
            .map(str::to_owned)
            .collect();
        let Some(family) = strings(service.at(&["spec", "ipFamilies"]))
            .get(1)
            .and_then(|f| IpFamily::parse(f))
        else {
            return Ok(());
        };
        let second = self.cluster_ip(service, family, all.get(1).map(String::as_str)).await?;
        all.truncate(1);
        all.push(second);
        service.set(&["spec", "clusterIPs"], all);
        Ok(())
    }

    async fn cluster_ip(&mut self, service: &Value, family: IpFamily, requested: Option<&str>) -> Result<String> {
        let refused = |why: String| {
            let shown = service.at(&["spec", "clusterIPs"]).clone();
            let at = FieldPath::new("spec").child("clusterIPs");
            invalid(service, &[FieldError::invalid(&at, shown, why)])
        };
        let Some(range) = self.allocators.range_for(family) else {
            return Err(refused(format!(
                "failed to allocate IP {}: {}",
                requested.unwrap_or(""),
                IpError::NotInRange
            )));
        };
        let Some(text) = requested else {
            if self.dry_run {
                // A stand-in: nothing is reserved, so any real address could be wrong by the time of the write.
                return Ok(range.network().to_string());
            }
            let ip = self.any_address(service, family).await?;
            return Ok(ip.to_string());
        };
        let Some(ip) = parse_ip(text) else {
            return Ok(text.to_owned());
        };
        if self.dry_run {
            if !self.allocators.contains(ip) {
                return Err(refused(format!(
                    "failed to allocate IP {text}: the provided IP ({text}) is not in the valid range. The range of valid IPs is {range}"
                )));
            }
            return Ok(text.to_owned());
        }
        let taken = self.allocators.allocate_ip(ip, &self.owner);
        taken.map_err(|e| refused(format!("failed to allocate IP {text}: {e}")))?;
        self.ips.push(ip);
        if !self.claim(service, ip).await? {
            self.forfeit(ip);
            return Err(refused(format!("failed to allocate IP {text}: {}", IpError::Taken)));
        }
        Ok(text.to_owned())
    }

    /// Allocates any free address. One whose IPAddress object already exists is marked as taken, so that every round
    /// has fewer candidates and the loop ends.
    async fn any_address(&mut self, service: &Value, family: IpFamily) -> Result<IpAddr> {
        loop {
            let ip = self.allocators.allocate_next_ip(family, &self.owner).map_err(|e| {
                Status::internal(format!(
                    "failed to allocate a serviceIP for Service {:?}: {e}",
                    service.name()
                ))
            })?;
            self.ips.push(ip);
            if self.claim(service, ip).await? {
                return Ok(ip);
            }
            self.forfeit(ip);
        }
    }

    async fn claim(&self, service: &Value, ip: IpAddr) -> Result<bool> {
        let addresses = self.records.addresses;
        addresses.claim(ip, service.namespace(), service.name()).await
    }

    /// Handles an address whose IPAddress object belongs to another owner: `Drop` must not release it.
    fn forfeit(&mut self, ip: IpAddr) {
        self.ips.retain(|i| *i != ip);
        self.allocators.reassign(ip, &self.owner);
    }

    fn take_port(&mut self, port: i64) -> std::result::Result<(), PortError> {
        if self.ports.contains(&port) || self.dry_run && self.allocators.ports.is_allocated(port) {
            return Err(PortError::Taken);
        }
        if !self.dry_run {
            self.allocators.ports.allocate(port, &self.owner)?;
        }
        self.ports.insert(port);
        Ok(())
    }

    fn take_any_port(&mut self) -> Result<i64> {
        if self.dry_run {
            // A dry run reserves nothing and makes up a port, as upstream's `portallocator/operation.go`.
            let invented = self.ports.last().copied().unwrap_or(32768) + 1;
            self.ports.insert(invented);
            return Ok(invented);
        }
        let port = self
            .allocators
            .ports
            .allocate_next(&self.owner)
            .map_err(|e| Status::internal(format!("failed to allocate a nodePort: {e}")))?;
        self.ports.insert(port);
        Ok(port)
    }

    fn node_port_refused(service: &Value, i: usize, port: i64, why: &PortError) -> Status {
        let at = FieldPath::new("spec").child("ports").index(i).child("nodePort");
        invalid(service, &[FieldError::invalid(&at, port, why.to_string())])
    }

    /// Allocates node ports of a new Service. Entries with the same `port` number (say TCP and UDP) share a node port.
    fn new_node_ports(&mut self, service: &mut Value) -> Result<()> {
        let allocates = allocates_node_ports(service);
        let ports = service.at(&["spec", "ports"]).items().to_vec();
        let number = |p: &Value| p.get("port").as_i64().unwrap_or(0);
        let mut shared: HashMap<i64, i64> = HashMap::new();
        // The first explicit node port of each port number.
        let mut wanted: HashMap<i64, i64> = HashMap::new();
        for port in ports.iter().filter(|p| node_port(p) != 0) {
            wanted.entry(number(port)).or_insert(node_port(port));
        }
        let mut given: Vec<i64> = ports.iter().map(node_port).collect();
        for (i, port) in ports.iter().enumerate() {
            let asked = node_port(port);
            if asked == 0 && !allocates {
                continue;
            }
            match shared.get(&number(port)).copied() {
                Some(np) if asked == 0 || asked == np => given[i] = np,
                Some(_) => self
                    .take_port(asked)
                    .map_err(|why| Self::node_port_refused(service, i, asked, &why))?,
                None => {
                    let np = match wanted.get(&number(port)) {
                        Some(&np) => {
                            self.take_port(np)
                                .map_err(|why| Self::node_port_refused(service, i, np, &why))?;
                            np
                        }
                        None => self.take_any_port()?,
                    };
                    given[i] = np;
                    shared.insert(number(port), np);
                }
            }
        }
        write_ports(service, &given);
        Ok(())
    }

    fn changed_node_ports(&mut self, new: &mut Value, old: &Value) -> Result<()> {
        let allocates = allocates_node_ports(new);
        let had = held_ports(old);
        let mut given: Vec<i64> = new.at(&["spec", "ports"]).items().iter().map(node_port).collect();
        for (i, np) in given.iter_mut().enumerate() {
            match *np {
                0 if allocates => *np = self.take_any_port()?,
                0 => {}
                n if had.binary_search(&n).is_ok() || self.ports.contains(&n) => {}
                n => self
                    .take_port(n)
                    .map_err(|why| Self::node_port_refused(new, i, n, &why))?,
            }
        }
        let ports = new.at(&["spec", "ports"]).items().iter();
        let known: Vec<(&str, i64)> = ports
            .map(|p| p.str_at(&["protocol"]))
            .zip(given.iter().copied())
            .collect();
        // Two entries may share a node port only with different protocols.
        let mut seen = Seen::new();
        for pair in known.iter().filter(|(_, np)| *np != 0) {
            if !seen.insert(*pair) {
                return Err(Status::raw_error(format!(
                    "duplicate nodePort: {{{} {}}}",
                    pair.0, pair.1
                )));
            }
        }
        write_ports(new, &given);
        Ok(())
    }

    fn health_port(&mut self, service: &mut Value) -> Result<()> {
        let port = match health_port(service) {
            0 => self
                .take_any_port()
                .map_err(|_| Status::internal("failed to allocate a HealthCheck NodePort: range is full"))?,
            n => {
                self.take_port(n).map_err(|why| {
                    Status::internal(format!("failed to allocate requested HealthCheck NodePort {n}: {why}"))
                })?;
                n
            }
        };
        service.set(&["spec", "healthCheckNodePort"], port);
        Ok(())
    }
}

impl Drop for PendingAllocation<'_> {
    fn drop(&mut self) {
        if self.dry_run {
            return;
        }
        for ip in self.ips.drain(..) {
            self.allocators.release_ip(ip, &self.owner);
        }
        self.forget_ports();
    }
}

fn write_ports(service: &mut Value, given: &[i64]) {
    let ports = crate::controlplane::fields::elements_mut(service, &["spec", "ports"]);
    for (port, np) in ports.zip(given).filter(|(_, np)| **np != 0) {
        port.set(&["nodePort"], *np);
    }
}
