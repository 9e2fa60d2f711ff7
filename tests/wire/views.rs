//! Views reduce large documents to the members that clients rely on.

use crate::paths;
use serde_json::{Map, Value, json};

/// The view `name:argument` of a document.
pub(crate) fn apply(view: &str, doc: &Value) -> Value {
    let (name, argument) = view.split_once(':').unwrap_or((view, ""));
    match name {
        "aggregated" => aggregated(doc, argument),
        "api-resources" => api_resources(doc),
        "checks" => checks(doc, argument),
        "group-list" => group_list(doc),
        "keys" => keys(doc),
        "metric-names" => metric_names(doc, argument),
        "names" => names(doc),
        "only" => only(doc, argument),
        "openapi-index" => crate::openapi::index(doc),
        "openapi-kind" => crate::openapi::kind(doc, argument),
        "openapi-paths" => crate::openapi::paths(doc, argument),
        "paths-list" => paths_list(doc),
        "shape" => shape(doc),
        other => panic!("unknown view {other}"),
    }
}

/// Whether a group is built in, and not of a CustomResourceDefinition or another server.
pub(crate) fn is_upstream(group: &str) -> bool {
    !group.contains('.') || (group.ends_with(".k8s.io") && !group.ends_with("openshift.io"))
}

/// Whether a text matches a pattern in which `*` stands for anything.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = (0..=text.len()).filter(|i| text.is_char_boundary(*i));
            ends.any(|i| matches(rest, &text[i..]))
        }),
    }
}

/// The strings of a list, in order.
pub(crate) fn sorted(list: Option<&Value>) -> Value {
    let mut items: Vec<Value> = list.and_then(Value::as_array).cloned().unwrap_or_default();
    items.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    Value::Array(items)
}

fn items<'a>(doc: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    doc.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn member<'a>(doc: &'a Value, key: &str) -> &'a Value {
    doc.get(key).unwrap_or(&Value::Null)
}

/// Collects members whose order has no meaning.
fn members(pairs: impl Iterator<Item = (String, Value)>) -> Value {
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn text(doc: &Value, key: &str) -> String {
    paths::text(doc, key).to_owned()
}

/// The members `plain`, and the lists `sets` in order.
fn selected(doc: &Value, plain: &[&str], sets: &[&str]) -> Value {
    let plain = plain
        .iter()
        .filter_map(|k| Some(((*k).to_owned(), doc.get(k)?.clone())));
    let sets = sets.iter().filter(|k| doc.get(**k).is_some());
    members(plain.chain(sets.map(|k| ((*k).to_owned(), sorted(doc.get(k))))))
}

fn api_resources(doc: &Value) -> Value {
    if doc.get("resources").is_none() {
        return doc.clone();
    }
    let of_resource = |r: &Value| {
        let plain = ["singularName", "namespaced", "kind", "group", "version"];
        (
            text(r, "name"),
            selected(r, &plain, &["verbs", "shortNames", "categories"]),
        )
    };
    json!({
        "kind": member(doc, "kind"),
        "apiVersion": member(doc, "apiVersion"),
        "groupVersion": member(doc, "groupVersion"),
        "resources": members(items(doc, "resources").map(of_resource)),
    })
}

fn group_list(doc: &Value) -> Value {
    if doc.get("groups").is_none() {
        return doc.clone();
    }
    let groups = items(doc, "groups").map(|g| (text(g, "name"), g.clone()));
    json!({
        "kind": member(doc, "kind"),
        "apiVersion": member(doc, "apiVersion"),
        "groups": members(groups.filter(|(name, _)| is_upstream(name))),
    })
}

/// Aggregated discovery of the groups that match, or of all built-in ones.
fn aggregated(doc: &Value, pattern: &str) -> Value {
    if doc.get("items").is_none() {
        return doc.clone();
    }
    let of_resource = |r: &Value| {
        let plain = ["responseKind", "scope", "singularResource"];
        let mut out = selected(r, &plain, &["verbs", "shortNames", "categories"]);
        if r.get("subresources").is_some() {
            let each = items(r, "subresources").map(|s| {
                let verbs = sorted(s.get("verbs"));
                let view = json!({"responseKind": member(s, "responseKind"), "verbs": verbs});
                (text(s, "subresource"), view)
            });
            out["subresources"] = members(each);
        }
        (text(r, "resource"), out)
    };
    let of_version = |v: &Value| {
        let resources = members(items(v, "resources").map(of_resource));
        let view = json!({"freshness": member(v, "freshness"), "resources": resources});
        (text(v, "version"), view)
    };
    let of_group = |g: &Value| {
        let order: Vec<String> = items(g, "versions").map(|v| text(v, "version")).collect();
        let versions = members(items(g, "versions").map(of_version));
        (
            text(g, "metadata.name"),
            json!({"versionOrder": order, "versions": versions}),
        )
    };
    let wanted = |g: &&Value| match (pattern, paths::text(g, "metadata.name")) {
        ("", name) => is_upstream(name),
        (pattern, name) => matches(pattern, name),
    };
    json!({
        "kind": member(doc, "kind"),
        "apiVersion": member(doc, "apiVersion"),
        "metadata": member(doc, "metadata"),
        "groups": members(items(doc, "items").filter(wanted).map(of_group)),
    })
}

/// The types of these metrics.
fn metric_names(doc: &Value, wanted: &str) -> Value {
    let Some(page) = doc.as_str() else {
        return doc.clone();
    };
    let of_type = |name: &str| {
        let mut lines = page.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split_once(' '));
        lines.find(|(n, _)| *n == name).map_or("missing", |(_, t)| t).to_owned()
    };
    members(wanted.split(',').map(|name| (name.to_owned(), json!(of_type(name)))))
}

/// The named checks of a health page, and its other lines.
fn checks(doc: &Value, wanted: &str) -> Value {
    let Some(page) = doc.as_str() else {
        return doc.clone();
    };
    let check = |line: &str| {
        let (sign, rest) = line.strip_prefix('[')?.split_once(']')?;
        let (name, state) = rest.split_once(' ')?;
        let wanted = wanted.is_empty() || wanted.split(',').any(|w| w == name);
        wanted.then(|| (name.to_owned(), json!(format!("{sign} {state}"))))
    };
    let other: Vec<&str> = page.trim().split('\n').filter(|l| !l.starts_with('[')).collect();
    json!({"checks": members(page.lines().filter_map(check)), "other": other})
}

/// The names in a list.
fn names(doc: &Value) -> Value {
    if !doc.is_object() {
        return doc.clone();
    }
    let name = |i: &Value| {
        paths::get(i, "metadata.name")
            .and_then(Value::as_str)
            .unwrap_or("?")
            .to_owned()
    };
    let all = items(doc, "items").map(name).filter(|n| !n.contains("openshift"));
    json!({"kind": member(doc, "kind"), "names": members(all.map(|n| (n, json!(true))))})
}

/// The values at these paths.
fn only(doc: &Value, wanted: &str) -> Value {
    let at = |path: &str| paths::get(doc, path).cloned().unwrap_or_else(|| json!("<absent>"));
    members(wanted.split(',').map(|path| (path.to_owned(), at(path))))
}

fn keys(doc: &Value) -> Value {
    match doc.as_object() {
        Some(members) => json!(members.keys().collect::<Vec<_>>()),
        None => doc.clone(),
    }
}

/// The paths of the root document that are built in.
fn paths_list(doc: &Value) -> Value {
    if doc.get("paths").is_none() {
        return doc.clone();
    }
    let built_in = |path: &str| match path.strip_prefix("/apis/") {
        None | Some("") => true,
        Some(rest) => is_upstream(rest.split('/').next().unwrap_or_default()),
    };
    let all = items(doc, "paths").filter_map(Value::as_str).filter(|p| built_in(p));
    json!({"paths": members(all.map(|p| (p.to_owned(), json!(true))))})
}

/// The types of all values; of lists, that of the first. The names are Python's, as in the recordings.
fn shape(doc: &Value) -> Value {
    match doc {
        Value::Object(all) => members(all.iter().map(|(k, v)| (k.clone(), shape(v)))),
        Value::Array(all) => Value::Array(all.iter().take(1).map(shape).collect()),
        Value::Null => json!("NoneType"),
        Value::Bool(_) => json!("bool"),
        Value::Number(n) => json!(if n.is_f64() { "float" } else { "int" }),
        Value::String(_) => json!("str"),
    }
}
