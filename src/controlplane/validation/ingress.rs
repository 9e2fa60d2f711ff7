//! Validation of Ingresses and IngressClasses (upstream's `pkg/apis/networking/validation`).

use super::common::required_segment;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{
    dns1035_label, dns1123_label, dns1123_subdomain, domain_prefixed_path, net, wildcard_dns1123_subdomain,
};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, Seen, invalid_each, required_valid};
use crate::interrupt::checkpoint;

const CLASS: &str = "kubernetes.io/ingress.class";

pub(crate) fn create(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    spec(&mut out, v, None);
    // As upstream, the legacy annotation is compared on create only.
    if let (Some(annotated), Some(class)) = (v.annotation(CLASS), v.at(&["spec", "ingressClassName"]).as_str())
        && annotated != class
    {
        out.push(FieldError::invalid(
            // Upstream's path lacks `metadata`.
            &FieldPath::new("annotations").child(CLASS),
            annotated,
            "must match `ingressClassName` when both are specified",
        ));
    }
    out
}

pub(crate) fn update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    spec(&mut out, new, Some(old));
    out
}

fn host(out: &mut ErrorList, host: &str, at: &FieldPath) {
    // By the presence of `*`, so that a misplaced one gets the message about wildcards.
    let messages = if host.contains('*') {
        wildcard_dns1123_subdomain(host)
    } else {
        dns1123_subdomain(host)
    };
    invalid_each(out, at, host, messages);
}

fn spec(out: &mut ErrorList, v: &Value, old: Option<&Value>) {
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    let rules = spec.get("rules").items();
    if rules.is_empty() && spec.get("defaultBackend").is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        // Upstream passes the slice of rules as the value: null or empty.
        out.push(FieldError::invalid(&path, spec.get("rules").clone(), why));
    }
    if !spec.get("defaultBackend").is_null() {
        backend(out, spec.get("defaultBackend"), &path.child("defaultBackend"));
    }
    // Stored rules of wildcard hosts were not always checked; if one is invalid, none of them is.
    let had = old.map_or(&[][..], |o| o.at(&["spec", "rules"]).items());
    let tolerated = had.iter().any(has_invalid_wildcard);
    for (i, rule) in rules.iter().enumerate() {
        self::rule(out, rule, tolerated, &path.child("rules").index(i));
    }
    // Ratcheting: if any stored secret name is invalid, an update is not held to the rule at all.
    let had = old.map_or(&[][..], |o| o.at(&["spec", "tls"]).items());
    let tolerated = had.iter().any(|t| {
        let was = t.str_at(&["secretName"]);
        !was.is_empty() && !dns1123_subdomain(was).is_empty()
    });
    for (i, tls) in spec.get("tls").items().iter().enumerate() {
        let at = path.child("tls").index(i);
        for (j, h) in tls.get("hosts").items().iter().enumerate() {
            host(out, h.as_str().unwrap_or(""), &at.child("hosts").index(j));
        }
        let secret = tls.str_at(&["secretName"]);
        if !secret.is_empty() && !tolerated {
            invalid_each(out, &at.child("secretName"), secret, dns1123_subdomain(secret));
        }
    }
    if let Some(class) = spec.get("ingressClassName").as_str() {
        invalid_each(out, &path.child("ingressClassName"), class, dns1123_subdomain(class));
    }
}

/// True for an invalid rule of a wildcard host. As upstream, here the names of services still are DNS-1035 labels.
fn has_invalid_wildcard(rule: &Value) -> bool {
    if !rule.str_at(&["host"]).contains('*') {
        return false;
    }
    let mut errors = ErrorList::new();
    paths(&mut errors, rule, &FieldPath::default());
    let mut services = rule.at(&["http", "paths"]).items().iter();
    !errors.is_empty()
        || services.any(|p| {
            let service = p.at(&["backend", "service"]);
            !service.is_null() && !dns1035_label(service.str_at(&["name"])).is_empty()
        })
}

fn rule(out: &mut ErrorList, rule: &Value, tolerates_wildcards: bool, at: &FieldPath) {
    let name = rule.str_at(&["host"]);
    if !name.is_empty() {
        if net::parse_ip(name).is_some() {
            let why = "must be a DNS name, not an IP address";
            out.push(FieldError::invalid(&at.child("host"), name, why));
        }
        // An IPv4 address is also a valid subdomain, so the error above is the only one for it.
        host(out, name, &at.child("host"));
    }
    if !(tolerates_wildcards && name.contains('*')) {
        paths(out, rule, at);
    }
}

fn paths(out: &mut ErrorList, rule: &Value, at: &FieldPath) {
    // A rule without paths sends all traffic of its host to the default backend.
    if rule.get("http").is_null() {
        return;
    }
    let (at, paths) = (at.child("http").child("paths"), rule.at(&["http", "paths"]).items());
    if paths.is_empty() {
        out.push(FieldError::required(&at, ""));
    }
    for (i, p) in paths.iter().enumerate() {
        path(out, p, &at.index(i));
    }
}

fn path(out: &mut ErrorList, p: &Value, at: &FieldPath) {
    checkpoint();
    let text = p.str_at(&["path"]);
    let absolute = "must be an absolute path";
    let mut refuse = |why: String| out.push(FieldError::invalid(&at.child("path"), text, why));
    match p.get("pathType").as_str() {
        None => {
            out.push(FieldError::required(
                &at.child("pathType"),
                "pathType must be specified",
            ));
            // Upstream does not look at the backend in this case.
            return;
        }
        Some("Exact" | "Prefix") => {
            if !text.starts_with('/') {
                refuse(absolute.to_owned());
            }
            // Controllers normalize paths differently: such paths would match other requests than intended.
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(bad) {
                    refuse(format!("must not contain '{bad}'"));
                }
            }
            for bad in ["/..", "/."] {
                if text.ends_with(bad) {
                    refuse(format!("cannot end with '{bad}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            // The syntax is up to the controller; an empty path means all paths.
            if !text.is_empty() && !text.starts_with('/') {
                refuse(absolute.to_owned());
            }
        }
        Some(other) => out.push(FieldError::not_supported(
            &at.child("pathType"),
            other,
            &["Exact", "ImplementationSpecific", "Prefix"],
        )),
    }
    backend(out, p.get("backend"), &at.child("backend"));
}

fn backend(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (service, resource) = (v.get("service"), v.get("resource"));
    // Upstream's bad value is the empty string, not the backend.
    let mut refuse = |why: &str| out.push(FieldError::invalid(at, "", why));
    match (service.is_null(), resource.is_null()) {
        (false, false) => refuse("cannot set both resource and service backends"),
        (true, true) => refuse("resource or service backend is required"),
        (true, false) => {
            let at = at.child("resource");
            if let Some(group) = resource.get("apiGroup").as_str() {
                invalid_each(out, &at.child("apiGroup"), group, dns1123_subdomain(group));
            }
            required_segment(out, resource, "kind", &at);
            required_segment(out, resource, "name", &at);
        }
        (false, true) => service_backend(out, service, at),
    }
}

fn service_backend(out: &mut ErrorList, service: &Value, at: &FieldPath) {
    let name_at = at.child("service").child("name");
    required_valid(out, &name_at, service.str_at(&["name"]), dns1123_label);
    let port_at = at.child("service").child("port");
    let (name, number) = (
        service.str_at(&["port", "name"]),
        service.at(&["port", "number"]).as_i64().unwrap_or(0),
    );
    match (name.is_empty(), number == 0) {
        // At the backend rather than the port, as upstream.
        (false, false) => out.push(FieldError::invalid(at, "", "cannot set both port name & port number")),
        (true, true) => out.push(FieldError::required(at, "port name or number is required")),
        (false, true) => invalid_each(out, &port_at.child("name"), name, net::port_name(name)),
        (true, false) => invalid_each(out, &port_at.child("number"), number, net::port(number)),
    }
}

pub(crate) fn status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let had = old.at(&["status", "loadBalancer", "ingress"]).items().iter();
    let had: Seen<&str> = had.map(|o| o.str_at(&["ip"])).collect();
    let path = FieldPath::new("status").child("loadBalancer").child("ingress");
    for (i, e) in new
        .at(&["status", "loadBalancer", "ingress"])
        .items()
        .iter()
        .enumerate()
    {
        let (ip, name) = (e.str_at(&["ip"]), e.str_at(&["hostname"]));
        // Addresses that are already stored may be in a form that is no longer valid.
        if !ip.is_empty() && !had.contains(&ip) {
            invalid_each(&mut out, &path.index(i).child("ip"), ip, net::ip_strict(ip));
        }
        if !name.is_empty() {
            let at = path.index(i).child("hostname");
            invalid_each(&mut out, &at, name, dns1123_subdomain(name));
            if net::parse_ip(name).is_some() {
                out.push(FieldError::invalid(&at, name, "must be a DNS name, not an IP address"));
            }
        }
    }
    out
}

pub(crate) fn class(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("spec");
    let controller = v.str_at(&["spec", "controller"]);
    // Upstream's `maxLenIngressClassController`.
    if controller.len() > 250 {
        out.push(FieldError::too_long(&path.child("controller"), 250));
    }
    domain_prefixed_path(controller, &path.child("controller"), &mut out);
    let (p, at) = (v.at(&["spec", "parameters"]), path.child("parameters"));
    if p.is_null() {
        return out;
    }
    if let Some(group) = p.get("apiGroup").as_str() {
        invalid_each(&mut out, &at.child("apiGroup"), group, dns1123_subdomain(group));
    }
    for key in ["kind", "name"] {
        required_segment(&mut out, p, key, &at);
    }
    let scopes = ["Cluster", "Namespace"];
    // A plain string in Go, unlike other enumerations.
    if let Some(other) = p.get("scope").as_str().filter(|scope| !scopes.contains(scope)) {
        out.push(FieldError::not_supported_string(&at.child("scope"), other, &scopes));
    }
    // Absent and empty differ: the field is a pointer upstream.
    let namespace = p.get("namespace").as_str();
    match (p.str_at(&["scope"]), namespace) {
        ("Namespace", None) => out.push(FieldError::required(
            &at.child("namespace"),
            "`parameters.scope` is set to 'Namespace'",
        )),
        ("Namespace", Some(ns)) => invalid_each(&mut out, &at.child("namespace"), ns, dns1123_label(ns)),
        ("Cluster", Some(_)) => out.push(FieldError::forbidden(
            &at.child("namespace"),
            "`parameters.scope` is set to 'Cluster'",
        )),
        _ => {}
    }
    out
}

pub(crate) fn class_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    // Another controller would have to take over the Ingresses of the class; a new class does that
    // explicitly.
    let controller = ["spec", "controller"];
    if new.at(&controller) != old.at(&controller) {
        let at = FieldPath::new("spec").child("controller");
        out.push(FieldError::invalid(&at, new.str_at(&controller), IMMUTABLE));
    }
    out.extend(class(new));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn stored_rules_of_wildcard_hosts_are_not_checked_again() {
        let to = |service: &str, host: &str, path: &str| {
            let backend = json!({"service": {"name": (service), "port": {"number": 80}}});
            let path = json!({"path": (path), "pathType": "Exact", "backend": (backend)});
            json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": (host), "http": {"paths": [(path)]}}]}})
        };
        let of = |host: &str, path: &str| to("s", host, path);
        let errors = |new: &Value, old: &Value| update(new, old).len();
        let (stored, good) = (of("*.a", "x"), of("*.a", "/x"));
        assert_eq!((errors(&stored, &stored), errors(&stored, &good)), (0, 1));
        assert_eq!(errors(&of("a", "x"), &stored), 1);
        // A service's name that is valid today, but was not always, counts as invalid.
        assert_eq!(errors(&stored, &to("1s", "*.a", "/x")), 0);
        assert_eq!(errors(&to("1s", "*.a", "/x"), &good), 0);
    }

    #[test]
    fn paths_require_a_type_and_a_backend() {
        let errors = |p: Value| {
            let mut v = json!({"spec": {"rules": [{"http": {}}]}});
            let mut rule = json!({});
            rule.set(&["http", "paths"], vec![p]);
            v.set(&["spec", "rules"], vec![rule]);
            aggregate(&create(&v))
        };
        let at = "spec.rules[0].http.paths[0]";
        assert_eq!(
            errors(json!({"path": "/"})),
            format!("{at}.pathType: Required value: pathType must be specified")
        );
        assert_eq!(
            errors(
                json!({"path": "a", "pathType": "Exact", "backend": {"service": {"name": "s", "port": {"number": 80}}}})
            ),
            format!("{at}.path: Invalid value: \"a\": must be an absolute path")
        );
        assert_eq!(
            errors(json!({"path": "/", "pathType": "Prefix", "backend": {}})),
            format!("{at}.backend: Invalid value: \"\": resource or service backend is required")
        );
    }

    #[test]
    fn class_controller_is_immutable() {
        let old = json!({"spec": {"controller": "example.com/ingress"}});
        let new = json!({"spec": {"controller": "example.com/other"}});
        assert_eq!(
            aggregate(&class_update(&new, &old)),
            "spec.controller: Invalid value: \"example.com/other\": field is immutable"
        );
        assert_eq!(
            aggregate(&class(&json!({"spec": {}}))),
            "spec.controller: Required value"
        );
    }
}
