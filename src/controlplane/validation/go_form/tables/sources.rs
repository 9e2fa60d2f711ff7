//! Fields of the Go structs of volume sources, in Go's order. Each constant's doc names the Go struct. Where
//! a PersistentVolume's source differs from a pod's, its constant ends in `_PV`.

use super::super::Field;
use super::super::Printing::{Any, Bool, Int, Ptr, Str};

/// `LocalObjectReference`.
pub(super) const LOCAL: &[Field] = &[("Name", "name", Str)];

/// `SecretReference`.
pub(super) const SECRET_REF: &[Field] = &[("Name", "name", Str), ("Namespace", "namespace", Str)];

/// `ObjectReference`.
pub(super) const OBJECT_REF: &[Field] = &[
    ("Kind", "kind", Str),
    ("Namespace", "namespace", Str),
    ("Name", "name", Str),
    ("UID", "uid", Str),
    ("APIVersion", "apiVersion", Str),
    ("ResourceVersion", "resourceVersion", Str),
    ("FieldPath", "fieldPath", Str),
];

/// `HostPathVolumeSource`.
pub(super) const HOST_PATH: &[Field] = &[("Path", "path", Str), ("Type", "type", Any)];

/// `GCEPersistentDiskVolumeSource`.
pub(super) const GOOGLE_DISK: &[Field] = &[
    ("PDName", "pdName", Str),
    ("FSType", "fsType", Str),
    ("Partition", "partition", Int),
    ("ReadOnly", "readOnly", Bool),
];

/// `AWSElasticBlockStoreVolumeSource`.
pub(super) const AMAZON_DISK: &[Field] = &[
    ("VolumeID", "volumeID", Str),
    ("FSType", "fsType", Str),
    ("Partition", "partition", Int),
    ("ReadOnly", "readOnly", Bool),
];

/// `GlusterfsPersistentVolumeSource`.
pub(super) const GLUSTER_PV: &[Field] = &[
    ("EndpointsName", "endpoints", Str),
    ("Path", "path", Str),
    ("ReadOnly", "readOnly", Bool),
    ("EndpointsNamespace", "endpointsNamespace", Any),
];

/// `GlusterfsVolumeSource`.
pub(super) const GLUSTER: &[Field] = &[
    ("EndpointsName", "endpoints", Str),
    ("Path", "path", Str),
    ("ReadOnly", "readOnly", Bool),
];

/// `NFSVolumeSource`.
pub(super) const NFS: &[Field] = &[
    ("Server", "server", Str),
    ("Path", "path", Str),
    ("ReadOnly", "readOnly", Bool),
];

/// `RBDPersistentVolumeSource`.
pub(super) const RBD_PV: &[Field] = &[
    ("CephMonitors", "monitors", Any),
    ("RBDImage", "image", Str),
    ("FSType", "fsType", Str),
    ("RBDPool", "pool", Str),
    ("RadosUser", "user", Str),
    ("Keyring", "keyring", Str),
    ("SecretRef", "secretRef", Ptr(SECRET_REF)),
    ("ReadOnly", "readOnly", Bool),
];

/// `RBDVolumeSource`.
pub(super) const RBD: &[Field] = &[
    ("CephMonitors", "monitors", Any),
    ("RBDImage", "image", Str),
    ("FSType", "fsType", Str),
    ("RBDPool", "pool", Str),
    ("RadosUser", "user", Str),
    ("Keyring", "keyring", Str),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
    ("ReadOnly", "readOnly", Bool),
];

/// `QuobyteVolumeSource`.
pub(super) const QUOBYTE: &[Field] = &[
    ("Registry", "registry", Str),
    ("Volume", "volume", Str),
    ("ReadOnly", "readOnly", Bool),
    ("User", "user", Str),
    ("Group", "group", Str),
    ("Tenant", "tenant", Str),
];

/// `ISCSIPersistentVolumeSource`.
pub(super) const ISCSI_PV: &[Field] = &[
    ("TargetPortal", "targetPortal", Str),
    ("IQN", "iqn", Str),
    ("Lun", "lun", Int),
    ("ISCSIInterface", "iscsiInterface", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("Portals", "portals", Any),
    ("DiscoveryCHAPAuth", "chapAuthDiscovery", Bool),
    ("SessionCHAPAuth", "chapAuthSession", Bool),
    ("SecretRef", "secretRef", Ptr(SECRET_REF)),
    ("InitiatorName", "initiatorName", Any),
];

/// `ISCSIVolumeSource`.
pub(super) const ISCSI: &[Field] = &[
    ("TargetPortal", "targetPortal", Str),
    ("IQN", "iqn", Str),
    ("Lun", "lun", Int),
    ("ISCSIInterface", "iscsiInterface", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("Portals", "portals", Any),
    ("DiscoveryCHAPAuth", "chapAuthDiscovery", Bool),
    ("SessionCHAPAuth", "chapAuthSession", Bool),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
    ("InitiatorName", "initiatorName", Any),
];

/// `FlexPersistentVolumeSource`.
pub(super) const FLEX_PV: &[Field] = &[
    ("Driver", "driver", Str),
    ("FSType", "fsType", Str),
    ("SecretRef", "secretRef", Ptr(SECRET_REF)),
    ("ReadOnly", "readOnly", Bool),
    ("Options", "options", Any),
];

/// `FlexVolumeSource`.
pub(super) const FLEX: &[Field] = &[
    ("Driver", "driver", Str),
    ("FSType", "fsType", Str),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
    ("ReadOnly", "readOnly", Bool),
    ("Options", "options", Any),
];

/// `CinderPersistentVolumeSource`.
pub(super) const CINDER_PV: &[Field] = &[
    ("VolumeID", "volumeID", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("SecretRef", "secretRef", Ptr(SECRET_REF)),
];

/// `CinderVolumeSource`.
pub(super) const CINDER: &[Field] = &[
    ("VolumeID", "volumeID", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
];

/// `CephFSPersistentVolumeSource`.
pub(super) const CEPH_PV: &[Field] = &[
    ("Monitors", "monitors", Any),
    ("Path", "path", Str),
    ("User", "user", Str),
    ("SecretFile", "secretFile", Str),
    ("SecretRef", "secretRef", Ptr(SECRET_REF)),
    ("ReadOnly", "readOnly", Bool),
];

/// `CephFSVolumeSource`.
pub(super) const CEPH: &[Field] = &[
    ("Monitors", "monitors", Any),
    ("Path", "path", Str),
    ("User", "user", Str),
    ("SecretFile", "secretFile", Str),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
    ("ReadOnly", "readOnly", Bool),
];

/// `FCVolumeSource`.
pub(super) const FIBRE: &[Field] = &[
    ("TargetWWNs", "targetWWNs", Any),
    ("Lun", "lun", Any),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("WWIDs", "wwids", Any),
];

/// `FlockerVolumeSource`.
pub(super) const FLOCKER: &[Field] = &[("DatasetName", "datasetName", Str), ("DatasetUUID", "datasetUUID", Str)];

/// `AzureFilePersistentVolumeSource`.
pub(super) const AZURE_FILE_PV: &[Field] = &[
    ("SecretName", "secretName", Str),
    ("ShareName", "shareName", Str),
    ("ReadOnly", "readOnly", Bool),
    ("SecretNamespace", "secretNamespace", Any),
];

/// `AzureFileVolumeSource`.
pub(super) const AZURE_FILE: &[Field] = &[
    ("SecretName", "secretName", Str),
    ("ShareName", "shareName", Str),
    ("ReadOnly", "readOnly", Bool),
];

/// `VsphereVirtualDiskVolumeSource`.
pub(super) const VSPHERE: &[Field] = &[
    ("VolumePath", "volumePath", Str),
    ("FSType", "fsType", Str),
    ("StoragePolicyName", "storagePolicyName", Str),
    ("StoragePolicyID", "storagePolicyID", Str),
];

/// `AzureDiskVolumeSource`.
pub(super) const AZURE_DISK: &[Field] = &[
    ("DiskName", "diskName", Str),
    ("DataDiskURI", "diskURI", Str),
    ("CachingMode", "cachingMode", Any),
    ("FSType", "fsType", Any),
    ("ReadOnly", "readOnly", Any),
    ("Kind", "kind", Any),
];

/// `PhotonPersistentDiskVolumeSource`.
pub(super) const PHOTON: &[Field] = &[("PdID", "pdID", Str), ("FSType", "fsType", Str)];

/// `PortworxVolumeSource`.
pub(super) const PORTWORX: &[Field] = &[
    ("VolumeID", "volumeID", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
];

/// `ScaleIOPersistentVolumeSource`.
pub(super) const SCALE_IO_PV: &[Field] = &[
    ("Gateway", "gateway", Str),
    ("System", "system", Str),
    ("SecretRef", "secretRef", Ptr(SECRET_REF)),
    ("SSLEnabled", "sslEnabled", Bool),
    ("ProtectionDomain", "protectionDomain", Str),
    ("StoragePool", "storagePool", Str),
    ("StorageMode", "storageMode", Str),
    ("VolumeName", "volumeName", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
];

/// `ScaleIOVolumeSource`.
pub(super) const SCALE_IO: &[Field] = &[
    ("Gateway", "gateway", Str),
    ("System", "system", Str),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
    ("SSLEnabled", "sslEnabled", Bool),
    ("ProtectionDomain", "protectionDomain", Str),
    ("StoragePool", "storagePool", Str),
    ("StorageMode", "storageMode", Str),
    ("VolumeName", "volumeName", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
];

/// `LocalVolumeSource`.
pub(super) const LOCAL_DISK: &[Field] = &[("Path", "path", Str), ("FSType", "fsType", Any)];

/// `StorageOSPersistentVolumeSource`.
pub(super) const STORAGE_OS_PV: &[Field] = &[
    ("VolumeName", "volumeName", Str),
    ("VolumeNamespace", "volumeNamespace", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("SecretRef", "secretRef", Ptr(OBJECT_REF)),
];

/// `StorageOSVolumeSource`.
pub(super) const STORAGE_OS: &[Field] = &[
    ("VolumeName", "volumeName", Str),
    ("VolumeNamespace", "volumeNamespace", Str),
    ("FSType", "fsType", Str),
    ("ReadOnly", "readOnly", Bool),
    ("SecretRef", "secretRef", Ptr(LOCAL)),
];

/// `CSIPersistentVolumeSource`.
pub(super) const CSI_PV: &[Field] = &[
    ("Driver", "driver", Str),
    ("VolumeHandle", "volumeHandle", Str),
    ("ReadOnly", "readOnly", Bool),
    ("FSType", "fsType", Str),
    ("VolumeAttributes", "volumeAttributes", Any),
    (
        "ControllerPublishSecretRef",
        "controllerPublishSecretRef",
        Ptr(SECRET_REF),
    ),
    ("NodeStageSecretRef", "nodeStageSecretRef", Ptr(SECRET_REF)),
    ("NodePublishSecretRef", "nodePublishSecretRef", Ptr(SECRET_REF)),
    (
        "ControllerExpandSecretRef",
        "controllerExpandSecretRef",
        Ptr(SECRET_REF),
    ),
    ("NodeExpandSecretRef", "nodeExpandSecretRef", Ptr(SECRET_REF)),
];

/// `CSIVolumeSource`.
pub(super) const CSI: &[Field] = &[
    ("Driver", "driver", Str),
    ("ReadOnly", "readOnly", Any),
    ("FSType", "fsType", Any),
    ("VolumeAttributes", "volumeAttributes", Any),
    ("NodePublishSecretRef", "nodePublishSecretRef", Ptr(LOCAL)),
];

/// `GitRepoVolumeSource`.
pub(super) const GIT: &[Field] = &[
    ("Repository", "repository", Str),
    ("Revision", "revision", Str),
    ("Directory", "directory", Str),
];

/// `ImageVolumeSource`.
pub(super) const IMAGE: &[Field] = &[("Reference", "reference", Str), ("PullPolicy", "pullPolicy", Str)];

/// `PersistentVolumeSource`.
pub(in crate::controlplane::validation) const PERSISTENT: &[Field] = &[
    ("GCEPersistentDisk", "gcePersistentDisk", Ptr(GOOGLE_DISK)),
    ("AWSElasticBlockStore", "awsElasticBlockStore", Ptr(AMAZON_DISK)),
    ("HostPath", "hostPath", Ptr(HOST_PATH)),
    ("Glusterfs", "glusterfs", Ptr(GLUSTER_PV)),
    ("NFS", "nfs", Ptr(NFS)),
    ("RBD", "rbd", Ptr(RBD_PV)),
    ("Quobyte", "quobyte", Ptr(QUOBYTE)),
    ("ISCSI", "iscsi", Ptr(ISCSI_PV)),
    ("FlexVolume", "flexVolume", Ptr(FLEX_PV)),
    ("Cinder", "cinder", Ptr(CINDER_PV)),
    ("CephFS", "cephfs", Ptr(CEPH_PV)),
    ("FC", "fc", Ptr(FIBRE)),
    ("Flocker", "flocker", Ptr(FLOCKER)),
    ("AzureFile", "azureFile", Ptr(AZURE_FILE_PV)),
    ("VsphereVolume", "vsphereVolume", Ptr(VSPHERE)),
    ("AzureDisk", "azureDisk", Ptr(AZURE_DISK)),
    ("PhotonPersistentDisk", "photonPersistentDisk", Ptr(PHOTON)),
    ("PortworxVolume", "portworxVolume", Ptr(PORTWORX)),
    ("ScaleIO", "scaleIO", Ptr(SCALE_IO_PV)),
    ("Local", "local", Ptr(LOCAL_DISK)),
    ("StorageOS", "storageos", Ptr(STORAGE_OS_PV)),
    ("CSI", "csi", Ptr(CSI_PV)),
];
