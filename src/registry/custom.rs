//! Writes that a handler carries out instead of the store: creates and updates of subresources with a kind of
//! their own, reviews, and connections. They pass the same admission as the writes of the store.

use super::admit;
use super::meta;
use super::resource::{CreateHandler, SubresourceHandler};
use super::store::Store;
use super::strategy::Context;
use super::write::WriteOptions;
use crate::admission::Operation;
use crate::api::apply_schema::ApplyType;
use crate::apimachinery::apply::{FieldSet, Writer, managed};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use std::sync::Arc;

impl Store {
    /// Creates an object through a subresource. `options` names the subresource and the kind of the object.
    ///
    /// # Errors
    /// The Status of admission or of the handler.
    pub(crate) async fn create_through(
        &self,
        cx: &Context,
        name: &str,
        handler: &dyn SubresourceHandler,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Value> {
        if !handler.keeps_system_fields() {
            meta::wipe_system_fields(&mut object);
        }
        handler.default(&mut object);
        // The kind of the resource itself records ownership in the store.
        if let Some(kind) = options.kind.as_ref().filter(|k| **k != self.resource.gvk()) {
            manage(kind, &mut object, options);
        }
        let write = (Operation::Create, name);
        let mutated = admit::mutate(self, cx, write, None, options, &mut object).await?;
        let object = handler.prepare_create(cx, name, object).await?;
        mutated.validate(&object).await?;
        handler.create(cx, name, object).await
    }

    /// Evaluates a review: a create whose object is answered instead of stored.
    ///
    /// # Errors
    /// The Status of admission or of the handler.
    pub(crate) async fn review(
        &self,
        cx: &Context,
        handler: &dyn CreateHandler,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Value> {
        meta::wipe_system_fields(&mut object);
        self.strategy.default(&mut object);
        if let Some(manager) = &options.manager {
            let who = Writer {
                manager,
                subresource: "",
                now: &time::now(),
                api_version: &self.resource.gvk().api_version(),
            };
            self.resource
                .schema
                .manage_update(None, &mut object, &who, &FieldSet::new());
        }
        // Copied, because admission borrows the object mutably.
        let name = object.name().to_owned();
        let write = (Operation::Create, name.as_str());
        let mutated = admit::mutate(self, cx, write, None, options, &mut object).await?;
        mutated.validate(&object).await?;
        handler.answer(cx, object).await
    }

    /// Updates a subresource with a kind of its own.
    ///
    /// # Errors
    /// The Status of admission or of the handler.
    pub(crate) async fn update_through(
        &self,
        cx: &Context,
        name: &str,
        handler: &dyn SubresourceHandler,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Value> {
        // The old object for admission. The handler reads it again, in a compare-and-swap loop of its own.
        let old = Arc::new(handler.live(cx, name).await?);
        let write = (Operation::Update, name);
        let mutated = admit::mutate(self, cx, write, Some(old), options, &mut object).await?;
        // Upstream passes some handlers the object without managed fields.
        match handler.validated_without_managed_fields() {
            true => mutated.without_managed_fields().validate(&bare(&object)).await?,
            false => mutated.validate(&object).await?,
        }
        handler.update_as(cx, name, object, options).await
    }

    /// Admits a connection to a subresource, whose options are `object`.
    ///
    /// # Errors
    /// The Status of the plugin that rejects it.
    pub(crate) async fn admit_connect(
        &self,
        cx: &Context,
        name: &str,
        object: &mut Value,
        options: &WriteOptions,
    ) -> Result<()> {
        let write = (Operation::Connect, name);
        let mutated = admit::mutate(self, cx, write, None, options, object).await?;
        mutated.validate(object).await
    }
}

/// The object without managed fields.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    bare.unset(&["metadata", "managedFields"]);
    bare
}

/// Records field ownership in an object of a subresource's own kind.
fn manage(kind: &GroupVersionKind, object: &mut Value, options: &WriteOptions) {
    // A kind without a built-in type has no fields whose owners could be recorded.
    let definition = crate::api::protobuf::definition(&kind.api_version(), &kind.kind);
    let (Some(def), Some(manager)) = (definition, &options.manager) else {
        return;
    };
    let who = Writer {
        manager,
        subresource: &options.subresource,
        now: &time::now(),
        api_version: &kind.api_version(),
    };
    managed::update_managed_fields(ApplyType::Root(def), None, object, &who, &FieldSet::new());
}
