//! The small OpenAPI documents besides those of group versions: discovery roots, version, and token
//! verification keys.

use super::v3::{Build, document};
use crate::api::openapi::{Components, Dialect, closure};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::negotiate::OBJECT_TYPES;
use std::sync::Arc;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// A document with a single GET.
struct SingleGetDocument {
    key: String,
    path: String,
    operation: String,
    tag: String,
    description: &'static str,
    types: &'static [&'static str],
    /// The definition of the response body; `None` for text.
    definition: Option<&'static str>,
}

impl SingleGetDocument {
    fn build(self) -> (String, Build) {
        (self.key.clone(), Arc::new(move |to| to.value(&self.document())))
    }

    /// The path item for the combined v2 document.
    fn item(&self) -> Map {
        let schema = match self.definition {
            Some(d) => crate::json!({"$ref": format!("#/definitions/{d}")}),
            None => crate::json!({"type": "string"}),
        };
        let types: Vec<Value> = self.types.iter().map(|t| Value::from(*t)).collect();
        let mut get = crate::json!({
            "description": self.description, "operationId": self.operation, "tags": [self.tag.clone()],
            "schemes": ["https"],
            "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}}});
        get.set(&["responses", "200", "schema"], schema);
        // Upstream's routes with a text response declare no media types that they consume.
        if self.definition.is_some() {
            get.set(&["consumes"], types.clone());
        }
        get.set(&["produces"], types);
        let mut item = Map::new();
        item.insert("get", get);
        item
    }

    fn document(&self) -> Value {
        let schema = match self.definition {
            Some(d) => crate::json!({"$ref": format!("#/components/schemas/{d}")}),
            None => crate::json!({"type": "string"}),
        };
        let content: Map = self
            .types
            .iter()
            .map(|t| {
                let mut m = Map::new();
                m.insert("schema", schema.clone());
                (*t, Value::Object(m))
            })
            .collect();
        let mut get = crate::json!({
            "description": self.description, "operationId": self.operation, "tags": [self.tag.clone()],
            "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}}});
        get.set(&["responses", "200", "content"], content);
        let mut item = Map::new();
        item.insert("get", get);
        let mut paths = Map::new();
        paths.insert(self.path.as_str(), item);
        // With all that the definition refers to: references must not lead out of the document.
        let names = closure(self.definition);
        document(paths, Components::load().schemas(Dialect::V3, &names, &[]))
    }
}

/// Keys and builders of the small documents of a core server; `groups` are its named groups.
pub(crate) fn all(groups: &[&str]) -> Vec<(String, Build)> {
    let named = groups.iter().map(|g| of_group(g));
    let all = core().into_iter().chain(every()).chain(named);
    all.map(SingleGetDocument::build).collect()
}

/// The same as path items for the combined v2 document, each with the definition it refers to. Servers of the
/// core group (`""`) have additional ones.
pub(crate) fn items(groups: &[&str]) -> Vec<(String, Map, Option<&'static str>)> {
    // The core group is served below `/api`, not `/apis`.
    let named = groups.iter().filter(|g| !g.is_empty()).map(|g| of_group(g));
    let of_core = groups.contains(&"").then(core).into_iter().flatten();
    let all = of_core.chain(every()).chain(named);
    all.map(|s| (s.path.clone(), s.item(), s.definition)).collect()
}

/// The documents every server has.
fn every() -> [SingleGetDocument; 2] {
    [
        root(
            "apis",
            "getAPIVersions",
            "apis",
            "get available API versions",
            "APIGroupList",
        ),
        SingleGetDocument {
            key: "version".to_owned(),
            path: "/version/".to_owned(),
            operation: "getCodeVersion".to_owned(),
            tag: "version".to_owned(),
            description: "get the version information for this server",
            types: &["application/json"],
            definition: Some("io.k8s.apimachinery.pkg.version.Info"),
        },
    ]
}

/// The additional documents of a server of the core group.
fn core() -> [SingleGetDocument; 3] {
    [
        root(
            "api",
            "getCoreAPIVersions",
            "core",
            "get available API versions",
            "APIVersions",
        ),
        keys(
            ".well-known/openid-configuration",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            &["application/json"],
        ),
        keys(
            "openid/v1/jwks",
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            &["application/jwk-set+json"],
        ),
    ]
}

fn definition(kind: &str) -> &'static str {
    crate::api::by_name(&format!("{META}{kind}")).map_or("", |d| d.name)
}

fn root(key: &str, operation: &str, tag: &str, description: &'static str, kind: &str) -> SingleGetDocument {
    SingleGetDocument {
        definition: Some(definition(kind)),
        ..keys(key, operation, tag, description, &OBJECT_TYPES)
    }
}

/// The document of `/apis/<group>`.
pub(crate) fn group(group: &str) -> (String, Build) {
    of_group(group).build()
}

fn of_group(group: &str) -> SingleGetDocument {
    let camel = super::operations::group_version_camel(&GroupVersion::new(group, ""));
    let tag = super::operations::tag(&GroupVersion::new(group, ""));
    SingleGetDocument {
        key: format!("apis/{group}"),
        path: format!("/apis/{group}/"),
        operation: format!("get{camel}APIGroup"),
        // The tag of a group without a version would end in the separator.
        tag: tag.trim_end_matches('_').to_owned(),
        description: "get information of a group",
        types: &OBJECT_TYPES,
        definition: Some(definition("APIGroup")),
    }
}

fn keys(
    key: &str,
    operation: &str,
    tag: &str,
    description: &'static str,
    types: &'static [&'static str],
) -> SingleGetDocument {
    SingleGetDocument {
        key: key.to_owned(),
        // go-restful registers these roots with a slash at the end.
        path: format!("/{key}/"),
        operation: operation.to_owned(),
        tag: tag.to_owned(),
        description,
        types,
        definition: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_document_contains_the_discovery_roots() {
        let paths = |groups: &[&str]| -> Vec<String> { items(groups).into_iter().map(|(path, ..)| path).collect() };
        assert_eq!(paths(&["g"]), ["/apis/", "/version/", "/apis/g/"]);
        let core = paths(&["", "apps"]);
        for path in [
            "/api/",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks/",
            "/apis/apps/",
        ] {
            assert!(core.iter().any(|p| p == path), "{path} in {core:?}");
        }
    }

    #[test]
    fn small_documents_contain_all_referenced_schemas() {
        for (key, build) in all(&["apps"]) {
            let doc = super::super::v3::tree(|to| build(to));
            let text = crate::apimachinery::codec::json::to_string(&doc);
            for name in text.split("#/components/schemas/").skip(1) {
                let name = name.split('"').next().unwrap();
                assert!(!doc.at(&["components", "schemas", name]).is_null(), "{key}: {name}");
            }
        }
    }
}
