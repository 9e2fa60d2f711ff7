//! Authors of definitions who also write the custom resources: the schema is the attacker's, and so is the
//! object.

mod conversions;
mod definitions;
mod objects;
mod reads;

use super::Cases;
use super::writers::joined;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::{GatewayResponse, Request};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The collection of the attacker's custom resources.
pub(super) const OBJECTS: &str = "/apis/custom.example/v1/namespaces/evil/as";

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    objects::all(cases, scale);
    reads::all(cases, scale);
    conversions::all(cases, scale);
    definitions::all(cases, scale);
}

/// A version of the definition: its name, the schema of `spec`, and additional members.
pub(super) fn version(name: &str, storage: bool, spec: &str, more: &str) -> String {
    format!(
        r#"{{"name":"{name}","served":true,"storage":{storage}{more},"subresources":{{"status":{{}}}},
        "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{spec},
        "status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}"#
    )
}

/// A definition of these versions; `spec` are additional members of its spec.
pub(super) fn definition(versions: &str, metadata: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"as.custom.example"{metadata}}},"spec":{{"group":"custom.example","scope":"Namespaced",
        "names":{{"plural":"as","singular":"a","kind":"A"}}{spec},"versions":[{versions}]}}}}"#
    )
}

/// The definition with one version whose `spec` has this schema.
pub(super) fn of_spec(spec: &str) -> String {
    definition(&version("v1", true, spec, ""), "", "")
}

/// Members for an object of the definition.
pub(super) fn object(name: &str, spec: &str) -> String {
    format!(r#"{{"apiVersion":"custom.example/v1","kind":"A","metadata":{{"name":"{name}"}},"spec":{spec}}}"#)
}

/// Creates a definition and waits until it is served. Deleting it afterwards deletes its custom resources.
pub(super) fn define(scene: &mut Scene<'_>, definition: impl Into<Vec<u8>>) {
    let request = Request::post(DEFINITIONS, definition);
    let created = scene.send(&request);
    scene.expect(created.as_ref().is_some_and(|a| a.code == 201), || {
        format!(
            "the definition: {:.300}",
            created.as_ref().map_or_else(String::new, GatewayResponse::text)
        )
    });
    scene.delete_afterwards(format!("{DEFINITIONS}/as.custom.example"));
    scene.until("the definition is served", |scene| {
        scene.send(&Request::get(OBJECTS)).is_some_and(|a| a.code == 200)
    });
}

/// A case with a definition of this schema of `spec`, then one request.
pub(super) fn case(
    cases: &mut Cases,
    name: &str,
    schema: impl FnOnce() -> String + Send + 'static,
    request: impl FnOnce() -> Request + Send + 'static,
) {
    cases.add(name, move |scene| {
        define(scene, of_spec(&schema()));
        scene.send(&request());
    });
}

/// A list of `n` objects.
pub(super) fn list(n: usize, item: impl FnMut(usize) -> String) -> String {
    format!("[{}]", joined(n, item))
}
