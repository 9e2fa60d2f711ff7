//! Table columns of custom resources, as a version of a CustomResourceDefinition declares them (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor`).
//!
//! Entry points: [`of_version`], and [`of_scale`] for the scale subresource.

use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::jsonpath::{Found, JsonPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::go_print;
use crate::apimachinery::value::{Str, Value};
use crate::apimachinery::{table, time};
use crate::endpoints::respond::table::DEFAULT_COLUMNS;
use crate::registry::Columns;
use crate::registry::resource::Column;
use ::time::OffsetDateTime;
use std::sync::Arc;

/// The columns of an element of `spec.versions`: the name and those in `additionalPrinterColumns`, or the age
/// if there are none.
pub(crate) fn of_version(version: &Value) -> Columns {
    let declared = version.get("additionalPrinterColumns").items();
    if declared.is_empty() {
        return columns([age()]);
    }
    // As upstream, a path that does not parse hides its column and those after it.
    // Upstream's `New` in `tableconvertor.go` returns at the first error, and keeps the columns before it.
    columns(declared.iter().map_while(|column| {
        let path = column.str_at(&["jsonPath"]);
        match JsonPath::parse(path) {
            Ok(parsed) => Some((heading(column, path), parsed)),
            Err(error) => {
                tracing::warn!(%path, %error, "unrecognized column definition");
                None
            }
        }
    }))
}

/// The columns of the scale subresource: name, desired and available replicas of the Scale object, and age.
pub(crate) fn of_scale() -> Columns {
    let replicas = |name, description, path| {
        let heading = Column {
            name: Str::const_new(name),
            kind: Str::const_new("integer"),
            format: Str::default(),
            description: Str::const_new(description),
            priority: 0,
        };
        (heading, valid(path))
    };
    columns([
        replicas("Desired", "Number of desired replicas", ".spec.replicas"),
        replicas("Available", "Number of actual replicas", ".status.replicas"),
        age(),
    ])
}

fn age() -> (Column, JsonPath) {
    let heading = Column {
        name: Str::const_new("Age"),
        ..DEFAULT_COLUMNS[1].clone()
    };
    (heading, valid(".metadata.creationTimestamp"))
}

fn valid(path: &str) -> JsonPath {
    JsonPath::parse(path).expect("a path of fields parses")
}

fn heading(column: &Value, path: &str) -> Column {
    let text = |key| Str::new(column.str_at(&[key]));
    let described = column.str_at(&["description"]);
    Column {
        name: text("name"),
        kind: text("type"),
        format: text("format"),
        description: match described {
            "" => Str::from(format!(
                "Custom resource definition column (in JSONPath format): {path}"
            )),
            text => Str::new(text),
        },
        priority: column.get("priority").as_i64().unwrap_or(0),
    }
}

fn columns(declared: impl IntoIterator<Item = (Column, JsonPath)>) -> Columns {
    let mut headings = vec![DEFAULT_COLUMNS[0].clone()];
    // Rows only decode what their cells read.
    let mut reads = Mask::of(&["metadata.name"]);
    let mut cells: Vec<(CellType, JsonPath)> = Vec::new();
    for (heading, path) in declared {
        path.add_reads(&mut reads);
        cells.push((CellType::parse(&heading.kind), path));
        headings.push(heading);
    }
    let cells = move |object: &Value| -> Vec<Value> {
        // Read once per row, so the ages within a row agree.
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let name = Value::from(object.name());
        // As upstream, only the first of several values is shown, and an error leaves the cell empty.
        let one = |(ty, path): &(CellType, JsonPath)| match path.first(object) {
            Ok(Some(found)) => ty.cell(found, now),
            _ => Value::Null,
        };
        [name].into_iter().chain(cells.iter().map(one)).collect()
    };
    Columns {
        columns: headings.into(),
        cells: Arc::new(cells),
        reads,
        always_headed: false,
        conditions: |_| Value::Null,
    }
}

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellType {
    Integer,
    Number,
    Boolean,
    String,
    Date,
    /// Validation rejects other types; their cells are empty.
    Unknown,
}

impl CellType {
    fn parse(name: &str) -> Self {
        match name {
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "string" => Self::String,
            "date" => Self::Date,
            _ => Self::Unknown,
        }
    }

    /// The cell for a value; null if the value does not fit the type. Ages are at `now`, in Unix seconds.
    fn cell(self, found: Found<'_>, now: i64) -> Value {
        match (self, found) {
            // Go prints a byte of a string as a number.
            (Self::String, Found::Byte(byte)) => Value::from(byte.to_string()),
            (Self::String, Found::Value(v) | Found::Constant(v)) => Value::from(text(v)),
            (Self::Integer, Found::Value(Value::Int(n))) => Value::Int(*n),
            // Go converts floats for integer columns by truncation; the cast saturates instead of being undefined.
            (Self::Integer, Found::Value(Value::Float(f)) | Found::Constant(Value::Float(f))) => Value::Int(*f as i64),
            // Number cells are floats in upstream, also for integers.
            (Self::Number, Found::Value(Value::Int(n))) => Value::Float(*n as f64),
            (Self::Number, Found::Value(Value::Float(f)) | Found::Constant(Value::Float(f))) => Value::Float(*f),
            (Self::Boolean, Found::Value(Value::Bool(b)) | Found::Constant(Value::Bool(b))) => Value::Bool(*b),
            (Self::Date, Found::Value(Value::String(s)) | Found::Constant(Value::String(s))) => {
                Value::from(since(s, now))
            }
            // A value of another type leaves the cell empty, as does a constant of Go's type `int`.
            _ => Value::Null,
        }
    }
}

/// The text that upstream's JSONPath printer writes for a value.
fn text(v: &Value) -> String {
    match v {
        // Go's templates print this for a nil.
        Value::Null => "<no value>".to_owned(),
        // Containers print as JSON in upstream's printer, unlike scalars, which print as `%v`.
        Value::Array(_) | Value::Object(_) => json::to_string(v),
        scalar => go_print(scalar),
    }
}

/// The time since a timestamp, in the words of kubectl.
fn since(timestamp: &str, now: i64) -> String {
    /// 0001-01-01T00:00:00Z, Go's zero time.
    const ZERO: i64 = -62_135_596_800;
    if matches!(timestamp, "" | "null") {
        return "<unknown>".to_owned();
    }
    match time::parse(timestamp).map(OffsetDateTime::unix_timestamp) {
        Ok(ZERO) => "<unknown>".to_owned(),
        Ok(then) => table::human_duration(now - then),
        Err(_) => "<invalid>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn cells(ty: &str, path: &str) -> Value {
        let columns = of_version(&json!({"additionalPrinterColumns": [{"name": "X", "type": ty, "jsonPath": path}]}));
        let object = json!({
            "metadata": {"name": "w"},
            "spec": {"n": 3, "f": 2.75, "big": 1e21, "b": true, "s": "a<b", "list": ["x", "y"], "map": {"k": 1.5}, "none": null,
                     "old": "2000-01-01T00:00:00Z", "later": "9000-01-01T00:00:00Z", "zero": "0001-01-01T00:00:00Z", "empty": ""}});
        let row = (columns.cells)(&object);
        assert_eq!((row.len(), &row[0]), (2, &Value::from("w")));
        row[1].clone()
    }

    #[test]
    fn cells_are_formatted_by_type() {
        for (ty, path, want) in [
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(2)),
            ("integer", ".spec.s", json!(null)),
            ("integer", ".spec.n 5", json!(null)),
            ("number", ".spec.f", json!(2.75)),
            ("number", ".spec.b", json!(null)),
            ("boolean", ".spec.b", json!(true)),
            ("boolean", ".spec.s", json!(null)),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.f", json!("2.75")),
            ("string", ".spec.big", json!("1e+21")),
            ("string", ".spec.b", json!("true")),
            ("string", ".spec.s", json!("a<b")),
            ("string", ".spec.list", json!("[\"x\",\"y\"]")),
            ("string", ".spec.list[*]", json!("x")),
            ("string", ".spec.map", json!("{\"k\":1.5}")),
            ("string", ".spec.none", json!("<no value>")),
            ("string", ".spec.s.*", json!("97")),
            ("string", ".spec.missing", json!(null)),
            ("string", ".spec.list[9]", json!(null)),
            ("date", ".spec.s", json!("<invalid>")),
            ("date", ".spec.zero", json!("<unknown>")),
            ("date", ".spec.empty", json!("<unknown>")),
            ("date", ".spec.later", json!("<invalid>")),
            ("date", ".spec.n", json!(null)),
        ] {
            assert_eq!(cells(ty, path), want, "{ty} {path}");
        }
        assert_eq!(cells("number", ".spec.n"), Value::Float(3.0));
        let age = cells("date", ".spec.old");
        assert!(age.as_str().is_some_and(|age| age.ends_with('y')), "{age:?}");
    }

    #[test]
    fn headings_are_declared_or_name_and_age() {
        let names = |version: Value| -> Vec<String> {
            let columns = of_version(&version).columns;
            columns.iter().map(|c| c.name.to_string()).collect()
        };
        assert_eq!(names(json!({})), ["Name", "Age"]);
        let bad = json!({"additionalPrinterColumns": [
            {"name": "A", "type": "string", "jsonPath": ".a"},
            {"name": "B", "type": "string", "jsonPath": ".b["},
            {"name": "C", "type": "string", "jsonPath": ".c"}]});
        assert_eq!(names(bad), ["Name", "A"]);
        let declared = of_version(&json!({"additionalPrinterColumns": [
            {"name": "A", "type": "integer", "format": "int32", "priority": 1, "jsonPath": ".spec.a", "description": "d"},
            {"name": "B", "type": "string", "jsonPath": ".status.c[?(@.type=='R')].status"}]}));
        let a = &declared.columns[1];
        assert_eq!(
            (a.kind.as_str(), a.format.as_str(), a.priority),
            ("integer", "int32", 1)
        );
        assert_eq!(a.description, "d");
        assert_eq!(
            declared.columns[2].description,
            "Custom resource definition column (in JSONPath format): .status.c[?(@.type=='R')].status"
        );
        assert_eq!(
            declared.reads,
            Mask::of(&["metadata.name", "spec.a", "status.c.{type,status}"])
        );
    }

    #[test]
    fn a_scale_shows_its_replicas() {
        let scale = json!({"metadata": {"name": "w"}, "spec": {"replicas": 3}, "status": {"replicas": 1}});
        let row = (of_scale().cells)(&scale);
        assert_eq!(row[..3], [Value::from("w"), Value::Int(3), Value::Int(1)]);
    }
}
