//! The resources of networking.k8s.io/v1.

use crate::controlplane::columns::network as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::network;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "networking.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("ingressclasses", "IngressClass")
            .strategy(network::INGRESS_CLASS)
            .columns(columns::ingress_classes())
            .build(),
        V1.kind("ingresses", "Ingress")
            .namespaced()
            .short(&["ing"])
            .stored_at("ingress")
            .strategy(network::INGRESS)
            .columns(columns::ingresses())
            .status()
            .build(),
        V1.kind("ipaddresses", "IPAddress")
            .short(&["ip"])
            .strategy(network::IP_ADDRESS)
            .columns(columns::ip_addresses())
            .build(),
        V1.kind("networkpolicies", "NetworkPolicy")
            .namespaced()
            .short(&["netpol"])
            .strategy(network::NETWORK_POLICY)
            .columns(columns::network_policies())
            .build(),
        V1.kind("servicecidrs", "ServiceCIDR")
            .strategy(network::SERVICE_CIDR)
            .columns(columns::service_cidrs())
            .status()
            .build(),
    ]
}
