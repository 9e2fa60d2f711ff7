//! Creates the built-in resources and their stores, group version by group version. Entry point: [`build`].

use super::allocators::{IpAllocator, PortAllocator};
use super::components::Components;
use super::resource_builder::GroupVersionBuilder;
use super::strategies::rbac::EscalationGuard;
use super::strategies::service::addresses::IpAddressStore;
use super::strategies::service::node_ports::NodePortRecord;
use super::strategies::service::{Service, ServiceAllocators};
use super::subresources::approval::ApprovalHandler;
use super::subresources::binding::Binding;
use super::subresources::cleanup::DeleteEndpoints;
use super::subresources::connect::connector::BackendConnector;
use super::subresources::connect::kubelet::Kubelets;
use super::subresources::connect::log::Log;
use super::subresources::connect::proxy::{Proxy, ProxyHandler};
use super::subresources::connect::stream::{Stream, StreamKind};
use super::subresources::eviction::Eviction;
use super::subresources::finalize::Finalize;
use super::subresources::scale::Scale;
use super::subresources::token::{Token, TokenRequests};
use super::{BuildError, Config, ControlPlane, Group, Probe, Served, first_duplicate, groups, reviews};
use crate::admission::Admission;
use crate::apimachinery::gvk::GroupVersionResource;
use crate::registry::StoreLookup;
use crate::registry::converting::{ConvertingStorage, PairConversion};
use crate::registry::resource::{Backing, Connect, Resource, SubresourceHandler};
use crate::registry::selectable_fields::SelectableFields;
use crate::registry::store::Store;
use crate::storage::Storage;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Creates every built-in resource and its store. `storage` opens the storage for a resource's key prefix;
/// every write passes through `admission`. The stores are added to `stores`, where handlers and plugins find
/// them.
///
/// # Errors
/// [`BuildError`]
pub(crate) fn build(
    config: Config,
    stores: &StoreLookup,
    storage: &dyn Fn(&Resource) -> Arc<dyn Storage>,
    admission: &Arc<dyn Admission>,
) -> Result<ControlPlane, BuildError> {
    let allocators = Arc::new(service_allocators(&config)?);
    let Config {
        node_ports,
        event_ttl_seconds,
        review_dependencies: reviews,
        components,
        kubelets,
        tokens,
        definitions,
        ..
    } = config;
    let connector = BackendConnector::new(kubelets).map_err(BuildError::KubeletAuthority)?;
    let node_ports = Arc::new(NodePortRecord::new(storage(&range_allocations()), node_ports));
    let service = Service::new(
        allocators.clone(),
        Arc::new(IpAddressStore(stores.clone())),
        node_ports.clone(),
        Arc::new(DeleteEndpoints(stores.clone())),
    );
    let core = core_parts(stores, service, connector, tokens, components, event_ttl_seconds);
    let guard = EscalationGuard {
        authorizer: reviews.authorizer.clone(),
        roles: reviews.roles.clone(),
    };
    let autoscaling = groups::autoscaling::v2();
    let older_autoscaling = groups::autoscaling::v1(&autoscaling);
    let mut made = Stores {
        storage,
        admission,
        hubs: HashMap::new(),
    };
    // Evaluated in order: a stored version must precede the versions converted from it (`Stores::hubs`).
    let groups = vec![
        made.serve(groups::core::rows(core)),
        made.serve(groups::access::authentication(&reviews)),
        made.serve(groups::access::authorization(&reviews)),
        made.serve(groups::rbac::rows(&guard)),
        made.serve(groups::apiextensions::rows(definitions)),
        made.serve(groups::admissionregistration::rows()),
        made.serve(groups::coordination::rows()),
        made.serve(groups::discovery::rows()),
        made.serve(groups::events::rows(event_ttl_seconds)),
        made.serve(groups::flowcontrol::rows()),
        made.serve(groups::scheduling::rows()),
        made.serve(groups::apps::rows(groups::apps::Parts {
            deployments: scale(stores, "apps", "deployments"),
            replica_sets: scale(stores, "apps", "replicasets"),
            stateful_sets: scale(stores, "apps", "statefulsets"),
        })),
        made.serve(autoscaling),
        made.serve(older_autoscaling),
        made.serve(groups::batch::rows()),
        made.serve(groups::certificates::rows(Arc::new(ApprovalHandler(stores.clone())))),
        made.serve(groups::networking::rows()),
        made.serve(groups::node::rows()),
        made.serve(groups::policy::rows()),
        made.serve(groups::resource::rows(stores, &reviews.authorizer)),
        made.serve(groups::storage::rows()),
    ];
    let plane = ControlPlane {
        groups,
        apiregistration: made.serve(groups::apiregistration::rows()),
        allocators,
        node_ports,
        stores: stores.clone(),
    };
    // Checked before the stores are published, so that a failed build leaves `stores` unchanged.
    if let Some(what) = first_duplicate(plane.groups.iter().chain([&plane.apiregistration])) {
        return Err(BuildError::Duplicate(what));
    }
    let all = plane.groups.iter().chain([&plane.apiregistration]);
    // Handlers hold this lookup instead of a store, because they are created before the stores exist.
    stores.add(all.flat_map(|g| &g.resources).map(|(_, store)| store));
    Ok(plane)
}

/// The row of the record of node ports, which is stored where upstream has it, and not served.
fn range_allocations() -> Resource {
    let v1 = GroupVersionBuilder {
        group: "",
        version: "v1",
    };
    v1.kind("rangeallocations", "RangeAllocation")
        .stored_at("ranges")
        .build()
}

/// Makes the stores of rows.
struct Stores<'a> {
    storage: &'a dyn Fn(&Resource) -> Arc<dyn Storage>,
    admission: &'a Arc<dyn Admission>,
    /// Storages created so far and their selectable fields: further versions of a kind convert to and from
    /// these.
    hubs: HashMap<GroupVersionResource, (Arc<dyn Storage>, Option<SelectableFields>)>,
}

impl Stores<'_> {
    /// The rows of one group version with their stores.
    fn serve(&mut self, rows: Vec<Resource>) -> Group {
        Group {
            gv: rows.first().map(|r| r.gvk().group_version()).unwrap_or_default(),
            resources: rows.into_iter().map(|row| self.of(Arc::new(row))).collect(),
        }
    }

    fn of(&mut self, row: Arc<Resource>) -> Served {
        let storage: Arc<dyn Storage> = match &row.backing {
            Backing::Stored { .. } => {
                let stored = (self.storage)(&row);
                self.hubs
                    .insert(row.gvr.clone(), (stored.clone(), row.selectable.clone()));
                stored
            }
            Backing::Converted { hub, conversion, .. } => {
                let (stored, fields) = self
                    .hubs
                    .get(hub)
                    .cloned()
                    .unwrap_or_else(|| unreachable!("the stored version is built before others: {hub:?}"));
                let kind = PairConversion(conversion.clone()).versions(fields);
                Arc::new(ConvertingStorage::new(stored, Arc::new(kind), PairConversion::SPOKE))
            }
            Backing::Computed(computed) => computed.clone(),
            Backing::CreateOnly(_) => Arc::new(reviews::NoStorage),
        };
        let store = Store::new(row.clone(), storage, self.admission.clone());
        (row, Arc::new(store))
    }
}

/// The resources of the core group that are not stored.
fn core_parts(
    stores: &StoreLookup,
    service: Service,
    connector: BackendConnector,
    tokens: Option<TokenRequests>,
    components: Vec<Arc<dyn Probe>>,
    event_ttl_seconds: u64,
) -> groups::core::Parts {
    let token = |config| -> Arc<dyn SubresourceHandler> {
        let stores = stores.clone();
        Arc::new(Token { config, stores })
    };
    groups::core::Parts {
        service: Arc::new(service),
        token: tokens.map(token),
        finalize: Arc::new(Finalize(stores.clone())),
        // Two resources, one handler: `pods/binding` takes the pod's name from the URL, `bindings` from the
        // body.
        binding: Arc::new(Binding(stores.clone())),
        bindings: Arc::new(Binding(stores.clone())),
        eviction: Arc::new(Eviction(stores.clone())),
        connections: connections(stores, connector),
        scale: scale(stores, "", "replicationcontrollers"),
        event_ttl_seconds,
        components: Arc::new(Components::new(components)),
    }
}

/// The handler of the `scale` subresource of a workload.
fn scale(stores: &StoreLookup, group: &'static str, resource: &'static str) -> Arc<dyn SubresourceHandler> {
    Arc::new(Scale {
        stores: stores.clone(),
        of: (group, resource),
    })
}

/// The handlers of log, exec, proxy and the like.
fn connections(stores: &StoreLookup, connector: BackendConnector) -> groups::core::Connections {
    let kubelets = Kubelets {
        stores: stores.clone(),
        connector: Arc::new(connector),
    };
    let stream = |kind| -> Arc<dyn Connect> {
        Arc::new(Stream {
            kind,
            stores: stores.clone(),
            kubelets: kubelets.clone(),
        })
    };
    let proxy = |to| -> Arc<dyn Connect> {
        Arc::new(ProxyHandler {
            to,
            stores: stores.clone(),
            kubelets: kubelets.clone(),
        })
    };
    groups::core::Connections {
        pods: groups::core::PodConnections {
            log: Arc::new(Log {
                stores: stores.clone(),
                kubelets: kubelets.clone(),
            }),
            exec: stream(StreamKind::Exec),
            attach: stream(StreamKind::Attach),
            portforward: stream(StreamKind::PortForward),
            proxy: proxy(Proxy::Pods),
        },
        services_proxy: proxy(Proxy::Services {
            // One counter for all Services: it only varies where each search for an endpoint starts.
            next: AtomicUsize::default(),
        }),
        nodes_proxy: proxy(Proxy::Nodes),
    }
}

fn service_allocators(config: &Config) -> Result<ServiceAllocators, BuildError> {
    let ranges: Vec<IpAllocator> = config
        .service_ranges
        .iter()
        .filter_map(|(ip, bits)| IpAllocator::new(*ip, *bits))
        .collect();
    // At most one range per family: a Service's IP families select the range
    // (`ServiceAllocators::range_for`).
    let fine = match ranges.as_slice() {
        [_] => true,
        [a, b] => a.family() != b.family(),
        _ => false,
    };
    // `IpAllocator::new` has dropped ranges without a usable address.
    if !fine || ranges.len() != config.service_ranges.len() {
        return Err(BuildError::ServiceRange);
    }
    Ok(ServiceAllocators {
        ranges,
        // Filled once the ServiceCIDR objects have been read (`bootstrap::service_cidrs`).
        service_cidrs: Default::default(),
        ports: PortAllocator::new(config.node_ports.0, config.node_ports.1),
    })
}
