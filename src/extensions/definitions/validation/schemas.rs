//! Requires a schema for each version, and checks the keywords at its root. The content is checked by
//! [`definition::check`].

use super::ratchet::Options;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::extensions::definitions::internal::Internal;
use crate::extensions::definitions::printed;
use crate::schema::definition;

/// Keywords that the root may have although status is validated with a part of the schema: their Go names, in
/// upstream's order, and in JSON.
const ROOT_KEYWORDS: [(&str, &str); 22] = [
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XValidations", "x-kubernetes-validations"),
];

/// True if a schema has something that only works in structural schemas.
pub(super) fn needs_structure(internal: &Internal<'_>) -> bool {
    const EXTENSIONS: [&str; 6] = [
        "x-kubernetes-embedded-resource",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-validations",
    ];
    // Any of these has no meaning in a schema that is not structural.
    let mut extended = |s: &Value| EXTENSIONS.iter().any(|w| !s.get(w).is_null());
    has_defaults(internal) || internal.schemas().any(|s| definition::any(s, &mut extended))
}

pub(super) fn has_defaults(internal: &Internal<'_>) -> bool {
    internal
        .schemas()
        .any(|s| definition::any(s, &mut |s| !s.get("default").is_null()))
}

/// Every version needs a schema.
pub(super) fn present(
    out: &mut ErrorList,
    internal: &Internal<'_>,
    options: &Options,
    preserve: bool,
    path: &FieldPath,
) {
    // A definition that preserves unknown fields prunes nothing, so it may go without a schema if it did before.
    if internal.shared.open_api_schema().is_some() || !options.schema_required && preserve {
        return;
    }
    let why = if options.schema_required {
        ""
    } else {
        "because otherwise all fields are pruned"
    };
    for (i, version) in internal.versions.iter().enumerate() {
        let served = version.sent.get("served").as_bool() == Some(true);
        // Versions that are not served may stay without one.
        if version.own.open_api_schema().is_none() && (options.schema_required || served) {
            let at = path.child("versions").index(i).child("schema").child("openAPIV3Schema");
            out.push(FieldError::required(&at, why));
        }
    }
}

/// The schema at `path`, if there is one.
pub(super) fn schema(
    out: &mut ErrorList,
    schema: Option<&Value>,
    has_status: bool,
    options: &Options,
    path: &FieldPath,
) {
    let Some(schema) = schema else { return };
    let at = path.child("openAPIV3Schema");
    if has_status {
        root_keywords(out, schema, &at);
    }
    if schema.get("nullable").as_bool() == Some(true) {
        out.push(FieldError::forbidden(
            &at.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    // The compiled form is not needed here.
    out.extend(definition::check(schema, &at, &options.schema).1);
}

/// With a status subresource `status` is validated by its own part of the schema, so the root may have
/// nothing that would then be lost.
fn root_keywords(out: &mut ErrorList, schema: &Value, at: &FieldPath) {
    // In Go these and numbers are pointers, which count as set even to an empty value.
    const POINTERS: [&str; 7] = [
        "$ref",
        "additionalItems",
        "additionalProperties",
        "default",
        "not",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    let unset = |key: &str, v: &Value| match POINTERS.contains(&key) {
        true => v.is_null(),
        false => v.is_empty_value() && v.as_f64().is_none(),
    };
    // Upstream reports one error, of the first member in the order of its struct: these are before the type.
    let type_is_first = ["id", "$schema", "$ref"]
        .into_iter()
        .all(|key| unset(key, schema.get(key)));
    let ty = schema.str_at(&["type"]);
    if type_is_first && !ty.is_empty() && ty != "object" {
        let why =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return out.push(FieldError::invalid(&at.child("type"), ty, why));
    }
    let allowed = |(key, v): (&str, &Value)| ROOT_KEYWORDS.iter().any(|(_, keyword)| *keyword == key) || unset(key, v);
    if schema.as_object().is_some_and(|m| !m.iter().all(allowed)) {
        let names = ROOT_KEYWORDS.map(|(name, _)| name).join(" ");
        let why =
            format!("only [{names}] fields are allowed at the root of the schema if the status subresource is enabled");
        out.push(FieldError::invalid_raw(at, printed::schema(schema), why));
    }
}
