//! The registry's [`Schema`] and [`Strategy`] for a kind with a structural schema.

use super::{StructuralSchema, embedded, openapi};
use crate::api::openapi::Dialect;
use crate::api::{self, decode};
use crate::apimachinery::apply::managed;
use crate::apimachinery::apply::{self, ApplyRequest};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldPath};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::schema::{ManagerInfo, Schema, reset_set};
use crate::registry::strategy::{Context, GarbageCollection, NameRule, Strategy};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A structural schema as the registry's [`Schema`].
pub struct KindSchema {
    gvk: GroupVersionKind,
    schema: Arc<StructuralSchema>,
    /// The schema as it was given, encoded to save memory; it is only decoded for publishing.
    source: Bytes,
}

impl KindSchema {
    /// Parses the schema of a kind.
    ///
    /// # Errors
    /// As [`StructuralSchema::parse_at`].
    pub fn parse(gvk: GroupVersionKind, schema: &Value, path: &FieldPath) -> std::result::Result<Self, ErrorList> {
        Ok(Self {
            gvk,
            schema: Arc::new(StructuralSchema::parse_at(schema, path)?),
            source: json::to_vec(schema).into(),
        })
    }

    /// The parsed schema.
    pub fn structural(&self) -> &Arc<StructuralSchema> {
        &self.schema
    }

    fn refuse(&self, why: &impl std::fmt::Display) -> Status {
        let GroupVersionKind { version, kind, .. } = &self.gvk;
        Status::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {why}",
            version.as_str()
        ))
    }
}

impl Schema for KindSchema {
    fn normalize(&self, object: &mut Value) -> Result<Vec<String>> {
        let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
        let mut findings = match object.as_object_mut().and_then(|m| m.get_mut("metadata")) {
            Some(metadata) if !metadata.is_null() => {
                decode::normalize_under("metadata", def, metadata).map_err(|e| self.refuse(&e))?
            }
            _ => Vec::new(),
        };
        let pruned = self.schema.prune(object);
        findings.extend(pruned.iter().map(|p| format!("unknown field {p:?}")));
        findings.extend(embedded::coerce(&self.schema.root, object));
        Ok(findings)
    }

    fn strategic_merge(&self, _object: &Value, _patch: &Value) -> Option<Result<Value>> {
        None
    }

    fn manage_update(
        &self,
        live: Option<&Value>,
        new: &mut Value,
        who: &ManagerInfo<'_>,
        reset: &[&str],
    ) -> Result<()> {
        managed::update_managed_fields(self.schema.typed(), live, new, &who.writer(), &reset_set(reset));
        Ok(())
    }

    fn apply(
        &self,
        live: Option<&Value>,
        patch: Value,
        who: &ManagerInfo<'_>,
        force: bool,
        reset: &[&str],
    ) -> Result<Value> {
        let request = ApplyRequest {
            writer: who.writer(),
            force,
            reset: &reset_set(reset),
        };
        apply::apply(self.schema.typed(), live, &patch, &request).map(|a| a.object)
    }

    fn openapi(&self, dialect: Dialect) -> Option<Value> {
        let source = json::decode(&self.source).expect("encoded by this type");
        Some(openapi::component(&source, &self.gvk, dialect))
    }
}

/// The strategy of all kinds with a schema: defaults, `status` rules, generation, validation. Each method then
/// delegates to the kind's own strategy.
pub struct SchemaStrategy {
    schema: Arc<StructuralSchema>,
    /// True if the kind has a status subresource; writes to the main resource then leave `status` alone.
    status: bool,
    inner: Arc<dyn Strategy>,
}

impl SchemaStrategy {
    /// The strategy of a kind with this schema; `inner` runs after it.
    pub fn new(schema: Arc<StructuralSchema>, status: bool, inner: Arc<dyn Strategy>) -> Self {
        Self { schema, status, inner }
    }
}

/// Compares everything except metadata. `status` needs no exception: with a status subresource it was copied from
/// `old`.
fn same_content(new: &Value, old: &Value) -> bool {
    let bare = |v: &Value| {
        let mut v = v.clone();
        v.unset(&["metadata"]);
        v
    };
    bare(new) == bare(old)
}

#[async_trait]
impl Strategy for SchemaStrategy {
    fn missing_propagation_warning(&self) -> Option<&'static str> {
        self.inner.missing_propagation_warning()
    }

    fn name_rule(&self) -> NameRule {
        self.inner.name_rule()
    }

    fn default(&self, object: &mut Value) {
        self.schema.default(object);
        self.inner.default(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.status {
            object.unset(&["status"]);
        }
        object.set_meta("generation", 1i64);
        self.inner.prepare_create(object);
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut errors = self.schema.validate(object, None);
        errors.extend(self.inner.validate_create(object));
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.status {
            match old.get("status") {
                Value::Null => drop(new.unset(&["status"])),
                status => new.set(&["status"], status.clone()),
            }
        }
        self.inner.prepare_update(new, old);
        let generation = old.at(&["metadata", "generation"]).as_i64().unwrap_or(1);
        let changed = i64::from(!same_content(new, old));
        new.set_meta("generation", generation + changed);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        let mut errors = self.schema.validate(new, Some(old));
        errors.extend(self.inner.validate_update(new, old));
        errors
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        self.inner.prepare_status_update(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        let mut errors = self.schema.validate_status(new, Some(old));
        errors.extend(self.inner.validate_status_update(new, old));
        errors
    }

    fn deprecation(&self) -> Option<&'static str> {
        self.inner.deprecation()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        self.inner.warnings(new, old)
    }

    fn subresource_warnings(&self, subresource: &str, new: &Value, old: &Value) -> Vec<String> {
        self.inner.subresource_warnings(subresource, new, old)
    }

    async fn begin_create(&self, cx: &Context, object: &mut Value) -> Result<()> {
        self.inner.begin_create(cx, object).await
    }

    async fn begin_update(&self, cx: &Context, new: &mut Value, old: &Value) -> Result<()> {
        self.inner.begin_update(cx, new, old).await
    }

    async fn rollback(&self, cx: &Context, object: &Value, old: Option<&Value>) {
        self.inner.rollback(cx, object, old).await;
    }

    async fn created(&self, cx: &Context, object: &Value) {
        self.inner.created(cx, object).await;
    }

    async fn updated(&self, cx: &Context, new: &Value, old: &Value) {
        self.inner.updated(cx, new, old).await;
    }

    async fn deleted(&self, cx: &Context, object: &Value) {
        self.inner.deleted(cx, object).await;
    }

    fn check_delete(&self, object: &Value) -> Result<()> {
        self.inner.check_delete(object)
    }

    fn holds_deletion(&self, object: &Value) -> bool {
        self.inner.holds_deletion(object)
    }

    fn garbage_collection(&self) -> GarbageCollection {
        self.inner.garbage_collection()
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        self.inner.grace(object, requested)
    }

    fn mark_deleting(&self, object: &mut Value) {
        self.inner.mark_deleting(object);
    }

    fn may_vanish(&self, object: &Value) -> bool {
        self.inner.may_vanish(object)
    }

    fn ttl_seconds(&self, object: &Value) -> Option<u64> {
        self.inner.ttl_seconds(object)
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["metadata", "spec"],
            _ if self.status => &["status"],
            _ => self.inner.reset_fields(subresource),
        }
    }
}
