//! The built-in API groups: the resource tables, the behaviour of each kind, and the objects every cluster
//! starts with.
//!
//! Start at [`build()`], which creates the stores of all built-in resources. [`ControlPlane::load_allocations`]
//! must run once before the first write: it loads the allocated cluster IPs and node ports. [`bootstrap`]
//! creates the default objects. HTTP handling belongs to `endpoints`, the generic create/update/delete path
//! to `registry`.

mod aggregate;
pub(crate) mod allocators;
pub(crate) mod bootstrap;
mod build;
mod columns;
mod components;
mod defaults;
mod fields;
mod groups;
mod metadata;
mod quality_of_service;
pub(crate) mod resource_builder;
pub(crate) mod reviews;
pub(crate) mod schema;
pub(crate) mod stored_versions;
mod strategies;
mod subresources;
mod validation;
mod versions;

pub(crate) use build::build;
pub(crate) use components::Probe;
pub(crate) use strategies::service::ServiceAllocators;
pub(crate) use subresources::connect::connector::KubeletConfig;
pub(crate) use subresources::token::TokenRequests;

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::gvk::{GroupResource, GroupVersion};
use crate::apimachinery::status::Result;
use crate::proxy::tls;
use crate::registry::StoreLookup;
use crate::registry::resource::Resource;
use crate::registry::store::Store;
use crate::registry::strategy::RestStrategy;
use reviews::ReviewDependencies;
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use strategies::service::allocate::held_ports;
use strategies::service::node_ports::{NodePortRecord, Repair};

/// Configuration of the control plane.
pub(crate) struct Config {
    /// `--service-cluster-ip-range`: one range, or two of different families; the first is the default.
    pub service_ranges: Vec<(IpAddr, u8)>,
    /// `--service-node-port-range`, inclusive.
    pub node_ports: (u16, u16),
    /// `--event-ttl` in seconds.
    pub event_ttl_seconds: u64,
    /// Authenticators and authorizers that evaluate review resources.
    pub review_dependencies: ReviewDependencies,
    /// Components listed as `componentstatuses`.
    pub components: Vec<Arc<dyn Probe>>,
    /// How to connect to kubelets.
    pub kubelets: KubeletConfig,
    /// How to issue service account tokens; `None` disables `serviceaccounts/token`.
    pub tokens: Option<TokenRequests>,
    /// The strategy of CustomResourceDefinitions.
    pub definitions: Arc<dyn RestStrategy>,
}

/// Why a control plane cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum BuildError {
    /// No service range, more than two, two of one family, or one without a usable address.
    #[error(
        "--service-cluster-ip-range: service ranges must be one range, or two of different IP families, with usable \
         addresses"
    )]
    ServiceRange,
    /// A group version, or a resource or kind within one, is registered twice.
    #[error("double registration of {0}")]
    Duplicate(String),
    /// The CA bundle of the kubelets cannot be used.
    #[error("--kubelet-certificate-authority: {0}")]
    KubeletAuthority(tls::Error),
}

/// A resource definition and its store.
pub(crate) type Served = (Arc<Resource>, Arc<Store>);

/// One group version and its resources.
#[derive(Clone)]
pub(crate) struct Group {
    pub gv: GroupVersion,
    /// The resources it serves.
    pub resources: Vec<Served>,
}

/// The stores of all built-in groups.
pub(crate) struct ControlPlane {
    /// Groups to serve under `/api` and `/apis`.
    pub groups: Vec<Group>,
    /// apiregistration.k8s.io/v1; kept apart because the aggregator serves it.
    pub apiregistration: Group,
    allocators: Arc<ServiceAllocators>,
    node_ports: Arc<NodePortRecord>,
    stores: StoreLookup,
}

/// The first duplicate registration: of a group version, or of a resource or kind within one.
fn first_duplicate<'a>(groups: impl Iterator<Item = &'a Group>) -> Option<String> {
    let mut seen = HashSet::new();
    for group in groups {
        let gv = group.gv.to_string();
        let rows = group.resources.iter().map(|(row, _)| row);
        let names = rows.flat_map(|row| {
            [
                format!("{gv}, Resource={}", row.gvr.resource),
                format!("{gv}, Kind={}", row.kind),
            ]
        });
        for name in std::iter::once(gv.clone()).chain(names) {
            if !seen.insert(name.clone()) {
                return Some(name);
            }
        }
    }
    None
}

impl ControlPlane {
    fn served(&self, group: &str, plural: &str) -> &Served {
        self.find(&GroupResource::new(group, plural))
            .unwrap_or_else(|| unreachable!("asked for a row that is not in the table: {plural}.{group}"))
    }

    /// Adds a group version that is not built in. Must be called before serving.
    ///
    /// # Errors
    /// [`BuildError::Duplicate`] if the group version exists, or one of its resources exists in another
    /// version, as there would be no conversion between the two.
    pub(crate) fn add(&mut self, group: Group) -> std::result::Result<(), BuildError> {
        for (row, _) in &group.resources {
            if self.find(&row.group_resource()).is_some() {
                return Err(BuildError::Duplicate(row.group_resource().to_string()));
            }
        }
        // The whole table is checked below, because the group itself may be a duplicate.
        self.groups.push(group);
        if let Some(what) = first_duplicate(self.groups.iter().chain([&self.apiregistration])) {
            return Err(BuildError::Duplicate(what));
        }
        let added = self.groups.last().into_iter().flat_map(|g| &g.resources);
        self.stores.add(added.map(|(_, store)| store));
        Ok(())
    }

    /// Looks up the definition and store of a resource in any version.
    pub(crate) fn find(&self, gr: &GroupResource) -> Option<&Served> {
        self.groups
            .iter()
            .chain([&self.apiregistration])
            .filter(|g| g.gv.group == gr.group)
            .flat_map(|g| &g.resources)
            .find(|(r, _)| r.gvr.resource == gr.resource)
    }

    /// The store of a built-in resource.
    ///
    /// # Panics
    /// If the resource is not built in: callers name resources statically. Use [`find`](Self::find) for a
    /// lookup.
    pub(crate) fn store(&self, group: &str, plural: &str) -> &Arc<Store> {
        &self.served(group, plural).1
    }

    /// The cluster IP of `default/kubernetes`: the first address of the default range.
    pub(crate) fn service_address(&self) -> IpAddr {
        // Never empty: `service_allocators` accepts one or two ranges.
        self.allocators.ranges[0].first()
    }

    /// Loads the stored Services and marks their cluster IPs and node ports as allocated. Must complete once
    /// before the first write, or an address could be allocated twice.
    ///
    /// # Errors
    /// The list of Services failed.
    pub(crate) async fn load_allocations(&self) -> Result<()> {
        for entry in self.store("", "services").list_entries("").await? {
            // Only reported: the conflict can be resolved only through this API, so it must not keep the
            // server from starting.
            for odd in self.allocators.mark_stored_allocations(&entry.decode()) {
                tracing::warn!(service = %entry.key, problem = odd, "a stored service has an invalid allocation");
            }
        }
        // A fresh `Repair` frees nothing on its first pass; this one only adds ports that the record lacks.
        self.repair_node_ports(&mut Repair::default()).await
    }

    /// Makes the record of node ports agree with the stored Services. Called at start and every three
    /// minutes.
    ///
    /// # Errors
    /// The store's.
    async fn repair_node_ports(&self, repair: &mut Repair) -> Result<()> {
        self.node_ports.repair(repair, || self.held_node_ports()).await
    }

    /// The node ports of all stored Services.
    async fn held_node_ports(&self) -> Result<BTreeSet<u16>> {
        let mut ports = BTreeSet::new();
        for entry in self.store("", "services").list_entries("").await? {
            // Node ports are all in the spec; the rest of each Service is not decoded.
            let held = held_ports(&entry.decode_parts(&Mask::of(&["spec"])));
            ports.extend(held.into_iter().filter_map(|p| u16::try_from(p).ok()));
        }
        Ok(ports)
    }
}

#[cfg(test)]
mod tests;
