//! The checks that kinds make of their objects' names.

use super::{
    SUBDOMAIN_MAX, dns1035_label, dns1123_label, dns1123_subdomain, net, path_segment_name, path_segment_prefix,
    too_long,
};

/// The input of a name check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// A whole name: `metadata.name`, or one that refers to an object.
    Full,
    /// A `generateName`, to which a suffix will be added: it may end with a dash.
    Prefix,
}

/// A kind's name check.
pub type NameFn = fn(name: &str, form: NameForm) -> Vec<String>;

/// Masks the trailing dash of a `generateName`. Upstream replaces its last *two* characters by `a`
/// (`pkg/api/validation/generic.go`), so `x.-` passes.
fn masked(name: &str, form: NameForm) -> std::borrow::Cow<'_, str> {
    if form == NameForm::Prefix && name.len() > 1 && name.ends_with('-') {
        // Cut between characters: Go cuts bytes, but a name with other characters fails the check anyway.
        let cut = (0..=name.len() - 2)
            .rev()
            .find(|&i| name.is_char_boundary(i))
            .unwrap_or(0);
        format!("{}a", &name[..cut]).into()
    } else {
        name.into()
    }
}

/// The name check of most kinds: a DNS subdomain.
pub fn name_is_dns_subdomain(name: &str, form: NameForm) -> Vec<String> {
    dns1123_subdomain(&masked(name, form))
}

/// The name check of kinds with declarative validation. It ignores `generateName` and reports the maximum
/// length in bytes.
pub fn name_is_declared_subdomain(name: &str, form: NameForm) -> Vec<String> {
    if form == NameForm::Prefix {
        return Vec::new();
    }
    let mut out = dns1123_subdomain(name);
    // Declarative validation words the limit in bytes.
    let coded = too_long(SUBDOMAIN_MAX);
    if let Some(long) = out.iter_mut().find(|m| **m == coded) {
        *long = format!("must be no more than {SUBDOMAIN_MAX} bytes");
    }
    out
}

/// The name check of Namespaces and some other kinds: a DNS label.
pub fn name_is_dns_label(name: &str, form: NameForm) -> Vec<String> {
    dns1123_label(&masked(name, form))
}

/// The name check of Services: a DNS-1035 label.
pub fn name_is_dns1035_label(name: &str, form: NameForm) -> Vec<String> {
    dns1035_label(&masked(name, form))
}

/// The name must be an IP address in its canonical form; a prefix never is one.
pub fn name_is_canonical_ip(name: &str, _form: NameForm) -> Vec<String> {
    net::canonical_ip(name)
}

/// The name check of kinds whose names only have to fit into a URL path, such as RBAC objects.
pub fn name_is_path_segment(name: &str, form: NameForm) -> Vec<String> {
    match form {
        NameForm::Prefix => path_segment_prefix(name),
        NameForm::Full => path_segment_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_address_names_must_be_canonical() {
        assert_eq!(name_is_canonical_ip("192.0.2.1", NameForm::Full), [""; 0]);
        assert_eq!(
            name_is_canonical_ip("192.0.2.01", NameForm::Full),
            ["must not have leading 0s"]
        );
        assert_eq!(
            name_is_canonical_ip("FD00::1", NameForm::Full),
            ["must be in canonical form (\"fd00::1\")"]
        );
        assert!(!name_is_canonical_ip("x-", NameForm::Prefix).is_empty());
    }

    #[test]
    fn generate_name_check_masks_the_last_two_characters() {
        assert!(name_is_dns_subdomain("x.-", NameForm::Prefix).is_empty());
        assert!(!name_is_dns_subdomain("x.-", NameForm::Full).is_empty());
        assert!(name_is_dns_subdomain("é-", NameForm::Prefix).is_empty());
        assert!(!name_is_dns_subdomain("-", NameForm::Prefix).is_empty());
    }

    #[test]
    fn declarative_name_check_counts_bytes_and_ignores_prefixes() {
        assert!(name_is_declared_subdomain("A_", NameForm::Prefix).is_empty());
        assert_eq!(
            name_is_declared_subdomain("A_", NameForm::Full),
            dns1123_subdomain("A_")
        );
        assert_eq!(
            name_is_declared_subdomain(&"a".repeat(254), NameForm::Full),
            ["must be no more than 253 bytes"]
        );
    }
}
