//! String and number formats (upstream's `k8s.io/kube-openapi/pkg/validation/strfmt`). Formats that are not
//! listed here are published, but not validated.

mod clock;
mod identifiers;
mod net;

use super::Type;
use crate::apimachinery::value::Str;

/// The formats that a type can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formats {
    /// Strings, and values of any type.
    Strings,
    Integers,
    Numbers,
    None,
}

impl Formats {
    pub(super) fn of(ty: Option<Type>) -> Self {
        match ty {
            None | Some(Type::String) => Self::Strings,
            Some(Type::Integer) => Self::Integers,
            Some(Type::Number) => Self::Numbers,
            _ => Self::None,
        }
    }

    /// The formats of the type with this name; `""` is any type.
    pub(crate) fn of_name(ty: &str) -> Self {
        match ty {
            "" => Self::Strings,
            name => Type::parse(name).map_or(Self::None, |ty| Self::of(Some(ty))),
        }
    }

    /// True if values are validated against the format with this name. Dashes in it are of no importance for
    /// strings.
    pub(crate) fn contain(self, name: &str) -> bool {
        Format::parse(self, name).is_some()
    }
}

/// A format that is validated, and how the schema spells it.
#[derive(Clone, Debug)]
pub(super) struct FormatCheck {
    format: Format,
    spelling: Str,
}

impl FormatCheck {
    pub(super) fn parse(formats: Formats, name: &str) -> Option<Self> {
        Some(Self {
            format: Format::parse(formats, name)?,
            spelling: name.into(),
        })
    }

    /// The name in error messages.
    pub(super) fn spelling(&self) -> &str {
        &self.spelling
    }

    /// True if strings are checked against the format.
    pub(super) fn is_text(&self) -> bool {
        self.format != Format::Number
    }

    pub(super) fn matches(&self, s: &str) -> bool {
        self.format.matches(s)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    /// Any version if 0.
    Uuid(u8),
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    DateTime,
    Duration,
    ShortName,
    LongName,
    /// A format of numbers, which accepts any string.
    Number,
}

impl Format {
    fn parse(formats: Formats, name: &str) -> Option<Self> {
        match formats {
            // Upstream normalises names by removing dashes, so `date-time` and `datetime` are the same.
            Formats::Strings => Self::of_strings(&name.replace('-', "")),
            Formats::Integers => matches!(name, "int32" | "int64").then_some(Self::Number),
            Formats::Numbers => matches!(name, "float" | "double").then_some(Self::Number),
            Formats::None => None,
        }
    }

    fn of_strings(name: &str) -> Option<Self> {
        Some(match name {
            "bsonobjectid" => Self::BsonObjectId,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid(0),
            "uuid3" => Self::Uuid(3),
            "uuid4" => Self::Uuid(4),
            "uuid5" => Self::Uuid(5),
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "creditcard" => Self::CreditCard,
            "ssn" => Self::Ssn,
            "hexcolor" => Self::HexColor,
            "rgbcolor" => Self::RgbColor,
            "byte" => Self::Byte,
            "password" => Self::Password,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            "duration" => Self::Duration,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    fn matches(self, s: &str) -> bool {
        match self {
            Self::BsonObjectId => s.len() == 24 && identifiers::hex(s),
            Self::Uri => net::request_uri(s).is_some(),
            Self::Email => net::email(s),
            Self::Hostname => net::hostname(s),
            Self::Ipv4 => net::ipv4(s),
            Self::Ipv6 => net::ipv6(s),
            Self::Cidr => net::cidr(s),
            Self::Mac => net::mac(s),
            Self::Uuid(version) => identifiers::uuid(s, version),
            Self::Isbn => identifiers::isbn10(s) || identifiers::isbn13(s),
            Self::Isbn10 => identifiers::isbn10(s),
            Self::Isbn13 => identifiers::isbn13(s),
            Self::CreditCard => identifiers::credit_card(s),
            Self::Ssn => identifiers::ssn(s),
            Self::HexColor => identifiers::hex_color(s),
            Self::RgbColor => identifiers::rgb_color(s),
            Self::Byte => identifiers::base64(s),
            Self::Date => clock::date(s),
            Self::DateTime => clock::date_time(s),
            Self::Duration => clock::duration(s),
            Self::ShortName => crate::apimachinery::validation::dns1123_label(s).is_empty(),
            Self::LongName => crate::apimachinery::validation::dns1123_subdomain(s).is_empty(),
            // These formats exist, but upstream accepts any string for them.
            Self::Password | Self::Number => true,
        }
    }
}

/// True if `s` is a URL with a scheme and a host, as `api-approved.kubernetes.io` wants it.
pub(crate) fn is_absolute_url(s: &str) -> bool {
    net::request_uri(s).is_some_and(|u| !u.scheme.is_empty() && !u.host.is_empty())
}

#[cfg(test)]
mod tests;
