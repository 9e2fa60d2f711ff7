//! The core API server's own groups: their rows, what their kinds do, and the objects that must be there.
//!
//! Entry points: [`build`] makes the stores, [`ControlPlane::adopt`] reads what is taken before the first write,
//! [`bootstrap`] makes what a cluster starts with.

pub mod allocators;
pub mod bootstrap;
mod columns;
mod components;
mod defaults;
mod fields;
mod groups;
mod metadata;
pub mod reviews;
pub mod schema;
pub mod stored;
mod strategies;
mod subresources;
pub mod table;
mod validation;
mod versions;

pub use components::Probe;
pub use strategies::apiservice::{set_condition, set_local_condition};
pub use strategies::namespace;
pub use strategies::service::ServiceNumbers;
pub use subresources::connect::links::KubeletConfig;
pub use subresources::token::TokenRequests;

use crate::admission::Admission;
use crate::apimachinery::gvk::{GroupResource, GroupVersion, GroupVersionResource};
use crate::apimachinery::status::Result;
use crate::registry::converting::Converting;
use crate::registry::resource::{Backing, Connect, ExtractFields, Resource, SubresourceHandler};
use crate::registry::store::Store;
use crate::storage::Storage;
use allocators::{IpRange, PortRange};
use reviews::Judges;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use strategies::service::addresses::Stored;
use strategies::service::{EndpointsCleanup, Service};
use subresources::LateStore;
use subresources::connect::kubelet::Kubelets;
use subresources::connect::links::Links;
use subresources::connect::log::Log;
use subresources::connect::proxy::{self, Proxy, ProxyHandler};
use subresources::connect::stream::{self, Stream};

/// What the control plane needs to know.
pub struct Config {
    /// `--service-cluster-ip-range`: one range, or two of different families; the first is the default.
    pub service_ranges: Vec<(IpAddr, u8)>,
    /// `--service-node-port-range`, both ends included.
    pub node_ports: (u16, u16),
    /// `--event-ttl` in seconds.
    pub event_ttl_seconds: u64,
    /// Who answers reviews.
    pub judges: Judges,
    /// Whose statuses are told.
    pub components: Vec<Arc<dyn Probe>>,
    /// How nodes are reached.
    pub kubelets: KubeletConfig,
    /// How tokens of service accounts are made; `None`: nobody asks for any.
    pub tokens: Option<TokenRequests>,
}

/// Why a control plane cannot be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildError {
    /// No service range, more than two, two of one family, or one without a usable address.
    ServiceRange,
    /// A group version, a resource of one, or a kind of one is registered twice.
    Twice(String),
    /// The certificate authority of kubelets cannot be used.
    KubeletAuthority(String),
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Twice(what) => write!(f, "double registration of {what}"),
            Self::ServiceRange => f.write_str(
                "--service-cluster-ip-range: service ranges must be one range, or two of different IP families, with \
                 usable addresses",
            ),
            Self::KubeletAuthority(why) => write!(f, "--kubelet-certificate-authority: {why}"),
        }
    }
}

impl std::error::Error for BuildError {}

/// A row with its store.
pub type Served = (Arc<Resource>, Arc<Store>);

/// One group version and what it serves.
#[derive(Clone)]
pub struct Group {
    /// The group version.
    pub gv: GroupVersion,
    /// Its rows with their stores.
    pub resources: Vec<Served>,
}

/// The stores of all built-in groups.
pub struct ControlPlane {
    /// Groups to serve under `/api` and `/apis`.
    pub groups: Vec<Group>,
    /// apiregistration.k8s.io/v1, which the aggregator serves.
    pub apiregistration: Group,
    numbers: Arc<ServiceNumbers>,
}

/// Makes every row and its store. `storage` makes the storage of a row's prefix; `admission` sees every write.
///
/// # Errors
/// [`BuildError`]
pub fn build(
    config: Config,
    storage: &dyn Fn(&Resource) -> Arc<dyn Storage>,
    admission: &Arc<dyn Admission>,
) -> std::result::Result<ControlPlane, BuildError> {
    let numbers = Arc::new(service_numbers(&config)?);
    let (finalize, binding, endpoints) = (LateStore::default(), LateStore::default(), LateStore::default());
    let (approval, namespaces) = (LateStore::default(), LateStore::default());
    let addresses = Stored::default();
    let (evicted, budgets) = (LateStore::default(), LateStore::default());
    let near = Near::default();
    let links = Links::new(config.kubelets).map_err(BuildError::KubeletAuthority)?;
    let scales: [(&str, &str, LateStore); 4] = [
        ("", "replicationcontrollers", LateStore::default()),
        ("apps", "deployments", LateStore::default()),
        ("apps", "replicasets", LateStore::default()),
        ("apps", "statefulsets", LateStore::default()),
    ];
    let scale = |i: usize| -> Arc<dyn SubresourceHandler> { Arc::new(subresources::scale::Scale(scales[i].2.clone())) };
    let cleanup: Arc<OnceLock<Arc<dyn EndpointsCleanup>>> = Arc::default();
    let token_reads = subresources::token::Read::default();
    let token = |how: &TokenRequests| -> Arc<dyn SubresourceHandler> {
        let (how, read) = (how.clone(), token_reads.clone());
        Arc::new(subresources::token::Token { how, read })
    };
    let parts = groups::core::Parts {
        service: Arc::new(Service::new(
            numbers.clone(),
            Arc::new(addresses.clone()),
            cleanup.clone(),
        )),
        token: config.tokens.as_ref().map(token),
        finalize: Arc::new(subresources::finalize::Finalize(finalize.clone())),
        binding: Arc::new(subresources::binding::Binding(binding.clone())),
        bindings: Arc::new(subresources::binding::Binding(binding.clone())),
        eviction: Arc::new(subresources::eviction::Eviction {
            pods: evicted.clone(),
            budgets: budgets.clone(),
        }),
        connections: near.connections(links),
        scale: scale(0),
        event_ttl_seconds: config.event_ttl_seconds,
        components: Arc::new(components::Components::new(config.components.clone())),
    };
    let guard = strategies::rbac::Guard {
        authorizer: config.judges.authorizer.clone(),
        roles: config.judges.roles.clone(),
    };
    // Storages of rows so far, with what selects in them: other versions of a kind are served over those.
    let mut hubs: HashMap<GroupVersionResource, (Arc<dyn Storage>, Option<ExtractFields>)> = HashMap::new();
    let mut serve = |rows: Vec<Resource>| Group {
        gv: rows.first().map(|r| r.gvk().group_version()).unwrap_or_default(),
        resources: rows
            .into_iter()
            .map(|row| {
                let row = Arc::new(row);
                let storage: Arc<dyn Storage> = match &row.backing {
                    Backing::Stored { .. } => {
                        let stored = storage(&row);
                        let fields = row.selectable.as_ref().map(|s| s.extract.clone());
                        hubs.insert(row.gvr.clone(), (stored.clone(), fields));
                        stored
                    }
                    Backing::Converted { hub, conversion, .. } => {
                        let (stored, fields) = hubs
                            .get(hub)
                            .cloned()
                            .unwrap_or_else(|| unreachable!("the stored version is built before others: {hub:?}"));
                        Arc::new(Converting::new(stored, conversion.clone(), fields))
                    }
                    Backing::Computed(computed) => computed.clone(),
                    Backing::Answered(_) => Arc::new(reviews::Nothing),
                };
                (row.clone(), Arc::new(Store::new(row, storage, admission.clone())))
            })
            .collect(),
    };
    let autoscaling = groups::autoscaling::v2();
    let older_autoscaling = groups::autoscaling::v1(&autoscaling);
    let groups = vec![
        serve(groups::core::rows(parts)),
        serve(groups::access::authentication(&config.judges)),
        serve(groups::access::authorization(&config.judges)),
        serve(groups::rbac::rows(&guard)),
        serve(groups::apiextensions::rows()),
        serve(groups::admissionregistration::rows()),
        serve(groups::coordination::rows()),
        serve(groups::discovery::rows()),
        serve(groups::events::rows(config.event_ttl_seconds)),
        serve(groups::flowcontrol::rows()),
        serve(groups::scheduling::rows()),
        serve(groups::apps::rows(groups::apps::Parts {
            deployments: scale(1),
            replica_sets: scale(2),
            stateful_sets: scale(3),
        })),
        serve(autoscaling),
        serve(older_autoscaling),
        serve(groups::batch::rows()),
        serve(groups::certificates::rows(Arc::new(
            subresources::approval::ApprovalHandler(approval.clone()),
        ))),
        serve(groups::networking::rows()),
        serve(groups::node::rows()),
        serve(groups::policy::rows()),
        serve(groups::resource::rows(&namespaces, &config.judges.authorizer)),
        serve(groups::storage::rows()),
    ];
    let plane = ControlPlane {
        groups,
        apiregistration: serve(groups::apiregistration::rows()),
        numbers,
    };
    if let Some(what) = twice(plane.groups.iter().chain([&plane.apiregistration])) {
        return Err(BuildError::Twice(what));
    }
    let beside = |group: &str, plural: &str, strategy: Arc<dyn crate::registry::Strategy>| {
        let (row, store) = plane.served(group, plural);
        let mut row = (**row).clone();
        row.strategy = strategy;
        row.subresources.clear();
        Arc::new(Store::new(Arc::new(row), store.storage().clone(), admission.clone()))
    };
    finalize.fill(beside(
        "",
        "namespaces",
        Arc::new(subresources::finalize::FinalizeStrategy),
    ));
    let bindings = beside("", "pods", Arc::new(subresources::binding::BindingStrategy));
    binding.fill(Arc::new(bindings.past_admission()));
    let approving: Arc<dyn crate::registry::Strategy> = Arc::new(strategies::csr::Approval);
    approval.fill(beside("certificates.k8s.io", "certificatesigningrequests", approving));
    near.fill(&plane);
    let pods = plane.store("", "pods");
    evicted.fill(Arc::new(pods.past_admission()));
    budgets.fill(plane.store("policy", "poddisruptionbudgets").clone());
    for (group, plural, late) in &scales {
        late.fill(Arc::new(plane.store(group, plural).past_admission()));
    }
    addresses
        .0
        .fill(plane.store("networking.k8s.io", "ipaddresses").clone());
    token_reads.accounts.fill(plane.store("", "serviceaccounts").clone());
    token_reads.pods.fill(plane.store("", "pods").clone());
    token_reads.secrets.fill(plane.store("", "secrets").clone());
    token_reads.nodes.fill(plane.store("", "nodes").clone());
    namespaces.fill(plane.store("", "namespaces").clone());
    endpoints.fill(Arc::new(plane.store("", "endpoints").past_admission()));
    // Nobody else holds this cell yet.
    let _ = cleanup.set(Arc::new(subresources::cleanup::DeleteEndpoints(endpoints)));
    Ok(plane)
}

/// The first thing that is registered twice: a group version, or in one a resource or a kind.
fn twice<'a>(groups: impl Iterator<Item = &'a Group>) -> Option<String> {
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

/// The stores that connections look into.
#[derive(Default)]
struct Near {
    pods: LateStore,
    nodes: LateStore,
    services: LateStore,
    endpoints: LateStore,
}

impl Near {
    fn connections(&self, links: Links) -> groups::core::Connections {
        let kubelets = Kubelets {
            nodes: self.nodes.clone(),
            links: Arc::new(links),
        };
        let stream = |kind| -> Arc<dyn Connect> {
            Arc::new(Stream {
                kind,
                pods: self.pods.clone(),
                kubelets: kubelets.clone(),
            })
        };
        let proxy = |to| -> Arc<dyn Connect> {
            Arc::new(ProxyHandler {
                to,
                kubelets: kubelets.clone(),
            })
        };
        groups::core::Connections {
            log: Arc::new(Log {
                pods: self.pods.clone(),
                kubelets: kubelets.clone(),
            }),
            exec: stream(stream::Kind::Exec),
            attach: stream(stream::Kind::Attach),
            portforward: stream(stream::Kind::PortForward),
            pods_proxy: proxy(Proxy::Pods(self.pods.clone())),
            services_proxy: proxy(Proxy::Services(proxy::Services {
                services: self.services.clone(),
                endpoints: self.endpoints.clone(),
                pods: self.pods.clone(),
                turn: AtomicUsize::default(),
            })),
            nodes_proxy: proxy(Proxy::Nodes),
        }
    }

    fn fill(&self, plane: &ControlPlane) {
        for (late, plural) in [
            (&self.pods, "pods"),
            (&self.nodes, "nodes"),
            (&self.services, "services"),
            (&self.endpoints, "endpoints"),
        ] {
            late.fill(plane.store("", plural).clone());
        }
    }
}

fn service_numbers(config: &Config) -> std::result::Result<ServiceNumbers, BuildError> {
    let ranges: Vec<IpRange> = config
        .service_ranges
        .iter()
        .filter_map(|(ip, bits)| IpRange::new(*ip, *bits))
        .collect();
    let fine = match ranges.as_slice() {
        [_] => true,
        [a, b] => a.family() != b.family(),
        _ => false,
    };
    if !fine || ranges.len() != config.service_ranges.len() {
        return Err(BuildError::ServiceRange);
    }
    Ok(ServiceNumbers {
        ranges,
        followed: Default::default(),
        ports: PortRange::new(config.node_ports.0, config.node_ports.1),
    })
}

impl ControlPlane {
    fn served(&self, group: &str, plural: &str) -> &Served {
        self.find(&GroupResource::new(group, plural))
            .unwrap_or_else(|| unreachable!("asked for a row that is not in the table: {plural}.{group}"))
    }

    /// Adds a group version that is not built in, before anything is served.
    ///
    /// # Errors
    /// [`BuildError`]: it is there, or one of its resources is in another version, between which nobody could convert.
    pub fn add(&mut self, group: Group) -> std::result::Result<(), BuildError> {
        for (row, _) in &group.resources {
            if self.find(&row.group_resource()).is_some() {
                return Err(BuildError::Twice(row.group_resource().to_string()));
            }
        }
        self.groups.push(group);
        match twice(self.groups.iter().chain([&self.apiregistration])) {
            Some(what) => Err(BuildError::Twice(what)),
            None => Ok(()),
        }
    }

    /// The row and store of a resource.
    pub fn find(&self, gr: &GroupResource) -> Option<&Served> {
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
    /// Where the table has no such row: callers name rows, they do not look for them ([`find`](Self::find) does).
    pub fn store(&self, group: &str, plural: &str) -> &Arc<Store> {
        &self.served(group, plural).1
    }

    /// Every storage by group and plural, for admission plugins.
    pub fn storages(&self) -> HashMap<(String, String), Arc<dyn Storage>> {
        let groups = self.groups.iter().chain([&self.apiregistration]);
        groups
            .flat_map(|g| &g.resources)
            .filter(|(row, _)| matches!(row.backing, Backing::Stored { .. }))
            .map(|(row, store)| {
                (
                    (row.gvr.group.to_string(), row.gvr.resource.to_string()),
                    store.storage().clone(),
                )
            })
            .collect()
    }

    /// Plural, and whether it lives in namespaces, of every kind by group and kind, for admission plugins.
    pub fn kinds(&self) -> HashMap<(String, String), (String, bool)> {
        let groups = self.groups.iter().chain([&self.apiregistration]);
        let rows = groups.flat_map(|g| &g.resources).map(|(row, _)| row);
        rows.map(|row| {
            let key = (row.gvr.group.to_string(), row.kind.to_string());
            (key, (row.gvr.resource.to_string(), row.namespaced))
        })
        .collect()
    }

    /// The address the server's own Service has: the first of the default range.
    pub fn service_address(&self) -> IpAddr {
        self.numbers.ranges[0].first()
    }

    /// Reads the stored Services and notes which cluster IPs and node ports are taken. To be done once, before the first
    /// write.
    ///
    /// # Errors
    /// Storage's refusals.
    pub async fn adopt(&self) -> Result<()> {
        for entry in self.store("", "services").list_entries("").await? {
            for odd in self.numbers.adopt(&entry.decode()) {
                tracing::warn!(service = %entry.key, problem = odd, "a stored service holds what it should not");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
