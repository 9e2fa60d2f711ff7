//! The kind and version of a document: reads them, compares them with the endpoint's, and words the errors like
//! upstream.
//!
//! Start at [`read_type_meta`]; [`check_kind`] and [`check_type_meta`] compare.

use super::known::{self, INTERNAL_VERSION};
use crate::api;
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::apimachinery::patch::json_type;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;

/// Why a document is not of the expected kind and version.
pub(super) enum Mismatch {
    Unrecognized(TypeMetaError),
    NoKind,
    /// The version is missing behind the slash of a group that is not the expected one.
    NoVersion(GroupVersionKind),
    /// Another kind or version than the expected one.
    Kind(GroupVersionKind),
}

/// Why a document's kind and version cannot be read, in the words of upstream's decoder.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TypeMetaError {
    /// The document is of this JSON type and not an object.
    #[error(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {0} into Go value of type struct {{ APIVersion \
         string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )]
    NoObject(&'static str),
    /// `apiVersion` or `kind` is of another JSON type than string.
    #[error(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{member} of type \
         string"
    )]
    NoString { member: &'static str, found: &'static str },
    #[error("unexpected GroupVersion string: {0}")]
    Version(String),
}

/// Upstream's message for a document without a kind, where the kind has no default.
pub(crate) fn no_kind(document: &str) -> String {
    format!("Object 'Kind' is missing in '{document}'")
}

/// Upstream's message for an `apiVersion` that is a group and a slash without a version.
pub(crate) fn no_version(document: &str) -> String {
    format!("Object 'apiVersion' is missing in '{document}'")
}

/// Whether an `apiVersion` without a version leaves it to the endpoint: a slash alone, or the endpoint's group with one.
pub(crate) fn is_versionless(given: &GroupVersion, expected: &GroupVersionKind) -> bool {
    given.version.is_empty() && (given.group.is_empty() || given.group == expected.group)
}

/// Checks that a document has a kind, and the expected version.
pub(super) fn check_type_meta(value: &Value, expected: &GroupVersionKind) -> std::result::Result<(), Mismatch> {
    if value.is_null() {
        return Err(Mismatch::NoKind);
    }
    let (kind, version) = read_type_meta(value).map_err(Mismatch::Unrecognized)?;
    let kind = kind.ok_or(Mismatch::NoKind)?;
    let version = version.unwrap_or_default();
    if version != expected.group_version() {
        return Err(Mismatch::Kind(version.with_kind(kind)));
    }
    Ok(())
}

/// Checks that a document has the expected kind and version, and fills in what is missing.
pub(super) fn check_kind(value: &mut Value, expected: &GroupVersionKind) -> std::result::Result<(), Mismatch> {
    // Like Go's decoder, treat null as an empty object.
    if value.is_null() {
        *value = Value::object();
    }
    let (kind, version) = read_type_meta(value).map_err(Mismatch::Unrecognized)?;
    // The path tells what to expect, so only what is given has to agree.
    let kind = kind.unwrap_or(&expected.kind);
    let version = version.filter(|given| !is_versionless(given, expected));
    let version = version.unwrap_or_else(|| expected.group_version());
    if kind != expected.kind.as_str() || version != expected.group_version() {
        let given = version.with_kind(kind);
        return Err(match given.version.is_empty() {
            true => Mismatch::NoVersion(given),
            false => Mismatch::Kind(given),
        });
    }
    let map = value.make_object();
    map.insert("apiVersion", expected.api_version());
    map.insert("kind", expected.kind.as_str());
    Ok(())
}

/// The kind and the version of a document, `None` where it is missing, null or empty.
pub(crate) fn read_type_meta(
    document: &Value,
) -> std::result::Result<(Option<&str>, Option<GroupVersion>), TypeMetaError> {
    let map = document.as_object();
    let map = map.ok_or_else(|| TypeMetaError::NoObject(json_type(document)))?;
    for member in ["apiVersion", "kind"] {
        // `encoding/json` leaves a field unchanged for null, so null counts as missing.
        if let Some(v) = map.get(member).filter(|v| !v.is_null() && v.as_str().is_none()) {
            let found = json_type(v);
            return Err(TypeMetaError::NoString { member, found });
        }
    }
    let version = match map.str("apiVersion") {
        "" => None,
        text => Some(GroupVersion::parse(text).ok_or_else(|| TypeMetaError::Version(text.to_owned()))?),
    };
    Ok((Some(map.str("kind")).filter(|kind| !kind.is_empty()), version))
}

/// Upstream's message for a kind that is not in the scheme of the server of the expected one.
pub(crate) fn not_registered(given: &GroupVersionKind, expected: &GroupVersionKind) -> String {
    not_registered_in(known::scheme(&expected.group), given)
}

/// Why a document of the kind `given` cannot become the Scale of a custom resource; `None` if it is a Scale, of
/// whatever version.
pub(crate) fn foreign_to_scales(given: &GroupVersionKind) -> Option<String> {
    let is_scale = &*given.kind == "Scale" && known::is_known(given);
    (!is_scale).then(|| not_registered_in(known::SCALE_SCHEME, given))
}

fn not_registered_in(scheme: &str, given: &GroupVersionKind) -> String {
    let version = match &*given.version {
        INTERNAL_VERSION => format!("the internal version of group {}", quote(&given.group)),
        _ => format!("version {}", quote(&given.api_version())),
    };
    let (kind, scheme) = (quote(&given.kind), quote(scheme));
    format!("no kind {kind} is registered for {version} in scheme {scheme}")
}

/// Why a document of the kind `given` cannot become an object of the kind `expected`; `None` if they are versions of
/// one kind and the document fits its own. `explain` returns the error of decoding it as its own type, which upstream
/// does before it compares the kinds.
pub(crate) fn foreign(
    given: &GroupVersionKind,
    expected: &GroupVersionKind,
    explain: impl FnOnce(&'static api::TypeDef) -> Option<String>,
) -> Option<String> {
    // The order of the checks is that of upstream's decoder: look up the type, decode into it, convert.
    let registered = known::is_known(given) && known::is_known(expected) && known::share_scheme(given, expected);
    if !registered {
        return Some(not_registered(given, expected));
    }
    let def = api::by_gvk(&given.group, &given.version, &given.kind);
    if let Some(text) = def.and_then(explain) {
        return Some(text);
    }
    // Upstream's message contains the Go package of its internal types.
    let package = |group: &str| match group.split('.').next() {
        None | Some("" | "events") => "core".to_owned(),
        Some(first) => first.to_owned(),
    };
    let from = match &*given.version {
        INTERNAL_VERSION => package(&given.group),
        version => version.to_owned(),
    };
    (!known::same_kind(given, expected)).then(|| {
        format!(
            "converting ({from}.{}) to ({}.{}): unknown conversion",
            given.kind,
            package(&expected.group),
            expected.kind
        )
    })
}

/// 400 for a document whose kind could be determined.
pub(crate) fn cannot_be_handled(given: &GroupVersionKind, expected: &GroupVersionKind, text: &str) -> Status {
    Status::bad_request(format!(
        "{} in version {} cannot be handled as a {}: {text}",
        given.kind,
        quote(&given.version),
        expected.kind
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_slash_without_a_version_means_the_expected_one() {
        let of = |version: &str, expected: [&str; 3]| {
            let [group, own, kind] = expected;
            let mut body = json!({"kind": kind, "apiVersion": version});
            let checked = check_kind(&mut body, &GroupVersionKind::new(group, own, kind));
            checked.is_ok().then(|| body.str_at(&["apiVersion"]).to_owned())
        };
        let (pod, job) = (["", "v1", "Pod"], ["batch", "v1", "Job"]);
        assert_eq!(of("/", pod).as_deref(), Some("v1"));
        assert_eq!(of("/", job).as_deref(), Some("batch/v1"));
        assert_eq!(of("batch/", job).as_deref(), Some("batch/v1"));
        assert_eq!(of("batch/", pod), None);
    }
}
