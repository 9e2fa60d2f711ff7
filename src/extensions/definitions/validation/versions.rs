//! `spec.versions` and `status.storedVersions`.

use super::names::invalid;
use super::ratchet::Options;
use super::{parts, schemas, selectable};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::extensions::definitions::internal::Internal;
use crate::interrupt::checkpoint;
use std::collections::{HashMap, HashSet};

/// Validates each version, and the rules that span versions.
pub(super) fn each(out: &mut ErrorList, internal: &Internal<'_>, options: &Options, path: &FieldPath) {
    let at = path.child("versions");
    // Whether the first version of each name has a status: as upstream, that counts for others of the name, too.
    let mut names: HashMap<&str, bool> = HashMap::new();
    // Collected over all versions and reported once, behind the errors of the single versions.
    let (mut unique, mut stored) = (true, 0);
    for (i, version) in internal.versions.iter().enumerate() {
        checkpoint();
        let at = at.index(i);
        let name = version.sent.str_at(&["name"]);
        stored += usize::from(version.sent.get("storage").as_bool() == Some(true));
        unique &= !names.contains_key(name);
        invalid(out, name, &at.child("name"));
        deprecation(out, version.sent, &at.child("deprecationWarning"));
        let own = &version.own;
        let status = *names.entry(name).or_insert_with(|| internal.has_status(version));
        let schema_options = options.of_schema(name);
        // Structural rules depend on whether this version's schema changed.
        schemas::schema(out, own.open_api_schema(), status, &schema_options, &at.child("schema"));
        parts::subresources(out, own.subresources, &at.child("subresources"));
        parts::columns(out, own.columns, &at.child("additionalPrinterColumns"));
        selectable::own(out, own, options.too_many_selectable(name), &at);
    }
    // The errors show the whole list, printed on demand only.
    let mut wrong = |why: &str| out.push(FieldError::invalid_raw(&at, internal.print_versions(), why));
    if !unique {
        wrong("must contain unique version names");
    }
    if stored != 1 {
        wrong("must have exactly one version marked as storage version");
    }
    // Upstream's internal form has the name of the first version once more.
    if let Some(first) = internal.versions.first().map(|v| v.sent.str_at(&["name"]))
        && !first.is_empty()
    {
        invalid(out, first, &path.child("version"));
    }
}

fn deprecation(out: &mut ErrorList, version: &Value, at: &FieldPath) {
    let Some(warning) = version.get("deprecationWarning").as_str() else {
        return;
    };
    // At most one of the first error, and any of the others.
    // A pointer in Go, so it is printed as JSON.
    let mut wrong = |why: &str| out.push(FieldError::invalid_enum(at, warning, why));
    if version.get("deprecated").as_bool() != Some(true) {
        return wrong("can only be set for deprecated versions");
    }
    // Bytes, as in Go, although the message says characters.
    if warning.len() > 256 {
        wrong("must be <= 256 characters long");
    }
    if warning.is_empty() {
        wrong("must not be an empty string");
    }
    if let Some((i, _)) = warning.char_indices().find(|(_, c)| !is_printable(*c)) {
        wrong(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        ));
    }
}

/// Approximates Go's `unicode.IsPrint`: no controls, no format characters, and no space but the ASCII one.
fn is_printable(c: char) -> bool {
    let format = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{e000}'..='\u{f8ff}' | '\u{fff9}'..='\u{fffb}');
    c == ' ' || !c.is_control() && !c.is_whitespace() && !format
}

/// The stored versions include the storage version, and only versions that exist.
pub(super) fn stored(out: &mut ErrorList, v: &Value) {
    let at = FieldPath::new("status").child("storedVersions");
    let list = v.at(&["status", "storedVersions"]);
    let names: Vec<&str> = list.items().iter().map(|s| s.as_str().unwrap_or("")).collect();
    // An empty list could lose objects: nothing would say in which versions they may be stored.
    if names.is_empty() {
        return out.push(FieldError::invalid(
            &at,
            list.clone(),
            "must have at least one stored version",
        ));
    }
    // For duplicate names, upstream keeps the last position.
    let mut missing: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
    // Sorted by name with the last place first, so that `dedup` keeps the last.
    missing.sort_by_key(|(i, name)| (*name, std::cmp::Reverse(*i)));
    missing.dedup_by_key(|(_, name)| *name);
    let all: HashSet<&str> = names.iter().copied().collect();
    let mut defined: HashSet<&str> = HashSet::new();
    for version in v.at(&["spec", "versions"]).items() {
        let name = version.str_at(&["name"]);
        // Inserted only if it is stored, and for the first of equal names only.
        let is_known = all.contains(name) && defined.insert(name);
        if version.get("storage").as_bool() == Some(true) && !is_known {
            let why = format!("must have the storage version {name}");
            out.push(FieldError::invalid(&at, list.clone(), why));
        }
    }
    missing.retain(|(_, name)| !defined.contains(name));
    // Back into the order of the list.
    missing.sort_unstable();
    for (i, name) in missing {
        let why = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        out.push_with(|| FieldError::invalid(&at.index(i), name, why));
    }
}
