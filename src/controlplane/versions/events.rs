//! Conversion of events between core/v1 and events.k8s.io/v1, which differ only in field names.

use crate::apimachinery::value::Value;

/// Renamed fields: the name in core/v1, then in events.k8s.io/v1.
const RENAMED: [(&str, &str); 7] = [
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_core(event: &mut Value) {
    for (core, new) in RENAMED {
        rename(event, new, core);
    }
}

pub(super) fn to_new(event: &mut Value) {
    for (core, new) in RENAMED {
        rename(event, core, new);
    }
}

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(v) = event.unset(&[from]) {
        event.set(&[to], v);
    }
}

/// The events.k8s.io/v1 name of a selectable field of core/v1.
pub(super) fn field(core: &str) -> Option<&str> {
    Some(match core {
        "involvedObject.kind" => "regarding.kind",
        "involvedObject.namespace" => "regarding.namespace",
        "involvedObject.name" => "regarding.name",
        "involvedObject.uid" => "regarding.uid",
        "involvedObject.apiVersion" => "regarding.apiVersion",
        "involvedObject.resourceVersion" => "regarding.resourceVersion",
        "involvedObject.fieldPath" => "regarding.fieldPath",
        "reportingComponent" => "reportingController",
        "reason" | "type" => core,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::controlplane::versions::EVENTS;
    use crate::json;
    use crate::registry::converting::Pair;

    #[test]
    fn event_round_trips_between_versions() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "m", "reason": "R",
            "involvedObject": {"kind": "Pod"}, "source": {"component": "c"}, "firstTimestamp": null, "lastTimestamp": null,
            "eventTime": null, "count": 3, "reportingComponent": "", "reportingInstance": "i"});
        let new = (&EVENTS).serve(core.clone());
        assert_eq!(
            new,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "m", "reason": "R",
                "regarding": {"kind": "Pod"}, "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": null,
                "deprecatedLastTimestamp": null, "eventTime": null, "deprecatedCount": 3, "reportingInstance": "i"})
        );
        assert_eq!((&EVENTS).store(new), core);
    }
}
