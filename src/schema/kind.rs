//! The registry's [`Schema`] and [`Strategy`] for a kind with a structural schema: [`KindSchema`] normalises, merges
//! and publishes its objects, [`SchemaStrategy`] prunes, defaults and validates them. Custom resources and the kinds
//! of embedding programs share it.

use super::{Node, StructuralSchema, embedded, openapi};
use crate::api::openapi::Dialect;
use crate::api::{self, decode};
use crate::apimachinery::apply::managed;
use crate::apimachinery::apply::{self, ApplyRequest, FieldSet, OverlayError, Writer};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::objects::finalizer_warnings;
use crate::apimachinery::value::Value;
use crate::registry::schema::Schema;
use crate::registry::strategy::{Change, DeleteStrategy, RestStrategy, Rules, SideEffects};
use aws_lc_rs::digest;
use bytes::Bytes;
use std::sync::Arc;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A structural schema as the registry's [`Schema`].
pub(crate) struct KindSchema {
    gvk: GroupVersionKind,
    schema: Arc<StructuralSchema>,
    /// The schema as it was given, encoded to save memory; it is only decoded for publishing.
    source: Source,
}

/// A schema as it was given, as JSON.
enum Source {
    Given(Bytes),
    /// Read each time it is needed, which is seldom.
    Read(Box<dyn Fn() -> Bytes + Send + Sync>),
}

impl KindSchema {
    /// Parses the schema of a kind.
    ///
    /// # Errors
    /// As [`StructuralSchema::parse_at`].
    pub(crate) fn parse(
        gvk: GroupVersionKind,
        schema: &Value,
        path: &FieldPath,
    ) -> std::result::Result<Self, ErrorList> {
        Ok(Self {
            gvk,
            schema: Arc::new(StructuralSchema::parse_at(schema, path)?),
            source: Source::Given(json::to_vec(schema).into()),
        })
    }

    /// A kind with a schema that was compiled before, from this JSON. Both are shared, so that kinds and
    /// versions with equal schemas cost the memory of one.
    pub(crate) fn shared(gvk: GroupVersionKind, schema: Arc<StructuralSchema>, source: Bytes) -> Self {
        Self {
            gvk,
            schema,
            source: Source::Given(source),
        }
    }

    /// A kind of which only the schema is published: objects are neither pruned nor validated. Costs no
    /// compilation, and no memory for the schema: `source` reads its JSON when the document is written.
    pub(crate) fn published(gvk: GroupVersionKind, source: impl Fn() -> Bytes + Send + Sync + 'static) -> Self {
        Self {
            gvk,
            // Nothing is compiled, so the empty node accepts everything and is never used on objects.
            schema: Arc::new(StructuralSchema::of(Node::default())),
            source: Source::Read(Box::new(source)),
        }
    }

    fn source(&self) -> Bytes {
        match &self.source {
            Source::Given(source) => source.clone(),
            Source::Read(read) => read(),
        }
    }

    /// Compiles the schema of a kind from JSON that was accepted before.
    ///
    /// # Errors
    /// As [`StructuralSchema::compile_json`].
    #[cfg(test)]
    pub(crate) fn compile(gvk: GroupVersionKind, source: Bytes) -> std::result::Result<Self, super::CompileError> {
        let schema = Arc::new(StructuralSchema::compile_json(&source)?);
        Ok(Self::shared(gvk, schema, source))
    }

    /// A hash of the source.
    pub(crate) fn fingerprint(&self) -> u64 {
        let sum = digest::digest(&digest::SHA256, &self.source());
        // The first eight bytes are enough to tell the few versions of a definition apart.
        let first = sum.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        u64::from_le_bytes(*first)
    }

    pub(crate) fn structural(&self) -> &Arc<StructuralSchema> {
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
        // The table always has ObjectMeta: built-in kinds embed it.
        let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
        let mut findings = match object.as_object_mut().and_then(|m| m.get_mut("metadata")) {
            // Null metadata is left to the registry, which treats it as absent.
            Some(metadata) if !metadata.is_null() => {
                decode::normalize_under("metadata", def, metadata).map_err(|e| self.refuse(&e))?
            }
            _ => Vec::new(),
        };
        // Like upstream's coercer, which leaves objects of other kinds for validation to refuse.
        let kind = object.str_at(&["kind"]);
        if !kind.is_empty() && kind != self.gvk.kind.as_str() {
            return Ok(findings);
        }
        // After metadata, because pruning leaves `metadata` alone.
        let pruned = self.schema.prune(object);
        findings.extend(pruned.iter().map(|p| format!("unknown field {p:?}")));
        // Last, because upstream coerces embedded metadata after pruning.
        let embedded = embedded::coerce(&self.schema.root, object, &FieldPath::default(), false);
        let unknown = embedded.map_err(|e| self.refuse(&e))?;
        findings.extend(unknown);
        Ok(findings)
    }

    // Custom resources have no patch strategies; upstream answers with 415.
    fn strategic_merge(&self, _object: &Value, _patch: &Value) -> Option<Result<Value>> {
        None
    }

    fn manage_update(&self, live: Option<&Value>, new: &mut Value, who: &Writer<'_>, reset: &FieldSet) {
        // Objects that do not have the types of their schema are stored without managed fields.
        if managed::discard_unless_typed(self.schema.typed(), live, new) {
            managed::update_managed_fields(self.schema.typed(), live, new, who, reset);
        }
    }

    fn apply(&self, live: Option<&Value>, patch: Value, request: &ApplyRequest<'_>) -> Result<Value> {
        apply::apply(self.schema.typed(), live, &patch, request).map(|a| a.object)
    }

    fn overlay(&self, object: &Value, config: &Value) -> std::result::Result<Value, OverlayError> {
        apply::overlay(self.schema.typed(), object, config)
    }

    fn openapi(&self, dialect: Dialect) -> Option<Value> {
        // `source` is this gateway's own encoding.
        let source = json::decode(&self.source()).expect("encoded by this type");
        Some(openapi::component(source, &self.gvk, dialect))
    }
}

/// The strategy of all kinds with a schema: defaults, `status` rules, generation, validation. Each method
/// then delegates to the kind's own strategy.
pub(crate) struct SchemaStrategy {
    schema: Arc<StructuralSchema>,
    /// True if the kind has a status subresource; writes to the main resource then leave `status` alone.
    status: bool,
    inner: Arc<dyn RestStrategy>,
}

impl SchemaStrategy {
    /// The strategy of a kind with this schema; `inner` runs after it.
    pub(crate) fn new(schema: Arc<StructuralSchema>, status: bool, inner: Arc<dyn RestStrategy>) -> Self {
        Self { schema, status, inner }
    }
}

/// Compares everything except metadata. `status` needs no exception: with a status subresource it was copied
/// from `old`.
fn same_content(new: &Value, old: &Value) -> bool {
    // Clones both objects, which is acceptable for updates: they are decoded and small compared to the write.
    let bare = |v: &Value| {
        let mut v = v.clone();
        v.unset(&["metadata"]);
        v
    };
    bare(new) == bare(old)
}

impl RestStrategy for SchemaStrategy {
    fn rules(&self) -> Rules {
        let inner = self.inner.rules();
        Rules {
            // Either reason is enough to run the write on the compute pool.
            costly_validation: inner.costly_validation || self.schema.is_costly(),
            ..inner
        }
    }

    fn default(&self, object: &mut Value) {
        // The schema's defaults come first, so that the kind's own can rely on them.
        self.schema.default(object);
        self.inner.default(object);
    }

    fn prepare(&self, object: &mut Value, change: Change<'_>) {
        match change {
            Change::Create => {
                // Status is only written through its subresource.
                if self.status {
                    object.unset(&["status"]);
                }
                // Set before the kind's own preparation, which may change it.
                object.set_meta("generation", 1i64);
                self.inner.prepare(object, change);
            }
            Change::Update {
                subresource: "status", ..
            } => self.inner.prepare(object, change),
            Change::Update { old, .. } => {
                if self.status {
                    // The stored status replaces the one that the client sent.
                    match old.get("status") {
                        Value::Null => drop(object.unset(&["status"])),
                        status => object.set(&["status"], status.clone()),
                    }
                }
                self.inner.prepare(object, change);
                // Objects stored before generations were tracked count as the first.
                let generation = old.at(&["metadata", "generation"]).as_i64().unwrap_or(1);
                // Compared after preparation, so that ignored changes do not count.
                let changed = i64::from(!same_content(object, old));
                object.set_meta("generation", generation + changed);
            }
        }
    }

    fn validate(&self, object: &Value, change: Change<'_>) -> ErrorList {
        let mut errors = match change {
            Change::Update {
                old,
                subresource: "status",
            } => self.schema.validate_status(object, Some(old)),
            _ if !self.schema.is_defaulted(object) => {
                // Validation would judge an object that is incomplete through no fault of the client's values.
                let why = "the defaults of its schema take more than 1 MiB; shorten its lists, or the defaults";
                ErrorList::from_iter([FieldError::forbidden(&FieldPath::default(), why)])
            }
            _ => self.schema.validate(object, change.old()),
        };
        errors.extend(self.inner.validate(object, change));
        // The registry reports a missing name; rules are not evaluated then, either.
        let unnamed = object.name().is_empty().then(|| {
            let name = FieldPath::new("metadata").child("name");
            ErrorList::from_iter([FieldError::required(&name, "")])
        });
        // With a missing name, only that error is considered, since it blocks all rules anyway.
        let known = unnamed.as_ref().unwrap_or(&errors);
        errors.extend(self.schema.validate_rules(object, change.old(), known));
        errors
    }

    fn warnings(&self, object: &Value, change: Change<'_>) -> Vec<String> {
        let mut out = match change {
            Change::Update {
                subresource: "status", ..
            } => Vec::new(),
            _ => {
                // Only finalizers that this write adds are warned about.
                let old = change.old().map_or(&Value::Null, |old| old.get("metadata"));
                finalizer_warnings(object.get("metadata"), old)
            }
        };
        // Evaluates the rules a second time: validation keeps only errors.
        if let Some(old) = change.old() {
            out.extend(self.schema.rule_warnings(object, old));
        }
        out.extend(self.inner.warnings(object, change));
        out
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            // Other top-level fields are reset, too, but not listed, as in upstream's
            // `customresource/status_strategy.go`.
            "status" => &["metadata", "spec"],
            _ if self.status => &["status"],
            _ => self.inner.reset_fields(subresource),
        }
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        self.inner.effects()
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        self.inner.deletion()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Strategy;

    struct Resizable;

    impl Strategy for Resizable {
        fn prepare_subresource_update(&self, subresource: &str, new: &mut Value, _old: &Value) {
            new.set(&["through"], subresource);
        }
    }

    #[test]
    fn rules_wait_until_the_object_has_a_name() {
        let schema =
            crate::json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name == 'a'"}]});
        let schema = StructuralSchema::parse_at(&schema, &FieldPath::default()).unwrap();
        let strategy = SchemaStrategy::new(Arc::new(schema), true, Arc::new(Resizable));
        let errors = strategy.validate(&crate::json!({"metadata": {}}), Change::Create);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].to_string().contains("some validation rules were not checked"),
            "{}",
            errors[0]
        );
    }

    #[test]
    fn unqualified_finalizers_are_warned_about_once() {
        let schema = crate::json!({"type": "object"});
        let schema = StructuralSchema::parse_at(&schema, &FieldPath::default()).unwrap();
        let strategy = SchemaStrategy::new(Arc::new(schema), true, Arc::new(Resizable));
        let object = crate::json!({"metadata": {"finalizers": ["mine", "x.io/ours"]}});
        let warnings = strategy.warnings(&object, Change::Create);
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].contains("prefer a domain-qualified finalizer name"),
            "{warnings:?}"
        );
        for subresource in ["", "status"] {
            let old = &object;
            assert!(
                strategy
                    .warnings(&object, Change::Update { old, subresource })
                    .is_empty()
            );
        }
    }

    #[test]
    fn subresource_updates_reach_the_kinds_strategy() {
        let schema = crate::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = StructuralSchema::parse_at(&schema, &FieldPath::default()).unwrap();
        let strategy = SchemaStrategy::new(Arc::new(schema), true, Arc::new(Resizable));
        let old = crate::json!({"metadata": {"generation": 1}});
        let mut new = old.clone();
        let subresource = "resize";
        strategy.prepare(&mut new, Change::Update { old: &old, subresource });
        assert_eq!(new.str_at(&["through"]), "resize");
    }
}
