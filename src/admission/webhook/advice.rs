//! Finds webhooks that can lock out their own backend: while no backend is up, a webhook with failure policy
//! `Fail` rejects the writes that are needed to start one. The warning is returned when a configuration is
//! written, and listed by status pages.

use super::config::{Configuration, FailurePolicy, Hook};
use crate::admission::matching::Matcher;
use crate::admission::{Attributes, ObjectLookup, Operation};
use crate::apimachinery::value::Value;
use crate::client::webhook::Target;

/// A write that a new pod depends on.
struct Needed {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    kind: &'static str,
    operation: Operation,
    /// The plural noun in the warning.
    name: &'static str,
}

const NEEDED: [Needed; 5] = [
    needed("", ("pods", ""), "Pod", Operation::Create, "the pods"),
    needed(
        "",
        ("pods", "binding"),
        "Binding",
        Operation::Create,
        "the bindings of pods",
    ),
    needed("", ("pods", "status"), "Pod", Operation::Update, "the status of pods"),
    needed(
        "",
        ("serviceaccounts", "token"),
        "TokenRequest",
        Operation::Create,
        "the tokens of pods",
    ),
    needed(
        "apps",
        ("replicasets", ""),
        "ReplicaSet",
        Operation::Create,
        "the ReplicaSets",
    ),
];

const fn needed(
    group: &'static str,
    (resource, subresource): (&'static str, &'static str),
    kind: &'static str,
    operation: Operation,
    name: &'static str,
) -> Needed {
    Needed {
        group,
        resource,
        subresource,
        kind,
        operation,
        name,
    }
}

/// Adds a warning for each webhook of the configuration that is called for writes which its own backend
/// needs.
pub(super) async fn warn(cluster: &ObjectLookup, attributes: &Attributes, configuration: &Value) {
    for hook in Configuration::parse(configuration).hooks {
        if let Some(warning) = warning(cluster, &hook).await {
            attributes.warnings.add(warning);
        }
    }
}

/// The warning about a webhook that is called for writes which its own backend needs.
pub(super) async fn warning(cluster: &ObjectLookup, hook: &Hook) -> Option<String> {
    let Ok(Target::Service { namespace, .. }) = hook.client.as_ref().map(|c| &c.target) else {
        // A webhook at a URL runs outside of the cluster, or at least does not depend on this write.
        return None;
    };
    // Match conditions and selectors of objects are usually there to exclude the backend.
    if hook.failure_policy == FailurePolicy::Ignore || !hook.conditions.is_empty() {
        return None;
    }
    for needed in &NEEDED {
        let write = needed.write_in(namespace);
        let matched = Matcher::new(cluster, &write)
            // An object without labels, as the pods of the backend may have any.
            .matches(&hook.criteria, &Value::object())
            .await;
        // An error means that the namespace does not exist yet: no warning.
        if matched.ok().flatten().is_some() {
            let (name, what) = (hook.name.as_str(), needed.name);
            return Some(format!(
                "webhook {name:?} is called for {what} of namespace {:?}, in which its own backend runs: while the backend is \
                 down they cannot be written; exclude the namespace with a namespaceSelector",
                namespace.as_str()
            ));
        }
    }
    None
}

impl Needed {
    fn write_in(&self, namespace: &str) -> Attributes {
        Attributes {
            subresource: self.subresource.to_owned(),
            namespace: namespace.to_owned(),
            ..Attributes::hypothetical(self.operation, self.group, self.kind, self.resource)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::cluster;
    use crate::json;

    async fn warning_for(edits: Value) -> Option<String> {
        let namespace = json!({"metadata": {"name": "own", "labels": {"kubernetes.io/metadata.name": "own"}}});
        let mut hook = json!({"name": "h.x.io", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": "own", "name": "s"}},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["pods"]}]});
        for (key, value) in edits.as_object().into_iter().flat_map(|m| m.iter()) {
            hook.set(&[key], value.clone());
        }
        let configuration = json!({"metadata": {"name": "c"}, "webhooks": [hook]});
        let hook = Configuration::parse(&configuration).hooks.remove(0);
        warning(&cluster(&[("", "namespaces", vec![namespace])]), &hook).await
    }

    #[tokio::test]
    async fn a_webhook_that_can_lock_out_its_own_backend_is_reported() {
        let text = warning_for(json!({})).await.unwrap();
        assert!(text.contains("is called for the pods of namespace \"own\""), "{text}");
        let rules = |resource: &str| json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}]});
        assert!(
            warning_for(rules("replicasets"))
                .await
                .unwrap()
                .contains("the ReplicaSets")
        );
        assert!(
            warning_for(rules("pods/binding"))
                .await
                .unwrap()
                .contains("the bindings of pods")
        );
        for harmless in [
            rules("configmaps"),
            json!({"failurePolicy": "Ignore"}),
            json!({"clientConfig": {"url": "https://x.io/"}}),
            json!({"namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["own"]}]}}),
            json!({"matchConditions": [{"name": "c", "expression": "true"}]}),
        ] {
            assert_eq!(warning_for(harmless.clone()).await, None, "{harmless:?}");
        }
    }
}
