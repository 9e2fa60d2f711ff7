//! Finds the rules that a stored pod spec breaks already, for [`Tolerated`].

use super::tolerated::Tolerated;
use super::{affinity, container, resources, security, spec};
use crate::apimachinery::value::Value;

impl Tolerated {
    /// The rules that an update of a pod or template with the spec `old` may break; none without a stored spec.
    pub(super) fn by(old: Option<&Value>) -> Self {
        let Some(old) = old else { return Self::default() };
        Self {
            partial_pages: resources::has_partial_pages(old),
            affinity_values: affinity::has_invalid_selectors(old.get("affinity")),
            node_values: affinity::has_invalid_node_values(old.get("affinity")),
            spread_selectors: affinity::has_invalid_spread(old),
            host_sysctls: security::has_host_sysctls(old),
            mapped_devices: spec::has_mapped_devices(old),
            init_restarts: container::has_init_restarts(old),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::template;
    use super::*;
    use crate::apimachinery::field::{ErrorList, FieldPath, aggregate};
    use crate::json;

    fn errors(new: &Value, old: Option<&Value>) -> String {
        let mut out = ErrorList::new();
        template(&mut out, new, old, &FieldPath::new("template"));
        aggregate(&out)
    }

    #[test]
    fn an_update_may_break_only_rules_that_the_stored_spec_breaks() {
        let selector = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["not valid"]}]});
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let mut pods = json!({});
        pods.set(
            &["podAffinity", required],
            json!([{"topologyKey": "t", "labelSelector": (selector.clone())}]),
        );
        let mut nodes = json!({});
        nodes.set(&["nodeAffinity", required, "nodeSelectorTerms"], vec![selector.clone()]);
        let cases = [
            json!({"containers": [{"name": "main", "image": "a:1", "resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}}]}),
            json!({"overhead": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            json!({"affinity": (pods)}),
            json!({"affinity": (nodes)}),
            json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": (selector)}]}),
            json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.a", "value": "1"}]}}),
            json!({"hostUsers": false, "containers": [{"name": "main", "image": "a:1",
                "volumeDevices": [{"name": "d", "devicePath": "/d"}]}],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}),
            json!({"initContainers": [{"name": "first", "image": "a:1",
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}),
        ];
        let of = |fields: &Value| {
            let mut v = json!({"spec": {"containers": [{"name": "main", "image": "a:1"}]}});
            for (key, value) in fields.as_object().expect("an object").iter() {
                v.set(&["spec", key], value.clone());
            }
            crate::controlplane::defaults::pod::pod(&mut v);
            v
        };
        let valid = of(&json!({}));
        for fields in &cases {
            let stored = of(fields);
            let refused = errors(&stored, None);
            assert_ne!(refused, "[]", "{fields:?}");
            assert_eq!(errors(&stored, Some(&valid)), refused, "{fields:?}");
            assert_eq!(errors(&stored, Some(&stored)), "[]", "{fields:?}");
        }
    }
}
