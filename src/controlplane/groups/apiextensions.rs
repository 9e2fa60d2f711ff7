//! The resources of apiextensions.k8s.io/v1.

use crate::controlplane::columns::others as columns;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::registry::resource::Resource;
use crate::registry::strategy::RestStrategy;
use std::sync::Arc;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "apiextensions.k8s.io",
    version: "v1",
};

/// The resources of the group. The strategy of definitions belongs to `extensions`, which checks their
/// schemas.
pub(crate) fn rows(definitions: Arc<dyn RestStrategy>) -> Vec<Resource> {
    vec![
        V1.kind("customresourcedefinitions", "CustomResourceDefinition")
            .short(&["crd", "crds"])
            .category("api-extensions")
            .stored_at("apiextensions.k8s.io/customresourcedefinitions")
            // Definitions are mostly schemas: large, and seldom read.
            .compressed()
            .hashed_as("v1beta1")
            .shared_strategy(definitions)
            .columns(columns::created_at())
            .conditional_update()
            .status()
            .without_table()
            .build(),
    ]
}
