//! Validation of Windows options: host process containers, GMSA credentials and user names.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each_enum;

/// Bytes of a GMSA credential spec; upstream's bound, larger than any real one.
const MAX_SPEC_LENGTH: usize = 64 * 1024;
/// Windows' limits of domain and user names; the first is exclusive.
const MAX_DOMAIN_LENGTH: usize = 256;
const MAX_USER_LENGTH: usize = 104;

fn options(holder: &Value) -> &Value {
    holder.at(&["securityContext", "windowsOptions"])
}

/// Checks that either all or no containers are host process containers; if all are, the pod needs
/// `hostNetwork`.
pub(super) fn host_processes(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let of_pod = options(spec).get("hostProcess").as_bool();
    let (mut host, mut other) = (0, 0);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            let own = options(c).get("hostProcess").as_bool();
            if !options(c).is_null() {
                let at = path
                    .child(list)
                    .index(i)
                    .child("securityContext")
                    .child("windowsOptions");
                if let (Some(pod), Some(own)) = (of_pod, own)
                    && pod != own
                {
                    let why = format!("pod hostProcess value must be identical if both are specified, was {pod}");
                    out.push(FieldError::invalid(&at.child("hostProcess"), own, why));
                }
            }
            // Containers inherit the pod's value.
            match own.or(of_pod) {
                Some(true) => host += 1,
                _ => other += 1,
            }
        }
    }
    // An ordinary pod, to which none of the rules apply.
    if host == 0 {
        return;
    }
    if other > 0 {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        out.push(FieldError::invalid(path, "", why));
    }
    // Such containers run in the node's network namespace in any case.
    let on_host = spec.get("hostNetwork").as_bool() == Some(true);
    if !on_host {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        out.push(FieldError::invalid(&path.child("hostNetwork"), false, why));
    }
}

/// Checks GMSA credentials and `runAsUserName`, which are pointers upstream.
pub(super) fn credentials(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(name) = v.get("gmsaCredentialSpecName").as_str() {
        invalid_each_enum(out, &at.child("gmsaCredentialSpecName"), name, dns1123_subdomain(name));
    }
    if let Some(text) = v.get("gmsaCredentialSpec").as_str() {
        let at = at.child("gmsaCredentialSpec");
        if text.is_empty() {
            out.push(FieldError::invalid_enum(
                &at,
                text,
                "gmsaCredentialSpec cannot be an empty string",
            ));
        } else if text.len() > MAX_SPEC_LENGTH {
            let why = format!("gmsaCredentialSpec size must be under {} KiB", MAX_SPEC_LENGTH / 1024);
            out.push(FieldError::invalid_enum(&at, text, why));
        }
    }
    if let Some(name) = v.get("runAsUserName").as_str() {
        user_name(out, name, &at.child("runAsUserName"));
    }
}

/// True for a NetBIOS or DNS domain name.
fn is_domain(name: &str) -> bool {
    let plain = |c: char| !"\\/:*?\"<>|".contains(c);
    // Characters, not bytes, as for the regular expression upstream.
    let net_bios = (1..=15).contains(&name.chars().count()) && !name.starts_with('.') && name.chars().all(plain);
    let label = |s: &str| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        s.len() <= 63 && edge(s.bytes().next()) && edge(s.bytes().last()) && s.bytes().all(plain)
    };
    net_bios || name.split('.').all(label)
}

fn user_name(out: &mut ErrorList, name: &str, at: &FieldPath) {
    let mut wrong = |why: String| out.push(FieldError::invalid_enum(at, name, why));
    if name.is_empty() {
        return wrong("runAsUserName cannot be an empty string".to_owned());
    }
    if name.bytes().any(|c| c.is_ascii_control()) {
        return wrong("runAsUserName cannot contain control characters".to_owned());
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => ("", *user),
        [domain, user] => (*domain, *user),
        // Domain and user cannot be separated, so their rules are skipped.
        _ => return wrong("runAsUserName cannot contain more than one backslash".to_owned()),
    };
    if domain.len() >= MAX_DOMAIN_LENGTH {
        wrong(format!(
            "runAsUserName's Domain length must be under {MAX_DOMAIN_LENGTH} characters"
        ));
    }
    // An empty domain before a backslash is invalid too.
    if parts.len() == 2 && !is_domain(domain) {
        wrong("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        wrong("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > MAX_USER_LENGTH {
        wrong(format!(
            "runAsUserName's User length must not be longer than {MAX_USER_LENGTH} characters"
        ));
    }
    // An empty user has its own error.
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        wrong("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.chars().any(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        wrong("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn errors(spec: Value) -> String {
        let mut out = ErrorList::new();
        let path = FieldPath::new("spec");
        credentials(&mut out, options(&spec), &path);
        host_processes(&mut out, &spec, &path);
        aggregate(&out)
    }

    #[test]
    fn host_process_applies_to_all_or_no_containers() {
        let host = json!({"securityContext": {"windowsOptions": {"hostProcess": true}}});
        let mixed = json!({"hostNetwork": true, "containers": [(host.clone()), {}]});
        assert_eq!(
            errors(mixed),
            "spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers"
        );
        assert_eq!(
            errors(json!({"containers": [(host)]})),
            "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers"
        );
        assert_eq!(errors(json!({"containers": [{}]})), "[]");
    }

    #[test]
    fn user_names_follow_windows_rules() {
        let of = |name: &str| {
            errors(json!({"securityContext": {"windowsOptions": {"runAsUserName": name}}, "containers": []}))
        };
        assert_eq!(of("NT AUTHORITY\\Network"), "[]");
        assert!(of("a\\b\\c").ends_with("cannot contain more than one backslash"));
        assert!(of("..").ends_with("cannot contain only periods or spaces"));
        assert!(of("a&\u{1}").contains("Invalid value: \"a\\u0026\\u0001\": runAsUserName cannot contain control"));
        assert_eq!(of("a\u{80}"), "[]");
        assert_eq!(of(&format!("{}.b\\c", "a".repeat(63))), "[]");
        assert!(of(&format!("{}.b\\c", "a".repeat(64))).ends_with("doesn't match the NetBios nor the DNS format"));
    }
}
