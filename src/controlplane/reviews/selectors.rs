//! Converts the selectors of an access review to the text form of authorizer attributes (upstream's
//! `pkg/registry/authorization/util`). An unparsable requirement is dropped, which widens the access that is
//! checked, and reported in `evaluationError`.

use crate::apimachinery::field::quote;
use crate::apimachinery::selector::{FieldSelector, LabelSelector};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;

#[derive(Default)]
pub(super) struct ConvertedSelector {
    /// The requirements that parsed; empty selects everything.
    pub text: String,
    used: usize,
    lost: usize,
}

impl ConvertedSelector {
    /// The `evaluationError` if requirements were dropped.
    pub(crate) fn problem(&self, field: &str) -> Option<String> {
        let how = match (self.lost, self.used) {
            (0, _) => return None,
            (_, 0) => "ignored",
            _ => "partially ignored",
        };
        Some(format!("spec.resourceAttributes.{field} {how} due to parse error"))
    }
}

fn read(
    v: &Value,
    parses: &dyn Fn(&str) -> bool,
    term: &dyn Fn(&str, &str, &[&str]) -> Option<String>,
) -> ConvertedSelector {
    let raw = v.str_at(&["rawSelector"]);
    if !raw.is_empty() {
        let fine = parses(raw);
        return ConvertedSelector {
            text: if fine { raw.to_owned() } else { String::new() },
            used: usize::from(fine),
            lost: usize::from(!fine),
        };
    }
    let mut out = ConvertedSelector::default();
    let mut terms = Vec::new();
    for r in v.get("requirements").items() {
        let values = strings(r.get("values"));
        let text = term(r.str_at(&["key"]), r.str_at(&["operator"]), &values);
        // Keys and values are arbitrary text: only a term that parses back is used.
        match text.filter(|t| parses(t)) {
            Some(text) => terms.push(text),
            None => out.lost += 1,
        }
    }
    out.used = terms.len();
    out.text = terms.join(",");
    out
}

/// Converts a field selector, which supports only `In` and `NotIn` with a single value.
pub(super) fn fields(v: &Value) -> ConvertedSelector {
    // Backslashes first, or they would escape the escapes of the other two.
    let escape = |s: &str| s.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
    read(
        v,
        &|t| FieldSelector::parse(t).is_ok(),
        &|key, operator, values| match (operator, values) {
            ("In", [value]) => Some(format!("{key}={}", escape(value))),
            ("NotIn", [value]) => Some(format!("{key}!={}", escape(value))),
            _ => None,
        },
    )
}

/// Converts a label selector.
pub(super) fn labels(v: &Value) -> ConvertedSelector {
    read(
        v,
        &|t| LabelSelector::parse(t).is_ok(),
        &|key, operator, values| match (operator, values) {
            ("In", [_, ..]) => Some(format!("{key} in ({})", values.join(","))),
            ("NotIn", [_, ..]) => Some(format!("{key} notin ({})", values.join(","))),
            ("Exists", []) => Some(key.to_owned()),
            ("DoesNotExist", []) => Some(format!("!{key}")),
            _ => {
                tracing::debug!(operator = %quote(operator), "ignoring an invalid label requirement of a review");
                None
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn invalid_requirements_are_dropped_and_reported() {
        let v = json!({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]},
            {"key": "a", "operator": "In", "values": ["x", "y"]}]});
        let r = fields(&v);
        assert_eq!(r.text, "spec.nodeName=n");
        assert_eq!(
            r.problem("fieldSelector").unwrap(),
            "spec.resourceAttributes.fieldSelector partially ignored due to parse error"
        );
        let v = json!({"requirements": [{"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "DoesNotExist"}]});
        let r = labels(&v);
        assert_eq!((r.text.as_str(), r.problem("labelSelector")), ("a in (x,y),!b", None));
        let r = labels(&json!({"rawSelector": "a in ("}));
        assert_eq!(r.text, "");
        assert!(r.problem("labelSelector").unwrap().contains(" ignored due"));
        assert_eq!(fields(&Value::Null).problem("fieldSelector"), None);
    }
}
