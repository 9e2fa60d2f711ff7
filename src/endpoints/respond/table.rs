//! `meta.k8s.io` Tables: server-side printing for kubectl.
//!
//! Built from trees here; [`super::stored`] builds the same rows from stored bytes.

use super::partial;
use crate::api::json;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Map, Str, Value};
use crate::endpoints::options::Query;
use crate::registry::Resource;
use crate::registry::resource::Column;
use std::borrow::Cow;

/// The part of the object that each row embeds (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    /// None; `object` is null.
    None,
    /// PartialObjectMetadata. The default.
    Metadata,
    Object,
}

impl Include {
    /// Parses the `includeObject` parameter.
    ///
    /// # Errors
    /// 400 for an unknown value.
    pub(crate) fn parse(query: &Query) -> Result<Self> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The columns of kinds that define none (upstream: `registry/rest/table.go`).
pub(crate) static DEFAULT_COLUMNS: [Column; 2] = [
    Column {
        name: Str::const_new("Name"),
        kind: Str::const_new("string"),
        format: Str::const_new("name"),
        description: Str::const_new(
            "Name must be unique within a namespace. Is required when creating resources, although some \
                      resources may allow a client to request the generation of an appropriate name automatically. \
                      Name is primarily intended for creation idempotence and configuration definition. Cannot be \
                      updated. More info: \
                      https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
        ),
        priority: 0,
    },
    Column {
        name: Str::const_new("Created At"),
        kind: Str::const_new("date"),
        format: Str::const_new(""),
        description: Str::const_new(
            "CreationTimestamp is a timestamp representing the server time when this object was created. It \
                      is not guaranteed to be set in happens-before order across separate operations. Clients may \
                      not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the \
                      system. Read-only. Null for lists. More info: \
                      https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        ),
        priority: 0,
    },
];

/// The column definitions of a kind.
pub(crate) fn columns(resource: &Resource) -> Value {
    let columns: &[Column] = match &resource.columns {
        Some(c) => &c.columns,
        None => &DEFAULT_COLUMNS,
    };
    let one = |c: &Column| {
        let mut m = Map::new();
        m.insert("name", c.name.as_str());
        m.insert("type", c.kind.as_str());
        m.insert("format", c.format.as_str());
        m.insert("description", c.description.as_str());
        m.insert("priority", c.priority);
        Value::Object(m)
    };
    Value::Array(columns.iter().map(one).collect())
}

/// The fields of an object that [`cells`] reads.
pub(crate) fn reads(resource: &Resource) -> Cow<'_, Mask> {
    match &resource.columns {
        Some(c) => Cow::Borrowed(&c.reads),
        None => Cow::Owned(Mask::of(&["metadata.{name,creationTimestamp}"])),
    }
}

/// The cells of an object's row.
pub(crate) fn cells(resource: &Resource, object: &Value) -> Vec<Value> {
    match &resource.columns {
        Some(c) => (c.cells)(object),
        // Upstream's default columns: a kind without a printer shows at least these.
        None => vec![
            Value::from(object.str_at(&["metadata", "name"])),
            Value::from(object.str_at(&["metadata", "creationTimestamp"])),
        ],
    }
}

/// The conditions of an object's row, such as `Completed`; null for none.
pub(crate) fn conditions(resource: &Resource, object: &Value) -> Value {
    resource
        .columns
        .as_ref()
        .map_or(Value::Null, |c| (c.conditions)(object))
}

/// The row of an object as a tree. [`super::stored`] writes the same row from stored bytes.
pub(crate) fn row(resource: &Resource, object: &Value, version: &str, include: Include) -> Value {
    let mut m = Map::new();
    m.insert("cells", cells(resource, object));
    let conditions = conditions(resource, object);
    // Upstream's field has `omitempty`.
    if !conditions.is_null() {
        m.insert("conditions", conditions);
    }
    m.insert(
        "object",
        match include {
            Include::None => Value::Null,
            Include::Metadata => partial::of(resource, object, version),
            Include::Object => object.clone(),
        },
    );
    Value::Object(m)
}

/// Wraps rows in a table.
pub(crate) fn around(version: &str, metadata: Map, columns: Value, rows: impl Into<Value>) -> Value {
    let mut m = Map::new();
    m.insert("kind", "Table");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    m.insert("metadata", metadata);
    m.insert("columnDefinitions", columns);
    m.insert("rows", rows);
    Value::Object(m)
}

/// The encoded table up to its first row.
pub(crate) fn head(version: &str, metadata: Map, columns: Value) -> Vec<u8> {
    let mut out = json::to_vec(&around(version, metadata, columns, Vec::<Value>::new()));
    // `rows` is the last member, so the encoding ends with its empty list.
    out.truncate(out.len() - END.len());
    out
}

/// Closes an encoded table; `rows` is its last member.
pub(crate) const END: &[u8] = b"]}";

/// The table of a single object. Watches pass the column definitions only with the first event.
pub(crate) fn of_event(resource: &Resource, object: &Value, version: &str, include: Include, columns: Value) -> Value {
    let mut metadata = Map::new();
    // As upstream, the table of one object has that object's revision.
    let rv = object.str_at(&["metadata", "resourceVersion"]);
    if !rv.is_empty() {
        metadata.insert("resourceVersion", rv);
    }
    around(
        version,
        metadata,
        columns,
        vec![row(resource, object, version, include)],
    )
}
