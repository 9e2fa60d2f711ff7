//! The parameters of operations, in their paths and queries. Entry point: [`rendered_parameters`]. Which of them a
//! request may really have is decided by `endpoints::options`.

use super::is_log;
use crate::api::openapi::Dialect;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::openapi::operations::{Operation, Shape, Style};
use crate::endpoints::options::connect;

/// A parameter of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parameter {
    name: &'static str,
    /// The location: `path` or `query`.
    place: &'static str,
    ty: &'static str,
}

const fn query(name: &'static str, ty: &'static str) -> Parameter {
    Parameter {
        name,
        place: "query",
        ty,
    }
}

const PRETTY: Parameter = query("pretty", "string");
const DRY_RUN: Parameter = query("dryRun", "string");
const FIELD_MANAGER: Parameter = query("fieldManager", "string");
const FIELD_VALIDATION: Parameter = query("fieldValidation", "string");
const FORCE: Parameter = query("force", "boolean");
const LISTS: [Parameter; 11] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];
const DELETES: [Parameter; 4] = [
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];

/// The description of a query parameter, in upstream's words where the schema table has them.
fn meaning(op: &Operation, parameter: &str) -> &'static str {
    let options = match (op.shape, parameter) {
        (Shape::Patch, _) | (_, "dryRun") => "PatchOptions",
        (Shape::Create | Shape::Replace, _) => "CreateOptions",
        _ if DELETES.iter().any(|p| p.name == parameter) => "DeleteOptions",
        _ => "ListOptions",
    };
    let own = match parameter {
        "pretty" => {
            "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or \
             command-line HTTP tool (curl and wget)."
        }
        "shardSelector" => "Selects a part of the objects by a hash. It has no effect on this server.",
        _ => "",
    };
    crate::api::openapi::parameter(options, parameter).unwrap_or(own)
}

fn in_path(name: &'static str, kind: &str) -> (Parameter, String) {
    let description = match name {
        "namespace" => "object name and auth scope, such as for teams and projects".to_owned(),
        "path" => "path to the resource".to_owned(),
        _ => format!("name of the {kind}"),
    };
    let parameter = Parameter {
        name,
        place: "path",
        ty: "string",
    };
    (parameter, description)
}

fn parameters(op: &Operation) -> Vec<Parameter> {
    // Delete collection takes the list parameters except for those of watches.
    let lists = |watch: bool| {
        LISTS
            .into_iter()
            .filter(move |p| watch || p.name != "watch" && p.name != "allowWatchBookmarks")
    };
    let mut out: Vec<Parameter> = match op.shape {
        Shape::Get | Shape::Connect => Vec::new(),
        Shape::List | Shape::Watch => lists(true).collect(),
        // Upstream's builder for custom resources documents all list parameters here, and no body.
        Shape::DeleteCollection if op.style == Style::Custom => lists(true).collect(),
        Shape::Create | Shape::Replace => vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        Shape::Patch => vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE],
        Shape::Delete { .. } => std::iter::once(DRY_RUN).chain(DELETES).collect(),
        Shape::DeleteCollection => lists(false).chain([DRY_RUN]).chain(DELETES).collect(),
    };
    if op.shape != Shape::Connect {
        out.push(PRETTY);
    }
    out.sort_by_key(|p| p.name);
    out
}

/// The parameters of a connection are the fields of its options kind. Reading a log is a GET with such
/// options.
fn connect_options(op: &Operation) -> (&str, Vec<(&'static str, &'static str)>) {
    let kind = match op.shape {
        Shape::Connect => &op.gvk.kind,
        Shape::Get if is_log(op) => "PodLogOptions",
        _ => return ("", Vec::new()),
    };
    (kind, connect::described(kind))
}

/// The parameters of an operation, in the order of their names.
pub(super) fn rendered_parameters(dialect: Dialect, op: &Operation) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    let (options, fields) = connect_options(op);
    for (name, ty) in fields {
        let description = crate::api::openapi::parameter(options, name).unwrap_or_default();
        out.push(parameter(dialect, name, "query", ty, description));
    }
    for name in &op.in_path {
        let (p, description) = in_path(name, &op.gvk.kind);
        out.push(parameter(dialect, p.name, p.place, p.ty, &description));
    }
    for p in parameters(op) {
        out.push(parameter(dialect, p.name, p.place, p.ty, meaning(op, p.name)));
    }
    // Sorted again: the parameters of connections and paths were added separately.
    out.sort_by(|a, b| key(a).cmp(&key(b)));
    out
}

/// Parameters are sorted by name, then by location.
fn key(parameter: &Value) -> (&str, &str) {
    (parameter.str_at(&["name"]), parameter.str_at(&["in"]))
}

fn parameter(dialect: Dialect, name: &str, place: &str, ty: &str, description: &str) -> Value {
    let mut m = Map::new();
    m.insert("name", name);
    m.insert("in", place);
    if !description.is_empty() {
        m.insert("description", description);
    }
    if place == "path" {
        m.insert("required", true);
    }
    let mut schema = Map::new();
    schema.insert("type", ty);
    schema.insert("uniqueItems", true);
    match dialect {
        Dialect::V3 => drop(m.insert("schema", schema)),
        // In v2 the type is a member of the parameter itself; v3 nests a schema.
        Dialect::V2 => schema.into_iter().for_each(|(k, v)| drop(m.insert(k, v))),
    }
    Value::Object(m)
}
