//! Strategy of HorizontalPodAutoscalers.

use super::declarative::{BASE, DeclarativeStrategy};
use crate::controlplane::defaults::autoscaling as defaults;
use crate::controlplane::validation::autoscaling as check;
use crate::json;

/// HorizontalPodAutoscalers in their v2 form. Upstream does not maintain a generation for them.
pub(crate) const AUTOSCALER: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::v2,
    validate: check::autoscaler,
    validate_update: Some(check::autoscaler_update),
    validate_status: check::autoscaler_status,
    status: Some(|| json!({"currentMetrics": null, "desiredReplicas": 0})),
    ..BASE
};
