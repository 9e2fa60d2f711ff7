//! What every kind's metadata goes through on a write: system fields, owner references, the checks before the kind's.

use super::resource::Resource;
use super::store::{Store, WriteOptions};
use super::strategy::{Context, NameRule};
use crate::admission::{Attributes, Operation};
use crate::apimachinery::field::{ErrorList, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta, validate_object_meta_update};
use crate::apimachinery::validation::{
    name_is_declared_subdomain, name_is_dns_label, name_is_dns_subdomain, name_is_dns1035_label, name_is_path_segment,
};
use crate::apimachinery::value::Value;
use crate::request::Warnings;
use crate::storage::Draft;
use std::collections::HashSet;
use std::sync::Arc;

/// Says what the object is: `apiVersion` and `kind` of the row.
pub(super) fn set_kind(resource: &Resource, object: &mut Value) {
    let map = object.make_object();
    map.insert("apiVersion", resource.gvk().api_version());
    map.insert("kind", resource.kind.as_str());
}

/// The object's namespace follows the request; kinds of cluster scope have none.
pub(super) fn set_namespace(resource: &Resource, cx: &Context, object: &mut Value) {
    if !resource.namespaced {
        object.unset_meta("namespace");
    } else if !cx.namespace.is_empty() {
        object.set_meta("namespace", cx.namespace.as_str());
    }
}

/// Drops what only the server may set.
pub(crate) fn wipe_system_fields(object: &mut Value) {
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        object.unset_meta(key);
    }
}

/// Keeps what an update may not change without being told so.
pub(super) fn keep_system_fields(new: &mut Value, old: &Value) {
    new.unset_meta("selfLink");
    if new.uid().is_empty() && !old.uid().is_empty() {
        new.set_meta("uid", old.uid());
    }
    for key in ["creationTimestamp", "generation"] {
        match old.at(&["metadata", key]) {
            Value::Null => new.unset_meta(key),
            v => new.set_meta(key, v.clone()),
        }
    }
    if old.is_being_deleted() {
        new.set_meta("deletionTimestamp", old.at(&["metadata", "deletionTimestamp"]).clone());
    }
    let grace = old.at(&["metadata", "deletionGracePeriodSeconds"]);
    if !grace.is_null() && new.at(&["metadata", "deletionGracePeriodSeconds"]).is_null() {
        new.set_meta("deletionGracePeriodSeconds", grace.clone());
    }
}

fn kind_rules(resource: &Resource) -> MetaRules {
    MetaRules {
        namespaced: resource.namespaced,
        name: match resource.strategy.name_rule() {
            NameRule::Subdomain => name_is_dns_subdomain,
            NameRule::Label => name_is_dns_label,
            NameRule::Label1035 => name_is_dns1035_label,
            NameRule::PathSegment => name_is_path_segment,
            NameRule::Declared => name_is_declared_subdomain,
        },
        strict_finalizers: resource.meta_checks.strict_finalizers,
    }
}

/// The checks of a new object: the kind's, and the generic ones only where the kind found nothing.
pub(super) fn validate_create(resource: &Resource, object: &Value) -> ErrorList {
    let meta = object.get("metadata");
    let path = FieldPath::new("metadata");
    let mut errors = validate_object_meta(meta, kind_rules(resource), &path);
    errors.extend(resource.strategy.validate_create(object));
    if errors.is_empty() {
        errors = validate_object_meta(meta, MetaRules::generic(resource.namespaced), &path);
    }
    errors
}

/// The checks of a changed object: the generic ones, then the kind's, which say most of it again
/// (`recordings/metadata/system-fields`).
pub(super) fn validate_update(resource: &Resource, subresource: &str, new: &Value, old: &Value) -> ErrorList {
    let (new_meta, old_meta) = (new.get("metadata"), old.get("metadata"));
    let path = FieldPath::new("metadata");
    let generic = MetaRules::generic(resource.namespaced);
    let mut errors = validate_object_meta(new_meta, generic, &path);
    errors.extend(validate_object_meta_update(new_meta, old_meta, generic, &path));
    let (own, kind) = (resource.meta_checks, kind_rules(resource));
    let whole = subresource.is_empty();
    if whole {
        (0..own.as_new).for_each(|_| errors.extend(validate_object_meta(new_meta, kind, &path)));
    }
    let against_old = if whole { own.against_old } else { own.in_parts };
    if against_old {
        errors.extend(validate_object_meta_update(new_meta, old_meta, kind, &path));
    }
    errors.extend(match subresource {
        "" => resource.strategy.validate_update(new, old),
        "status" => resource.strategy.validate_status_update(new, old),
        part => resource.strategy.validate_part_update(part, new, old),
    });
    errors
}

/// Removes owner references that are there twice and says so.
pub(crate) fn dedup_owner_references(object: &mut Value, warnings: &Warnings, after_admission: bool) {
    let Some(refs) = object
        .at_mut(&["metadata", "ownerReferences"])
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    if refs.len() < 2 {
        return;
    }
    let mut seen: HashSet<&Value> = HashSet::with_capacity(refs.len());
    let first: Vec<bool> = refs.iter().map(|r| seen.insert(r)).collect();
    if first.iter().all(|first| *first) {
        return;
    }
    let mut doubled: Vec<String> = Vec::new();
    let mut places = first.into_iter();
    refs.retain(|r| {
        let first = places.next().unwrap_or(true);
        // No header has room for more.
        if !first && doubled.len() < Warnings::TOTAL {
            doubled.push(r.str_at(&["uid"]).to_owned());
        }
        first
    });
    let when = if after_admission {
        " after mutating admission happens"
    } else {
        ""
    };
    warnings.add(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
         may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        doubled.join(", ")
    ));
}

/// What admission is told about a write.
pub(super) fn attributes(
    store: &Store,
    cx: &Context,
    operation: Operation,
    name: &str,
    old: Option<Arc<Value>>,
    options: &WriteOptions,
) -> Attributes {
    Attributes {
        operation,
        kind: options.kind.clone().unwrap_or_else(|| store.resource.gvk()),
        resource: store.resource.gvr.clone(),
        subresource: options.subresource.clone(),
        namespace: cx.namespace.clone(),
        name: name.to_owned(),
        user: cx.user.clone(),
        dry_run: cx.dry_run,
        old_object: old,
        options: options.options.clone(),
        warnings: cx.warnings.clone(),
        audit: cx.audit.clone(),
    }
}

/// The object as it goes to storage.
pub(super) fn draft(resource: &Resource, object: &Value) -> Draft {
    let fields = resource
        .selectable
        .as_ref()
        .map_or_else(Vec::new, |s| (s.extract)(object));
    Draft::new(object, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_owner_references_are_said_and_removed_and_different_ones_stay() {
        let mut o = crate::json!({"metadata": {"ownerReferences": [
            {"uid": "u", "name": "a"}, {"uid": "u", "name": "a"}, {"uid": "u", "name": "b"}]}});
        let warnings = Warnings::default();
        dedup_owner_references(&mut o, &warnings, true);
        assert_eq!(o.at(&["metadata", "ownerReferences"]).items().len(), 2);
        assert!(warnings.take()[0].ends_with("duplicate UID(s) observed: u"));
    }

    #[test]
    fn each_check_of_an_update_says_what_it_finds() {
        let group = |group, version| crate::controlplane::table::Group { group, version };
        let bad = crate::json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1", "labels": {"k": "-"}, "finalizers": ["f"]}});
        for (row, subresource, labels, finalizers) in [
            (group("", "v1").kind("configmaps", "ConfigMap"), "", 4, 2),
            (group("apps", "v1").kind("deployments", "Deployment"), "", 3, 1),
            (group("apps", "v1").kind("deployments", "Deployment"), "status", 3, 1),
            (group("batch", "v1").kind("cronjobs", "CronJob"), "status", 2, 0),
            (group("", "v1").kind("limitranges", "LimitRange"), "", 3, 1),
            (group("", "v1").kind("events", "Event"), "", 2, 0),
            (
                group("policy", "v1").kind("poddisruptionbudgets", "PodDisruptionBudget"),
                "",
                2,
                0,
            ),
            (group("coordination.k8s.io", "v1").kind("leases", "Lease"), "", 3, 0),
        ] {
            let resource = row.namespaced().done();
            let found = validate_update(&resource, subresource, &bad, &bad);
            let count = |field: &str| found.iter().filter(|e| e.field == field).count();
            let said = (count("metadata.labels"), count("metadata.finalizers[0]"));
            assert_eq!(said, (labels, finalizers), "{} {subresource}", resource.kind);
        }
    }
}
