//! Renders [operations](super::operations) as the `paths` of an OpenAPI document, in either dialect.
//!
//! Entry point: [`paths`]. `parameters` describes what each operation takes.

mod parameters;

use super::operations::{Operation, Shape, Style, group_version_camel, tag};
use crate::api::openapi::Dialect;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::interrupt::checkpoint;
use parameters::rendered_parameters;
use std::collections::BTreeMap;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// The media types of patches of built-in kinds; others do not support the last one.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// The media types of patches of custom resources, in upstream's order.
const CUSTOM_PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Returns the paths of these operations, and that of the list of the group version's resources, in order and
/// each with its item. Items are built lazily, because a group may have thousands of them.
pub(crate) fn paths(
    dialect: Dialect,
    gv: &GroupVersion,
    operations: &[Operation],
) -> impl Iterator<Item = (String, Map)> {
    let mut by_path: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
    for op in operations {
        by_path.entry(op.path.clone()).or_default().push(op);
    }
    if lists_resources(operations) {
        // No operations: that of the list of resources has no row.
        by_path.insert(format!("{}/", gv.path()), Vec::new());
    }
    by_path.into_iter().map(move |(path, ops)| {
        checkpoint();
        let item = match ops[..] {
            [] => resources_item(dialect, gv),
            _ => item(dialect, gv, &ops),
        };
        (path, item)
    })
}

/// True if the list of the group version's resources is documented, too.
fn lists_resources(operations: &[Operation]) -> bool {
    operations.iter().any(|op| op.style != Style::Custom) || operations.is_empty()
}

fn item(dialect: Dialect, gv: &GroupVersion, ops: &[&Operation]) -> Map {
    let all: Vec<Vec<Value>> = ops.iter().map(|op| rendered_parameters(dialect, op)).collect();
    // Parameters common to all operations of a path are listed once, at the path. `all` is not empty: a path without
    // operations is handled in `paths`.
    let shared: Vec<Value> = all[0]
        .iter()
        .filter(|p| all.iter().all(|others| others.contains(p)))
        .cloned()
        .collect();
    let mut out = Map::new();
    for (op, parameters) in ops.iter().zip(all) {
        let own: Vec<Value> = parameters.into_iter().filter(|p| !shared.contains(p)).collect();
        out.insert(op.method, operation(dialect, gv, op, own));
    }
    if !shared.is_empty() {
        out.insert("parameters", shared);
    }
    out
}

fn reference(dialect: Dialect, definition: &str) -> Value {
    let base = match dialect {
        Dialect::V2 => "#/definitions/",
        Dialect::V3 => "#/components/schemas/",
    };
    let mut m = Map::new();
    m.insert("$ref", format!("{base}{definition}"));
    Value::Object(m)
}

/// A GET whose response is plain text.
fn is_log(op: &Operation) -> bool {
    op.path.ends_with("/pods/{name}/log")
}

/// The definition of an operation's response body; `None` for text.
pub(super) fn answer(op: &Operation) -> Option<String> {
    match op.shape {
        Shape::List => Some(op.list_definition.clone()),
        Shape::Watch => Some(format!("{META}WatchEvent")),
        Shape::DeleteCollection | Shape::Delete { returns_object: false } => Some(format!("{META}Status")),
        Shape::Connect => None,
        _ if is_log(op) => None,
        _ => Some(op.definition.clone()),
    }
}

/// The definition of an operation's request body.
pub(super) fn body(op: &Operation) -> Option<String> {
    match op.shape {
        Shape::Create | Shape::Replace => Some(op.definition.clone()),
        Shape::Patch => Some(format!("{META}Patch")),
        Shape::DeleteCollection if op.style == Style::Custom => None,
        Shape::Delete { .. } | Shape::DeleteCollection => Some(format!("{META}DeleteOptions")),
        _ => None,
    }
}

fn consumed(op: &Operation) -> &'static [&'static str] {
    match (op.shape, op.style) {
        (Shape::Patch, Style::BuiltIn) => &PATCHES,
        (Shape::Patch, Style::Described) => &PATCHES[..3],
        (Shape::Patch, Style::Custom) => &CUSTOM_PATCHES,
        (_, Style::Custom) => &["application/json", "application/yaml"],
        // Upstream's installer declares concrete types only for patches.
        _ => &["*/*"],
    }
}

fn produced(op: &Operation) -> Vec<&'static str> {
    match (op.shape, answer(op).is_some()) {
        (_, false) if is_log(op) => vec![
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
            "text/plain",
        ],
        (_, false) => vec!["*/*"],
        _ if op.style != Style::BuiltIn => vec!["application/json", "application/yaml"],
        (Shape::List | Shape::Watch, true) => vec![
            "application/json",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/yaml",
        ],
        _ => vec![
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/yaml",
        ],
    }
}

fn content(dialect: Dialect, types: &[&str], definition: &str) -> Value {
    let mut out = Map::new();
    for media_type in types {
        let mut m = Map::new();
        m.insert("schema", reference(dialect, definition));
        out.insert(*media_type, m);
    }
    Value::Object(out)
}

fn operation(dialect: Dialect, gv: &GroupVersion, op: &Operation, mut parameters: Vec<Value>) -> Value {
    let mut m = Map::new();
    m.insert("description", describe(op));
    m.insert(
        "operationId",
        format!("{}{}{}", op.verb, group_version_camel(gv), op.subject),
    );
    m.insert("tags", vec![Value::from(tag(gv))]);
    m.insert("x-kubernetes-action", op.action);
    let mut gvk = Map::new();
    gvk.insert("group", op.gvk.group.as_str());
    gvk.insert("version", op.gvk.version.as_str());
    gvk.insert("kind", op.gvk.kind.as_str());
    m.insert("x-kubernetes-group-version-kind", gvk);
    let required = matches!(op.shape, Shape::Create | Shape::Replace | Shape::Patch);
    match (dialect, body(op)) {
        (_, None) => {}
        (Dialect::V3, Some(definition)) => {
            let mut b = Map::new();
            b.insert("content", content(dialect, consumed(op), &definition));
            if required {
                b.insert("required", true);
            }
            m.insert("requestBody", b);
        }
        (Dialect::V2, Some(definition)) => {
            let mut b = Map::new();
            b.insert("name", "body");
            b.insert("in", "body");
            if required {
                b.insert("required", true);
            }
            b.insert("schema", reference(dialect, &definition));
            // The body comes first; the other parameters are sorted.
            parameters.insert(0, Value::Object(b));
        }
    }
    if !parameters.is_empty() {
        m.insert("parameters", parameters);
    }
    if dialect == Dialect::V2 {
        m.insert(
            "consumes",
            consumed(op).iter().map(|t| Value::from(*t)).collect::<Vec<_>>(),
        );
        m.insert(
            "produces",
            produced(op).into_iter().map(Value::from).collect::<Vec<_>>(),
        );
        m.insert("schemes", vec![Value::from("https")]);
    }
    m.insert("responses", responses(dialect, op));
    Value::Object(m)
}

fn responses(dialect: Dialect, op: &Operation) -> Map {
    let codes: &[(&str, &str)] = match op.shape {
        // As upstream's installer declares it, although a create always answers 201.
        Shape::Create => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        Shape::Patch if op.style == Style::Custom => &[("200", "OK")],
        Shape::Replace | Shape::Patch => &[("200", "OK"), ("201", "Created")],
        Shape::Delete { .. } => &[("200", "OK"), ("202", "Accepted")],
        _ => &[("200", "OK")],
    };
    let mut out = Map::new();
    for (code, text) in codes {
        let mut m = Map::new();
        m.insert("description", *text);
        match (dialect, answer(op)) {
            (Dialect::V3, Some(d)) => drop(m.insert("content", content(dialect, &produced(op), &d))),
            (Dialect::V2, Some(d)) => drop(m.insert("schema", reference(dialect, &d))),
            (Dialect::V3, None) => {
                let text = crate::json!({"schema": {"type": "string"}});
                let content: Map = produced(op).into_iter().map(|t| (t, text.clone())).collect();
                m.insert("content", content);
            }
            (Dialect::V2, None) => drop(m.insert("schema", crate::json!({"type": "string"}))),
        }
        out.insert(*code, m);
    }
    // Upstream adds this response to every operation (`CommonResponses`).
    out.insert("401", crate::json!({"description": "Unauthorized"}));
    out
}

/// The description, in upstream's words (`k8s.io/apiserver/pkg/endpoints/installer.go`).
fn describe(op: &Operation) -> String {
    let kind = &op.resource_kind;
    let of_subresource = op
        .subresource
        .as_ref()
        .map(|name| format!(" {name} of"))
        .unwrap_or_default();
    match op.shape {
        Shape::Get => format!("read{of_subresource} the specified {kind}"),
        Shape::Replace => format!("replace{of_subresource} the specified {kind}"),
        Shape::Patch => format!("partially update{of_subresource} the specified {kind}"),
        Shape::Create => format!("create{of_subresource}{}{kind}", article(kind)),
        Shape::Delete { .. } => format!("delete{of_subresource}{}{kind}", article(kind)),
        Shape::DeleteCollection => format!("delete collection of {kind}"),
        Shape::List if op.watchable && op.style != Style::Custom => format!("list or watch objects of kind {kind}"),
        Shape::List => format!("list objects of kind {kind}"),
        Shape::Watch if op.action == "watchlist" => format!(
            "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list operation instead."
        ),
        Shape::Watch => format!(
            "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation instead, \
             filtered to a single item with the 'fieldSelector' parameter."
        ),
        Shape::Connect => {
            let subresource = op.subresource.as_deref().unwrap_or_default();
            format!(
                "connect {} requests to {subresource} of {kind}",
                op.method.to_ascii_uppercase()
            )
        }
    }
}

/// The article of a kind between spaces: none before a plural, as upstream (`GetArticleForNoun`).
fn article(kind: &str) -> &'static str {
    match kind.as_bytes() {
        [.., before, b's'] if *before != b's' => " ",
        [b'A' | b'E' | b'I' | b'O' | b'U', ..] => " an ",
        _ => " a ",
    }
}

fn resources_item(dialect: Dialect, gv: &GroupVersion) -> Map {
    let mut get = Map::new();
    get.insert("description", "get available resources");
    get.insert("operationId", format!("get{}APIResources", group_version_camel(gv)));
    get.insert("tags", vec![Value::from(tag(gv))]);
    let types = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
    ];
    let definition = format!("{META}APIResourceList");
    let mut ok = Map::new();
    ok.insert("description", "OK");
    match dialect {
        Dialect::V3 => drop(ok.insert("content", content(dialect, &types, &definition))),
        Dialect::V2 => {
            ok.insert("schema", reference(dialect, &definition));
            let types: Vec<Value> = types.into_iter().map(Value::from).collect();
            get.insert("consumes", types.clone());
            get.insert("produces", types);
            get.insert("schemes", vec![Value::from("https")]);
        }
    }
    let mut responses = Map::new();
    responses.insert("200", ok);
    responses.insert("401", crate::json!({"description": "Unauthorized"}));
    get.insert("responses", responses);
    let mut item = Map::new();
    item.insert("get", get);
    item
}

/// The names of all definitions the operations refer to.
pub(crate) fn definitions(operations: &[Operation]) -> Vec<String> {
    let mut out: Vec<String> = operations
        .iter()
        .flat_map(|op| [answer(op), body(op)])
        .flatten()
        .collect();
    if lists_resources(operations) {
        out.push(format!("{META}APIResourceList"));
    }
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::article;

    #[test]
    fn articles_follow_the_first_and_the_last_letter() {
        let all = ["Pod", "Event", "Endpoints", "Ingress"].map(article);
        assert_eq!(all, [" a ", " an ", " ", " an "]);
    }
}
