//! Validation of validating and mutating admission policies and their bindings. Entry points: [`policy`] and
//! [`binding`]. Expressions are compiled by `admission::policy`; their errors are merged here in field order.

use super::{choice, match_conditions, match_resources, required_subdomain};
use crate::admission::policy::{compile_errors, mutation_errors};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::jsonpath::JsonPath;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{
    dns1035_label, dns1123_subdomain, path_segment_name, qualified_name, validate_conditions,
};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, label_selector, optional_choice, same, strings};
use crate::interrupt::checkpoint;
use std::collections::VecDeque;

pub(crate) fn policy(v: &Value, old: Option<&Value>, mutating: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    optional_choice(&mut out, spec, "failurePolicy", &path, &["Fail", "Ignore"]);
    if !spec.get("paramKind").is_null() {
        param_kind(&mut out, spec.get("paramKind"), &path.child("paramKind"));
    }
    let at = path.child("matchConstraints");
    if spec.get("matchConstraints").is_null() {
        out.push(FieldError::required(&at, ""));
    } else {
        match_resources(&mut out, spec.get("matchConstraints"), &at, true, mutating);
    }
    let has_params = !spec.get("paramKind").is_null();
    // Unchanged conditions are not checked again. Whether they may refer to parameters depends on the kind of these.
    let unchanged = |key| old.is_some_and(|old| same(spec.get(key), old.at(&["spec", key])));
    if !(unchanged("paramKind") && unchanged("matchConditions")) {
        match_conditions(
            &mut out,
            spec.get("matchConditions"),
            has_params,
            &path.child("matchConditions"),
        );
    }
    // All expressions are compiled at once, since later ones may refer to variables; `report` then deals the
    // errors out to the places where upstream emits them.
    let mut compiled = Compiled {
        errors: match mutating {
            true => mutation_errors(v).into(),
            false => compile_errors(v).into(),
        },
    };
    for (i, x) in spec.get("variables").items().iter().enumerate() {
        let at = path.child("variables").index(i);
        let name = x.str_at(&["name"]);
        if name.trim().is_empty() {
            out.push(FieldError::required(&at.child("name"), "name is not specified"));
        } else if !is_identifier(name) {
            out.push(FieldError::invalid(
                &at.child("name"),
                name,
                "must be a valid CEL identifier",
            ));
        }
        if x.str_at(&["expression"]).trim().is_empty() {
            out.push(FieldError::required(
                &at.child("expression"),
                "expression is not specified",
            ));
        }
        compiled.report(&mut out, &format!("variables[{i}].expression"));
    }
    match mutating {
        true => mutations(&mut out, spec, &path, &mut compiled),
        false => validations(&mut out, v, spec, &path, &mut compiled),
    }
    // The remaining errors, such as those of fields not visited above, must not be lost.
    compiled.report(&mut out, "");
    out
}

/// Errors of expressions, in the order of the expressions.
struct Compiled {
    /// The path within the spec, the expression, and the compiler's message.
    errors: VecDeque<(String, String, String)>,
}

impl Compiled {
    /// Adds the next errors that are at this path or below it.
    fn report(&mut self, out: &mut ErrorList, at: &str) {
        // Only the front is looked at: the errors are in the order in which the fields are visited.
        let is_next = |(place, ..): &(String, String, String)| place.starts_with(at);
        while self.errors.front().is_some_and(is_next)
            && let Some((place, text, why)) = self.errors.pop_front()
        {
            // Upstream shows the expressions of mutations without the white space around them, and all others as they are.
            let text = match place.starts_with("mutations[") {
                true => text.trim(),
                false => text.as_str(),
            };
            out.push(FieldError::invalid(&FieldPath::new("spec").child(&place), text, why));
        }
    }

    /// Drops the next errors that are at this path or below it, of expressions that upstream does not compile.
    fn skip(&mut self, at: &str) {
        while self.errors.front().is_some_and(|(place, ..)| place.starts_with(at)) {
            self.errors.pop_front();
        }
    }
}

/// Words that no identifier of CEL may be.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

fn is_identifier(s: &str) -> bool {
    s.bytes().next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
        && !RESERVED.contains(&s)
}

fn param_kind(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    // Messages are joined by commas into one error, unlike elsewhere.
    let text = v.str_at(&["apiVersion"]);
    let at_version = at.child("apiVersion");
    if text.is_empty() {
        out.push(FieldError::required(&at_version, ""));
    } else {
        match crate::apimachinery::GroupVersion::parse(text) {
            None => out.push(FieldError::invalid(
                &at_version,
                text,
                format!("unexpected GroupVersion string: {text}"),
            )),
            Some(gv) => {
                if !gv.group.is_empty() {
                    let messages = dns1123_subdomain(&gv.group);
                    if !messages.is_empty() {
                        out.push(FieldError::invalid(&at_version, gv.group.as_str(), messages.join(",")));
                    }
                }
                if gv.version.is_empty() {
                    out.push(FieldError::invalid(&at_version, text, "version must be specified"));
                } else {
                    let messages = dns1035_label(&gv.version);
                    if !messages.is_empty() {
                        out.push(FieldError::invalid(
                            &at_version,
                            gv.version.as_str(),
                            messages.join(","),
                        ));
                    }
                }
            }
        }
    }
    match v.str_at(&["kind"]) {
        "" => out.push(FieldError::required(&at.child("kind"), "")),
        kind => {
            // Kinds are CamelCase, so the rule for lower-case labels is applied to a lowered copy.
            let messages = dns1035_label(&kind.to_lowercase());
            if !messages.is_empty() {
                out.push(FieldError::invalid(
                    &at.child("kind"),
                    kind,
                    format!(
                        "may have mixed case, but should otherwise match: {}",
                        messages.join(",")
                    ),
                ));
            }
        }
    }
}

fn validations(out: &mut ErrorList, v: &Value, spec: &Value, path: &FieldPath, compiled: &mut Compiled) {
    let (checks, notes) = (spec.get("validations").items(), spec.get("auditAnnotations").items());
    // Either list suffices, so both are reported as missing.
    if checks.is_empty() && notes.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            out.push(FieldError::required(
                &path.child(key),
                "validations or auditAnnotations must contain at least one item",
            ));
        }
        return;
    }
    for (i, x) in checks.iter().enumerate() {
        let at = path.child("validations").index(i);
        if x.str_at(&["expression"]).trim().is_empty() {
            out.push(FieldError::required(
                &at.child("expression"),
                "expression is not specified",
            ));
        }
        compiled.report(out, &format!("validations[{i}]."));
        // Absent and empty are equal here: Go strings without a pointer.
        for key in ["messageExpression", "message"] {
            let Some(text) = x.get(key).as_str().filter(|t| !t.is_empty()) else {
                continue;
            };
            if text.trim().is_empty() {
                out.push(FieldError::invalid(
                    &at.child(key),
                    text,
                    "must be non-empty if specified",
                ));
            // `message` also goes into a `Warning` header, which is a single line.
            } else if key == "message" && text.trim().contains(['\n', '\r']) {
                out.push(FieldError::invalid(
                    &at.child(key),
                    text,
                    "must not contain line breaks",
                ));
            }
        }
        optional_choice(
            out,
            x,
            "reason",
            &at,
            &["Forbidden", "Invalid", "RequestEntityTooLarge"],
        );
    }
    let at = path.child("auditAnnotations");
    if notes.len() > 20 {
        out.push(FieldError::invalid(
            &at,
            spec.get("auditAnnotations").clone(),
            "must not have more than 20 auditAnnotations",
        ));
    }
    let mut seen: Seen<&str> = Seen::new();
    for (i, x) in notes.iter().enumerate() {
        let at = at.index(i);
        let key = x.str_at(&["key"]);
        // The key is qualified with the policy's name, which is unknown yet with `generateName`.
        if v.name().is_empty() {
            out.push(FieldError::invalid(
                &at.child("key"),
                key,
                "requires metadata.name be non-empty",
            ));
        } else {
            let qualified = format!("{}/{key}", v.name());
            invalid_each(out, &at.child("key"), &*qualified, qualified_name(&qualified));
        }
        match x.str_at(&["valueExpression"]) {
            e if e.trim().is_empty() => out.push(FieldError::required(
                &at.child("valueExpression"),
                "valueExpression is not specified",
            )),
            // `Required` for an excess length is upstream's slip.
            e if e.trim().len() > 5120 => {
                compiled.skip(&format!("auditAnnotations[{i}]."));
                out.push(FieldError::required(
                    &at.child("valueExpression"),
                    "must not exceed 5120 bytes in length",
                ));
            }
            _ => compiled.report(out, &format!("auditAnnotations[{i}].")),
        }
        if !seen.insert(key) {
            out.push(FieldError::duplicate(&at.child("key"), key));
        }
    }
}

fn mutations(out: &mut ErrorList, spec: &Value, path: &FieldPath, compiled: &mut Compiled) {
    let all = spec.get("mutations").items();
    let at = path.child("mutations");
    if all.is_empty() {
        out.push(FieldError::required(&at, "mutations must contain at least one item"));
    }
    for (i, m) in all.iter().enumerate() {
        let at = at.index(i);
        choice(out, m, "patchType", &at, &["ApplyConfiguration", "JSONPatch"]);
        let (mine, other, kind) = match m.str_at(&["patchType"]) {
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", "ApplyConfiguration"),
            "JSONPatch" => ("jsonPatch", "applyConfiguration", "JSONPatch"),
            // The rest depends on the type, which has been reported as unsupported.
            _ => {
                compiled.skip(&format!("mutations[{i}]."));
                continue;
            }
        };
        if m.get(mine).is_null() {
            out.push(FieldError::required(
                &at.child(mine),
                format!("must be specified when patchType is {kind}"),
            ));
        } else if m.str_at(&[mine, "expression"]).trim().is_empty() {
            out.push(FieldError::required(&at.child(mine).child("expression"), ""));
        }
        compiled.report(out, &format!("mutations[{i}]."));
        if !m.get(other).is_null() {
            out.push(FieldError::invalid(
                &at.child(other),
                // The bad value is the literal name in braces, as upstream.
                format!("{{{other}}}"),
                format!("must not be specified when patchType is {kind}"),
            ));
        }
    }
    choice(out, spec, "reinvocationPolicy", path, &["IfNeeded", "Never"]);
}

pub(crate) fn binding(v: &Value, mutating: bool) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    required_subdomain(&mut out, spec.str_at(&["policyName"]), &path.child("policyName"));
    param_ref(&mut out, spec.get("paramRef"), &path.child("paramRef"));
    if !spec.get("matchResources").is_null() {
        let at = path.child("matchResources");
        match_resources(&mut out, spec.get("matchResources"), &at, false, mutating);
    }
    if !mutating {
        actions(
            &mut out,
            spec.get("validationActions"),
            &path.child("validationActions"),
        );
    }
    out
}

fn param_ref(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if v.is_null() {
        return;
    }
    let (name, selector) = (v.str_at(&["name"]), v.get("selector"));
    // Having both is reported at both, since the server cannot tell which one is meant.
    let exclusive = |out: &mut ErrorList, key| {
        if !name.is_empty() && !selector.is_null() {
            let why = "name and selector are mutually exclusive";
            out.push(FieldError::forbidden(&at.child(key), why));
        }
    };
    if !name.is_empty() {
        invalid_each(out, &at.child("name"), name, path_segment_name(name));
    }
    exclusive(out, "name");
    if !selector.is_null() {
        label_selector(out, selector, &at.child("selector"));
    }
    exclusive(out, "selector");
    if name.is_empty() && selector.is_null() {
        out.push(FieldError::required(at, "one of name or selector must be specified"));
    }
    if v.str_at(&["parameterNotFoundAction"]).is_empty() {
        out.push(FieldError::required(&at.child("parameterNotFoundAction"), ""));
        return;
    }
    optional_choice(out, v, "parameterNotFoundAction", at, &["Deny", "Allow"]);
}

fn actions(out: &mut ErrorList, list: &Value, at: &FieldPath) {
    const ALL: &[&str] = &["Audit", "Deny", "Warn"];
    let actions = strings(list);
    let mut seen: Seen<&str> = Seen::new();
    for (i, a) in actions.iter().enumerate() {
        if !ALL.contains(a) {
            out.push(FieldError::not_supported(&at.index(i), *a, ALL));
        }
        if !seen.insert(*a) {
            out.push(FieldError::duplicate_enum(&at.index(i), *a));
        }
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        out.push(FieldError::invalid(
            at,
            list.clone(),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ));
    }
    if actions.is_empty() {
        out.push(FieldError::required(at, "at least one validation action is required"));
    }
}

/// The errors of the status of a ValidatingAdmissionPolicy. The rest of the object is not the writer's.
pub(crate) fn status(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (v.get("status"), FieldPath::new("status"));
    let at = path.child("typeChecking").child("expressionWarnings");
    let warnings = status.at(&["typeChecking", "expressionWarnings"]).items();
    for (i, warning) in warnings.iter().enumerate() {
        checkpoint();
        let at = at.index(i);
        if warning.str_at(&["warning"]).is_empty() {
            out.push(FieldError::required(&at.child("warning"), ""));
        }
        let at = at.child("fieldRef");
        match warning.str_at(&["fieldRef"]).trim() {
            "" => out.push(FieldError::required(&at, "")),
            text => {
                if let Err(why) = JsonPath::parse(text) {
                    out.push(FieldError::invalid(&at, text, format!("invalid JSONPath: {why}")));
                }
            }
        }
    }
    validate_conditions(status.get("conditions"), &path.child("conditions"), &mut out);
    out
}

#[cfg(test)]
mod tests;
