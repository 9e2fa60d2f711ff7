//! Field ownership across versions: managed fields are recorded in the version of their write, and a write through
//! another version must determine its changes there.

use super::DefinitionVersions;
use crate::api::openapi::Dialect;
use crate::apimachinery::apply::managed;
use crate::apimachinery::apply::{self, ApplyRequest, AtVersion, FieldSet, OverlayError, Versions, Writer};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::registry::Schema;
use crate::registry::converting::Converting;
use crate::schema::{KindSchema, Typed};
use std::sync::Arc;

/// The schema of one version of a definition, with access to the others.
pub(super) struct VersionedSchema {
    all: Arc<DefinitionVersions>,
    version: usize,
}

impl VersionedSchema {
    pub(crate) fn new(all: Arc<DefinitionVersions>, version: usize) -> Self {
        Self { all, version }
    }

    fn own(&self) -> &KindSchema {
        &self.all.schemas[self.version]
    }

    fn across(&self) -> Across<'_> {
        Across {
            all: &self.all,
            own: self.version,
        }
    }
}

impl Schema for VersionedSchema {
    fn normalize(&self, object: &mut Value) -> Result<Vec<String>> {
        self.own().normalize(object)
    }

    fn strategic_merge(&self, object: &Value, patch: &Value) -> Option<Result<Value>> {
        self.own().strategic_merge(object, patch)
    }

    fn manage_update(&self, live: Option<&Value>, new: &mut Value, who: &Writer<'_>, reset: &FieldSet) {
        let schema = self.own().structural().typed();
        if managed::discard_unless_typed(schema, live, new) {
            managed::update_managed_fields_across(schema, live, new, who, reset, &self.across());
        }
    }

    fn apply(&self, live: Option<&Value>, patch: Value, request: &ApplyRequest<'_>) -> Result<Value> {
        let typed = self.own().structural().typed();
        apply::apply_across(typed, live, &patch, request, &self.across()).map(|a| a.object)
    }

    fn overlay(&self, object: &Value, config: &Value) -> std::result::Result<Value, OverlayError> {
        self.own().overlay(object, config)
    }

    fn openapi(&self, dialect: Dialect) -> Option<Value> {
        self.own().openapi(dialect)
    }
}

#[derive(Clone, Copy)]
struct Across<'s> {
    all: &'s DefinitionVersions,
    /// Index of the version that is written.
    own: usize,
}

impl<'s> Versions<Typed<'s>> for Across<'s> {
    fn at(&self, object: &Value, wanted: &str) -> AtVersion<Typed<'s>> {
        let kind = &self.all.kind;
        let Some(i) = kind.index_of(wanted) else {
            return AtVersion::Unknown;
        };
        let typed = self.all.schemas[i].structural().typed();
        let mut object = object.clone();
        // Pruned objects may lack it; they are in the version being written.
        if object.api_version().is_empty() {
            object.set(&["apiVersion"], kind.versions[self.own].api_version.clone());
        }
        if object.api_version() == wanted {
            return AtVersion::Converted(object, typed);
        }
        match kind.conversion.convert(vec![object], &kind.versions[i]) {
            Converting::Done(Ok(mut objects)) if objects.len() == 1 => AtVersion::Converted(objects.remove(0), typed),
            // Where only a webhook knows better, fields count as the same in all versions: ownership is
            // computed while the object is being written, which must not wait for a call per manager.
            _ => AtVersion::Same,
        }
    }

    fn shape(&self, wanted: &str) -> Option<usize> {
        let i = self.all.kind.index_of(wanted)?;
        if !self.all.kind.conversion.changes_only_version() {
            return Some(i);
        }
        // Versions with equal schemas share a shape, so ownership recorded in one is valid in the other without a
        // conversion.
        // The first version with the same schema.
        let fingerprint = self.all.schemas[i].fingerprint();
        self.all.schemas.iter().position(|s| s.fingerprint() == fingerprint)
    }
}
