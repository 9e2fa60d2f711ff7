//! Conditions that follow from the content of a definition alone. These functions compute them; controllers
//! write them.

use super::approval::{Approval, is_protected};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, aggregate};
use crate::apimachinery::value::Value;
use crate::schema::definition;

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `type`
    pub condition: &'static str,
    /// `True`, `False` or `Unknown`
    pub status: &'static str,
    /// Machine-readable reason in CamelCase.
    pub reason: &'static str,
    pub message: String,
}

/// The condition `NonStructuralSchema`, or `None` if every schema is structural. Only definitions that were
/// stored before the rules existed can have it.
pub(crate) fn non_structural_schema(definition: &Value) -> Option<Condition> {
    let of = |status, reason, message| Condition {
        condition: "NonStructuralSchema",
        status,
        reason,
        message,
    };
    let spec = FieldPath::new("spec");
    let mut errors = ErrorList::new();
    if definition.at(&["spec", "preserveUnknownFields"]).as_bool() == Some(true) {
        let path = spec.child("preserveUnknownFields");
        errors.push(FieldError::invalid(&path, true, "must be false"));
    }
    for (i, version) in definition.at(&["spec", "versions"]).items().iter().enumerate() {
        let schema = version.at(&["schema", "openAPIV3Schema"]);
        // Versions without a schema cannot violate its rules; that they need one is checked elsewhere.
        if schema.is_null() {
            continue;
        }
        let path = spec.child("versions").index(i).child("schema").child("openAPIV3Schema");
        match definition::violations(schema, &path) {
            Ok(found) => errors.extend(found),
            Err(why) => {
                // A schema that upstream cannot even convert has no list of violations, so the state is unknown.
                let name = version.str_at(&["name"]);
                let message = format!("failed to check validation schema for version {name}: {why}");
                return Some(of("Unknown", "StructuralError", message));
            }
        }
    }
    (!errors.is_empty()).then(|| of("True", "Violations", aggregate(&errors)))
}

/// The condition `KubernetesAPIApprovalPolicyConformant`, or `None` if the group needs no approval.
pub(crate) fn api_approval(definition: &Value) -> Option<Condition> {
    if !is_protected(definition.at(&["spec", "group"]).as_str().unwrap_or("")) {
        return None;
    }
    let approval = Approval::of(definition);
    let (status, reason) = match approval {
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    Some(Condition {
        condition: "KubernetesAPIApprovalPolicyConformant",
        status,
        reason,
        message: approval.message(definition),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_schema_that_is_not_structural_has_the_condition() {
        let with = |schema: Value| {
            let mut v = json!({"spec": {"versions": [{"name": "v1"}]}});
            let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
            v.set(&["spec", "versions"], vec![version]);
            v
        };
        assert_eq!(non_structural_schema(&with(json!({"type": "object"}))), None);
        let c = non_structural_schema(&with(json!({"properties": {"a": {}}}))).unwrap();
        assert_eq!((c.status, c.reason), ("True", "Violations"));
        assert_eq!(
            c.message,
            "[spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields, spec.versions[0].schema.openAPIV3Schema.type: Required value: must not be empty at the root]"
        );
        let c = non_structural_schema(&with(json!({"properties": {"a": {"id": "x"}}}))).unwrap();
        assert_eq!((c.status, c.reason), ("Unknown", "StructuralError"));
        assert_eq!(
            c.message,
            "failed to check validation schema for version v1: OpenAPIV3Schema 'id' is not supported"
        );
        let mut preserving = with(json!({"type": "object"}));
        preserving.set(&["spec", "preserveUnknownFields"], true);
        assert_eq!(
            non_structural_schema(&preserving).unwrap().message,
            "spec.preserveUnknownFields: Invalid value: true: must be false"
        );
    }

    #[test]
    fn protected_groups_have_the_approval_condition() {
        let with = |group: &str, text: &str| {
            api_approval(
                &json!({"metadata": {"annotations": {"api-approved.kubernetes.io": text}}, "spec": {"group": group}}),
            )
        };
        assert_eq!(with("example.com", ""), None);
        assert_eq!(with("notk8s.io", ""), None);
        for (text, status, reason, message) in [
            ("https://x/1", "True", "ApprovedAnnotation", "approved in https://x/1"),
            (
                "unapproved, test",
                "False",
                "UnapprovedAnnotation",
                "not approved: \"unapproved, test\"",
            ),
            (
                "",
                "False",
                "MissingAnnotation",
                "protected groups must have approval annotation",
            ),
            (
                "yes",
                "False",
                "InvalidAnnotation",
                "with either a URL or a reason starting with",
            ),
        ] {
            let c = with("apps.k8s.io", text).unwrap();
            assert_eq!((c.status, c.reason), (status, reason));
            assert!(c.message.contains(message), "{}", c.message);
        }
    }
}
