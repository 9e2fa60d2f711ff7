use super::*;
use http::{Method, Uri};
use proptest::prelude::*;

fn read(method: &str, uri: &str) -> RequestInfo {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    RequestInfo::resolve(&method, &uri.parse::<Uri>().unwrap()).unwrap()
}

/// `verb prefix group version namespace resource subresource name`, `-` for empty.
fn row(i: &RequestInfo) -> String {
    [
        &i.verb,
        &i.api_prefix,
        &i.api_group,
        &i.api_version,
        &i.namespace,
        &i.resource,
        &i.subresource,
        &i.name,
    ]
    .map(|s| if s.is_empty() { "-" } else { s })
    .join(" ")
}

#[test]
fn resource_paths_resolve_as_upstream() {
    let table = [
        ("GET", "/api/v1/namespaces", "list api - v1 - namespaces - -"),
        ("GET", "/api/v1/namespaces/foo", "get api - v1 foo namespaces - foo"),
        (
            "GET",
            "/api/v1/namespaces/foo/status",
            "get api - v1 foo namespaces status foo",
        ),
        (
            "PUT",
            "/api/v1/namespaces/foo/finalize",
            "update api - v1 foo namespaces finalize foo",
        ),
        ("GET", "/api/v1/namespaces/foo/pods", "list api - v1 foo pods - -"),
        ("POST", "/api/v1/namespaces/foo/pods/", "create api - v1 foo pods - -"),
        (
            "GET",
            "/api/v1/namespaces//configmaps",
            "list api - v1 - configmaps - -",
        ),
        (
            "GET",
            "/api/v1/namespaces/foo/pods/a/log",
            "get api - v1 foo pods log a",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/foo/pods",
            "deletecollection api - v1 foo pods - -",
        ),
        ("DELETE", "/api/v1/nodes/a", "delete api - v1 - nodes - a"),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/foo/deployments/a/scale",
            "patch apis apps v1 foo deployments scale a",
        ),
        (
            "HEAD",
            "/apis/apps/v1/deployments",
            "list apis apps v1 - deployments - -",
        ),
        (
            "OPTIONS",
            "/apis/apps/v1/deployments",
            "- apis apps v1 - deployments - -",
        ),
        ("GET", "/api/v1/watch/pods", "watch api - v1 - pods - -"),
        ("GET", "/api/v1/proxy/nodes/a/x", "proxy api - v1 - nodes - a"),
        ("GET", "/api/v1/pods?watch=", "watch api - v1 - pods - -"),
        ("GET", "/api/v1/pods?watch=2", "watch api - v1 - pods - -"),
        ("GET", "/api/v1/pods?watch=False", "list api - v1 - pods - -"),
        ("GET", "/api/v1/pods?watch=0&watch=1", "list api - v1 - pods - -"),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dfoo",
            "list api - v1 - pods - foo",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=a=b,metadata.name==foo&watch=1",
            "watch api - v1 - pods - foo",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name!=foo",
            "list api - v1 - pods - -",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name=a/b",
            "list api - v1 - pods - -",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name=foo&limit=x&watch=1",
            "watch api - v1 - pods - -",
        ),
        (
            "DELETE",
            "/api/v1/pods?fieldSelector=metadata.name=foo",
            "deletecollection api - v1 - pods - -",
        ),
        (
            "GET",
            "/api/v1/namespaces/foo/pods/a?watch=true",
            "get api - v1 foo pods - a",
        ),
        ("GET", "/api/v1/namespaces/a%2Fb", "list api - v1 a b - -"),
    ];
    for (method, uri, want) in table {
        let info = read(method, uri);
        assert!(info.is_resource, "{uri}");
        assert_eq!(row(&info), want, "{method} {uri}");
    }
}

#[test]
fn other_paths_are_non_resource_with_the_method_as_verb() {
    for (method, uri, verb) in [
        ("GET", "/", "get"),
        ("HEAD", "/healthz", "head"),
        ("POST", "/version", "post"),
        ("GET", "/api", "get"),
        ("GET", "/api/v1", "get"),
        ("GET", "/apis/apps/v1", "get"),
        ("GET", "//apis//apps", "get"),
        ("GET", "/foo/bar/baz/x", "get"),
        ("PROPFIND", "/x", "propfind"),
    ] {
        let info = read(method, uri);
        assert!(!info.is_resource, "{uri}");
        assert_eq!(info.verb, verb);
        assert!(info.resource.is_empty());
    }
}

#[test]
fn selectors_are_kept_raw_except_behind_a_path_verb() {
    let i = read(
        "GET",
        "/api/v1/pods?labelSelector=a%3Db&fieldSelector=x%3Dy&labelSelector=z",
    );
    assert_eq!((i.label_selector.as_str(), i.field_selector.as_str()), ("a=b", "x=y"));
    let i = read("GET", "/api/v1/watch/pods?labelSelector=a%3Db");
    assert_eq!(i.label_selector, "");
}

#[test]
fn a_path_verb_requires_a_resource() {
    for uri in ["/api/v1/watch", "/api/v1/proxy/", "/apis/g/v/watch"] {
        assert_eq!(
            RequestInfo::resolve(&Method::GET, &uri.parse().unwrap()),
            Err(ResolveError::PrefixVerbWithoutResource)
        );
    }
}

#[test]
fn a_bad_escape_is_an_error() {
    assert_eq!(
        RequestInfo::resolve(&Method::GET, &"/a%zz".parse().unwrap()),
        Err(ResolveError::BadEscape)
    );
}

proptest! {
    #[test]
    fn segments_equal_split(path in "[a/.é]{0,12}") {
        prop_assert!(query::segments(&path).eq(path.split('/')));
    }

    #[test]
    fn parts_equal_the_tail_of_the_path(segs in proptest::collection::vec("[a-z]{1,6}", 1..5), ns in proptest::option::of("[a-z]{1,5}")) {
        prop_assume!(!matches!(segs[0].as_str(), "watch" | "proxy" | "namespaces" | "status" | "finalize"));
        let tail = segs.join("/");
        let uri = match &ns {
            Some(ns) => format!("/apis/g/v1/namespaces/{ns}/{tail}"),
            None => format!("/apis/g/v1/{tail}"),
        };
        let info = read("PUT", &uri);
        prop_assert_eq!(info.parts.join("/"), tail);
        prop_assert_eq!(info.namespace, ns.unwrap_or_default());
        prop_assert_eq!(&info.resource, &segs[0]);
    }

    #[test]
    fn no_request_line_panics(path in "/[a-z/%.0-9]{0,40}", query in "[a-zA-Z=&;%+,!\\\\\\\\]{0,40}") {
        if let Ok(uri) = format!("{path}?{}", query.replace('\\', "%5C")).parse::<Uri>() {
            let _ = RequestInfo::resolve(&Method::GET, &uri);
        }
    }
}

#[test]
fn queries_have_a_bounded_number_of_parameters() {
    let resolve = |n: usize| {
        let uri = format!("/api/v1/pods?{}", vec!["a"; n].join("&"))
            .parse::<Uri>()
            .unwrap();
        RequestInfo::resolve(&Method::GET, &uri)
    };
    assert!(resolve(1_000).is_ok());
    assert_eq!(resolve(1_001).unwrap_err(), ResolveError::TooManyParameters);
}
