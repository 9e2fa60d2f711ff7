//! The definitions of kinds with a schema of their own, and of their lists.
//!
//! Entry point: [`write`].

use super::operations::list_definition;
use crate::api::openapi::{API_VERSION, Dialect, KIND};
use crate::apimachinery::codec::json::pieces::Members;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use crate::registry::resource::Resource;
use std::collections::HashSet;
use std::sync::Arc;

const SELECTABLE: &str = "x-kubernetes-selectable-fields";

/// Writes the components of those resources whose kind is not built in, and of their lists. Definitions that they
/// refer to are added to `named`. One component at a time: the trees of all schemas would take many times the
/// memory of the text. `written` contains the names of the definitions already written.
pub(super) fn write(
    dialect: Dialect,
    gv: &GroupVersion,
    rows: &[Arc<Resource>],
    named: &mut Vec<String>,
    to: &mut Members<'_, '_>,
    written: &mut HashSet<String>,
) {
    for row in rows {
        checkpoint();
        let Some(mut component) = row.schema.openapi(dialect) else {
            continue;
        };
        let mut list = list_of(dialect, gv, row);
        let declared = row.selectable.iter().flat_map(|s| s.names.iter());
        let fields: Vec<Value> = declared
            .map(|name| crate::json!({"fieldPath": (name.as_str())}))
            .collect();
        if !fields.is_empty() {
            component.set(&[SELECTABLE], fields.clone());
            list.set(&[SELECTABLE], fields);
        }
        for (name, schema) in [(row.definition.to_string(), component), (list_definition(row), list)] {
            // The document must also have what a schema refers to.
            references(&schema, named);
            // Two resources may have the same kind, and a JSON object must not repeat a member.
            if !written.contains(&name) {
                to.value(&name, &schema);
                written.insert(name);
            }
        }
    }
}

fn list_of(dialect: Dialect, gv: &GroupVersion, row: &Resource) -> Value {
    const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let reference = |name: &str| match dialect {
        Dialect::V2 => crate::json!({"$ref": (format!("#/definitions/{name}"))}),
        Dialect::V3 => crate::json!({"$ref": (format!("#/components/schemas/{name}"))}),
    };
    let mut list = crate::json!({
        "description": (format!("{} is a list of {}", row.list_kind, row.kind)),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "items": {"type": "array", "description": (format!("List of {}. More info: {CONVENTIONS}", row.gvr.resource))},
        },
        "x-kubernetes-group-version-kind": [
            {"group": (gv.group.as_str()), "kind": (row.list_kind.as_str()), "version": (gv.version.as_str())}],
    });
    list.set(&["properties", "items", "items"], reference(&row.definition));
    let list_meta = reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    let mut metadata = match dialect {
        Dialect::V2 => list_meta,
        Dialect::V3 => {
            // OpenAPI 3.0 ignores the siblings of a `$ref`, such as the description.
            let mut wrapped = Value::object();
            wrapped.set(&["allOf"], vec![list_meta]);
            wrapped
        }
    };
    metadata.set(
        &["description"],
        format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds"),
    );
    list.set(&["properties", "metadata"], metadata);
    list
}

/// Collects the names of the components that a schema refers to.
fn references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(m) => {
            for (key, v) in m.iter() {
                match v.as_str().and_then(|s| s.rsplit_once('/')) {
                    Some((_, name)) if key == "$ref" => out.push(name.to_owned()),
                    _ => references(v, out),
                }
            }
        }
        Value::Array(a) => a.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}
