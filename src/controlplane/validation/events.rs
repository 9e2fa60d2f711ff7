//! Events as core/v1 checks them.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{dns1123_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;

pub(crate) fn core_event(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let about = FieldPath::new("involvedObject").child("namespace");
    let involved = v.str_at(&["involvedObject", "namespace"]);
    let namespace = v.namespace();
    let mismatch = || FieldError::invalid(&about, involved, "does not match event.namespace");
    if v.get("eventTime").is_null() {
        let fine = if involved.is_empty() {
            namespace == "default"
        } else {
            involved == namespace
        };
        if !fine {
            out.push(mismatch());
        }
    } else {
        if involved.is_empty() && !matches!(namespace, "default" | "kube-system") {
            out.push(mismatch());
        }
        let at = FieldPath::new("reportingComponent");
        let component = v.str_at(&["reportingComponent"]);
        if component.is_empty() {
            out.push(FieldError::required(&at, ""));
        }
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
        &FieldPath::new("namespace"),
        namespace,
        dns1123_subdomain(namespace),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn an_event_stays_with_its_object() {
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
}
