//! Validation of sources that project objects as files (config maps, secrets, downward API, projected
//! volumes), and of their file paths.

use super::super::common::local_path;
use super::super::pod::{VOLUME_FIELDS, field_ref, resource_ref};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::Seen;

fn mode(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.as_i64().filter(|n| !(0..=0o777).contains(n)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        out.push(FieldError::invalid(at, n, why));
    }
}

/// Checks the path of a file in a volume.
fn file_path(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
    }
    local_path(out, text, at);
    // Names that start with two dots are the kubelet's: it swaps whole versions of the volume through
    // `..data`.
    if text.starts_with("..") && !text.starts_with("../") {
        out.push(FieldError::invalid(at, text, "must not start with '..'"));
    }
}

/// Checks the projected keys of a secret or config map.
pub(super) fn keys(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    mode(out, v.get("defaultMode"), &at.child("defaultMode"));
    for (i, item) in v.get("items").items().iter().enumerate() {
        key(out, item, &at.child("items").index(i));
    }
}

fn key(out: &mut ErrorList, item: &Value, at: &FieldPath) {
    if item.str_at(&["key"]).is_empty() {
        out.push(FieldError::required(&at.child("key"), ""));
    }
    file_path(out, item.str_at(&["path"]), &at.child("path"));
    mode(out, item.get("mode"), &at.child("mode"));
}

pub(super) fn downward_volume(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    mode(out, v.get("defaultMode"), &at.child("defaultMode"));
    for item in v.get("items").items() {
        downward(out, item, at);
    }
}

/// Checks a pod field projected as a file. As upstream, the error path has no index.
fn downward(out: &mut ErrorList, item: &Value, at: &FieldPath) {
    file_path(out, item.str_at(&["path"]), &at.child("path"));
    let (field, resource) = (item.get("fieldRef"), item.get("resourceFieldRef"));
    match (field.is_null(), resource.is_null()) {
        (true, true) => {
            let why = "one of fieldRef and resourceFieldRef is required";
            out.push(FieldError::required(at, why));
        }
        // With both, only the first is validated.
        (false, resource_absent) => {
            field_ref(out, field, VOLUME_FIELDS, &at.child("fieldRef"));
            if !resource_absent {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                out.push(FieldError::invalid(at, "resource", why));
            }
        }
        (true, false) => resource_ref(out, resource, true, &at.child("resourceFieldRef")),
    }
    mode(out, item.get("mode"), &at.child("mode"));
}

/// File paths already used in a projected volume.
struct UsedPaths<'a>(Seen<&'a str>);

impl<'a> UsedPaths<'a> {
    /// Records `file`; if it is a duplicate, reports it with the bad value `shown`.
    fn take(&mut self, out: &mut ErrorList, file: &'a str, shown: &str, at: &FieldPath) {
        if !self.0.insert(file) {
            out.push(FieldError::invalid(at, shown, "conflicting duplicate paths"));
        }
    }
}

pub(super) fn projected(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    mode(out, v.get("defaultMode"), &path.child("defaultMode"));
    let mut files = UsedPaths(Seen::new());
    for (i, s) in v.get("sources").items().iter().enumerate() {
        let at = path.child("sources").index(i);
        for name in ["secret", "configMap"] {
            let (source, at) = (s.get(name), at.child(name));
            if source.is_null() {
                continue;
            }
            let object = source.str_at(&["name"]);
            if object.is_empty() {
                out.push(FieldError::required(&at.child("name"), ""));
            }
            for (i, item) in source.get("items").items().iter().enumerate() {
                key(out, item, &at.child("items").index(i));
                let file = item.str_at(&["path"]);
                if !file.is_empty() {
                    // Upstream's bad value is the object's name for Secrets and ConfigMaps, and the path for
                    // other sources.
                    files.take(out, file, object, path);
                }
            }
        }
        for item in s.at(&["downwardAPI", "items"]).items() {
            downward(out, item, &at.child("downwardAPI"));
            let file = item.str_at(&["path"]);
            if !file.is_empty() {
                files.take(out, file, file, path);
            }
        }
        let token = s.get("serviceAccountToken");
        if !token.is_null() {
            self::token(out, token, &at.child("serviceAccountToken"), path);
        }
        // No source at all is valid, but causes a warning.
        let sources = s.as_object().map_or(0, |m| m.values().filter(|x| !x.is_null()).count());
        if sources > 1 {
            let why = "may not specify more than 1 volume type per source";
            out.push(FieldError::forbidden(&at, why));
        }
    }
}

fn token(out: &mut ErrorList, v: &Value, at: &FieldPath, volume: &FieldPath) {
    // The default, for sources that defaulting has not seen.
    let seconds = v.get("expirationSeconds").as_i64().unwrap_or(3600);
    let seconds_at = at.child("expirationSeconds");
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        out.push(FieldError::invalid(&seconds_at, seconds, why));
    } else if seconds > 1 << 32 {
        let why = "may not specify a duration larger than 2^32 seconds";
        out.push(FieldError::invalid(&seconds_at, seconds, why));
    }
    // The path is reported at the volume, as upstream.
    file_path(out, v.str_at(&["path"]), &volume.child("path"));
}
