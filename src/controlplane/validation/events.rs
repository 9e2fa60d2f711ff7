//! Validation of events through core/v1 and, more strictly, events.k8s.io/v1 (upstream's
//! `pkg/apis/core/validation/events.go`).

use super::go_form::{Field, Printing, compact};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta, validate_object_meta_update};
use crate::apimachinery::validation::{dns1123_subdomain, name_is_dns_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each, same};

/// The metadata rules of events.k8s.io/v1. Checked here, because upstream checks them between other fields.
const METADATA: MetaRules = MetaRules {
    namespaced: true,
    name: name_is_dns_subdomain,
    strict_finalizers: true,
};

/// Checks common to both versions. `reporter` is the version's name for the field `reportingComponent`.
fn event(v: &Value, reporter: &str) -> ErrorList {
    let mut out = ErrorList::new();
    // Paths have core/v1 names, whichever version the client uses.
    let about = FieldPath::new("involvedObject").child("namespace");
    let involved = v.str_at(&["involvedObject", "namespace"]);
    let namespace = v.namespace();
    let mismatch = || FieldError::invalid(&about, involved, "does not match event.namespace");
    // Only events of the new API have an `eventTime`; those without it get the lenient legacy checks.
    if v.get("eventTime").is_null() {
        // Events about cluster-scoped objects are stored in `default`.
        let fine = if involved.is_empty() {
            namespace == "default"
        } else {
            involved == namespace
        };
        if !fine {
            out.push(mismatch());
        }
    } else {
        // A namespace that is set is not compared here: upstream allows it to differ.
        if involved.is_empty() && !matches!(namespace, "default" | "kube-system") {
            out.push(mismatch());
        }
        let at = FieldPath::new(reporter);
        let component = v.str_at(&["reportingComponent"]);
        if component.is_empty() {
            out.push(FieldError::required(&at, ""));
        }
        // Also if it is empty: the second error is upstream's.
        invalid_each(&mut out, &at, component, qualified_name(component));
        for (key, required, most) in [
            ("reportingInstance", true, 128),
            ("action", true, 128),
            ("reason", true, 128),
            ("message", false, 1024),
        ] {
            let at = FieldPath::new(key);
            let text = v.str_at(&[key]);
            if text.is_empty() && required {
                out.push(FieldError::required(&at, ""));
            }
            // The bad value is empty, as upstream: an oversized string would only fill the response.
            if text.len() > most {
                out.push(FieldError::invalid(
                    &at,
                    "",
                    format!("can have at most {most} characters"),
                ));
            }
        }
    }
    invalid_each(
        &mut out,
        // Events of core/v1 skip the checks of metadata, so the namespace is checked here; upstream's path lacks
        // `metadata`.
        &FieldPath::new("namespace"),
        namespace,
        dns1123_subdomain(namespace),
    );
    out
}

pub(crate) fn core_event(v: &Value) -> ErrorList {
    event(v, "reportingComponent")
}

/// Validates a new event of events.k8s.io/v1, already converted to core/v1. Error paths have core's names, as
/// upstream.
pub(crate) fn new_event(v: &Value) -> ErrorList {
    let mut out = event(v, "reportingController");
    let path = FieldPath::new("metadata");
    out.extend(validate_object_meta(v.get("metadata"), METADATA, &path));
    series(&mut out, v);
    if v.get("eventTime").is_null() {
        out.push(FieldError::required(&FieldPath::new("eventTime"), ""));
    }
    let kind = v.str_at(&["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        let why = format!("has invalid value: {kind}");
        out.push(FieldError::invalid(&FieldPath::new("type"), "", why));
    }
    let source = ["component", "host"]
        .iter()
        .any(|k| !v.str_at(&["source", k]).is_empty());
    // The deprecated counterparts of `series` and `eventTime`; old clients use them through core/v1.
    for (key, set) in [
        ("firstTimestamp", !v.get("firstTimestamp").is_null()),
        ("lastTimestamp", !v.get("lastTimestamp").is_null()),
        ("count", v.get("count").as_i64().is_some_and(|n| n != 0)),
        ("source", source),
    ] {
        if set {
            out.push(FieldError::invalid(&FieldPath::new(key), "", "needs to be unset"));
        }
    }
    out
}

fn series(out: &mut ErrorList, v: &Value) {
    let series = v.get("series");
    if series.is_null() {
        return;
    }
    let at = FieldPath::new("series");
    if series.get("count").as_i64().unwrap_or(0) < 2 {
        out.push(FieldError::invalid(&at.child("count"), "", "should be at least 2"));
    }
    if series.get("lastObservedTime").is_null() {
        out.push(FieldError::required(&at.child("lastObservedTime"), ""));
    }
}

const REFERENCE: &[Field] = &[
    ("Kind", "kind", Printing::Str),
    ("Namespace", "namespace", Printing::Str),
    ("Name", "name", Printing::Str),
    ("UID", "uid", Printing::Str),
    ("APIVersion", "apiVersion", Printing::Str),
    ("ResourceVersion", "resourceVersion", Printing::Str),
    ("FieldPath", "fieldPath", Printing::Str),
];

const SOURCE: &[Field] = &[
    ("Component", "component", Printing::Str),
    ("Host", "host", Printing::Str),
];

/// Validates an update through events.k8s.io/v1: only the series and the metadata may change.
pub(crate) fn new_event_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = event(new, "reportingController");
    let (now, was) = (new.get("metadata"), old.get("metadata"));
    out.extend(validate_object_meta_update(
        now,
        was,
        METADATA,
        &FieldPath::new("metadata"),
    ));
    if !same(new.get("series"), old.get("series")) {
        series(&mut out, new);
    }
    // Paths and order are upstream's, including the repeated `reason`.
    for (key, path) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let (is, was) = (new.get(key), old.get(key));
        // A pointer: an empty reference is not the same as none.
        let appeared = key == "related" && is.is_null() != was.is_null();
        if same(is, was) && !appeared {
            continue;
        }
        // Zero values print as Go's internal struct has them: by type of the field.
        let shown = match (key, is) {
            ("involvedObject", v) => compact(v, REFERENCE),
            ("source", v) => compact(v, SOURCE),
            ("related", v) if !v.is_null() => compact(v, REFERENCE),
            ("count", Value::Null) => "0".to_owned(),
            ("firstTimestamp" | "lastTimestamp" | "eventTime" | "related", Value::Null) => "null".to_owned(),
            (_, Value::Null) => "\"\"".to_owned(),
            (_, v) => show(v),
        };
        out.push(FieldError::invalid_raw(&FieldPath::new(path), shown, IMMUTABLE));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn event_namespace_matches_the_involved_object() {
        let of = |ns: &str| {
            aggregate(&core_event(
                &json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": ns}}),
            ))
        };
        assert_eq!(of("a"), "[]");
        assert_eq!(
            of("b"),
            "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"
        );
        assert_eq!(
            of(""),
            "involvedObject.namespace: Invalid value: \"\": does not match event.namespace"
        );
    }

    #[test]
    fn new_event_requires_its_fields_and_no_deprecated_ones() {
        let fine = json!({"metadata": {"namespace": "a", "name": "e"}, "involvedObject": {"namespace": "a"},
            "eventTime": "2024-01-02T03:04:05.000000Z", "reportingComponent": "c", "reportingInstance": "i",
            "action": "A", "reason": "R", "type": "Normal", "source": {}});
        assert_eq!(aggregate(&new_event(&fine)), "[]");
        let mut odd = fine.clone();
        odd.set(&["series"], json!({"count": 1}));
        odd.set(&["count"], 3i64);
        odd.set(&["source", "host"], "h");
        odd.set(&["type"], "x");
        assert_eq!(
            aggregate(&new_event(&odd)),
            "[series.count: Invalid value: \"\": should be at least 2, series.lastObservedTime: Required value, \
             type: Invalid value: \"\": has invalid value: x, count: Invalid value: \"\": needs to be unset, \
             source: Invalid value: \"\": needs to be unset]"
        );
    }

    #[test]
    fn the_metadata_of_a_new_event_comes_between_its_fields() {
        let bad = json!({"metadata": {"namespace": "a", "name": "e", "resourceVersion": "1", "labels": {"k": "-"}},
            "eventTime": "2024-01-02T03:04:05.000000Z", "reportingComponent": "c", "reportingInstance": "i",
            "action": "A", "reason": "R", "type": "x", "source": {}});
        let fields = |errors: ErrorList| errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>();
        let involved = "involvedObject.namespace";
        assert_eq!(fields(new_event(&bad)), [involved, "metadata.labels", "type"]);
        let mut old = bad.clone();
        old.set(&["reason"], "S");
        assert_eq!(
            fields(new_event_update(&bad, &old)),
            [involved, "metadata.labels", "reason", "reason"]
        );
    }

    #[test]
    fn only_the_series_of_a_new_event_may_change() {
        let old = json!({"metadata": {"namespace": "a", "name": "e", "resourceVersion": "1"},
            "involvedObject": {"namespace": "a", "kind": "Pod"},
            "eventTime": "2024-01-02T03:04:05.000000Z", "reportingComponent": "c", "reportingInstance": "i",
            "action": "A", "reason": "R", "type": "Normal", "source": {}});
        let mut new = old.clone();
        new.set(
            &["series"],
            json!({"count": 2, "lastObservedTime": "2024-01-02T03:04:05.000000Z"}),
        );
        assert_eq!(aggregate(&new_event_update(&new, &old)), "[]");
        new.set(&["related"], Value::object());
        assert_eq!(
            aggregate(&new_event_update(&new, &old)),
            "related: Invalid value: {\"Kind\":\"\",\"Namespace\":\"\",\"Name\":\"\",\"UID\":\"\",\"APIVersion\":\"\",\
             \"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable"
        );
        assert_eq!(aggregate(&new_event_update(&new, &new)), "[]");
        new.unset(&["related"]);
        new.set(&["involvedObject", "name"], "p");
        new.set(&["reportingComponent"], "d");
        assert_eq!(
            aggregate(&new_event_update(&new, &old)),
            "[involvedObject: Invalid value: {\"Kind\":\"Pod\",\"Namespace\":\"a\",\"Name\":\"p\",\"UID\":\"\",\"APIVersion\":\"\",\
             \"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable, \
             reportingController: Invalid value: \"d\": field is immutable]"
        );
    }
}
