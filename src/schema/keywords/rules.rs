//! The form of `x-kubernetes-validations`. The expressions are checked by `rules::budget`.

use super::Checker;
use crate::apimachinery::value::Value;
use crate::schema::field_path::{self, ArrayNotation};
use crate::schema::path::At;
use crate::schema::unsupported::unsupported;

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

impl Checker<'_> {
    pub(super) fn rules(&mut self, s: &Value, at: &At<'_>) {
        let rules = s.get("x-kubernetes-validations").items();
        // Upstream follows paths in the structural form of the schema, and accepts every path if there is none.
        let has_path = rules.iter().any(|rule| !rule.str_at(&["fieldPath"]).is_empty());
        let follows = has_path && (self.is_convertible || unsupported(s).is_none());
        let rules_at = at.name("x-kubernetes-validations");
        for (i, rule) in rules.iter().enumerate() {
            self.rule(rule, &rules_at.index(i));
            let path = rule.str_at(&["fieldPath"]);
            if follows && !path.is_empty() && field_path::resolve(path, s, ArrayNotation::Allowed).is_err() {
                self.invalid(&rules_at.index(i), "fieldPath", path, "must be a valid path");
            }
        }
    }

    fn rule(&mut self, rule: &Value, at: &At<'_>) {
        let text = |key: &str| rule.str_at(&[key]);
        // Text that consists of white space only; empty text counts as not specified.
        let blank = |key: &str| !text(key).is_empty() && text(key).trim().is_empty();
        let (expression, message) = (text("rule").trim(), text("message").trim());
        // At most one of these errors, in upstream's order.
        if expression.is_empty() {
            self.required(at, "rule", "rule is not specified");
        } else if blank("message") {
            self.invalid(at, "message", text("message"), "must be non-empty if specified");
        } else if has_line_break(message) {
            self.invalid(at, "message", text("message"), "must not contain line breaks");
        } else if has_line_break(expression) && message.is_empty() {
            self.required(at, "message", "message must be specified if rule contains line breaks");
        }
        if blank("messageExpression") {
            let why = "messageExpression must be non-empty if specified";
            self.required(at, "messageExpression", why);
        }
        if let Some(reason) = rule.get("reason").as_str().filter(|r| !REASONS.contains(r)) {
            self.not_supported(at, "reason", reason, &REASONS);
        }
        let path = text("fieldPath");
        if blank("fieldPath") {
            self.invalid(at, "fieldPath", path, "must be non-empty if specified");
        }
        // A blank path with a line break gets both errors, as upstream.
        if has_line_break(path) {
            self.invalid(at, "fieldPath", path, "must not contain line breaks");
        }
    }
}
