//! The operations of a group version's resources, independent of the OpenAPI dialect.
//!
//! Entry point: [`of_rows`]; `paths` renders the result.

use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::registry::resource::Resource;
use crate::registry::{Subresource, SubresourceBehaviour, Verbs};
use std::sync::Arc;

/// An operation on a path.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The path with placeholders.
    pub path: String,
    /// The HTTP method in lower case.
    pub method: &'static str,
    /// `x-kubernetes-action`
    pub action: &'static str,
    /// The verb part of the operation ID: `read`, `list`, `connect` and so on.
    pub verb: String,
    /// The part of the operation ID that follows group and version.
    pub subject: String,
    /// The kind of the resource, also for operations on its subresources.
    pub resource_kind: String,
    /// The subresource that the operation is on.
    pub subresource: Option<String>,
    /// The kind of the request and response bodies.
    pub gvk: GroupVersionKind,
    /// The name of the object's definition.
    pub definition: String,
    /// The name of the list's definition.
    pub list_definition: String,
    /// The names of the parameters in the path.
    pub in_path: Vec<&'static str>,
    /// The request and response bodies.
    pub shape: Shape,
    /// Whether the resource can be watched.
    pub watchable: bool,
    /// The conventions that the description follows.
    pub style: Style,
}

/// Upstream describes operations in two places, with small differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Kinds of the schema table.
    BuiltIn,
    /// Kinds with a schema of their own, which support neither protobuf nor strategic merge patches.
    Described,
    /// Kinds of CustomResourceDefinitions (`k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder`).
    Custom,
}

impl Style {
    /// The style of a resource's operations, by the origin of its schema.
    pub(crate) fn of(row: &Resource) -> Self {
        match row.schema.definition() {
            Some(_) => Self::BuiltIn,
            None if row.unstructured => Self::Custom,
            None => Self::Described,
        }
    }
}

/// The request and response bodies of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Response: one object.
    Get,
    /// Response: a list.
    List,
    /// Response: watch events.
    Watch,
    /// Request and response: an object; also responds with 201 and 202.
    Create,
    /// Request and response: an object; also responds with 201.
    Replace,
    /// Request: a patch; response: an object.
    Patch,
    /// Request: DeleteOptions; response: a Status or the object.
    Delete {
        /// The response is the object instead of a Status.
        returns_object: bool,
    },
    /// Request: DeleteOptions; response: a Status. Takes list parameters.
    DeleteCollection,
    /// Response: text. The fields of the options kind are parameters.
    Connect,
}

fn title(word: &str) -> String {
    let mut chars = word.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// The group version in operation IDs: `CoreV1`, `RbacAuthorizationV1`.
pub(crate) fn group_version_camel(gv: &GroupVersion) -> String {
    let group = match gv.group.as_str() {
        "" => "core",
        g => g.strip_suffix(".k8s.io").unwrap_or(g),
    };
    group.split(['.', '-']).map(title).collect::<String>() + &title(&gv.version)
}

/// The group version as a tag: `core_v1`, `rbacAuthorization_v1`.
pub(crate) fn tag(gv: &GroupVersion) -> String {
    let group = match gv.group.as_str() {
        "" => "core",
        g => g.strip_suffix(".k8s.io").unwrap_or(g),
    };
    let mut parts = group.split(['.', '-']);
    let first = parts.next().unwrap_or("").to_owned();
    format!("{first}{}_{}", parts.map(title).collect::<String>(), gv.version)
}

/// The name of the definition of a resource's lists.
pub(crate) fn list_definition(row: &Resource) -> String {
    // A kind and its list are types of the same Go package.
    let prefix = row.definition.strip_suffix(row.kind.as_str()).unwrap_or_default();
    format!("{prefix}{}", row.list_kind)
}

/// All operations of a group version, resource by resource.
pub(crate) fn of_rows<'a>(gv: &GroupVersion, rows: impl Iterator<Item = &'a Arc<Resource>>) -> Vec<Operation> {
    let mut rows: Vec<_> = rows.collect();
    // Upstream's installer goes through the resources in order of their paths.
    rows.sort_by(|a, b| a.gvr.resource.cmp(&b.gvr.resource));
    let mut out = Vec::new();
    for row in rows {
        of_row(&gv.path(), row, &mut out);
        for sub in &row.subresources {
            of_subresource(&gv.path(), row, sub, &mut out);
        }
    }
    out
}

/// Where the paths of a resource are, and how the IDs of operations say so.
struct Place {
    /// The part of the path between the group version and the resource.
    scope: &'static str,
    /// The parameters in the path of the collection.
    in_collection: &'static [&'static str],
    /// The parameters in the path of one object.
    in_item: &'static [&'static str],
    /// The ID of a namespaced operation contains `Namespaced`; that of a list across namespaces ends in
    /// `ForAllNamespaces` instead.
    scoped: &'static str,
}

impl Place {
    const NAMESPACED: Self = Self {
        scope: "/namespaces/{namespace}",
        in_collection: &["namespace"],
        in_item: &["name", "namespace"],
        scoped: "Namespaced",
    };
    const CLUSTER: Self = Self {
        scope: "",
        in_collection: &[],
        in_item: &["name"],
        scoped: "",
    };

    fn of(row: &Resource) -> Self {
        match row.namespaced {
            true => Self::NAMESPACED,
            false => Self::CLUSTER,
        }
    }
}

/// An operation that a resource has if it supports certain verbs.
struct Candidate {
    needs: Verbs,
    path: String,
    method: &'static str,
    action: &'static str,
    verb: &'static str,
    subject: String,
    in_path: &'static [&'static str],
    shape: Shape,
}

fn of_row(root: &str, row: &Resource, out: &mut Vec<Operation>) {
    let style = Style::of(row);
    let mut candidates = standard(root, row);
    // Upstream's builder for custom resources documents no `/watch/` paths.
    if style != Style::Custom {
        candidates.extend(deprecated_watches(root, row));
    }
    let supported = candidates.into_iter().filter(|c| row.verbs.has(c.needs));
    out.extend(supported.map(|c| Operation {
        path: c.path,
        method: c.method,
        action: c.action,
        verb: c.verb.to_owned(),
        subject: c.subject,
        resource_kind: row.kind.to_string(),
        subresource: None,
        gvk: row.gvk(),
        definition: row.definition.to_string(),
        list_definition: list_definition(row),
        in_path: c.in_path.to_vec(),
        shape: c.shape,
        watchable: row.verbs.has(Verbs::WATCH),
        style,
    }));
}

/// The operations on a resource's collection and objects. Watches are lists with a parameter here.
fn standard(root: &str, row: &Resource) -> Vec<Candidate> {
    let place = Place::of(row);
    let (plural, kind) = (&row.gvr.resource, &row.kind);
    let collection = format!("{root}{}/{plural}", place.scope);
    let item = format!("{collection}/{{name}}");
    let one = format!("{}{kind}", place.scoped);
    // With the verb, `deleteCollection…`: different from the ID of the delete of one object.
    let every = format!("Collection{one}");
    let on_collection = |needs, method, action, verb, subject: &str, shape| Candidate {
        needs,
        path: collection.clone(),
        method,
        action,
        verb,
        subject: subject.to_owned(),
        in_path: place.in_collection,
        shape,
    };
    let on_item = |needs, method, verb, shape| Candidate {
        needs,
        path: item.clone(),
        method,
        // That of an operation on one object is its method.
        action: method,
        verb,
        subject: one.clone(),
        in_path: place.in_item,
        shape,
    };
    let deletes_all = Shape::DeleteCollection;
    let deletes = Shape::Delete {
        returns_object: row.returns_deleted,
    };
    let mut all = vec![
        on_collection(Verbs::LIST, "get", "list", "list", &one, Shape::List),
        on_collection(Verbs::CREATE, "post", "post", "create", &one, Shape::Create),
        on_collection(
            Verbs::DELETE_COLLECTION,
            "delete",
            "deletecollection",
            "delete",
            &every,
            deletes_all,
        ),
        on_item(Verbs::GET, "get", "read", Shape::Get),
        on_item(Verbs::UPDATE, "put", "replace", Shape::Replace),
        on_item(Verbs::PATCH, "patch", "patch", Shape::Patch),
        on_item(Verbs::DELETE, "delete", "delete", deletes),
    ];
    if row.namespaced {
        // This is the only verb on collections that upstream registers for all namespaces.
        all.push(Candidate {
            needs: Verbs::LIST,
            path: format!("{root}/{plural}"),
            method: "get",
            action: "list",
            verb: "list",
            subject: format!("{kind}ForAllNamespaces"),
            in_path: &[],
            shape: Shape::List,
        });
    }
    all
}

/// The operations on the deprecated `/watch/` paths.
fn deprecated_watches(root: &str, row: &Resource) -> Vec<Candidate> {
    let place = Place::of(row);
    let (plural, kind) = (&row.gvr.resource, &row.kind);
    let watch = |needs, action, path: String, subject: String, in_path| Candidate {
        needs,
        path,
        method: "get",
        action,
        verb: "watch",
        subject,
        in_path,
        shape: Shape::Watch,
    };
    // Upstream documents `watchlist` only for storage that both lists and watches.
    let both = Verbs::WATCH.with(Verbs::LIST);
    let mut all = Vec::new();
    if row.namespaced {
        let subject = format!("{kind}ListForAllNamespaces");
        all.push(watch(both, "watchlist", format!("{root}/watch/{plural}"), subject, &[]));
    }
    let collection = format!("{root}/watch{}/{plural}", place.scope);
    let item = format!("{collection}/{{name}}");
    let one = format!("{}{kind}", place.scoped);
    let list = format!("{one}List");
    all.push(watch(both, "watchlist", collection, list, place.in_collection));
    all.push(watch(Verbs::WATCH, "watch", item, one, place.in_item));
    all
}

fn of_subresource(root: &str, row: &Resource, sub: &Subresource, out: &mut Vec<Operation>) {
    let Place {
        scope,
        in_item: in_path,
        scoped,
        ..
    } = Place::of(row);
    let path = format!("{root}{scope}/{}/{{name}}/{}", row.gvr.resource, sub.name);
    let subject = format!("{scoped}{}{}", row.kind, title(&sub.name));
    // A subresource without a kind of its own (`status`) has the definition of its parent.
    let definition = crate::api::by_gvk(&sub.kind.group, &sub.kind.version, &sub.kind.kind)
        .map_or_else(|| row.definition.to_string(), |d| d.name.to_owned());
    let style = Style::of(row);
    let methods = [
        (Verbs::GET, "get", "get", "read", Shape::Get),
        (Verbs::CREATE, "post", "post", "create", Shape::Create),
        (Verbs::UPDATE, "put", "put", "replace", Shape::Replace),
        (Verbs::PATCH, "patch", "patch", "patch", Shape::Patch),
        (
            Verbs::DELETE,
            "delete",
            "delete",
            "delete",
            Shape::Delete { returns_object: false },
        ),
    ];
    // Upstream documents log as an ordinary GET.
    let connects = matches!(sub.behaviour, SubresourceBehaviour::Connect(_)) && sub.name != "log";
    let mut add =
        |path: &str, subject: &str, method: &'static str, action, verb: String, shape, in_path: &[&'static str]| {
            out.push(Operation {
                path: path.to_owned(),
                method,
                action,
                verb,
                // The operations on a connection's path differ only in their method, so the method is part of
                // the ID.
                subject: if connects {
                    format!("{}{subject}", title(method))
                } else {
                    subject.to_owned()
                },
                resource_kind: row.kind.to_string(),
                subresource: Some(sub.name.to_string()),
                gvk: match style {
                    Style::Custom => row.gvk(),
                    _ => sub.kind.clone(),
                },
                definition: definition.clone(),
                list_definition: list_definition(row),
                in_path: in_path.to_vec(),
                shape,
                watchable: false,
                style,
            });
        };
    let methods = methods.into_iter().filter(|(verb, ..)| sub.verbs.has(*verb));
    if !connects {
        for (_, method, action, name, shape) in methods {
            add(&path, &subject, method, action, name.to_owned(), shape, in_path);
        }
        return;
    }
    let mut connect = |path: &str, subject: &str, method, in_path: &[&'static str]| {
        let verb = "connect".to_owned();
        add(path, subject, method, "connect", verb, Shape::Connect, in_path);
    };
    for (_, method, ..) in methods {
        connect(&path, &subject, method, in_path);
    }
    // Proxies accept every method, with and without a subpath.
    if sub.name == "proxy" {
        let mut with_path = in_path.to_vec();
        with_path.push("path");
        let deep = format!("{path}/{{path}}");
        let deep_subject = format!("{subject}WithPath");
        for method in ["get", "post", "put", "patch", "delete", "head", "options"] {
            if ["head", "options"].contains(&method) {
                connect(&path, &subject, method, in_path);
            }
            connect(&deep, &deep_subject, method, &with_path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_version_names_match_upstream() {
        for (group, camel, tagged) in [
            ("", "CoreV1", "core_v1"),
            ("apps", "AppsV1", "apps_v1"),
            (
                "rbac.authorization.k8s.io",
                "RbacAuthorizationV1",
                "rbacAuthorization_v1",
            ),
            (
                "flowcontrol.apiserver.k8s.io",
                "FlowcontrolApiserverV1",
                "flowcontrolApiserver_v1",
            ),
        ] {
            let gv = GroupVersion::new(group, "v1");
            assert_eq!((group_version_camel(&gv).as_str(), tag(&gv).as_str()), (camel, tagged));
        }
    }
}
