//! `pods/binding` and `bindings`: assign a pod to a node (upstream's `BindingREST` in
//! `pkg/registry/core/pod/storage/storage.go`). Start at [`Binding`]'s `create`.

use super::pod_condition::update_pod_condition;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::controlplane::strategies::pod::Pod;
use crate::registry::StoreLookup;
use crate::registry::resource::{CreateHandler, SubresourceHandler};
use crate::registry::store::Store;
use crate::registry::strategy::{Context, Rules, Strategy};
use crate::registry::write::WriteOptions;
use async_trait::async_trait;

/// Strategy that binding writes with: it skips the pod's update validation and preparation, so the
/// generation does not change either.
struct BindingStrategy;

impl Strategy for BindingStrategy {
    fn default(&self, object: &mut Value) {
        Pod.default(object);
    }
    fn rules(&self) -> Rules {
        Rules {
            unvalidated_updates: true,
            ..Rules::DEFAULT
        }
    }
}

/// Serves both resources through the store of pods, with [`BindingStrategy`] and without admission: the
/// Binding has passed admission already.
pub(in crate::controlplane) struct Binding(pub(in crate::controlplane) StoreLookup);

fn unsupported(action: &str) -> Status {
    Status::method_not_supported(&GroupResource::new("", "pods"), action)
}

/// Validates the target. Upstream returns the plain error aggregate, which becomes a 500 rather than a 422.
fn check_target(binding: &Value) -> Result<()> {
    let target = binding.get("target");
    let path = FieldPath::new("target");
    let mut errors = ErrorList::new();
    let kind = ObjectView::kind(target);
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported_string(
            &path.child("kind"),
            kind,
            &["Node", "<empty>"],
        ));
    }
    if target.str_at(&["name"]).is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::raw_error(crate::apimachinery::field::aggregate(&errors)))
}

/// Checks the binding's resourceVersion precondition, with the error of upstream's storage layer.
fn unchanged(pod: &Value, binding: &Value, key: &str) -> Result<()> {
    let (asked, is) = (binding.resource_version(), pod.resource_version());
    if asked.is_empty() || asked == is {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {is}"
    );
    Err(Status::conflict(&GroupResource::new("", "pods"), pod.name(), &why))
}

/// The pod after the binding: upstream's `setPodHostAndAnnotations`.
fn bound(pod: &Value, binding: &Value) -> Result<Value> {
    let name = pod.name();
    // Upstream turns every error of this step into a conflict on `pods/binding`.
    let refused = |why: String| Err(Status::conflict(&GroupResource::new("", "pods/binding"), name, &why));
    if pod.is_being_deleted() {
        return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    match pod.str_at(&["spec", "nodeName"]) {
        "" => {}
        node => return refused(format!("pod {name} is already assigned to node {node:?}")),
    }
    if !pod.at(&["spec", "schedulingGates"]).items().is_empty() {
        return refused(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod.set(&["spec", "nodeName"], binding.str_at(&["target", "name"]));
    // A nomination is obsolete once the pod has a node.
    pod.unset(&["status", "nominatedNodeName"]);
    for key in ["annotations", "labels"] {
        for (k, v) in binding
            .at(&["metadata", key])
            .as_object()
            .into_iter()
            .flat_map(|m| m.iter())
        {
            pod.set(&["metadata", key, k], v.clone());
        }
    }
    update_pod_condition(&mut pod, crate::json!({"type": "PodScheduled", "status": "True"}));
    Ok(pod)
}

#[async_trait]
impl SubresourceHandler for Binding {
    // The body's UID is a precondition on the pod, so the generic create path must not replace it.
    fn keeps_system_fields(&self) -> bool {
        true
    }

    async fn get(&self, _cx: &Context, _name: &str) -> Result<Value> {
        Err(unsupported("get"))
    }

    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        if object.name() != name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        check_target(&object)?;
        Store::check_name(name)?;
        let pods = self.0.get("", "pods")?;
        let store = pods.with_strategy(BindingStrategy).without_admission();
        let options = WriteOptions {
            subresource: "binding".to_owned(),
            // An empty UID is no precondition.
            uid: Some(object.uid().to_owned()).filter(|u| !u.is_empty()),
            ..WriteOptions::default()
        };
        let gr = store.resource().group_resource();
        let key = store.full_key(&cx.namespace, name);
        let mut transform = |live: Option<&Value>| match live {
            None => Err(Status::not_found(&gr, name)),
            Some(live) => {
                unchanged(live, &object, &key)?;
                bound(live, &object)
            }
        };
        store.update(cx, name, &mut transform, false, &options).await?;
        // As upstream, which answers with a Status instead of the Binding.
        Ok(crate::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }

    async fn update(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        Err(unsupported("update"))
    }
}

/// The `bindings` resource, whose requests carry the pod's name in the body instead of the URL.
#[async_trait]
impl CreateHandler for Binding {
    async fn answer(&self, cx: &Context, mut object: Value) -> Result<Value> {
        // The generic create path has recorded managed fields for the Binding; they must not reach the pod.
        object.unset_meta("managedFields");
        let name = object.name().to_owned();
        self.create(cx, &name, object).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_pod_can_be_bound_only_once() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False"}, {"type": "Ready", "status": "False"}]}});
        let to = json!({"metadata": {"labels": {"z": "a"}}, "target": {"kind": "Node", "name": "n"}});
        let pod = bound(&pod, &to).unwrap();
        assert_eq!(pod.str_at(&["spec", "nodeName"]), "n");
        assert_eq!(pod.label("z"), Some("a"));
        let first = &pod.at(&["status", "conditions"]).items()[0];
        assert_eq!(
            (first.str_at(&["type"]), first.str_at(&["status"])),
            ("PodScheduled", "True")
        );
        assert_eq!(
            bound(&pod, &to).unwrap_err().message,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
        );
        assert_eq!(
            check_target(&json!({"target": {"kind": "X"}})).unwrap_err().message,
            "[target.kind: Unsupported value: \"X\": supported values: \"Node\", \"<empty>\", target.name: Required value]"
        );
    }
}
