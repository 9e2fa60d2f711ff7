//! Cross-checks of the parsed source text against the compiled crate.

use crate::corrections::Corrections;
use crate::model::Def;
use k8s_openapi::Resource;
use k8s_openapi::api;
use std::collections::BTreeMap;

fn docs() -> crate::docs::Docs {
    crate::docs::Docs::read(&crate::source::locate("k8s-pb"))
}

fn defs() -> BTreeMap<String, Def> {
    crate::definitions(include_str!("../corrections.txt"), &docs())
}

/// Compares every definition reachable from `T` with the table: names of properties, and the root's kind.
fn agrees<T: schemars::JsonSchema + Resource>(defs: &BTreeMap<String, Def>) -> usize {
    let root = schemars::SchemaGenerator::default().into_root_schema_for::<T>();
    let root_def = &defs[T::schema_name().as_ref()];
    assert!(
        root_def
            .gvks
            .contains(&(T::GROUP.to_owned(), T::VERSION.to_owned(), T::KIND.to_owned()))
    );
    let reached = root.get("$defs").and_then(|d| d.as_object()).into_iter().flatten();
    let mut compared = 0;
    for (name, schema) in reached {
        let properties = schema
            .get("properties")
            .and_then(|p| p.as_object())
            .into_iter()
            .flatten();
        let mut live: Vec<&str> = properties.map(|(k, _)| k.as_str()).collect();
        live.sort_unstable();
        let ours: Vec<&str> = defs[name].fields.keys().map(String::as_str).collect();
        assert_eq!(live, ours, "{name}");
        compared += 1;
    }
    compared
}

#[test]
fn definitions_equal_those_of_the_compiled_crate() {
    let defs = defs();
    let crds = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
    assert!(defs.contains_key(crds));
    let compared = agrees::<api::core::v1::Pod>(&defs)
        + agrees::<api::core::v1::PersistentVolume>(&defs)
        + agrees::<api::core::v1::Node>(&defs)
        + agrees::<api::core::v1::Service>(&defs)
        + agrees::<api::apps::v1::StatefulSet>(&defs)
        + agrees::<api::apps::v1::Deployment>(&defs)
        + agrees::<api::batch::v1::CronJob>(&defs)
        + agrees::<api::autoscaling::v2::HorizontalPodAutoscaler>(&defs)
        + agrees::<api::admissionregistration::v1::ValidatingAdmissionPolicy>(&defs)
        + agrees::<api::flowcontrol::v1::PriorityLevelConfiguration>(&defs)
        + agrees::<api::networking::v1::Ingress>(&defs)
        + agrees::<api::resource::v1::ResourceClaim>(&defs)
        + agrees::<api::storage::v1::VolumeAttachment>(&defs)
        + agrees::<k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService>(&defs);
    assert!(compared > 300, "{compared}");
}

#[test]
fn the_table_has_every_definition_and_kind_of_the_release() {
    let corrections = Corrections::parse(include_str!("../corrections.txt"));
    let mut defs = defs();
    defs.retain(|name, _| !corrections.defines.contains_key(crate::model::short(name)));
    assert_eq!(defs.len(), 771);
    let kinds = defs.values().filter(|d| !d.gvks.is_empty()).count();
    assert_eq!(kinds, 193);
}

/// The rows of a table, by definition.
fn rows(table: &str) -> Vec<(String, String)> {
    let mut definition = String::new();
    let mut out = Vec::new();
    for line in table.lines() {
        match line.strip_prefix("t(\"").and_then(|l| l.split('"').next()) {
            Some(name) => definition = name.to_owned(),
            None => out.push((definition.clone(), line.trim().to_owned())),
        }
    }
    out
}

/// Everything the gateway does with a field (decoding, protobuf, apply, patches, OpenAPI) follows from its
/// row, so adding the row is the whole change. `crates/kube-schema/src/tests.rs` shows that for the fields
/// that corrections add today.
#[test]
fn a_correction_line_adds_a_field() {
    let corrections = include_str!("../corrections.txt");
    let line = "field api.core.v1.PodSpec.shiny []api.core.v1.Container =201 required -- Shines.\n";
    let before = crate::definitions(corrections, &docs());
    let after = crate::definitions(&format!("{corrections}{line}"), &docs());
    let (old, new) = (rows(&crate::emit::table(&before)), rows(&crate::emit::table(&after)));
    let added: Vec<_> = new.iter().filter(|r| !old.contains(r)).collect();
    let container = before
        .keys()
        .position(|n| n == "io.k8s.api.core.v1.Container")
        .expect("containers");
    let place = before["io.k8s.api.core.v1.PodSpec"].fields.len();
    let row = format!("f(\"shiny\", List(&Struct(TypeRef({container}))), REQUIRED|NULL, 201, {place}).list(Atomic),");
    assert_eq!(added, [&("io.k8s.api.core.v1.PodSpec".to_owned(), row)]);
    assert_eq!(new.len(), old.len() + 1);
    let descriptions = |defs| String::from_utf8(crate::emit::descriptions(defs)).expect("text");
    assert_eq!(
        descriptions(&after).len(),
        descriptions(&before).len() + "Shines.\0".len()
    );
}

#[test]
fn every_stored_field_has_a_protobuf_number() {
    for (name, def) in defs() {
        // `apiVersion` and `kind` of a document are in its envelope; `version.Info` has no message.
        if name.ends_with("version.Info") {
            continue;
        }
        for (field, f) in &def.fields {
            let in_envelope = ["apiVersion", "kind"].contains(&field.as_str()) && f.wire.is_none();
            assert!(f.wire.is_some() || in_envelope, "{name}.{field}");
        }
    }
}
