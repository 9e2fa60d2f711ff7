//! The catalogue of what to fuzz: every writable resource in discovery, and a valid object of each.

use crate::server::{NAMESPACE, Server};
use std::collections::HashMap;
use torana::api::{TypeDef, by_gvk};
use torana::apimachinery::Value;
use torana::apimachinery::codec::yaml;

const MANIFEST: &str = include_str!("../testdata/every-kind.yaml");

/// A resource that accepts writes.
#[derive(Debug)]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub def: &'static TypeDef,
    pub subresources: Vec<Subresource>,
}

/// A subresource that accepts writes.
#[derive(Debug)]
pub(crate) struct Subresource {
    pub name: String,
    pub verbs: Vec<String>,
    pub api_version: String,
    pub kind: String,
    pub def: Option<&'static TypeDef>,
}

impl Subresource {
    /// Whether it takes objects, as opposed to connections such as exec.
    pub(crate) fn is_written(&self) -> bool {
        let takes = |verb: &str| self.verbs.iter().any(|v| v == verb);
        takes("update") || (takes("create") && !self.kind.ends_with("Options"))
    }
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path where objects are listed and created.
    pub(crate) fn collection(&self) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match self.namespaced {
            true => format!("{root}/namespaces/{NAMESPACE}/{}", self.plural),
            false => format!("{root}/{}", self.plural),
        }
    }

    pub(crate) fn item(&self, name: &str) -> String {
        format!("{}/{name}", self.collection())
    }

    pub(crate) fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The name used in messages.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}", self.api_version(), self.kind)
    }
}

fn words(v: &Value) -> Vec<String> {
    v.items().iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// Every resource whose requests have a body, in discovery order.
pub(crate) fn resources(server: &Server) -> Vec<Resource> {
    let mut group_versions = vec![(String::new(), "v1".to_owned())];
    for group in server.get("/apis").json().get("groups").items() {
        for version in group.get("versions").items() {
            let pair = (
                group.str_at(&["name"]).to_owned(),
                version.str_at(&["version"]).to_owned(),
            );
            group_versions.push(pair);
        }
    }
    group_versions
        .into_iter()
        .flat_map(|(g, v)| resources_of(server, &g, &v))
        .collect()
}

fn resources_of(server: &Server, group: &str, version: &str) -> Vec<Resource> {
    let path = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let list = server.get(&path).json();
    let mut resources: Vec<Resource> = Vec::new();
    for r in list.get("resources").items() {
        let (name, kind) = (r.str_at(&["name"]), r.str_at(&["kind"]));
        let said = |key: &str, own: &str| match r.str_at(&[key]) {
            "" => own.to_owned(),
            other => other.to_owned(),
        };
        if let Some((parent, subresource)) = name.split_once('/') {
            let (group, version) = (said("group", group), said("version", version));
            let api_version = if group.is_empty() {
                version.clone()
            } else {
                format!("{group}/{version}")
            };
            let subresource = Subresource {
                name: subresource.to_owned(),
                verbs: words(r.get("verbs")),
                api_version,
                kind: kind.to_owned(),
                def: by_gvk(&group, &version, kind),
            };
            if let Some(resource) = resources.iter_mut().find(|resource| resource.plural == parent) {
                resource.subresources.push(subresource);
            }
            continue;
        }
        let verbs = words(r.get("verbs"));
        if !verbs.iter().any(|v| v == "create" || v == "update") {
            continue;
        }
        resources.push(Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: name.to_owned(),
            kind: kind.to_owned(),
            namespaced: r.get("namespaced").as_bool() == Some(true),
            verbs,
            def: by_gvk(group, version, kind).unwrap_or_else(|| panic!("{kind} is not in the schema table")),
            subresources: Vec::new(),
        });
    }
    resources
}

/// The objects of `tests/testdata/every-kind.yaml` by `apiVersion` and kind. `tests/kubectl_kinds.rs` checks
/// that the file covers discovery.
pub(crate) fn seeds() -> HashMap<(String, String), Value> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = rcgen::CertificateParams::new(vec![NAMESPACE.to_owned()])
        .and_then(|p| p.serialize_request(&key))
        .and_then(|r| r.pem())
        .expect("a certificate request");
    use base64::Engine as _;
    let request = base64::engine::general_purpose::STANDARD.encode(request);
    let text = MANIFEST.replace("request: CSR", &format!("request: {request}"));
    let documents = text
        .split("\n---\n")
        .map(|d| yaml::decode(d.as_bytes()).expect("the manifest is YAML"));
    documents
        .map(|object| {
            let key = |name: &str| object.str_at(&[name]).to_owned();
            ((key("apiVersion"), key("kind")), object)
        })
        .collect()
}
