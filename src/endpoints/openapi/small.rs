//! The small documents beside those of group versions: discovery roots, version, token keys.

use super::v3::{Build, document};
use crate::api::openapi::{Components, Dialect, closure};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use std::sync::Arc;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const OBJECTS: [&str; 3] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];

/// One GET.
struct Small {
    path: String,
    operation: String,
    tag: String,
    description: &'static str,
    types: &'static [&'static str],
    /// What it answers with; `None`: text.
    definition: Option<&'static str>,
}

impl Small {
    fn build(self) -> Build {
        Arc::new(move || self.document())
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
        let names = closure(self.definition);
        document(paths, Components::load().schemas(Dialect::V3, &names, &[]))
    }
}

/// Key and document of everything a core server has beside its group versions; `groups` are its named groups.
pub fn all(groups: &[&str]) -> Vec<(String, Build)> {
    let mut out = vec![
        root(
            "api",
            "getCoreAPIVersions",
            "core",
            "lists the versions of the core group",
            "APIVersions",
        ),
        root(
            "apis",
            "getAPIVersions",
            "apis",
            "lists the groups there are",
            "APIGroupList",
        ),
        (
            "version".to_owned(),
            Small {
                path: "/version/".to_owned(),
                operation: "getCodeVersion".to_owned(),
                tag: "version".to_owned(),
                description: "says which version this server is",
                types: &["application/json"],
                definition: Some("io.k8s.apimachinery.pkg.version.Info"),
            }
            .build(),
        ),
        keys(
            ".well-known/openid-configuration",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            &["application/json"],
        ),
        keys(
            "openid/v1/jwks",
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            &["application/jwk-set+json"],
        ),
    ];
    out.extend(groups.iter().map(|g| group(g)));
    out
}

fn definition(kind: &str) -> &'static str {
    crate::api::by_name(&format!("{META}{kind}")).map_or("", |d| d.name)
}

fn root(key: &str, operation: &str, tag: &str, description: &'static str, kind: &str) -> (String, Build) {
    let small = Small {
        path: format!("/{key}/"),
        operation: operation.to_owned(),
        tag: tag.to_owned(),
        description,
        types: &OBJECTS,
        definition: Some(definition(kind)),
    };
    (key.to_owned(), small.build())
}

/// The document of `/apis/<group>`.
pub fn group(group: &str) -> (String, Build) {
    let camel = super::operations::group_version_camel(&GroupVersion::new(group, ""));
    let tag = super::operations::tag(&GroupVersion::new(group, ""));
    let small = Small {
        path: format!("/apis/{group}/"),
        operation: format!("get{camel}APIGroup"),
        tag: tag.trim_end_matches('_').to_owned(),
        description: "lists the versions of a group",
        types: &OBJECTS,
        definition: Some(definition("APIGroup")),
    };
    (format!("apis/{group}"), small.build())
}

fn keys(key: &str, operation: &str, tag: &str, types: &'static [&'static str]) -> (String, Build) {
    let small = Small {
        path: format!("/{key}/"),
        operation: operation.to_owned(),
        tag: tag.to_owned(),
        description: "what verifies service account tokens",
        types,
        definition: None,
    };
    (key.to_owned(), small.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_document_refers_to_what_it_has() {
        for (key, build) in all(&["apps"]) {
            let doc = build();
            let text = crate::apimachinery::codec::json::to_string(&doc);
            for name in text.split("#/components/schemas/").skip(1) {
                let name = name.split('"').next().unwrap();
                assert!(!doc.at(&["components", "schemas", name]).is_null(), "{key}: {name}");
            }
        }
    }
}
