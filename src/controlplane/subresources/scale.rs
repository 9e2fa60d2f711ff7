//! `scale`: a workload's replica count as an `autoscaling/v1` Scale object.

use crate::apimachinery::apply::{FieldSet, Writer};
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::labels::LabelSelector;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::controlplane::schema::BuiltinSchema;
use crate::registry::resource::{Columns, SubresourceHandler};
use crate::registry::scale::managers::ReplicasPaths;
use crate::registry::scale::{self, API_VERSION};
use crate::registry::strategy::Context;
use crate::registry::write::WriteOptions;
use crate::registry::{Schema, Store, StoreLookup};
use async_trait::async_trait;
use std::sync::Arc;

/// Serves the subresource through the workload's store, without admission: the Scale has passed admission
/// already.
pub(in crate::controlplane) struct Scale {
    pub(in crate::controlplane) stores: StoreLookup,
    /// Group and plural of the workload.
    pub(in crate::controlplane) of: (&'static str, &'static str),
}

impl Scale {
    fn store(&self) -> Result<Store> {
        let (group, resource) = self.of;
        Ok(self.stores.get(group, resource)?.without_admission())
    }
}

/// The Scale of a workload.
fn scale_of(parent: &Value) -> Value {
    let selector = parent.at(&["spec", "selector"]);
    // A ReplicationController's selector is a plain map instead of a LabelSelector.
    let plain = selector
        .as_object()
        .is_some_and(|m| m.values().all(|v| v.as_str().is_some()));
    let text = if plain {
        LabelSelector::from_map(selector).to_string()
    } else {
        LabelSelector::from_object(selector)
            .map(|s| s.to_string())
            .unwrap_or_default()
    };
    let replicas = |part| parent.at(&[part, "replicas"]).as_i64().unwrap_or(0);
    scale::scale_of(parent, replicas("spec"), replicas("status"), &text)
}

/// The workload updated from a Scale: its replicas, and its resourceVersion as precondition.
fn scaled(gr: &GroupResource, live: &Value, scale: &Value) -> Result<Value> {
    let (wanted, have) = (scale.uid(), live.uid());
    if !wanted.is_empty() && wanted != have {
        let gr = GroupResource::new(&gr.group, &format!("{}/scale", gr.resource));
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {have}");
        return Err(Status::conflict(&gr, live.name(), &why));
    }
    let replicas = scale.at(&["spec", "replicas"]).as_i64().unwrap_or(0);
    if replicas < 0 {
        let path = FieldPath::new("spec").child("replicas");
        // Only this field: the rest of a Scale is computed from the workload.
        let errors = vec![FieldError::invalid(
            &path,
            replicas,
            "must be greater than or equal to 0",
        )];
        return Err(Status::invalid("autoscaling", "Scale", live.name(), &errors));
    }
    let mut new = live.clone();
    new.set(&["spec", "replicas"], replicas);
    // Without a version the update is unconditional; keeping the live one would let it conflict.
    match scale.resource_version() {
        "" => new.unset_meta("resourceVersion"),
        version => new.set_meta("resourceVersion", version),
    }
    Ok(new)
}

fn definition() -> Result<BuiltinSchema> {
    let def = crate::api::by_gvk("autoscaling", "v1", "Scale");
    def.map(BuiltinSchema)
        .ok_or_else(|| Status::internal("the schema table has no Scale"))
}

#[async_trait]
impl SubresourceHandler for Scale {
    async fn get(&self, cx: &Context, name: &str) -> Result<Value> {
        Ok(scale_of(&self.store()?.get_value(&cx.namespace, name).await?))
    }

    async fn live(&self, cx: &Context, name: &str) -> Result<Value> {
        let store = self.store()?;
        let parent = store.get_value(&cx.namespace, name).await?;
        let mut scale = scale_of(&parent);
        ReplicasPaths::standard(&store.resource().gvk().api_version()).to_scale(&parent, &mut scale);
        Ok(scale)
    }

    fn validated_without_managed_fields(&self) -> bool {
        true
    }

    fn schema(&self) -> Option<Arc<dyn Schema>> {
        definition().ok().map(|s| Arc::new(s) as Arc<dyn Schema>)
    }

    fn columns(&self) -> Option<Columns> {
        Some(crate::controlplane::columns::autoscaling::scales())
    }

    async fn create(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        let gr = self.store()?.resource().group_resource();
        Err(Status::method_not_supported(&gr, "create"))
    }

    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        self.update_as(cx, name, object, &WriteOptions::default()).await
    }

    async fn update_as(&self, cx: &Context, name: &str, object: Value, write: &WriteOptions) -> Result<Value> {
        let store = self.store()?;
        scale::check_name(&object, name)?;
        let gr = store.resource().group_resource();
        let paths = ReplicasPaths::standard(&store.resource().gvk().api_version());
        let now = time::now();
        let options = scale::parent_options(write);
        let mut transform = |live: Option<&Value>| match live {
            None => Err(Status::not_found(&gr, name)),
            Some(live) => {
                // Cloned, because the transform runs again after a conflict.
                let mut scale = object.clone();
                if let Some(manager) = write.manager.as_deref() {
                    let who = Writer {
                        manager,
                        subresource: "scale",
                        now: &now,
                        api_version: API_VERSION,
                    };
                    // Ownership is tracked on the Scale first, then carried over to the workload.
                    let mut before = scale_of(live);
                    paths.to_scale(live, &mut before);
                    definition()?.manage_update(Some(&before), &mut scale, &who, &FieldSet::new());
                }
                let mut new = scaled(&gr, live, &scale)?;
                paths.to_parent(live, &scale, &mut new);
                Ok(new)
            }
        };
        let updated = store.update(cx, name, &mut transform, false, &options).await?;
        Ok(scale_of(&updated.object.to_value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn deployment() -> Value {
        json!({"metadata": {"name": "d", "uid": "u", "resourceVersion": "5", "labels": {"x": "y"}},
               "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "demo"}}}, "status": {"replicas": 1}})
    }

    #[test]
    fn a_scale_has_the_workloads_replicas_and_selector() {
        assert_eq!(
            scale_of(&deployment()),
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "uid": "u", "resourceVersion": "5"},
                   "spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "app=demo"}})
        );
        let rc = json!({"metadata": {"name": "rc"}, "spec": {"selector": {"b": "2", "a": "1"}}});
        assert_eq!(scale_of(&rc).str_at(&["status", "selector"]), "a=1,b=2");
    }

    #[test]
    fn negative_replicas_and_a_wrong_uid_are_refused() {
        let gr = GroupResource::new("apps", "deployments");
        let refused = |s: Value| scaled(&gr, &deployment(), &s).unwrap_err().message;
        assert_eq!(
            refused(json!({"spec": {"replicas": -1}})),
            "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        assert!(refused(json!({"metadata": {"uid": "other"}})).contains("deployments/scale"));
        let new = scaled(&gr, &deployment(), &json!({"spec": {"replicas": 7}})).unwrap();
        assert_eq!(new.at(&["spec", "replicas"]), &7i64.into());
        assert_eq!(new.resource_version(), "");
    }
}
