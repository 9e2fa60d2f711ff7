//! `meta.k8s.io/v1` Tables, the server-side printing format behind `kubectl get`.
//!
//! Start at [`table`]; which columns a kind has is decided by its printer (`controlplane`) or its CRD.

use super::value::{Map, Value};

/// A column definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading, in title case.
    pub name: String,
    /// OpenAPI type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: &'static str,
    /// OpenAPI format; `name` marks the column that holds the object's name.
    pub format: &'static str,
    /// Text that describes the column to API clients.
    pub description: String,
    /// 0 is always shown; higher values only in wide output.
    pub priority: i32,
}

impl Column {
    /// A column without a format.
    pub fn new(name: &str, ty: &'static str, priority: i32, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            ty,
            format: "",
            description: description.to_owned(),
            priority,
        }
    }

    /// Sets the format.
    pub fn with_format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }

    /// Encodes the column definition. Upstream omits no member, so all are written.
    pub fn to_value(&self) -> Value {
        let mut m = Map::new();
        m.insert("name", self.name.as_str());
        m.insert("type", self.ty);
        m.insert("format", self.format);
        m.insert("description", self.description.as_str());
        m.insert("priority", self.priority);
        Value::Object(m)
    }
}

/// The columns of kinds that define none: name and creation time.
pub fn default_columns() -> Vec<Column> {
    const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
    const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
    vec![
        Column::new("Name", "string", 0, NAME).with_format("name"),
        Column::new("Created At", "date", 0, CREATED),
    ]
}

/// The `includeObject` query parameter: how much of the object each row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Its metadata, as a PartialObjectMetadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// No object; `object` is null.
    None,
}

impl IncludeObject {
    /// Parses the query parameter; empty means `Metadata`. `None` for an unknown value.
    pub fn parse(s: &str) -> Option<Self> {
        match s {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// Reduces an object to a `PartialObjectMetadata` of `version` (`v1` or `v1beta1`).
pub fn partial_object_metadata(object: &Value, version: &str) -> Value {
    let mut m = Map::new();
    m.insert("kind", "PartialObjectMetadata");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    m.insert("metadata", object.get("metadata").clone());
    Value::Object(m)
}

/// Builds a table row. `version` applies to the embedded PartialObjectMetadata.
pub fn row(
    cells: Vec<Value>,
    conditions: Option<Value>,
    object: &Value,
    include: IncludeObject,
    version: &str,
) -> Value {
    let mut m = Map::new();
    m.insert("cells", cells);
    if let Some(c) = conditions {
        m.insert("conditions", c);
    }
    let carried = match include {
        IncludeObject::Metadata => partial_object_metadata(object, version),
        IncludeObject::Object => object.clone(),
        IncludeObject::None => Value::Null,
    };
    m.insert("object", carried);
    Value::Object(m)
}

/// Builds a table of `version`. `list_metadata` holds the list's `resourceVersion`, `continue` and
/// `remainingItemCount`. `columns` is `None` for all but the first event of a watch, where upstream writes null.
pub fn table(version: &str, list_metadata: Value, columns: Option<&[Column]>, rows: Vec<Value>) -> Value {
    let mut m = Map::new();
    m.insert("kind", "Table");
    m.insert("apiVersion", format!("meta.k8s.io/{version}"));
    m.insert("metadata", list_metadata);
    m.insert(
        "columnDefinitions",
        columns.map(|c| c.iter().map(Column::to_value).collect::<Vec<_>>()),
    );
    m.insert("rows", rows);
    Value::Object(m)
}

/// Formats a duration as kubectl does (`duration.HumanDuration`): with two units while the first is small, with one
/// when it is large (`90s`, `5m12s`, `3h`, `2d4h`, `400d`).
pub fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        s => format!("{big}{big_unit}{s}{small_unit}"),
    };
    let (minutes, hours) = (seconds / MINUTE, seconds / HOUR);
    match seconds {
        // Like upstream, tolerate a clock skew of one second.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if minutes < 10 => two(minutes, "m", s % MINUTE, "s"),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        s if hours < 8 * 24 => two(s / DAY, "d", hours % 24, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s / DAY % 365, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// The time since `timestamp` (RFC 3339) at `now` (Unix seconds); `<unknown>` if it does not parse.
pub fn age(timestamp: &str, now: i64) -> String {
    match super::time::parse(timestamp) {
        Ok(t) => human_duration(now - t.unix_timestamp()),
        Err(_) => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn ages_lose_precision_as_they_grow() {
        const H: i64 = 3600;
        for (s, want) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (312, "5m12s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (3 * H, "3h"),
            (3 * H + 61, "3h1m"),
            (8 * H + 61, "8h"),
            (47 * H, "47h"),
            (48 * H, "2d"),
            (52 * H, "2d4h"),
            (8 * 24 * H, "8d"),
            (400 * 24 * H, "400d"),
            (730 * 24 * H, "2y"),
            (731 * 24 * H, "2y1d"),
            (8 * 365 * 24 * H, "8y"),
        ] {
            assert_eq!(human_duration(s), want, "{s}");
        }
        assert_eq!(age("1970-01-01T00:00:00Z", 90), "90s");
        assert_eq!(age("", 90), "<unknown>");
    }

    #[test]
    fn rows_embed_the_requested_part_of_the_object() {
        let o = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let carried = |i| {
            row(vec!["a".into(), 1i64.into()], None, &o, i, "v1")
                .get("object")
                .clone()
        };
        assert_eq!(carried(IncludeObject::None), Value::Null);
        assert_eq!(carried(IncludeObject::Object), o);
        assert_eq!(
            carried(IncludeObject::Metadata),
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}})
        );
        let columns = [Column::new("Name", "string", 0, "d").with_format("name")];
        let t = table("v1", json!({"resourceVersion": "1"}), Some(&columns), vec![]);
        assert_eq!(
            t,
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "1"},
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "d", "priority": 0}], "rows": []})
        );
        assert_eq!(
            *table("v1", Value::object(), None, vec![]).get("columnDefinitions"),
            Value::Null
        );
    }
}
