//! apiregistration.k8s.io/v1, which the aggregator serves.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::apiservice::ApiService;
use crate::registry::resource::{Columns, Resource};

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "apiregistration.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("apiservices", "APIService")
            .category("api-extensions")
            .stored_at("apiregistration.k8s.io/apiservices")
            .strategy(ApiService)
            .columns(Columns {
                always_headed: true,
                ..columns::api_services()
            })
            .conditional_update()
            .status()
            .without_table()
            .build(),
    ]
}
