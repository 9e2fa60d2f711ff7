//! Declares values to expressions: the types and sizes in their schemas (upstream's
//! `k8s.io/apiserver/pkg/cel/common/schemas.go`). Estimates of cost depend on the sizes.

use crate::apimachinery::value::{Str, Value};
use crate::interrupt::checkpoint;
use crate::schema::{Additional, Enumeration, ListKind, Node, Type};
use std::collections::HashSet;
use std::sync::Arc;
use torana_cel::{self as cel, Field, ListType, ObjectType, Schema, escape};

/// Maximum bytes of a request, and so of every value in it.
const MAX_REQUEST: u64 = 3 << 20;
/// Maximum length of a string in a request, without its quotes.
const MAX_STRING: u64 = MAX_REQUEST - 2;

/// The declaration of a schema for expressions.
pub(super) struct Declared {
    pub(super) schema: Schema,
    /// Minimum bytes of an encoded value.
    min: u64,
}

impl Declared {
    /// Maximum number of such values in a request.
    pub(super) fn max_count(&self) -> u64 {
        MAX_REQUEST / (self.min + 1)
    }
}

/// Declares the values of a schema; `None` if expressions cannot access them. `root` is true for objects with
/// metadata.
pub(super) fn declare(node: &Node, root: bool) -> Option<Declared> {
    checkpoint();
    let mut declared = match node.ty {
        _ if node.int_or_string => {
            // Four bytes per character, since costs are measured in bytes.
            let longest = max_length(node).map_or(MAX_STRING, |n| n.saturating_mul(4));
            scalar(cel::Type::Dyn, longest, 1)
        }
        Some(Type::Array) => list(node)?,
        Some(Type::Object) => object(node, root)?,
        Some(Type::String) => string(node),
        Some(Type::Boolean) => scalar(cel::Type::Bool, 0, 4),
        Some(Type::Number) => scalar(cel::Type::Double, 0, 1),
        Some(Type::Integer) => scalar(cel::Type::Int, 0, 1),
        // A root without a type still has metadata.
        None if root => object(node, root)?,
        None => return None,
    };
    declared.schema.nullable = node.nullable;
    Some(declared)
}

/// The declaration of a property of an object.
pub(super) fn property(of: &Schema, name: &str) -> Option<Schema> {
    match &of.ty {
        cel::Type::Object(of) => of.field(&escape(name)?).map(|f| f.schema.clone()),
        _ => None,
    }
}

fn scalar(ty: cel::Type, max: u64, min: u64) -> Declared {
    Declared {
        schema: Schema::scalar(ty, max),
        min,
    }
}

fn max_length(node: &Node) -> Option<u64> {
    node.checks.as_deref()?.max_length.map(|n| n as u64)
}

fn string(node: &Node) -> Declared {
    let checks = node.checks.as_deref();
    let max = max_length(node);
    match checks.and_then(|c| c.format.as_ref()).map(|f| f.spelling()) {
        Some("byte") => return scalar(cel::Type::Bytes, max.unwrap_or(MAX_STRING), 2),
        // The longest and shortest texts of these formats, with quotes, as upstream assumes.
        Some("duration") => return scalar(cel::Type::Duration, 32, 3),
        Some("date") => return scalar(cel::Type::Timestamp, 12, 12),
        Some("date-time") => return scalar(cel::Type::Timestamp, 32, 21),
        _ => {}
    }
    let choices = checks.and_then(|c| c.enumeration.as_deref());
    let choices = choices.map_or(&[][..], Enumeration::values);
    let longest = || choices.iter().filter_map(Value::as_str).map(str::len).max();
    let max = match max {
        // A limit counts characters, which take up to four bytes.
        Some(max) => max.saturating_mul(4),
        None if choices.is_empty() => MAX_STRING,
        None => longest().unwrap_or(0) as u64,
    };
    scalar(cel::Type::String, max, 2)
}

fn list(node: &Node) -> Option<Declared> {
    let of = node.items.as_deref()?;
    let items = declare(of, of.embedded)?;
    let limit = node.checks.as_deref().and_then(|c| c.max_items);
    // As many of the smallest items, each with a comma, as fit into a request.
    let max = limit.map_or(MAX_STRING / (items.min + 1), |n| n as u64);
    let mut schema = Schema::list(items.schema, max);
    schema.list_type = match &node.list {
        ListKind::Atomic => ListType::Atomic,
        ListKind::Set => ListType::Set,
        ListKind::Map(keys) => ListType::Map(keys.iter().cloned().collect()),
    };
    Some(Declared { schema, min: 2 })
}

fn object(node: &Node, root: bool) -> Option<Declared> {
    if let Additional::Schema(of) = &node.additional {
        let values = declare(of, of.embedded)?;
        let limit = node.checks.as_deref().and_then(|c| c.max_properties);
        // An entry has a key of two bytes, a colon and a comma besides its value.
        let max = limit.map_or(MAX_STRING / (values.min + 6), |n| n as u64);
        let schema = Schema::map(values.schema, max);
        return Some(Declared { schema, min: 2 });
    }
    let required: HashSet<&str> = node.required.iter().map(Str::as_str).collect();
    let (mut fields, mut min) = (Vec::with_capacity(node.properties.len()), 2);
    // If the schema declares metadata incompletely, the fixed declaration replaces all three members.
    let replaced = root && !has_type_and_name(node);
    for (name, property) in &node.properties {
        if replaced && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let Some(declared) = declare(property, property.embedded) else {
            continue;
        };
        // A member with a default may be absent from the request.
        if required.contains(name.as_str()) && property.default.is_none() {
            min += name.len() as u64 + declared.min + 4;
        }
        // Members whose names cannot be escaped are not accessible to expressions.
        fields.extend(field(name, declared.schema));
    }
    if replaced {
        let text = || Schema::scalar(cel::Type::String, MAX_STRING);
        let names = ["generateName", "name"].iter().filter_map(|n| field(n, text()));
        let metadata = Schema::object(Arc::new(ObjectType::new("object", names.collect())));
        let all = [("apiVersion", text()), ("kind", text()), ("metadata", metadata)];
        for (name, schema) in all {
            if required.contains(name) {
                min += name.len() as u64 + 2 + 4;
            }
            fields.extend(field(name, schema));
        }
    }
    let schema = Schema::object(Arc::new(ObjectType::new("object", fields)));
    Some(Declared { schema, min })
}

fn field(key: &str, schema: Schema) -> Option<Field> {
    Some(Field {
        name: escape(key)?.into(),
        key: Str::new(key),
        schema,
    })
}

/// True if a schema declares everything that expressions may read of an object's type and metadata. Otherwise
/// a fixed declaration of these is used.
fn has_type_and_name(node: &Node) -> bool {
    let is = |node: &Node, name: &str, ty: Type| node.property(name).is_some_and(|p| p.ty == Some(ty));
    let metadata = node.property("metadata").filter(|m| m.ty == Some(Type::Object));
    is(node, "kind", Type::String)
        && is(node, "apiVersion", Type::String)
        && metadata.is_some_and(|m| is(m, "name", Type::String) && is(m, "generateName", Type::String))
}
