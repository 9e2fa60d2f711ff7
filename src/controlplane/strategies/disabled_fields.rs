//! Drops pod fields whose feature gates are off in v1.36 (`dropDisabledFields` in upstream's
//! `pkg/api/pod/util.go`). The entry point is [`drop_disabled`], first of all that prepares a write: managed fields,
//! which are computed before, still name the fields.
//!
//! Unlike upstream there is no check for fields in use: without a gate to turn on, no stored object can have them.

use crate::apimachinery::value::Value;
use crate::controlplane::fields::elements_mut;

/// Drops the fields of `GenericWorkload`, `ContainerStopSignals`, `ClusterTrustBundleProjection` and
/// `PodCertificateRequest` from the pod spec at `path`. An empty path stands for an object without pods.
pub(super) fn drop_disabled(object: &mut Value, path: &[&str]) {
    if path.is_empty() {
        return;
    }
    let Some(spec) = object.at_mut(path) else { return };
    spec.unset(&["schedulingGroup"]);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for c in elements_mut(spec, &[list]) {
            if c.unset(&["lifecycle", "stopSignal"]).is_some() && c.get("lifecycle").is_empty_value() {
                // Otherwise an empty object would remain, which the client did not send.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn fields_of_disabled_features_are_dropped() {
        let mut pod = json!({"spec": {"schedulingGroup": {"podGroupName": "g"},
            "containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGTERM"}}],
            "volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}]}});
        let sent = pod.clone();
        drop_disabled(&mut pod, &[]);
        assert_eq!(pod, sent);
        drop_disabled(&mut pod, &["spec"]);
        assert_eq!(
            pod.get("spec"),
            &json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "projected": {"sources": [{}]}}]})
        );
    }

    #[test]
    fn claims_of_ephemeral_volumes_may_refer_to_another_namespace() {
        let reference = json!({"kind": "PersistentVolumeClaim", "name": "c", "namespace": "other"});
        let claim = json!({"spec": {"dataSourceRef": (reference)}});
        let mut pod = json!({"spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": (claim)}}]}});
        let sent = pod.clone();
        drop_disabled(&mut pod, &["spec"]);
        assert_eq!(pod, sent);
    }
}
