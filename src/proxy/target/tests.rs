use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

fn object(annotations: Value) -> Value {
    let mut v = json!({"metadata": {"name": "v1.g"}, "spec": {"service": {"namespace": "n", "name": "s"}}});
    v.set(&["metadata", "annotations"], annotations);
    v
}

fn parse_annotations(annotations: Value) -> Result<BackendOptions, String> {
    read(&object(annotations)).map_err(|e| aggregate(&e))
}

fn target(urls: &str) -> Target {
    let backend = parse_annotations(
        json!({"torana.dev/backend-urls": (urls), "torana.dev/backend-server-name": "api.example.com"}),
    );
    backend.unwrap().target.unwrap().as_ref().clone()
}

#[test]
fn urls_become_addresses_and_a_name() {
    assert_eq!(parse_annotations(json!({})), Ok(BackendOptions::default()));
    assert_eq!(
        parse_annotations(json!({"example.com/backend-urls": "x"})),
        Ok(BackendOptions::default())
    );
    let t =
        parse_annotations(json!({"torana.dev/backend-urls": "https://Api.example.com, https://api.example.com:8443/"}));
    let t = t.unwrap().target.unwrap();
    let all: Vec<&str> = t.addresses.iter().map(|a| &**a).collect();
    assert_eq!(all, ["api.example.com:443", "api.example.com:8443"]);
    assert_eq!(&*t.server_name, "api.example.com");
    let t = target("https://[::1]:1,https://10.0.0.1");
    assert_eq!((&*t.addresses[0], &*t.server_name), ("[::1]:1", "api.example.com"));
}

#[test]
fn places_are_grouped_into_weighted_failover_tiers() {
    let t = target("https://b;failover=1, https://a;weight=3, https://c:1;failover=1;weight=2, https://d");
    let all: Vec<(&str, u32, u32)> = t
        .endpoints
        .iter()
        .map(|p| (&*p.address, p.weight, p.failover))
        .collect();
    assert_eq!(all, [("a:443", 3, 0), ("d:443", 1, 0), ("b:443", 1, 1), ("c:1", 2, 1)]);
    assert_eq!(t.tiers().collect::<Vec<_>>(), [0..2, 2..4]);
}

#[test]
fn unix_sockets_are_valid_places() {
    let t = parse_annotations(
        json!({"torana.dev/backend-urls": "http+unix:///run/a.sock, h2c+unix:///run/b.sock;uid=1000"}),
    );
    let t = t.unwrap().target.unwrap();
    assert_eq!(&*t.server_name, "localhost");
    let sockets: Vec<&Socket> = t.endpoints.iter().filter_map(|p| p.socket.as_ref()).collect();
    assert_eq!(sockets[0].path.to_str(), Some("/run/a.sock"));
    assert_eq!((sockets[0].protocol, sockets[0].uid), (Protocol::Http1, None));
    assert_eq!((sockets[1].protocol, sockets[1].uid), (Protocol::Http2, Some(1000)));
    assert_eq!(&*t.addresses[1], "h2c+unix:///run/b.sock");
    let t = target("https+unix:///run/a.sock");
    assert!(t.endpoints[0].is_tls());
}

#[test]
fn references_timeouts_and_limits_are_parsed() {
    let b = parse_annotations(json!({
        "torana.dev/backend-ca-from": "configmap/kube-system/roots",
        "torana.dev/backend-client-certificate-from": "secret/gateway/client",
        "torana.dev/backend-connect-timeout": "500ms",
        "torana.dev/backend-header-timeout": "5s",
        "torana.dev/backend-request-timeout": "1m30s",
        "torana.dev/backend-max-requests-inflight": "20",
    }))
    .unwrap();
    let ca = b.ca_from.unwrap();
    assert_eq!(
        (ca.source, &*ca.object, &*ca.key),
        (Source::ConfigMap, "kube-system/roots", "ca.crt")
    );
    assert_eq!(&*b.certificate_from.unwrap().object, "gateway/client");
    assert_eq!(b.timeouts.connect, Some(Duration::from_millis(500)));
    assert_eq!(b.timeouts.request, Some(Duration::from_secs(90)));
    assert_eq!(
        (b.timeouts.header, b.max_requests),
        (Some(Duration::from_secs(5)), Some(20))
    );
    let b = parse_annotations(json!({"torana.dev/backend-ca-from": "secret/a/b/root.pem"})).unwrap();
    assert_eq!(&*b.ca_from.unwrap().key, "root.pem");
}

#[test]
fn invalid_values_are_field_errors() {
    for (urls, why) in [
        ("http://a", "must begin with https://"),
        ("https://a/b", "must name a host and nothing below it"),
        ("https://u:p@a", "must not hold credentials"),
        ("https://a:0", "must name a port between 1 and 65535, or none"),
        ("https://a:99999", "must name a port between 1 and 65535, or none"),
        ("https://a:x", "must name a port between 1 and 65535, or none"),
        ("https://[::1]:65536", "must name a port between 1 and 65535, or none"),
        ("https://a:+80", "must name a port between 1 and 65535, or none"),
        ("https://[::x]", "must name a host by a DNS name or an IP address"),
        ("https://[1.2.3.4]", "must name a host by a DNS name or an IP address"),
        ("https://a..b", "must name a host by a DNS name or an IP address"),
        ("https://*.a", "must name a host by a DNS name or an IP address"),
        ("unix:///a", "must begin with https://"),
        ("a:8443", "must be a URL such as https://host:port"),
        ("https://a;weight=1;weight=2", "weight may be set once"),
        ("https://a,https://b", "several hosts"),
        ("https+unix:///a", "name no host"),
        ("https://a,https://a:443", "Duplicate value"),
        ("", "must be a URL"),
        (
            "https://a;weight=0",
            "weight must be a whole number between 1 and 1000, inclusive",
        ),
        ("https://a;failover=1", "at least one URL must be without failover"),
        ("https://a;uid=1", "uid may only be set on a socket"),
        ("https://a;colour=red", "unknown parameter \"colour\""),
        ("http+unix://run/a.sock", "must name the absolute path of a socket"),
        ("http+unix:///run/../a.sock", "must name the absolute path of a socket"),
        ("http+unix:///run/%2e%2e/a", "must name the absolute path of a socket"),
    ] {
        let message = parse_annotations(json!({"torana.dev/backend-urls": (urls)})).unwrap_err();
        assert!(message.contains(why), "{urls}: {message}");
        assert!(
            message.contains("metadata.annotations[torana.dev/backend-"),
            "{message}"
        );
    }
    for (key, value, why) in [
        (
            "backend-server-name",
            "a",
            "may only be set together with torana.dev/backend-urls",
        ),
        (
            "backend-ca-from",
            "configmap/a",
            "must be configmap/<namespace>/<name> or secret/",
        ),
        (
            "backend-ca-from",
            "pod/a/b",
            "must be configmap/<namespace>/<name> or secret/",
        ),
        (
            "backend-ca-from",
            "secret/A/b",
            "must be configmap/<namespace>/<name> or secret/",
        ),
        (
            "backend-client-certificate-from",
            "configmap/a/b",
            "must be secret/<namespace>/<name>",
        ),
        (
            "backend-client-certificate-from",
            "secret/a/b/c",
            "must be secret/<namespace>/<name>",
        ),
        ("backend-connect-timeout", "5", "expected a duration such as 90s"),
        (
            "backend-header-timeout",
            "0s",
            "must be greater than 0s and at most 24h",
        ),
        (
            "backend-request-timeout",
            "25h",
            "must be greater than 0s and at most 24h",
        ),
        (
            "backend-max-requests-inflight",
            "0",
            "must be a whole number between 1 and 1000000, inclusive",
        ),
    ] {
        let key = format!("torana.dev/{key}");
        let mut annotations = Value::object();
        annotations.set(&[key.as_str()], value);
        let message = parse_annotations(annotations).unwrap_err();
        assert!(
            message.starts_with(&format!("metadata.annotations[{key}]: ")),
            "{message}"
        );
        assert!(message.contains(why), "{value}: {message}");
    }
}

#[test]
fn all_errors_are_reported_together() {
    let message = parse_annotations(json!({
        "torana.dev/backend-urls": "ftp://a, https://b;weight=x",
        "torana.dev/backend-connect-timeout": "soon",
        "torana.dev/backend-max-requests-inflight": "-1",
    }));
    assert_eq!(
        message.unwrap_err(),
        "[metadata.annotations[torana.dev/backend-urls]: Invalid value: \"ftp://a\": must begin with https://, https+unix://, http+unix:// or h2c+unix://, \
         metadata.annotations[torana.dev/backend-urls]: Invalid value: \"https://b;weight=x\": weight must be a whole number between 1 and 1000, inclusive, \
         metadata.annotations[torana.dev/backend-connect-timeout]: Invalid value: \"soon\": expected a duration such as 90s, 1m30s or 300ms, \
         metadata.annotations[torana.dev/backend-max-requests-inflight]: Invalid value: \"-1\": must be a whole number between 1 and 1000000, inclusive]"
    );
}

#[test]
fn too_many_urls_are_one_error() {
    let urls = vec!["https://a.example"; 65].join(",");
    let refused = parse_annotations(json!({"torana.dev/backend-urls": (urls)})).unwrap_err();
    // Neither duplicates nor a missing server name: the URLs are not looked at.
    assert_eq!(
        refused,
        "metadata.annotations[torana.dev/backend-urls]: Too many: 65: must have at most 64 items"
    );
}

#[test]
fn a_local_apiservice_takes_no_backend_annotations() {
    let mut v = object(json!({"torana.dev/backend-urls": "https://a", "torana.dev/backend-header-timeout": "1s"}));
    v.unset(&["spec", "service"]);
    let message = aggregate(&read(&v).unwrap_err());
    assert!(
        message.contains("backend-urls]: Forbidden: may not be set on a local APIService"),
        "{message}"
    );
    assert!(message.contains("backend-header-timeout]: Forbidden: "), "{message}");
}

#[test]
fn targets_without_verification_are_forbidden() {
    let mut v = object(json!({"torana.dev/backend-urls": "https://a"}));
    v.set(&["spec", "insecureSkipTLSVerify"], true);
    let message = aggregate(&read(&v).unwrap_err());
    assert!(
        message.contains("Forbidden: may not be set together with spec.insecureSkipTLSVerify"),
        "{message}"
    );
}

#[test]
fn an_unknown_annotation_of_our_domain_causes_a_warning() {
    let message = warnings(&object(
        json!({"torana.dev/backend-url": "https://a", "torana.dev/backend-urls": "https://a", "other/x": "y"}),
    ));
    assert_eq!(message.len(), 1);
    assert!(
        message[0].starts_with("metadata.annotations[torana.dev/backend-url]: unknown annotation, ignored; known are torana.dev/backend-urls, "),
        "{message:?}"
    );
}
