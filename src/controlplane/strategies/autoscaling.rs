//! Strategy of HorizontalPodAutoscalers.

use super::declarative::{BASE, DeclarativeStrategy};
use crate::controlplane::defaults::autoscaling as defaults;
use crate::controlplane::validation::autoscaling as check;
use crate::controlplane::versions::autoscaling::drop_round_trip_annotations;
use crate::json;

/// HorizontalPodAutoscalers in their v2 form. Upstream does not maintain a generation for them.
pub(crate) const AUTOSCALER: DeclarativeStrategy = DeclarativeStrategy {
    default: |v| {
        // With the defaults, as upstream drops them while it decodes.
        drop_round_trip_annotations(v);
        defaults::v2(v);
    },
    validate: check::autoscaler,
    validate_update: Some(check::autoscaler_update),
    validate_status: check::autoscaler_status,
    status: Some(|| json!({"currentMetrics": null, "desiredReplicas": 0})),
    ..BASE
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::strategy::Strategy as _;

    #[test]
    fn annotations_that_represent_fields_in_v1_are_dropped_from_v2() {
        let mut v = json!({"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[]", "a": "b"}}});
        AUTOSCALER.default(&mut v);
        assert_eq!(v.at(&["metadata", "annotations"]), &json!({"a": "b"}));
    }
}
