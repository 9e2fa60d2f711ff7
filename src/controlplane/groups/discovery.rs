//! The resources of discovery.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::endpoints;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "discovery.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("endpointslices", "EndpointSlice")
            .namespaced()
            .strategy(endpoints::EndpointSlice)
            .columns(columns::endpoint_slices())
            .build(),
    ]
}
