//! The rows of custom resources as OpenAPI documents need them: without compiling a schema and without
//! decoding it before its turn, since a document may describe a thousand definitions.
//!
//! Entry point: [`published`].

use super::scale::{Scale, ScalePaths};
use super::version::{check_names, outline, pruning_schema};
use super::{Definition, Version, selectable};
use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::projection::{self, Mask, Step};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use crate::registry::{Resource, Schema};
use crate::schema::KindSchema;
use crate::storage::stored_json::StoredJson;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The parts of a definition that [`published`] reads: all but the schemas.
static PUBLISHED: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["spec.versions.{name,selectableFields,subresources}"]));

/// The OpenAPI descriptions of the rows of some versions. Versions that cannot be served are left out.
/// `scale` is the schema of `autoscaling/v1` Scale.
pub(super) fn published<'d>(
    definition: &'d Definition,
    versions: impl Iterator<Item = &'d Version>,
    scale: &Arc<dyn Schema>,
) -> Vec<(&'d Version, Resource)> {
    // Versions with conflicting names cannot be served, so documents do not describe them.
    if check_names(&definition.accepted).is_err() {
        return Vec::new();
    }
    // Without the schemas, which are located in the stored bytes when the document is written.
    let parts = definition.read(&PUBLISHED);
    let specs = parts.at(&["spec", "versions"]).items().iter().enumerate();
    let specs: HashMap<&str, (usize, &Value)> = specs.map(|(i, spec)| (spec.str_at(&["name"]), (i, spec))).collect();
    let row = |version: &'d Version| {
        checkpoint();
        let (index, spec) = *specs.get(version.name.as_str())?;
        let gvk = GroupVersionKind::new(&definition.group, &version.name, definition.accepted.kind());
        // Shares the stored bytes: a document keeps no schema of its own in memory.
        let stored = definition.stored.clone();
        let kind = KindSchema::published(gvk, move || schema_text(&stored, index));
        let mut resource = Resource {
            selectable: Some(selectable::of_version(spec, None)),
            ..outline(definition, version, Arc::new(kind))
        };
        let paths = ScalePaths::published(&definition.group, spec);
        let scale = paths.map(|paths| Scale::new(paths, scale.clone()));
        resource.subresources.extend(scale.as_ref().map(Scale::subresource));
        // Not bound to a store: documents only need its description.
        Some((version, resource))
    };
    versions.filter_map(row).collect()
}

/// The schema of a version, encoded. Usually that is a part of the stored definition.
fn schema_text(stored: &StoredJson, index: usize) -> Bytes {
    const SCHEMA: [&str; 2] = ["schema", "openAPIV3Schema"];
    let spec = Step::Member("spec");
    let stored = stored.bytes();
    let preserves = projection::locate(&stored, &[spec, Step::Member("preserveUnknownFields")]);
    let [schema, inner] = SCHEMA.map(Step::Member);
    let path = [spec, Step::Member("versions"), Step::Item(index), schema, inner];
    // A definition that preserves unknown fields needs its schema changed, so its bytes cannot be used.
    if let (Ok(None), Ok(Some(range))) = (preserves, projection::locate(&stored, &path))
        // `null` is an absent schema.
        && stored[range.clone()] != *b"null"
    {
        // A slice of the shared bytes, without a copy.
        return stored.slice(range);
    }
    let tree = json::decode(&stored).unwrap_or_default();
    let version = tree.at(&["spec", "versions"]).items().get(index);
    let schema = version.map_or(&Value::Null, |v| v.at(&SCHEMA));
    json::to_vec(&pruning_schema(tree.get("spec"), schema)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn schema_is_a_part_of_the_stored_definition_unless_unknown_fields_are_preserved() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let text = |spec: Value, index: usize| {
            let mut tree = Value::object();
            tree.set(&["spec"], spec);
            let stored = StoredJson::from(Bytes::from(json::to_vec(&tree)));
            let text = schema_text(&stored, index);
            let within = stored.bytes().as_ptr_range().contains(&text.as_ptr());
            (json::decode(&text).unwrap(), within)
        };
        let version = |schema: &Value| {
            let mut version = json!({"name": "v1"});
            version.set(&["schema", "openAPIV3Schema"], schema.clone());
            version
        };
        let of = |versions: Vec<Value>| {
            let mut spec = json!({"group": "x.io"});
            spec.set(&["versions"], versions);
            spec
        };
        let second = of(vec![version(&json!({"type": "object"})), version(&schema)]);
        assert_eq!(text(second.clone(), 1), (schema.clone(), true));
        let mut preserving = second;
        preserving.set(&["preserveUnknownFields"], true);
        let (open, within) = text(preserving, 1);
        assert!(!within);
        assert_eq!(open.get("x-kubernetes-preserve-unknown-fields"), &Value::Bool(true));
        for none in [version(&Value::Null), json!({"name": "v1"})] {
            let (open, within) = text(of(vec![none]), 0);
            assert!(!within);
            assert_eq!(
                open,
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
            );
        }
    }
}
