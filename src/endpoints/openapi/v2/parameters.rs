//! Moves common parameters of the v2 document into its `parameters` section, as upstream's kube-openapi does.
//!
//! Entry point: [`share`].

use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::discovery::aggregated::hash;

/// Parameters that upstream keeps inline although many operations have them.
const INLINE: [&str; 2] = ["dryRun", "fieldValidation"];
/// Body definitions common to all kinds, whose parameters are shared as well.
const SHARED_BODIES: [&str; 2] = [
    "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
];

/// Replaces common parameters in a path item by references and adds them to `shared`. Their names contain a
/// hash of the content, so that the documents of several servers can be merged.
pub(crate) fn share(item: &mut Map, shared: &mut Map) {
    for (key, part) in item.iter_mut() {
        let parameters = if key == "parameters" {
            Some(part)
        } else {
            part.at_mut(&["parameters"])
        };
        let parameters = parameters.and_then(Value::as_array_mut);
        parameters.into_iter().flatten().for_each(|p| replace(p, shared));
    }
}

fn replace(parameter: &mut Value, shared: &mut Map) {
    if !is_shared(parameter) {
        return;
    }
    let content = json::to_vec(parameter);
    // Eight characters of the hash, as upstream: parameters with equal names and different contents stay apart.
    let name = format!("{}-{}", parameter.str_at(&["name"]), &hash(&content)[..8]);
    let reference = crate::json!({"$ref": (format!("#/parameters/{name}"))});
    shared.insert(name, std::mem::replace(parameter, reference));
}

fn is_shared(parameter: &Value) -> bool {
    let name = parameter.str_at(&["name"]);
    match parameter.str_at(&["in"]) {
        "body" => SHARED_BODIES.contains(&parameter.str_at(&["schema", "$ref"])),
        // The description of `name` contains the kind, so it is not shared.
        "path" => name != "name",
        _ => !INLINE.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn common_parameters_are_shared() {
        let watch = json!({"in": "query", "name": "watch", "type": "boolean"});
        let dry_run = json!({"in": "query", "name": "dryRun", "type": "string"});
        let mut shared = Map::new();
        let [_, item] = ["/a", "/b"].map(|_| {
            let mut item = Value::object();
            item.set(&["parameters"], vec![watch.clone()]);
            item.set(&["get", "parameters"], vec![dry_run.clone(), watch.clone()]);
            share(item.as_object_mut().unwrap(), &mut shared);
            item
        });
        assert_eq!(shared.len(), 1);
        let (name, content) = shared.iter().next().unwrap();
        assert!(name.starts_with("watch-") && *content == watch);
        let reference = format!("#/parameters/{name}");
        assert_eq!(item.get("parameters").items()[0].str_at(&["$ref"]), reference);
        let of_get = item.at(&["get", "parameters"]).items();
        assert_eq!(
            (&of_get[0], of_get[1].str_at(&["$ref"])),
            (&dry_run, reference.as_str())
        );
    }
}
