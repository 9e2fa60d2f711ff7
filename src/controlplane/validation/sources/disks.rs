//! Validation of the cloud disk sources of Google, Amazon and Azure. Their required fields are checked by
//! `sources`, except for Google's name.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::optional_choice;

pub(super) fn google(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if v.str_at(&["pdName"]).is_empty() {
        out.push(FieldError::required(&at.child("pdName"), ""));
    }
    partition(out, v, at);
}

/// Checks a partition. Zero is valid (the whole disk), despite upstream's message.
pub(super) fn partition(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.get("partition").as_i64().filter(|n| !(0..=255).contains(n)) {
        let why = "must be between 1 and 255, inclusive";
        out.push(FieldError::invalid(&at.child("partition"), n, why));
    }
}

pub(super) fn azure(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    optional_choice(out, v, "cachingMode", at, &["None", "ReadOnly", "ReadWrite"]);
    optional_choice(out, v, "kind", at, &["Dedicated", "Managed", "Shared"]);
    let uri = v.str_at(&["diskURI"]);
    let (start, form) = match v.get("kind").as_str() {
        // Defaulting sets `Shared`; without a kind the form of the URI is unknown.
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !uri.starts_with(start) {
        out.push(FieldError::not_supported_string(&at.child("diskURI"), uri, &[form]));
    }
}
