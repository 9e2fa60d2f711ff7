//! Validation of CustomResourceDefinitions (upstream's `pkg/apis/apiextensions/validation`), in upstream's
//! order. The entry points are [`create`], [`update`] and [`status`].

mod conversion;
mod names;
mod parts;
mod ratchet;
mod schemas;
mod selectable;
mod versions;
mod webhook;

use super::approval::{ANNOTATION, Approval, is_protected};
use super::internal::Internal;
use super::is_condition_true;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::extensions::conversion::declarative;
use crate::interrupt::checkpoint;
use crate::schema::definition;
use crate::schema::format::Formats;
use ratchet::Options;
use std::collections::HashSet;

/// The errors of a new definition.
pub(super) fn create(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    spec(&mut out, v, &Options::default());
    // Accepted names are the server's own on create, but upstream validates them as well.
    names::valid(&mut out, v.at(&["status", "acceptedNames"]), &accepted_names());
    versions::stored(&mut out, v);
    approval(&mut out, v, None);
    preserve_unknown_fields(&mut out, v, None);
    out
}

/// The errors of a changed definition. Rules that the stored one violates already are not enforced.
pub(super) fn update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    // Rules that the old definition violates are relaxed, or it could never be changed again.
    spec(&mut out, new, &Options::of(new, old));
    let mut immutable = |path: &[&str]| {
        if new.at(path) != old.at(path) {
            let at = path[1..].iter().fold(FieldPath::new(path[0]), |p, k| p.child(k));
            let shown = new.at(path).clone();
            // The type of the scope is an enumeration in Go.
            out.push(match path {
                [_, "scope"] => FieldError::invalid_enum(&at, shown, "field is immutable"),
                _ => FieldError::invalid(&at, shown, "field is immutable"),
            });
        }
    };
    // Before establishment nothing is served, so scope and kind may still be corrected.
    if is_condition_true(old, "Established") {
        immutable(&["spec", "scope"]);
        immutable(&["spec", "names", "kind"]);
    }
    immutable(&["spec", "group"]);
    immutable(&["spec", "names", "plural"]);
    names::valid(&mut out, new.at(&["status", "acceptedNames"]), &accepted_names());
    versions::stored(&mut out, new);
    approval(&mut out, new, Some(old));
    preserve_unknown_fields(&mut out, new, Some(old));
    out
}

/// The errors of a status. Only the accepted names are validated: an administrator may edit the stored
/// versions.
pub(super) fn status(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    names::valid(&mut out, v.at(&["status", "acceptedNames"]), &accepted_names());
    out
}

fn accepted_names() -> FieldPath {
    FieldPath::new("status").child("acceptedNames")
}

/// The errors of the name, which consists of the plural and the group.
pub(super) fn name(v: &Value, name: &str) -> Vec<String> {
    let parts = [v.str_at(&["spec", "names", "plural"]), v.str_at(&["spec", "group"])];
    match name == parts.join(".") {
        true => Vec::new(),
        false => vec!["must be spec.names.plural+\".\"+spec.group".to_owned()],
    }
}

fn spec(out: &mut ErrorList, v: &Value, options: &Options) {
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    let internal = Internal::of(v);
    let preserve = spec.get("preserveUnknownFields").as_bool() == Some(true);
    group(out, spec.str_at(&["group"]), &path.child("group"));
    supported(out, spec, "scope", &path, &["Cluster", "Namespaced"]);
    let mut options = options.clone();
    // Structural rules apply to all new-style definitions, and to old ones as soon as they use a feature that needs
    // them.
    options.schema.structural |= !preserve || schemas::needs_structure(&internal);
    schemas::present(out, &internal, &options, preserve, &path);
    if preserve && schemas::has_defaults(&internal) {
        let why = "must be false in order to use defaults in the schema";
        out.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, why));
    }
    versions::each(out, &internal, &options, &path);
    let names_at = path.child("names");
    names::required(out, spec.get("names"), &names_at);
    names::valid(out, spec.get("names"), &names_at);
    let any_status = internal.shared.has_status() || internal.versions.iter().any(|v| v.own.has_status());
    schemas::schema(
        out,
        internal.shared.open_api_schema(),
        any_status,
        &options.of_schema(""),
        &path.child("validation"),
    );
    parts::subresources(out, internal.shared.subresources, &path.child("subresources"));
    parts::columns(out, internal.shared.columns, &path.child("additionalPrinterColumns"));
    selectable::shared(out, &internal.shared, options.too_many_selectable(""), &path);
    let conversion_at = path.child("conversion");
    let strategy = spec.at(&["conversion", "strategy"]);
    if preserve && !strategy.is_null() && strategy.as_str() != Some("None") {
        let why = "must be None if spec.preserveUnknownFields is true";
        out.push(FieldError::invalid_enum(
            &conversion_at.child("strategy"),
            strategy.clone(),
            why,
        ));
    }
    conversion::conversion(out, spec.get("conversion"), &options, &conversion_at);
    // The round-trip proof of conversion rules needs valid schemas.
    // Also expensive, and its messages would be noise beside invalid schemas.
    if out.is_empty() {
        out.extend(declarative::validate(v));
    }
}

fn group(out: &mut ErrorList, group: &str, at: &FieldPath) {
    if group.is_empty() {
        // All messages in one error, unlike for other kinds.
        return out.push(FieldError::required(at, ""));
    }
    let messages = dns1123_subdomain(group);
    if !messages.is_empty() {
        out.push(FieldError::invalid(at, group, messages.join(",")));
    } else if !group.contains('.') {
        out.push(FieldError::invalid(
            at,
            group,
            "should be a domain with at least one dot",
        ));
    }
}

/// Requires a string to be one of `supported`.
fn supported(out: &mut ErrorList, v: &Value, key: &str, path: &FieldPath, supported: &[&str]) {
    match v.str_at(&[key]) {
        "" => out.push(FieldError::required(&path.child(key), "")),
        other if !supported.contains(&other) => {
            out.push(FieldError::not_supported_string(&path.child(key), other, supported));
        }
        _ => {}
    }
}

/// An update that does not change the state of the approval is never rejected for it.
fn approval(out: &mut ErrorList, v: &Value, old: Option<&Value>) {
    let approval = Approval::of(v);
    // The approval state, not the text: rewording the reason is not a change.
    if !is_protected(v.str_at(&["spec", "group"])) || old.is_some_and(|old| Approval::of(old) == approval) {
        return;
    }
    let at = FieldPath::new("metadata").child("annotations").key(ANNOTATION);
    match approval {
        Approval::Missing => out.push(FieldError::required(&at, approval.message(v))),
        Approval::Invalid => {
            let text = v.annotation(ANNOTATION).unwrap_or("");
            out.push(FieldError::invalid(&at, text, approval.message(v)));
        }
        Approval::Approved | Approval::Bypassed => {}
    }
}

/// Only definitions that were stored with the field set may keep it.
fn preserve_unknown_fields(out: &mut ErrorList, v: &Value, old: Option<&Value>) {
    let is_set = |v: &Value| v.at(&["spec", "preserveUnknownFields"]).as_bool() == Some(true);
    // Setting it anew is refused; keeping it is allowed, so that old definitions can still be updated.
    if is_set(v) && !old.is_some_and(is_set) {
        let at = FieldPath::new("spec").child("preserveUnknownFields");
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        out.push(FieldError::invalid(&at, true, why));
    }
}

/// The formats in the schemas of a definition that are not validated, once for each schema node that has one.
pub(super) fn unrecognized_formats(v: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for schema in Internal::of(v).schemas() {
        formats(schema, &mut found);
    }
    found
}

fn formats<'v>(s: &'v Value, found: &mut Vec<&'v str>) {
    /// The client gets one warning for each.
    const MAX: usize = 100;
    checkpoint();
    let format = s.str_at(&["format"]);
    if !format.is_empty() && found.len() < MAX && !Formats::of_name(s.str_at(&["type"])).contain(format) {
        found.push(format);
    }
    definition::children(s).for_each(|child| formats(child, found));
}

/// Warnings about formats that a write introduces.
pub(super) fn format_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    // Formats that the stored definition has already are not warned about again.
    let before: HashSet<&str> = old.map(unrecognized_formats).unwrap_or_default().into_iter().collect();
    let found = unrecognized_formats(new).into_iter().filter(|f| !before.contains(f));
    found
        .map(|f| format!("unrecognized format {}", crate::apimachinery::field::quote(f)))
        .collect()
}

#[cfg(test)]
mod tests;
