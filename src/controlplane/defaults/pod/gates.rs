//! Fields of features that are off: nobody can have stored them, so they go wherever they come from.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;

/// `GenericWorkload`, `ContainerStopSignals`, `ClusterTrustBundleProjection` and `PodCertificateRequest` are off.
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
        // The source stays, empty.
        for source in elements_mut(volume, &["projected", "sources"]) {
            source.unset(&["clusterTrustBundle"]);
            source.unset(&["podCertificate"]);
        }
        // A reference into another namespace is dropped whole (`CrossNamespaceVolumeDataSource`).
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
    fn fields_of_features_that_are_off_go() {
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
