//! Drops pod fields whose feature gates are off in v1.36 (`dropDisabledFields` in upstream's
//! `pkg/api/pod/util.go`). Unlike upstream there is no check for fields in use: without a gate to turn on, no
//! stored object can have them.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;

/// Drops the fields of `GenericWorkload`, `ContainerStopSignals`, `ClusterTrustBundleProjection` and
/// `PodCertificateRequest`.
pub(super) fn drop_disabled(spec: &mut Value) {
    spec.unset(&["schedulingGroup"]);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for c in elements_mut(spec, &[list]) {
            if c.unset(&["lifecycle", "stopSignal"]).is_some() && c.get("lifecycle").is_empty_value() {
                c.unset(&["lifecycle"]);
            }
        }
    }
    for volume in elements_mut(spec, &["volumes"]) {
        // Upstream clears the field and leaves an empty projection source.
        for source in elements_mut(volume, &["projected", "sources"]) {
            source.unset(&["clusterTrustBundle"]);
            source.unset(&["podCertificate"]);
        }
        // A cross-namespace reference is dropped as a whole (gate `CrossNamespaceVolumeDataSource`).
        let reference = ["ephemeral", "volumeClaimTemplate", "spec", "dataSourceRef"];
        if !volume.at(&reference).str_at(&["namespace"]).is_empty() {
            volume.unset(&reference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn fields_of_disabled_features_are_dropped() {
        let mut spec = json!({"schedulingGroup": {"podGroupName": "g"},
            "containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGTERM"}}],
            "volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}]});
        drop_disabled(&mut spec);
        assert_eq!(
            spec,
            json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "projected": {"sources": [{}]}}]})
        );
    }
}
