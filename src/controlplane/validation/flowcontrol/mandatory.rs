//! The FlowSchemas and levels that the server needs, whose specs nobody may change: what they let through, or catch,
//! keeps administrators from being locked out.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::bootstrap::flowcontrol::table;
use crate::controlplane::fields::same;
use crate::controlplane::validation::go_form::Printing::{Any, Bool, Int, List, Ptr, Str, Struct};
use crate::controlplane::validation::go_form::{Field, compact};

const NAME: &[Field] = &[("Name", "name", Str)];
const DISTINGUISHER: &[Field] = &[("Type", "type", Str)];
const SERVICE_ACCOUNT: &[Field] = &[("Namespace", "namespace", Str), ("Name", "name", Str)];
const SUBJECT: &[Field] = &[
    ("Kind", "kind", Str),
    ("User", "user", Ptr(NAME)),
    ("Group", "group", Ptr(NAME)),
    ("ServiceAccount", "serviceAccount", Ptr(SERVICE_ACCOUNT)),
];
const RESOURCES: &[Field] = &[
    ("Verbs", "verbs", Any),
    ("APIGroups", "apiGroups", Any),
    ("Resources", "resources", Any),
    ("ClusterScope", "clusterScope", Bool),
    ("Namespaces", "namespaces", Any),
];
const OTHERS: &[Field] = &[("Verbs", "verbs", Any), ("NonResourceURLs", "nonResourceURLs", Any)];
const RULES: &[Field] = &[
    ("Subjects", "subjects", List(SUBJECT)),
    ("ResourceRules", "resourceRules", List(RESOURCES)),
    ("NonResourceRules", "nonResourceRules", List(OTHERS)),
];
/// `FlowSchemaSpec`
const SCHEMA: &[Field] = &[
    ("PriorityLevelConfiguration", "priorityLevelConfiguration", Struct(NAME)),
    ("MatchingPrecedence", "matchingPrecedence", Int),
    ("DistinguisherMethod", "distinguisherMethod", Ptr(DISTINGUISHER)),
    ("Rules", "rules", List(RULES)),
];

const QUEUING: &[Field] = &[
    ("Queues", "queues", Int),
    ("HandSize", "handSize", Int),
    ("QueueLengthLimit", "queueLengthLimit", Int),
];
const RESPONSE: &[Field] = &[("Type", "type", Str), ("Queuing", "queuing", Ptr(QUEUING))];
const LIMITED: &[Field] = &[
    ("NominalConcurrencyShares", "nominalConcurrencyShares", Int),
    ("LimitResponse", "limitResponse", Struct(RESPONSE)),
    ("LendablePercent", "lendablePercent", Any),
    ("BorrowingLimitPercent", "borrowingLimitPercent", Any),
];
const EXEMPT: &[Field] = &[
    ("NominalConcurrencyShares", "nominalConcurrencyShares", Any),
    ("LendablePercent", "lendablePercent", Any),
];
/// `PriorityLevelConfigurationSpec`
const LEVEL: &[Field] = &[
    ("Type", "type", Str),
    ("Limited", "limited", Ptr(LIMITED)),
    ("Exempt", "exempt", Ptr(EXEMPT)),
];

/// Refuses a changed spec of a mandatory FlowSchema.
pub(super) fn schema(out: &mut ErrorList, v: &Value) {
    let (name, spec) = (v.name(), v.get("spec"));
    if table::mandatory_schema(name).is_some_and(|fixed| !same(spec, &fixed)) {
        let why = format!("spec of '{name}' must equal the fixed value");
        out.push(FieldError::invalid_raw(
            &FieldPath::new("spec"),
            compact(spec, SCHEMA),
            why,
        ));
    }
}

/// Refuses a changed spec of a mandatory level, except for what administrators may set of the exempt one.
pub(super) fn level(out: &mut ErrorList, v: &Value) {
    let (name, spec) = (v.name(), v.get("spec"));
    let Some(mut fixed) = table::mandatory_level(name) else {
        return;
    };
    let mut own = spec.clone();
    let mut except = "";
    if name == "exempt" {
        except = " except the 'spec.exempt' field";
        own.unset(&["exempt"]);
        fixed.unset(&["exempt"]);
    }
    if !same(&own, &fixed) {
        let why = format!("spec of '{name}'{except} must equal the fixed value");
        out.push(FieldError::invalid_raw(
            &FieldPath::new("spec"),
            compact(spec, LEVEL),
            why,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn specs_of_mandatory_levels_are_fixed() {
        let of = |name: &str, spec: Value| {
            let mut v = json!({"metadata": {"name": (name)}});
            v.set(&["spec"], spec);
            let mut out = ErrorList::new();
            level(&mut out, &v);
            aggregate(&out)
        };
        let shares = |n: i64| {
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": (n), "lendablePercent": 0,
                "limitResponse": {"type": "Reject"}}})
        };
        assert_eq!(of("catch-all", shares(5)), "[]");
        assert_eq!(of("other", shares(6)), "[]");
        assert_eq!(
            of("catch-all", shares(6)),
            "spec: Invalid value: {\"Type\":\"Limited\",\"Limited\":{\"NominalConcurrencyShares\":6,\
             \"LimitResponse\":{\"Type\":\"Reject\",\"Queuing\":null},\"LendablePercent\":0,\
             \"BorrowingLimitPercent\":null},\"Exempt\":null}: spec of 'catch-all' must equal the fixed value"
        );
        // The shares of the exempt level are the administrator's.
        let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 7, "lendablePercent": 50}});
        assert_eq!(of("exempt", exempt), "[]");
        let why = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value";
        assert!(of("exempt", shares(5)).ends_with(why));
    }

    #[test]
    fn specs_of_mandatory_schemas_are_fixed() {
        let fixed = table::mandatory_schema("exempt").unwrap();
        let of = |spec: &Value| {
            let mut v = json!({"metadata": {"name": "exempt"}});
            v.set(&["spec"], spec.clone());
            let mut out = ErrorList::new();
            schema(&mut out, &v);
            aggregate(&out)
        };
        assert_eq!(of(&fixed), "[]");
        let mut changed = fixed;
        changed.set(&["rules"], Value::Null);
        assert_eq!(
            of(&changed),
            "spec: Invalid value: {\"PriorityLevelConfiguration\":{\"Name\":\"exempt\"},\"MatchingPrecedence\":1,\
             \"DistinguisherMethod\":null,\"Rules\":null}: spec of 'exempt' must equal the fixed value"
        );
        assert!(table::mandatory_schema("probes").is_none());
    }
}
