//! Selectable fields.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::extensions::definitions::internal::Parts;
use crate::interrupt::checkpoint;
use crate::schema::definition::{self, ArrayNotation, resolve};
use std::collections::HashSet;

static NULL: Value = Value::Null;

/// Maximum number of selectable fields of a version.
pub(super) const MAX: usize = 8;

/// The fields that all versions share. Upstream rejects them if the versions differ in their schema.
pub(super) fn shared(out: &mut ErrorList, parts: &Parts<'_>, too_many: bool, path: &FieldPath) {
    let missing = "may only be set when validations.schema is included";
    fields(out, parts, !parts.schema.is_null(), missing, too_many, path);
}

/// The fields of one version.
pub(super) fn own(out: &mut ErrorList, parts: &Parts<'_>, too_many: bool, path: &FieldPath) {
    let missing = "may only be set when `version.schema.openAPIV3Schema` is not included";
    fields(out, parts, parts.open_api_schema().is_some(), missing, too_many, path);
}

fn fields(out: &mut ErrorList, parts: &Parts<'_>, has_schema: bool, missing: &str, too_many: bool, path: &FieldPath) {
    let fields = parts.selectable.items();
    if fields.is_empty() {
        return;
    }
    let at = path.child("selectableFields");
    // Without a schema there is nothing to resolve the paths in.
    if !has_schema {
        return out.push(FieldError::invalid(&at, "", missing));
    }
    let schema = match definition::convertible(parts.schema.get("openAPIV3Schema")) {
        Ok(schema) => schema,
        // Reported here once more; the paths are resolved without a schema.
        Err(why) => {
            let at = path.child("schema.openAPIV3Schema");
            out.push(FieldError::invalid(&at, "", why.to_string()));
            &NULL
        }
    };
    let mut unique: HashSet<Vec<String>> = HashSet::new();
    for (i, field) in fields.iter().enumerate() {
        checkpoint();
        let at = at.index(i).child("jsonPath");
        let path = field.str_at(&["jsonPath"]);
        if path.is_empty() {
            // Upstream continues with the next field after this error.
            out.push(FieldError::required(&at, ""));
            continue;
        }
        let (names, schema) = match resolve(path, schema, ArrayNotation::Refused) {
            Ok(found) => found,
            Err(why) => {
                out.push(FieldError::invalid(&at, path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        // Metadata has its own field selectors.
        if names.first().is_some_and(|n| n == "metadata") {
            out.push(FieldError::invalid(&at, path, "must not point to fields in metadata"));
        }
        if !matches!(schema.str_at(&["type"]), "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            out.push(FieldError::invalid(&at, path, why));
        }
        // Compared by resolved names: `.a.b` and `.a['b']` are the same field.
        if !unique.insert(names) {
            out.push(FieldError::duplicate(&at, path));
        }
    }
    // An update may keep too many, as long as it keeps the same ones.
    if unique.len() > MAX && !too_many {
        out.push(FieldError::too_many(&at, unique.len(), MAX));
    }
}

/// The number of selectable fields, for comparing a stored definition with a new one.
pub(super) fn count(fields: &Value) -> usize {
    // Upstream counts before removing duplicates here.
    fields.items().len()
}
