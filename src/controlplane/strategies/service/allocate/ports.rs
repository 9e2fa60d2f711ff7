//! The node ports of one write, that of the health check included. They are assigned in memory and recorded
//! in the store, where all gateways see what is taken.

use super::PendingAllocation;
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::PortError;
use crate::controlplane::fields::{Seen, elements_mut};
use crate::controlplane::strategies::service::families::invalid;
use crate::controlplane::strategies::service::prepare::{health_port, needs_node_port, node_port};
use std::collections::HashMap;

fn allocates_node_ports(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => service.at(&["spec", "allocateLoadBalancerNodePorts"]).as_bool() != Some(false),
        _ => false,
    }
}

impl PendingAllocation<'_> {
    /// Claims the ports that `assign` takes, in the store: what other gateways hold is taken, and if one of
    /// them is faster, ports are assigned again.
    pub(super) async fn claim_ports(
        &mut self,
        service: &mut Value,
        assign: &(dyn Fn(&mut Self, &mut Value) -> Result<()> + Sync),
    ) -> Result<()> {
        let record = self.records.node_ports;
        // Held until the claim is written (see `NodePortRecord`).
        let _guard = record.lock().await;
        loop {
            let mut claim = record.read().await?;
            self.allocators.ports.adopt(&claim.ports);
            // A lost compare-and-swap assigns again, starting from the Service as it was sent.
            let mut assigned = service.clone();
            assign(self, &mut assigned)?;
            if !self.dry_run && !self.ports.is_empty() {
                claim
                    .ports
                    .extend(self.ports.iter().filter_map(|p| u16::try_from(*p).ok()));
                if !record.write(claim).await? {
                    // The winner may have claimed one of these ports: the next round reads its record.
                    self.forget_ports();
                    continue;
                }
            }
            *service = assigned;
            return Ok(());
        }
    }

    fn take_port(&mut self, port: i64) -> std::result::Result<(), PortError> {
        // A dry run allocates nothing, so it looks the port up instead. The first test finds ports of this
        // same write.
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
            let invented = self.invented_port();
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

    /// Keeps a port that the stored Service has.
    fn keep_port(&mut self, port: i64, old: &Value) {
        // An ExternalName may carry any number without holding it. Upstream does not tell, so that the number is never
        // refused later; here it is held if it is free.
        if !needs_node_port(old) {
            let _ = self.take_port(port);
        }
    }

    /// The number after those of this write. Upstream looks for a free one only below 100.
    fn invented_port(&self) -> i64 {
        // A dry run takes any number that the client asks for, also a negative one.
        let next = self.ports.last().map_or(32768, |last| (*last).max(0)) + 1;
        let free = |port: &i64| !self.allocators.ports.is_allocated(*port);
        (next..100).find(free).unwrap_or(next)
    }

    fn node_port_refused(service: &Value, i: usize, port: i64, why: &PortError) -> Status {
        let at = FieldPath::new("spec").child("ports").index(i).child("nodePort");
        invalid(service, &[FieldError::invalid(&at, port, why.to_string())])
    }

    /// Allocates node ports of a new Service. Entries with the same `port` number (say TCP and UDP) share a
    /// node port.
    pub(super) fn new_node_ports(&mut self, service: &mut Value) -> Result<()> {
        // As upstream's `initNodePorts`.
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
                // A second explicit node port for one port number is a port of its own.
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

    pub(super) fn changed_node_ports(&mut self, new: &mut Value, old: &Value) -> Result<()> {
        let allocates = allocates_node_ports(new);
        let had: Seen<i64> = old.at(&["spec", "ports"]).items().iter().map(node_port).collect();
        let mut given: Vec<i64> = new.at(&["spec", "ports"]).items().iter().map(node_port).collect();
        for (i, np) in given.iter_mut().enumerate() {
            match *np {
                0 if allocates => *np = self.take_any_port()?,
                0 => {}
                // Taken by an earlier entry: whether sharing is allowed is decided below.
                n if self.ports.contains(&n) => {}
                n if had.contains(&n) => self.keep_port(n, old),
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
                // A plain error upstream, and therefore a 500.
                return Err(Status::raw_error(format!(
                    "duplicate nodePort: {{{} {}}}",
                    pair.0, pair.1
                )));
            }
        }
        write_ports(new, &given);
        Ok(())
    }

    pub(super) fn health_port(&mut self, service: &mut Value) -> Result<()> {
        let port = match health_port(service) {
            // Upstream prints the port that it could not allocate, 0.
            0 => self
                .take_any_port()
                .map_err(|_| Status::internal("failed to allocate a HealthCheck NodePort 0: range is full"))?,
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

fn write_ports(service: &mut Value, given: &[i64]) {
    let ports = elements_mut(service, &["spec", "ports"]);
    for (port, np) in ports.zip(given).filter(|(_, np)| **np != 0) {
        port.set(&["nodePort"], *np);
    }
}
