//! Subresources and printer columns.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

/// `subresources`: the paths of `scale`. Upstream names them with a dot in the last step.
pub(super) fn subresources(out: &mut ErrorList, subresources: &Value, at: &FieldPath) {
    let scale = subresources.get("scale");
    if scale.is_null() {
        return;
    }
    for (key, prefix, why) in [
        ("specReplicasPath", ".spec.", "should be a json path under .spec"),
        ("statusReplicasPath", ".status.", "should be a json path under .status"),
    ] {
        let at = at.child("scale").child(key);
        match scale.str_at(&[key]) {
            "" => out.push(FieldError::required(&at, "")),
            // A path that is not simple gets one error.
            path if !simple_path(out, path, &at) => {}
            path if !path.starts_with(prefix) => out.push(FieldError::invalid(&at, path, why)),
            _ => {}
        }
    }
    let selector = scale.str_at(&["labelSelectorPath"]);
    let at = at.child("scale").child("labelSelectorPath");
    let known = [".spec.", ".status."].iter().any(|p| selector.starts_with(p));
    // `known` is evaluated last: an invalid path gets only the first message.
    if !selector.is_empty() && simple_path(out, selector, &at) && !known {
        let why = "should be a json path under either .spec or .status";
        out.push(FieldError::invalid(&at, selector, why));
    }
}

/// Checks that a JSON path starts with a dot, which is all that upstream checks.
fn simple_path(out: &mut ErrorList, path: &str, at: &FieldPath) -> bool {
    let simple = path.starts_with('.');
    if !simple {
        out.push(FieldError::invalid(
            at,
            path,
            "must be a simple json path starting with .",
        ));
    }
    simple
}

/// `additionalPrinterColumns`
pub(super) fn columns(out: &mut ErrorList, columns: &Value, at: &FieldPath) {
    for (i, column) in columns.items().iter().enumerate() {
        checkpoint();
        self::column(out, column, &at.index(i));
    }
}

fn column(out: &mut ErrorList, column: &Value, at: &FieldPath) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    if column.str_at(&["name"]).is_empty() {
        out.push(FieldError::required(&at.child("name"), ""));
    }
    let one_of = |list: &[&str]| format!("must be one of {}", list.join(","));
    match column.str_at(&["type"]) {
        "" => out.push(FieldError::required(&at.child("type"), one_of(&TYPES))),
        ty if !TYPES.contains(&ty) => out.push(FieldError::invalid(&at.child("type"), ty, one_of(&TYPES))),
        _ => {}
    }
    let format = column.str_at(&["format"]);
    if !format.is_empty() && !FORMATS.contains(&format) {
        out.push(FieldError::invalid(&at.child("format"), format, one_of(&FORMATS)));
    }
    // Upstream's Go field name, which shows in the path.
    let at = at.child("JSONPath");
    match column.str_at(&["jsonPath"]) {
        "" => out.push(FieldError::required(&at, "")),
        path => drop(simple_path(out, path, &at)),
    }
}
