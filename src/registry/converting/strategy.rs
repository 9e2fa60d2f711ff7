//! The strategy of a served version that is stored as another: its own defaults, everything else from the hub's
//! strategy.

use super::Pair;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::registry::strategy::{Context, GarbageCollection, NameRule, Strategy};
use async_trait::async_trait;
use std::sync::Arc;

/// Runs the hub's strategy on objects of the served version: converts them, calls the hub, and converts back.
pub struct ThroughHub {
    hub: Arc<dyn Strategy>,
    conversion: Arc<dyn Pair>,
    default: fn(&mut Value),
}

impl ThroughHub {
    /// `default` sets the served version's own defaults.
    pub fn new(hub: Arc<dyn Strategy>, conversion: Arc<dyn Pair>, default: fn(&mut Value)) -> Self {
        Self {
            hub,
            conversion,
            default,
        }
    }

    fn hub(&self, served: &Value) -> Value {
        self.conversion.store(served.clone())
    }

    /// Calls `change` on the object converted to the hub version, and converts the result back.
    fn through<T>(&self, served: &mut Value, change: impl FnOnce(&mut Value) -> T) -> T {
        let mut stored = self.conversion.store(std::mem::take(served));
        let done = change(&mut stored);
        *served = self.conversion.serve(stored);
        done
    }
}

#[async_trait]
impl Strategy for ThroughHub {
    fn name_rule(&self) -> NameRule {
        self.hub.name_rule()
    }

    /// Round-trips the object through the hub, so that fields the hub cannot represent are dropped as they would be
    /// on storage.
    fn default(&self, object: &mut Value) {
        (self.default)(object);
        self.through(object, |_| ());
    }

    fn prepare_create(&self, object: &mut Value) {
        self.through(object, |hub| self.hub.prepare_create(hub));
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        self.hub.validate_create(&self.hub(object))
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let old = self.hub(old);
        self.through(new, |hub| self.hub.prepare_update(hub, &old));
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        self.hub.validate_update(&self.hub(new), &self.hub(old))
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        let old = self.hub(old);
        self.through(new, |hub| self.hub.prepare_status_update(hub, &old));
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        self.hub.validate_status_update(&self.hub(new), &self.hub(old))
    }

    fn deprecation(&self) -> Option<&'static str> {
        self.hub.deprecation()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let old = old.map(|o| self.hub(o));
        self.hub.warnings(&self.hub(new), old.as_ref())
    }

    fn subresource_warnings(&self, subresource: &str, new: &Value, old: &Value) -> Vec<String> {
        self.hub
            .subresource_warnings(subresource, &self.hub(new), &self.hub(old))
    }

    async fn begin_create(&self, cx: &Context, object: &mut Value) -> Result<()> {
        let mut stored = self.hub(object);
        self.hub.begin_create(cx, &mut stored).await?;
        *object = self.conversion.serve(stored);
        Ok(())
    }

    async fn begin_update(&self, cx: &Context, new: &mut Value, old: &Value) -> Result<()> {
        let mut stored = self.hub(new);
        self.hub.begin_update(cx, &mut stored, &self.hub(old)).await?;
        *new = self.conversion.serve(stored);
        Ok(())
    }

    async fn rollback(&self, cx: &Context, object: &Value, old: Option<&Value>) {
        let old = old.map(|o| self.hub(o));
        self.hub.rollback(cx, &self.hub(object), old.as_ref()).await;
    }

    async fn created(&self, cx: &Context, object: &Value) {
        self.hub.created(cx, &self.hub(object)).await;
    }

    async fn updated(&self, cx: &Context, new: &Value, old: &Value) {
        self.hub.updated(cx, &self.hub(new), &self.hub(old)).await;
    }

    async fn deleted(&self, cx: &Context, object: &Value) {
        self.hub.deleted(cx, &self.hub(object)).await;
    }

    fn check_delete(&self, object: &Value) -> Result<()> {
        self.hub.check_delete(&self.hub(object))
    }

    fn holds_deletion(&self, object: &Value) -> bool {
        self.hub.holds_deletion(&self.hub(object))
    }

    fn missing_propagation_warning(&self) -> Option<&'static str> {
        self.hub.missing_propagation_warning()
    }

    fn garbage_collection(&self) -> GarbageCollection {
        self.hub.garbage_collection()
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        self.hub.grace(&self.hub(object), requested)
    }

    fn mark_deleting(&self, object: &mut Value) {
        self.through(object, |hub| self.hub.mark_deleting(hub));
    }

    fn may_vanish(&self, object: &Value) -> bool {
        self.hub.may_vanish(&self.hub(object))
    }

    fn ttl_seconds(&self, object: &Value) -> Option<u64> {
        self.hub.ttl_seconds(&self.hub(object))
    }

    fn wire_annotations(&self) -> &'static [&'static str] {
        self.conversion.wire_annotations()
    }

    /// Only sound because both versions have these fields under the same paths.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        self.hub.reset_fields(subresource)
    }
}
