//! Named formats: `format.dns1123Label().validate(name)`.

use super::{Body::Strict, Declaration};
use crate::time_value::Stamp;
use crate::value::format::Format;
use crate::value::url::Url;
use crate::value::{Out, Val, no_overload};
use std::sync::Arc;
use torana_apimachinery::validation::{self, NameForm};

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("format.dns1123Label", Strict(|_| named("dns1123Label")), NONE),
    ("format.dns1123Subdomain", Strict(|_| named("dns1123Subdomain")), NONE),
    ("format.dns1035Label", Strict(|_| named("dns1035Label")), NONE),
    ("format.qualifiedName", Strict(|_| named("qualifiedName")), NONE),
    (
        "format.dns1123LabelPrefix",
        Strict(|_| named("dns1123LabelPrefix")),
        NONE,
    ),
    (
        "format.dns1123SubdomainPrefix",
        Strict(|_| named("dns1123SubdomainPrefix")),
        NONE,
    ),
    (
        "format.dns1035LabelPrefix",
        Strict(|_| named("dns1035LabelPrefix")),
        NONE,
    ),
    ("format.labelValue", Strict(|_| named("labelValue")), NONE),
    ("format.uri", Strict(|_| named("uri")), NONE),
    ("format.uuid", Strict(|_| named("uuid")), NONE),
    ("format.byte", Strict(|_| named("byte")), NONE),
    ("format.date", Strict(|_| named("date")), NONE),
    ("format.datetime", Strict(|_| named("datetime")), NONE),
    ("format.named", Strict(find), &["(string) optional(Format)"]),
    (
        "validate",
        Strict(validate),
        &["Format.(string) optional(list(string))"],
    ),
];

const NONE: &[&str] = &["() Format"];

macro_rules! format {
    ($name:literal, $size:literal, $validate:expr) => {
        Format {
            name: $name,
            validate: $validate,
            pattern_size: $size,
        }
    };
}

static FORMATS: [Format; 13] = [
    format!("dns1123Label", 30, validation::dns1123_label),
    format!("dns1123Subdomain", 60, validation::dns1123_subdomain),
    format!("dns1035Label", 30, validation::dns1035_label),
    format!("qualifiedName", 60, validation::qualified_name),
    format!("dns1123LabelPrefix", 30, |s| validation::name_is_dns_label(
        s,
        NameForm::Prefix
    )),
    format!("dns1123SubdomainPrefix", 60, |s| validation::name_is_dns_subdomain(
        s,
        NameForm::Prefix
    )),
    format!("dns1035LabelPrefix", 30, |s| validation::name_is_dns1035_label(
        s,
        NameForm::Prefix
    )),
    format!("labelValue", 40, validation::label_value),
    format!("uri", 1103, |s| Url::parse(s)
        .err()
        .iter()
        .map(ToString::to_string)
        .collect()),
    format!("uuid", 72, |s| unless(is_uuid(s), "does not match the UUID format")),
    format!("byte", 84, |s| unless(is_base64(s), "invalid base64")),
    format!("date", 71, |s| unless(Stamp::parse_date(s).is_some(), "invalid date")),
    format!("datetime", 71, |s| unless(
        Stamp::parse_lenient(s).is_some(),
        "invalid datetime"
    )),
];

/// Go's `govalidator.IsBase64`: groups of four, the last one padded; not nothing.
fn is_base64(s: &str) -> bool {
    let digits = s.trim_end_matches('=');
    let padding = s.len() - digits.len();
    !s.is_empty()
        && s.len().is_multiple_of(4)
        && padding <= 2
        && digits
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn unless(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

/// 32 hexadecimal digits, with or without each of the dashes.
fn is_uuid(s: &str) -> bool {
    let mut rest = s.as_bytes();
    for (i, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            // Each dash is optional on its own.
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        if rest.len() < digits || !rest[..digits].iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = &rest[digits..];
    }
    rest.is_empty()
}

fn lookup(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.name == name)
}

fn named<'a>(name: &str) -> Out<'a> {
    lookup(name).map_or_else(no_overload, |f| Ok(Val::Format(f)))
}

fn find<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(name)] = args else {
        return no_overload();
    };
    Ok(Val::Optional(lookup(name).map(|f| Arc::new(Val::Format(f)))))
}

fn validate<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::Format(format), Val::String(s)] = args else {
        return no_overload();
    };
    let errors = (format.validate)(s);
    if errors.is_empty() {
        return Ok(Val::Optional(None));
    }
    let errors: Vec<Val<'a>> = errors.into_iter().map(Val::from).collect();
    Ok(Val::Optional(Some(Arc::new(errors.into()))))
}
