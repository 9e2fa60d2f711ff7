//! The resources of storage.k8s.io/v1.

use crate::controlplane::columns::{others, storage as columns};
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::volumes;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "storage.k8s.io",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("csidrivers", "CSIDriver")
            .strategy(volumes::CSI_DRIVER)
            .columns(columns::csi_drivers())
            .conditional_update()
            .returns_deleted()
            .build(),
        V1.kind("csinodes", "CSINode")
            .strategy(volumes::CSI_NODE)
            .columns(columns::csi_nodes())
            .conditional_update()
            .returns_deleted()
            .build(),
        V1.kind("csistoragecapacities", "CSIStorageCapacity")
            .namespaced()
            .strategy(volumes::CSI_STORAGE_CAPACITY)
            .columns(others::created_at())
            .conditional_update()
            .build(),
        V1.kind("storageclasses", "StorageClass")
            .short(&["sc"])
            .strategy(volumes::STORAGE_CLASS)
            .columns(columns::storage_classes())
            .returns_deleted()
            .build(),
        V1.kind("volumeattachments", "VolumeAttachment")
            .strategy(volumes::VOLUME_ATTACHMENT)
            .columns(columns::volume_attachments())
            .conditional_update()
            .returns_deleted()
            .status()
            .build(),
        V1.kind("volumeattributesclasses", "VolumeAttributesClass")
            .short(&["vac"])
            .strategy(volumes::VOLUME_ATTRIBUTES_CLASS)
            .columns(columns::volume_attributes_classes())
            .returns_deleted()
            .build(),
    ]
}
