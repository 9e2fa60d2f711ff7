//! Warns when a webhook configuration is written that can lock out its own backend: while no backend answers, a webhook
//! with failure policy `Fail` refuses the pods that would answer.

use super::config::{Configuration, FailurePolicy, Hook};
use crate::admission::matching::Matcher;
use crate::admission::{Attributes, ObjectLookup, Operation};
use crate::apimachinery::gvk::{GroupVersionKind, GroupVersionResource};
use crate::apimachinery::value::Value;
use crate::client::webhook::Target;
use std::sync::Arc;

/// Adds a warning for each webhook of the configuration that judges the pods of its own backend.
pub(super) async fn warn(cluster: &ObjectLookup, attributes: &Attributes, configuration: &Value) {
    for hook in Configuration::parse(configuration).hooks {
        if let Some(namespace) = own_namespace(cluster, attributes, &hook).await {
            let name = hook.name.as_str();
            attributes.warnings.add(format!(
                "webhook {name:?} judges the pods of namespace {namespace:?}, in which its own backend runs: while the \
                 backend is down they cannot be created again; exclude the namespace with a namespaceSelector"
            ));
        }
    }
}

/// The namespace of the webhook's backend, if new pods in it depend on the webhook.
async fn own_namespace(cluster: &ObjectLookup, attributes: &Attributes, hook: &Hook) -> Option<String> {
    let Ok(Target::Service { namespace, .. }) = hook.client.as_ref().map(|c| &c.target) else {
        return None;
    };
    // Match conditions and selectors of objects are usually there to exclude the backend.
    if hook.failure_policy == FailurePolicy::Ignore || !hook.conditions.is_empty() {
        return None;
    }
    let create = Attributes {
        operation: Operation::Create,
        kind: GroupVersionKind::new("", "v1", "Pod"),
        resource: GroupVersionResource::new("", "v1", "pods"),
        subresource: String::new(),
        namespace: namespace.to_string(),
        name: String::new(),
        old_object: None,
        options: Arc::new(Value::Null),
        ..attributes.clone()
    };
    let matched = Matcher::new(cluster, &create)
        .matches(&hook.criteria, &Value::object())
        .await;
    // A namespace that does not exist yet cannot be judged.
    matched.ok().flatten().map(|_| namespace.to_string())
}
