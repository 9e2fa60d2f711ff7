//! Cross-checks of what was read from the crate's text against the crate itself.

use crate::corrections::Corrections;
use crate::model::{self, Def};
use crate::source;
use k8s_openapi::Resource;
use k8s_openapi::api;
use std::collections::BTreeMap;

fn defs() -> BTreeMap<String, Def> {
    let (sources, paths) = source::read(&source::locate());
    model::build(
        &sources,
        &paths,
        &Corrections::parse(include_str!("../corrections.txt")),
    )
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
fn definitions_are_those_of_the_live_crate() {
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
    let defs = defs();
    assert_eq!(defs.len(), 771);
    let kinds = defs.values().filter(|d| !d.gvks.is_empty()).count();
    assert_eq!(kinds, 193);
}

#[test]
fn a_field_is_added_by_one_line() {
    let (sources, paths) = source::read(&source::locate());
    let line = "field api.core.v1.PodSpec.shiny []api.core.v1.Container required -- Shines.\n";
    let defs = model::build(&sources, &paths, &Corrections::parse(line));
    let field = &defs["io.k8s.api.core.v1.PodSpec"].fields["shiny"];
    assert!(field.required && field.emit == "Null" && field.description == "Shines.");
}
