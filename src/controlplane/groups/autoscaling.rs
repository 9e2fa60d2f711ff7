//! autoscaling/v2, which is the stored version, and v1, which converts to and from it.

use crate::controlplane::columns::autoscaling as columns;
use crate::controlplane::defaults::autoscaling as defaults;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::autoscaling;
use crate::controlplane::versions::AUTOSCALERS;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "autoscaling",
    version: "v1",
};

const V2: GroupVersionBuilder = GroupVersionBuilder {
    group: "autoscaling",
    version: "v2",
};

/// The resources of v2.
pub(crate) fn v2() -> Vec<Resource> {
    vec![
        V2.kind("horizontalpodautoscalers", "HorizontalPodAutoscaler")
            .namespaced()
            .short(&["hpa"])
            .category("all")
            .strategy(autoscaling::AUTOSCALER)
            .columns(columns::horizontal_pod_autoscalers())
            .status()
            .build(),
    ]
}

/// The resources of v1, converted from those of `v2`.
pub(crate) fn v1(v2: &[Resource]) -> Vec<Resource> {
    let hub = v2.iter().map(|hub| {
        let row = V1.kind(hub.gvr.resource.as_str(), hub.kind.as_str());
        row.converted_from(hub, &AUTOSCALERS, hub.strategy.clone(), defaults::v1)
            .build()
    });
    hub.collect()
}
