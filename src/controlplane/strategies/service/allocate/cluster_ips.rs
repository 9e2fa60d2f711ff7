//! The cluster IPs of one write. An address is allocated in memory, then claimed by an IPAddress object.

use super::PendingAllocation;
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::parse_ip;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{IpError, IpFamily};
use crate::controlplane::fields::strings;
use crate::controlplane::strategies::service::families::invalid;
use std::net::IpAddr;

impl PendingAllocation<'_> {
    pub(super) async fn cluster_ips(&mut self, service: &mut Value) -> Result<()> {
        let requested: Vec<String> = strings(service.at(&["spec", "clusterIPs"]))
            .into_iter()
            .map(str::to_owned)
            .collect();
        // A headless Service has no address.
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

    pub(super) async fn second_cluster_ip(&mut self, service: &mut Value) -> Result<()> {
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
        // A second address that the client sent has been allocated above, and comes back as text.
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
                // A stand-in: nothing is reserved, so any real address could be wrong by the time of the
                // write.
                return Ok(range.network().to_string());
            }
            let ip = self.any_address(service, family).await?;
            return Ok(ip.to_string());
        };
        // Validation runs later and reports it.
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
        // Before the claim is awaited: if this future is dropped meanwhile, `Drop` has to release the
        // address.
        self.ips.push(ip);
        if !self.claim(service, ip).await? {
            self.forfeit(ip);
            return Err(refused(format!("failed to allocate IP {text}: {}", IpError::Taken)));
        }
        Ok(text.to_owned())
    }

    /// Allocates any free address. One whose IPAddress object already exists is marked as taken, so that
    /// every round has fewer candidates and the loop ends.
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
}
