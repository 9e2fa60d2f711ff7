//! The resources of resource.k8s.io/v1.

use crate::authz::Authorizer;
use crate::controlplane::columns::devices as columns;
use crate::controlplane::fields::text;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::devices::{
    DEVICE_CLASS, GROUP, RESOURCE_SLICE, ResourceClaim, ResourceClaimTemplate,
};
use crate::registry::StoreLookup;
use crate::registry::resource::Resource;
use std::sync::Arc;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: GROUP,
    version: "v1",
};

/// The resources of the group. Admin access of a claim depends on its namespace, and some status writes on
/// the authorizer.
pub(crate) fn rows(stores: &StoreLookup, authorizer: &Arc<dyn Authorizer>) -> Vec<Resource> {
    vec![
        V1.kind("deviceclasses", "DeviceClass")
            .strategy(DEVICE_CLASS)
            .columns(columns::named())
            .returns_deleted()
            .build(),
        V1.kind("resourceclaims", "ResourceClaim")
            .namespaced()
            .strategy(ResourceClaim {
                stores: stores.clone(),
                authorizer: authorizer.clone(),
            })
            .columns(columns::claims())
            .returns_deleted()
            .status()
            .without_table()
            .build(),
        V1.kind("resourceclaimtemplates", "ResourceClaimTemplate")
            .namespaced()
            .strategy(ResourceClaimTemplate { stores: stores.clone() })
            .columns(columns::named())
            .returns_deleted()
            .build(),
        V1.kind("resourceslices", "ResourceSlice")
            .strategy(RESOURCE_SLICE)
            .columns(columns::slices())
            .selectable(["spec.nodeName", "spec.driver"], |v| {
                [text(v, &["spec", "nodeName"]), text(v, &["spec", "driver"])]
            })
            .returns_deleted()
            .build(),
    ]
}
