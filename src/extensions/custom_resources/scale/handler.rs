//! Serves the scale subresource through the store of the custom resource.

use super::{ScalePaths, WrongType};
use crate::apimachinery::apply::{FieldSet, Writer};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::extensions::custom_resources::columns;
use crate::registry::resource::SubresourceHandler;
use crate::registry::scale::{self, API_VERSION};
use crate::registry::{Columns, Context, Schema, Store, WriteOptions};
use async_trait::async_trait;
use std::sync::{Arc, OnceLock};

const REPLICAS: [&str; 2] = ["spec", "replicas"];
/// The replicas of an object without that field, while a patch is applied. If they are unchanged afterwards, the
/// patch did not set them.
const UNSET: i64 = i32::MIN as i64;

/// The error of a request for a Scale that the object cannot have.
fn raw_error(e: WrongType) -> Status {
    Status::raw_error(e.to_string())
}

pub(super) struct ScaleHandler {
    paths: ScalePaths,
    /// Without admission: the endpoint admits the Scale.
    parent: OnceLock<Store>,
    schema: Arc<dyn Schema>,
}

impl ScaleHandler {
    pub(crate) fn new(paths: ScalePaths, schema: Arc<dyn Schema>) -> Self {
        Self {
            paths,
            parent: OnceLock::new(),
            schema,
        }
    }

    /// Sets the store. Later calls have no effect.
    // Bound after construction, because the store's resource and this handler refer to each other.
    pub(crate) fn bind(&self, parent: &Store) {
        let _ = self.parent.set(parent.without_admission());
    }

    fn parent(&self) -> Result<&Store> {
        let unbound = || Status::service_unavailable("the resource is not served yet");
        self.parent.get().ok_or_else(unbound)
    }

    /// The Scale of an object as patches see it: with managed fields.
    fn patchable(&self, object: &Value) -> Result<Value> {
        let (mut scale, found) = self.paths.scale(object).map_err(raw_error)?;
        // Outside of what validation allows, so that no client's value can be taken for it.
        if !found {
            scale.set(&REPLICAS, UNSET);
        }
        self.paths.managers.to_scale(object, &mut scale);
        Ok(scale)
    }

    /// The object updated from a Scale.
    fn scaled(&self, live: &Value, mut scale: Value, manager: Option<&str>) -> Result<Value> {
        // Without a manager there is nothing to track, as for an internal write.
        if let Some(manager) = manager {
            let who = Writer {
                manager,
                subresource: "scale",
                now: &time::now(),
                api_version: API_VERSION,
            };
            // Ownership is tracked on the Scale first, then carried over to the object.
            self.schema
                .manage_update(Some(&self.patchable(live)?), &mut scale, &who, &FieldSet::new());
        }
        let replicas = scale.at(&REPLICAS).as_i64().unwrap_or(0);
        if replicas == UNSET {
            let path = &self.paths.wanted.text;
            return Err(Status::bad_request(format!(
                "the spec replicas field {path:?} cannot be empty"
            )));
        }
        // Everything but the replicas is taken from the live object, so a Scale cannot change anything else.
        let mut new = live.clone();
        self.paths.wanted.set(&mut new, replicas).map_err(raw_error)?;
        // Without a resourceVersion there is no precondition: the live one stays.
        if !scale.resource_version().is_empty() {
            new.set_meta("resourceVersion", scale.resource_version());
        }
        // Ownership of the replicas moves from the Scale's path to the object's.
        self.paths.managers.to_parent(live, &scale, &mut new);
        Ok(new)
    }
}

#[async_trait]
impl SubresourceHandler for ScaleHandler {
    async fn get(&self, cx: &Context, name: &str) -> Result<Value> {
        let object = self.parent()?.get_value(&cx.namespace, name).await?;
        match self.paths.scale(&object).map_err(raw_error)? {
            (scale, true) => Ok(scale),
            // Upstream reports a missing replicas field as an internal error on GET.
            (_, false) => {
                let path = &self.paths.wanted.text;
                Err(Status::internal(format!(
                    "the spec replicas field {path:?} does not exist"
                )))
            }
        }
    }

    async fn live(&self, cx: &Context, name: &str) -> Result<Value> {
        self.patchable(&self.parent()?.get_value(&cx.namespace, name).await?)
    }

    fn validated_without_managed_fields(&self) -> bool {
        true
    }

    fn schema(&self) -> Option<Arc<dyn Schema>> {
        Some(self.schema.clone())
    }

    fn columns(&self) -> Option<Columns> {
        Some(columns::of_scale())
    }

    async fn create(&self, _cx: &Context, _name: &str, _object: Value) -> Result<Value> {
        Err(Status::method_not_supported(
            &self.parent()?.resource().group_resource(),
            "create",
        ))
    }

    async fn update(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        self.update_as(cx, name, object, &WriteOptions::default()).await
    }

    async fn update_as(&self, cx: &Context, name: &str, object: Value, write: &WriteOptions) -> Result<Value> {
        // Before the store is asked: a Scale of another name must not touch this object.
        scale::check_name(&object, name)?;
        let parent = self.parent()?;
        let gr = parent.resource().group_resource();
        let options = scale::parent_options(write);
        // Runs again on every conflict, on the then live object.
        let mut transform = |live: Option<&Value>| match live {
            None => Err(Status::not_found(&gr, name)),
            // Cloned per attempt, because tracking ownership consumes the Scale.
            Some(live) => self.scaled(live, object.clone(), write.manager.as_deref()),
        };
        let updated = parent.update(cx, name, &mut transform, false, &options).await?;
        let (scale, _) = self
            .paths
            .scale(&updated.object.to_value())
            .map_err(|e| Status::bad_request(e.to_string()))?;
        Ok(scale)
    }
}
