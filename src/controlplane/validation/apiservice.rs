//! Validation of APIServices (upstream's `kube-aggregator/pkg/apis/apiregistration/validation`).

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::validation::{dns1035_label, dns1123_subdomain, net, path_segment_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, required_choice};
use crate::proxy::target;

/// The errors of the name, which consists of version and group.
pub(crate) fn name(v: &Value, name: &str) -> Vec<String> {
    let spec = v.get("spec");
    let expected = format!("{}.{}", spec.str_at(&["version"]), spec.str_at(&["group"]));
    // An invalid path segment is reported by the general rule alone.
    if name == expected || !path_segment_name(name).is_empty() {
        return Vec::new();
    }
    vec![format!("must be `spec.version+\".\"+spec.group`: {}", quote(&expected))]
}

pub(crate) fn api_service(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    // Annotations of this project's own domain (`torana.dev/`), which upstream does not validate. Checked here, so
    // that a bad one is refused on write instead of failing every request to the backend.
    if let Err(errors) = target::read(v) {
        out.extend(errors);
    }
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    let (group, version) = (spec.str_at(&["group"]), spec.str_at(&["version"]));
    if group.is_empty() {
        // The legacy core API, which has no group, exists in one version only.
        if version != "v1" {
            out.push(FieldError::required(
                &path.child("group"),
                "only v1 may have an empty group and it better be legacy kube",
            ));
        }
    } else {
        invalid_each(&mut out, &path.child("group"), group, dns1123_subdomain(group));
    }
    invalid_each(&mut out, &path.child("version"), version, dns1035_label(version));
    for (key, most) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let n = spec.get(key).as_i64().unwrap_or(0);
        // The limit itself is valid, despite upstream's message.
        if n <= 0 || n > most {
            out.push(FieldError::invalid(
                &path.child(key),
                n,
                format!("must be positive and less than {most}"),
            ));
        }
    }
    let insecure = spec.get("insecureSkipTLSVerify").as_bool() == Some(true);
    let bundle = bundle_len(spec);
    let service = spec.get("service");
    let at_insecure = path.child("insecureSkipTLSVerify");
    if service.is_null() {
        if bundle > 0 {
            out.push(FieldError::invalid(
                &path.child("caBundle"),
                // Not the bundle: it would fill the message.
                format!("{bundle} bytes"),
                "local APIServices may not have a caBundle",
            ));
        }
        if insecure {
            out.push(FieldError::invalid(
                &at_insecure,
                true,
                "local APIServices may not have insecureSkipTLSVerify",
            ));
        }
        // Nothing below applies without a service; upstream stops here too.
        return out;
    }
    let at = path.child("service");
    for key in ["namespace", "name"] {
        if service.str_at(&[key]).is_empty() {
            out.push(FieldError::required(&at.child(key), ""));
        }
    }
    let port = service.get("port").as_i64().unwrap_or(0);
    for why in net::port(port) {
        out.push(FieldError::invalid(
            &at.child("port"),
            port,
            format!("port is not valid: {why}"),
        ));
    }
    if insecure && bundle > 0 {
        out.push(FieldError::invalid(
            &at_insecure,
            true,
            "may not be true if caBundle is present",
        ));
    }
    out
}

/// Decoded length of the base64 `caBundle`.
fn bundle_len(spec: &Value) -> usize {
    spec.str_at(&["caBundle"]).trim_end_matches('=').len() * 3 / 4
}

pub(crate) fn status(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("status").child("conditions");
    for (i, c) in v.at(&["status", "conditions"]).items().iter().enumerate() {
        let known = ["True", "False", "Unknown"];
        let at = path.index(i);
        match c.str_at(&["status"]) {
            // Unlike `required_choice`, upstream treats an empty status as unsupported, not as missing.
            "" => out.push(FieldError::not_supported(&at.child("status"), "", &known)),
            _ => required_choice(&mut out, c, "status", &at, &known),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn with(name: &str, edits: Value) -> String {
        let mut v = json!({"metadata": {"name": name}, "spec": {
            "group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "n", "name": "s", "port": 443}}});
        for (k, x) in edits.as_object().unwrap().iter() {
            v.set(&["spec", k], x.clone());
        }
        aggregate(&api_service(&v))
    }

    #[test]
    fn errors_match_upstream() {
        let name = "v1.g.example.com";
        assert_eq!(with(name, json!({})), "[]");
        let v = json!({"spec": {"group": "g", "version": "v1"}});
        assert_eq!(
            super::name(&v, "v1."),
            ["must be `spec.version+\".\"+spec.group`: \"v1.g\""]
        );
        assert_eq!(super::name(&v, "v1.g"), [""; 0]);
        assert_eq!(super::name(&v, "a/b"), [""; 0]);
        assert_eq!(
            with("v2.", json!({"group": "", "version": "v2"})),
            "spec.group: Required value: only v1 may have an empty group and it better be legacy kube"
        );
        assert_eq!(with("v1.", json!({"group": ""})), "[]");
        assert_eq!(
            with(name, json!({"groupPriorityMinimum": 20001, "versionPriority": 0})),
            "[spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000, spec.versionPriority: Invalid value: 0: must be positive and less than 1000]"
        );
        assert_eq!(
            with(
                name,
                json!({"service": null, "caBundle": "YWJj", "insecureSkipTLSVerify": true})
            ),
            "[spec.caBundle: Invalid value: \"3 bytes\": local APIServices may not have a caBundle, spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify]"
        );
        assert_eq!(
            with(
                name,
                json!({"service": {"namespace": "", "name": "", "port": 0}, "caBundle": "YWJj", "insecureSkipTLSVerify": true})
            ),
            "[spec.service.namespace: Required value, spec.service.name: Required value, spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive, spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present]"
        );
    }
}
