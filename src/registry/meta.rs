//! Metadata handling shared by all writes: system fields, owner references, validation order, and admission
//! attributes.

use super::resource::Resource;
use super::store::Store;
use super::strategy::{Change, Context, NameRule, UpdateOrder};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta, validate_object_meta_update};
use crate::apimachinery::validation::{
    name_is_canonical_ip, name_is_declared_subdomain, name_is_dns_label, name_is_dns_subdomain, name_is_dns1035_label,
    name_is_path_segment,
};
use crate::apimachinery::value::Value;
use crate::interrupt::pause;
use crate::request::Warnings;
use crate::storage::Draft;
use std::collections::HashSet;

/// Parses a resourceVersion like Go's `ParseUint`.
///
/// # Errors
/// 500 with Go's message.
pub(crate) fn parse_version(text: &str) -> Result<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let quoted = crate::apimachinery::field::quote(text);
    if !digits {
        return Err(Status::raw_error(format!(
            "strconv.ParseUint: parsing {quoted}: invalid syntax"
        )));
    }
    text.parse()
        .map_err(|_| Status::raw_error(format!("strconv.ParseUint: parsing {quoted}: value out of range")))
}

/// Sets `apiVersion` and `kind` to those of the resource.
pub(super) fn set_kind(resource: &Resource, object: &mut Value) {
    let map = object.make_object();
    map.insert("apiVersion", resource.gvk().api_version());
    map.insert("kind", resource.kind.as_str());
}

/// The errors of a custom resource whose kind or version is not the resource's. Objects of built-in kinds are checked
/// when their body is decoded.
pub(super) fn type_errors(resource: &Resource, object: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    if !resource.unstructured {
        return out;
    }
    let expected = resource.gvk();
    // Kind before version, the order of upstream's causes.
    for (key, want) in [
        ("kind", expected.kind.to_string()),
        ("apiVersion", expected.api_version()),
    ] {
        let given = object.str_at(&[key]);
        // The server's own writes may omit them.
        if !given.is_empty() && given != want {
            out.push(FieldError::invalid(
                &FieldPath::new(key),
                given,
                format!("must be {want}"),
            ));
        }
    }
    out
}

/// Sets the object's namespace from the request; removes it for cluster-scoped kinds.
pub(super) fn set_namespace(resource: &Resource, cx: &Context, object: &mut Value) {
    if !resource.namespaced {
        object.unset_meta("namespace");
    } else if !cx.namespace.is_empty() {
        object.set_meta("namespace", cx.namespace.as_str());
    }
}

/// Removes the fields that only the server may set.
pub(super) fn wipe_system_fields(object: &mut Value) {
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

/// Restores the metadata that an update does not change implicitly.
pub(super) fn keep_system_fields(new: &mut Value, old: &Value) {
    // A client may repeat the UID as a precondition; only a missing one is filled in.
    if new.uid().is_empty() && !old.uid().is_empty() {
        new.set_meta("uid", old.uid());
    }
    // Always the stored values; those of the client are ignored.
    for key in ["creationTimestamp", "generation"] {
        match old.at(&["metadata", key]) {
            Value::Null => new.unset_meta(key),
            v => new.set_meta(key, v.clone()),
        }
    }
    // Cannot be taken back, as upstream: an update never revives an object.
    if old.is_being_deleted() {
        new.set_meta("deletionTimestamp", old.at(&["metadata", "deletionTimestamp"]).clone());
    }
    let grace = old.at(&["metadata", "deletionGracePeriodSeconds"]);
    if !grace.is_null() && new.at(&["metadata", "deletionGracePeriodSeconds"]).is_null() {
        new.set_meta("deletionGracePeriodSeconds", grace.clone());
    }
}

fn kind_rules(store: &Store) -> MetaRules {
    let resource = &store.resource;
    MetaRules {
        namespaced: resource.namespaced,
        name: match store.strategy.rules().names {
            NameRule::Subdomain => name_is_dns_subdomain,
            NameRule::Label => name_is_dns_label,
            NameRule::Label1035 => name_is_dns1035_label,
            NameRule::PathSegment => name_is_path_segment,
            // Left to the generic rules, which apply after these.
            NameRule::Any => |_, _| Vec::new(),
            NameRule::CanonicalIp => name_is_canonical_ip,
            NameRule::Declared => name_is_declared_subdomain,
        },
        strict_finalizers: resource.meta_checks.strict_finalizers,
    }
}

/// Validates the metadata of a new object with the kind's rules.
fn validate_own_meta(store: &Store, object: &Value, path: &FieldPath) -> ErrorList {
    let meta = object.get("metadata");
    let errors = validate_object_meta(meta, kind_rules(store), path);
    let Some(check) = store.strategy.rules().names_by_content else {
        return errors;
    };
    // The errors begin with those of the names, which these belong to.
    let (mut out, mut rest) = (ErrorList::new(), errors.into_iter().peekable());
    for key in ["generateName", "name"] {
        let (name, at) = (meta.str_at(&[key]), path.child(key));
        let field = at.to_string();
        out.extend(std::iter::from_fn(|| rest.next_if(|e| e.field == field)));
        if !name.is_empty() {
            let messages = check(object, name).into_iter();
            out.extend(messages.map(|why| FieldError::invalid(&at, name, why)));
        }
    }
    out.extend(rest);
    out
}

/// Validates a new object with the kind's rules; the generic rules apply only if those find no error.
pub(super) fn validate_create(store: &Store, object: &Value) -> ErrorList {
    let meta = object.get("metadata");
    let path = FieldPath::new("metadata");
    let mut errors = match store.resource.meta_checks.on_create {
        true => validate_own_meta(store, object, &path),
        false => ErrorList::new(),
    };
    errors.extend(store.strategy.validate(object, Change::Create));
    if errors.is_empty() {
        // As upstream's `rest.BeforeCreate`, which returns the strategy's errors before it gets to these.
        errors = validate_object_meta(meta, MetaRules::generic(store.resource.namespaced), &path);
    }
    errors
}

/// Validates the metadata of a changed object with the rules for all kinds.
pub(super) fn validate_common(store: &Store, new: &Value, old: &Value) -> ErrorList {
    let (new, old) = (new.get("metadata"), old.get("metadata"));
    let path = FieldPath::new("metadata");
    let generic = MetaRules::generic(store.resource.namespaced);
    let mut errors = validate_object_meta(new, generic, &path);
    errors.extend(validate_object_meta_update(new, old, generic, &path));
    errors
}

/// Validates a changed object with the generic rules, then with the kind's, which repeat most of the errors,
/// as upstream: as a new object and against the stored one, each time the metadata first, in the kind's order.
pub(super) fn validate_update(store: &Store, subresource: &str, new: &Value, old: &Value) -> ErrorList {
    let (new_meta, old_meta) = (new.get("metadata"), old.get("metadata"));
    let path = FieldPath::new("metadata");
    let mut errors = validate_common(store, new, old);
    let (own, kind) = (store.resource.meta_checks, kind_rules(store));
    let whole = subresource.is_empty();
    let mut as_new = ErrorList::new();
    if whole || (subresource == "status" && own.status_as_new) {
        // Duplicate causes are intended: upstream runs the same check several times.
        (0..own.as_new).for_each(|_| as_new.extend(validate_own_meta(store, new, &path)));
    }
    let compares = match subresource {
        "" => own.against_old,
        "status" | "approval" if own.status_includes_metadata => false,
        _ => own.in_subresources,
    };
    let mut against_old = match compares {
        true => validate_object_meta_update(new_meta, old_meta, kind, &path),
        false => ErrorList::new(),
    };
    let rest = store.strategy.validate(new, Change::Update { old, subresource });
    if !whole || own.as_new == 0 || !own.against_old {
        [as_new, against_old, rest].into_iter().for_each(|e| errors.extend(e));
        return errors;
    }
    // The errors that a new object would have too belong behind those of its metadata.
    let splits = matches!(own.order, UpdateOrder::New | UpdateOrder::Old);
    let also_new = match !splits || rest.is_empty() || (as_new.is_empty() && against_old.is_empty()) {
        true => ErrorList::new(),
        false => store.strategy.validate(new, Change::Create),
    };
    // Saturating: a kind may report fewer errors for an update than for a create.
    let changed = rest.len().saturating_sub(also_new.len());
    let (first, second) = match own.order {
        UpdateOrder::New => {
            // Only if the errors begin with those of a new object can they be told apart; otherwise all of
            // them go to the old object's.
            let split = if rest.starts_with(&also_new) { also_new.len() } else { 0 };
            let mut rest = rest.into_iter();
            as_new.extend(rest.by_ref().take(split));
            against_old.extend(rest);
            (as_new, against_old)
        }
        UpdateOrder::Old => {
            let split = if rest.ends_with(&also_new) { changed } else { 0 };
            let mut rest = rest.into_iter();
            against_old.extend(rest.by_ref().take(split));
            as_new.extend(rest);
            (against_old, as_new)
        }
        UpdateOrder::OldMetadata => {
            as_new.extend(rest);
            (against_old, as_new)
        }
        UpdateOrder::Metadata => {
            against_old.extend(rest);
            (as_new, against_old)
        }
    };
    errors.extend(first);
    errors.extend(second);
    errors
}

/// Removes duplicate owner references and adds a warning.
pub(crate) fn dedup_owner_references(object: &mut Value, warnings: &Warnings, after_admission: bool) {
    let Some(refs) = object
        .at_mut(&["metadata", "ownerReferences"])
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    // The common case: no owner or one.
    if refs.len() < 2 {
        return;
    }
    let mut seen: HashSet<&Value> = HashSet::with_capacity(refs.len());
    // Compared as whole references, as upstream: equal UIDs with other names are not duplicates.
    let first: Vec<bool> = refs.iter().inspect(|_| pause()).map(|r| seen.insert(r)).collect();
    if first.iter().all(|first| *first) {
        return;
    }
    let mut doubled: Vec<String> = Vec::new();
    let mut places = first.into_iter();
    refs.retain(|r| {
        let first = places.next().unwrap_or(true);
        // Response headers have no room for more.
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

/// Encodes the object for storage, together with its selectable fields.
pub(super) fn draft(resource: &Resource, object: &Value) -> Draft {
    // Fields of custom resources are extracted on demand, see `UnstoredFields`.
    let stored = resource.selectable.as_ref().filter(|s| s.unstored.is_none());
    let fields = stored.map_or_else(Vec::new, |s| (s.extract)(object));
    Draft::new(object, fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::strategy::{Rules, Strategy};
    use std::sync::Arc;

    #[test]
    fn versions_parse_like_go() {
        assert_eq!(parse_version("12").unwrap(), 12);
        for bad in ["x", "-1", "+1", " 1"] {
            let e = parse_version(bad).unwrap_err();
            assert_eq!(
                (e.code, e.message),
                (500, format!("strconv.ParseUint: parsing {bad:?}: invalid syntax"))
            );
        }
    }

    #[test]
    fn equal_owner_references_are_removed_with_a_warning() {
        let mut o = crate::json!({"metadata": {"ownerReferences": [
            {"uid": "u", "name": "a"}, {"uid": "u", "name": "a"}, {"uid": "u", "name": "b"}]}});
        let warnings = Warnings::default();
        dedup_owner_references(&mut o, &warnings, true);
        assert_eq!(o.at(&["metadata", "ownerReferences"]).items().len(), 2);
        assert!(warnings.take()[0].ends_with("duplicate UID(s) observed: u"));
    }

    /// A strategy that finds an error in every object.
    struct Refusing;

    impl crate::registry::strategy::Strategy for Refusing {
        fn validate_create(&self, _: &Value) -> ErrorList {
            let mut errors = ErrorList::new();
            errors.push(FieldError::required(&FieldPath::new("spec"), ""));
            errors
        }
    }

    #[test]
    fn metadata_that_a_kind_does_not_check_is_checked_last() {
        let group = |group, version| crate::controlplane::resource_builder::GroupVersionBuilder { group, version };
        let budgets = || group("policy", "v1").kind("poddisruptionbudgets", "PodDisruptionBudget");
        let deployments = group("apps", "v1").kind("deployments", "Deployment");
        let bad = crate::json!({"metadata": {"name": "a", "namespace": "b", "labels": {"k": "-"}}});
        for (row, expected) in [
            (budgets(), &["metadata.labels"][..]),
            (budgets().strategy(Refusing), &["spec"]),
            (deployments.strategy(Refusing), &["metadata.labels", "spec"]),
        ] {
            let storage = Arc::new(crate::controlplane::reviews::NoStorage);
            let resource = Arc::new(row.namespaced().build());
            let store = Store::new(resource, storage, Arc::new(crate::admission::AdmitAll));
            let errors = validate_create(&store, &bad);
            let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(fields, expected);
        }
    }

    #[test]
    fn a_device_class_has_the_errors_of_its_metadata_together() {
        let (group, version) = ("resource.k8s.io", "v1");
        let builder = crate::controlplane::resource_builder::GroupVersionBuilder { group, version };
        let row = builder.kind("deviceclasses", "DeviceClass").strategy(Refusing);
        let storage = Arc::new(crate::controlplane::reviews::NoStorage);
        let store = Store::new(Arc::new(row.build()), storage, Arc::new(crate::admission::AdmitAll));
        let old = crate::json!({"metadata": {"name": "a", "resourceVersion": "1"}});
        let mut bad = old.clone();
        bad.set(&["metadata", "labels", "k"], "-");
        let errors = validate_update(&store, "", &bad, &old);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        let labels = "metadata.labels";
        assert_eq!(fields, [labels, labels, labels, labels, "spec"]);
    }

    struct Named(Rules);

    impl Strategy for Named {
        fn rules(&self) -> Rules {
            self.0
        }

        fn validate_create(&self, _: &Value) -> ErrorList {
            vec![FieldError::required(&FieldPath::new("spec"), "")].into()
        }
    }

    fn fields_of_a_bad_object(rules: Rules) -> Vec<String> {
        let v1 = crate::controlplane::resource_builder::GroupVersionBuilder {
            group: "apiregistration.k8s.io",
            version: "v1",
        };
        let row = v1.kind("apiservices", "APIService").strategy(Named(rules)).build();
        let storage = Arc::new(crate::controlplane::reviews::NoStorage);
        let store = Store::new(Arc::new(row), storage, Arc::new(crate::admission::AdmitAll));
        let bad = crate::json!({"metadata": {"generateName": "a/", "name": "a/b", "labels": {"k": "-"}}});
        let errors = validate_create(&store, &bad);
        errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.detail).chars().take(34).collect())
            .collect()
    }

    #[test]
    fn names_are_checked_against_the_content_before_the_rest_of_the_metadata() {
        let rules = Rules {
            names_by_content: Some(|object: &Value, name: &str| {
                let labels = object.at(&["metadata", "labels"]);
                vec![format!("{name} {}", labels.str_at(&["k"]))]
            }),
            ..Rules::named(NameRule::PathSegment)
        };
        assert_eq!(
            fields_of_a_bad_object(rules),
            [
                "metadata.generateName: may not con",
                "metadata.generateName: a/ -",
                "metadata.name: may not contain '/'",
                "metadata.name: a/b -",
                "metadata.labels: a valid label mus",
                "spec: ",
            ]
        );
    }

    #[test]
    fn kinds_without_a_name_rule_use_the_generic_one() {
        assert_eq!(
            fields_of_a_bad_object(Rules::named(NameRule::Any)),
            ["metadata.labels: a valid label mus", "spec: "]
        );
    }

    #[test]
    fn update_validation_repeats_errors_like_upstream() {
        let group = |group, version| crate::controlplane::resource_builder::GroupVersionBuilder { group, version };
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
            (
                group("storage.k8s.io", "v1").kind("volumeattachments", "VolumeAttachment"),
                "status",
                3,
                1,
            ),
        ] {
            let resource = Arc::new(row.namespaced().build());
            let storage = Arc::new(crate::controlplane::reviews::NoStorage);
            let store = Store::new(resource.clone(), storage, Arc::new(crate::admission::AdmitAll));
            let found = validate_update(&store, subresource, &bad, &bad);
            let count = |field: &str| found.iter().filter(|e| e.field == field).count();
            let counts = (count("metadata.labels"), count("metadata.finalizers[0]"));
            assert_eq!(counts, (labels, finalizers), "{} {subresource}", resource.kind);
        }
    }
}
