//! Fuzz bodies: one function per parser of untrusted bytes. None may panic, hang or violate the property in
//! its doc comment. `tests/fuzz.rs` runs them over seeds and generated input, libFuzzer through
//! `fuzz_targets/`.

use torana::api::{self, protobuf as messages};
use torana::apimachinery::codec::json::projection::{self, Mask};
use torana::apimachinery::codec::{cbor, json, protobuf, yaml};
use torana::apimachinery::patch::{Decoding, json_patch::JsonPatch, merge};
use torana::apimachinery::quantity;
use torana::apimachinery::selector::{FieldSelector, LabelSelector};
use torana::apimachinery::value::Value;

#[path = "bodies/access.rs"]
mod access;
#[path = "bodies/backends.rs"]
mod backends;
#[path = "bodies/edge.rs"]
mod edge;
#[path = "bodies/expressions.rs"]
mod expressions;
#[path = "bodies/schemas.rs"]
mod schemas;
#[path = "bodies/trees.rs"]
mod trees;

/// A body's name, function and seeds.
pub(crate) type Body = (&'static str, fn(&[u8]), &'static [&'static str]);

/// Every body.
pub(crate) const ALL: &[Body] = &[
    (
        "expression",
        expressions::expression,
        &[
            "self.tags.all(t, t.startsWith('a') || self.labels[t] == 'x')",
            "any.?x[?0].orValue({}).y == null ? self.name.matches('^[a-z]+$') : has(any.y)",
            "Object{spec: Object.spec{replicas: self.n + 1, ?x: optional.of(1u)}}",
            "self.labels.transformMap(k, v, k + v).exists(k, v, v.contains('k'))",
        ],
    ),
    (
        "authorization-configuration",
        access::configuration,
        &[
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: RBAC\n  name: rbac\n\
             - type: Webhook\n  name: x\n  webhook:\n    timeout: 3s\n    subjectAccessReviewVersion: v1\n    failurePolicy: Deny\n\
             \x20   connectionInfo: {type: KubeConfigFile, kubeConfigFile: /x}\n",
        ],
    ),
    (
        "abac",
        access::abac,
        &[
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","resource":"pods"}}"#,
        ],
    ),
    (
        "impersonation",
        access::impersonation,
        &["impersonate-user:a\nimpersonate-group:g\nimpersonate-extra-a%2fb:c\nimpersonate-uid:u"],
    ),
    (
        "conversion-review",
        backends::conversion,
        &[
            r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"g/v2","kind":"K","metadata":{"name":"a","uid":"u","labels":{"l":"2"}}}]}}"#,
            r#"{"response":{"result":{"status":"Failure","message":"m"}}}"#,
        ],
    ),
    (
        "admission-review",
        backends::admission,
        &[
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d"}}"#,
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","warnings":["w"],"auditAnnotations":{"a":"b"},"status":{"code":418,"details":{"causes":[{"field":"f"}]}}}}"#,
            r#"{"response":{"allowed":true,"patch":"W10="}}"#,
        ],
    ),
    (
        "request-headers",
        access::request_headers,
        &[
            "x-remote-user:jane\nx-remote-group:a\nx-remote-group:b\nx-remote-uid:7\nx-remote-extra-scopes%2fx:y",
            "x-remote-user:\nx-remote-user:x\nx-remote-group:system:authenticated",
        ],
    ),
    (
        "client-certificate",
        access::client_certificate,
        &[
            "",
            "0",
            "@\u{6}\u{3}U\u{4}\u{3}\u{c}\u{1}a",
            "\0",
            "0\u{3}\u{2}\u{1}\u{1}",
        ],
    ),
    (
        "signing-request",
        access::signing_request,
        &[
            "",
            "@\u{6}\u{3}U\u{4}\u{a}\u{14}\u{e}system:masters",
            "\u{6}\u{3}U\u{4}\u{a}\u{1e}\u{4}\0a\0b",
            "0\u{7}\u{6}\u{3}U\u{4}\u{a}\u{c}\0",
            "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n",
        ],
    ),
    (
        "policy-rule",
        access::rule,
        &[
            r#"{"verbs":["get"],"apiGroups":["",1],"resources":["pods/log"],"resourceNames":[],"nonResourceURLs":["/a*"]}"#,
        ],
    ),
    (
        "json",
        json_codec,
        &[
            r#"{"a":[1,-2.5e9,"\u20ac",null,true],"a":{}}"#,
            "[[[[]]]]",
            "1e400",
            "\"\\ud800\"",
        ],
    ),
    (
        "yaml",
        yaml_codec,
        &[
            "a: &x [1, 0777, yes]\nb: *x\n",
            "- |\n  text\n- >-\n  folded\n",
            "? k\n: v",
            "a: !!binary x",
        ],
    ),
    (
        "cbor",
        cbor_codec,
        &["\u{1}", "\u{7f}\x61a\x61b\x7fc", "\x41a", "\x62hi", "\x42\x41a\x01"],
    ),
    (
        "json-patch",
        json_patch,
        &[r#"[{"op":"add","path":"/a/-","value":1},{"op":"move","from":"/a/0","path":"/b~1c"}]"#],
    ),
    (
        "audit-policy",
        edge::audit_policy,
        &[
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [Panic]\nrules:\n- level: Metadata\n  verbs: [get]\n  \
             resources: [{group: '*', resources: ['pods/*', '*/scale'], resourceNames: [a]}]\n",
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, nonResourceURLs: ['/a*', '*']}]}",
        ],
    ),
    ("merge-patch", merge_patch, &[r#"{"a":null,"b":{"c":1}}"#]),
    (
        "label-selector",
        label_selector,
        &["a=b,c!=d,e in (f,g),!h,i notin (j),k>1"],
    ),
    ("field-selector", field_selector, &["metadata.name=a,spec.x!=b\\,c"]),
    ("quantity", quantity_text, &["100m", "1.5Gi", "-3e6", "0.1u"]),
    (
        "protobuf",
        protobuf_message,
        &[
            "k8s\0\n\x0f\n\x02v1\x12\x09ConfigMap\x12\x0d\n\x03\n\x01a\x12\x06\n\x01k\x12\x01v\x1a\0\"\0",
            "\n\x05\n\x01a8\x01\x12\x0c\n\n\x0ahttp\x18P(\x01",
            "\x12\x0b\x0a\x01v\x12\x06:\x04\n\x02hi",
            "\x0b\x13\x14\x0c",
        ],
    ),
    (
        "strategic-patch",
        edge::strategic_patch,
        &[
            r#"{"spec":{"ports":[{"port":80,"$patch":"delete"},{"port":81,"name":"x"}],"$setElementOrder/ports":[{"port":81}]}}"#,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"labels":{"$patch":"replace","x":"y"}}}"#,
        ],
    ),
    (
        "object",
        edge::object,
        &[
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"k:{\"name\":\"x\"}":{".":{}}}}}]},"spec":{"containers":[{"name":"x","resources":{"limits":{"cpu":"1"}}}]}}"#,
            r#"{"kind":"Service","apiVersion":"v1","spec":{"ports":[{"port":1,"targetPort":"x"}]}}"#,
            r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"items":{"type":"string"}}}}}}]}}"#,
        ],
    ),
    (
        "apply",
        edge::apply,
        &[r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","labels":{"x":"y"}},"data":{"k":"v"}}"#],
    ),
    (
        "patch-directives",
        trees::patch_directives,
        &["", "a", "the input chooses a tree"],
    ),
    (
        "field-set",
        trees::field_set,
        &[
            r#"{"f:spec":{".":{},"k:{\"a\":1}":{"v:\"x\"":{}},"i:3":{}}}"#,
            "the input chooses a tree",
        ],
    ),
    (
        "hostile-managers",
        trees::hostile_managers,
        &["", "a", "the input chooses a tree"],
    ),
    (
        "decoder-errors",
        trees::decoder_errors,
        &[
            "",
            "a",
            "the input chooses a tree",
            r#"{"spec":{"containers":[{"name":5}]}}"#,
        ],
    ),
    ("any-tree", trees::any_tree, &["", "a", "the input chooses a tree"]),
    (
        "json-path",
        edge::json_path,
        &[
            r#".spec.list[?(@.k=="v")].n[-1:]"#,
            r#"..a['b\.c','d'][1:2:3]}x{.y"#,
            r#"[?(.a'[?(.b)].c')].* "A" -1.5"#,
        ],
    ),
    (
        "structural-schema",
        edge::structural_schema,
        &[
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer","minimum":1},"x-kubernetes-list-type":"set"},"b":{"pattern":"^[a-z]+$","type":"string"}},"required":["a"]}"#,
            r#"{"x-kubernetes-preserve-unknown-fields":true,"anyOf":[{"required":["x"]}],"additionalProperties":{"type":"string"}}"#,
            r#"{"type":"object","properties":{"spec":{"type":"object","default":{},"properties":{"ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port"],"items":{"type":"object","required":["port"],"properties":{"port":{"x-kubernetes-int-or-string":true},"name":{"type":"string","format":"k8s-short-name","default":"a"}}}}},"x-kubernetes-validations":[{"rule":"self.x","fieldPath":".ports"}]}}}"#,
            r#"{"type":"object","properties":{"b":{"type":"string","pattern":"(?i)^[[:alpha:]\\d]{2,3}(?P<n>\\pL|\\x41)*$","oneOf":[{"format":"uri"},{"not":{"enum":["a",1]}}]}}}"#,
        ],
    ),
    (
        "pattern",
        schemas::pattern,
        &[
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$\na-b.c",
            "(?i:x|\\x{41}\\pL[[:digit:]_]{2,3}\\Q.*\\E)(?P<n>[^\\D\\s])+?\\b\nxA1",
            "((a{0,9}){0,9}){0,9}\naaaa",
        ],
    ),
    (
        "format",
        schemas::format,
        &[
            "192.168.0.1/24",
            "::ffff:10.0.0.1",
            "2026-11-24T10:00:00.5+01:00",
            "https://a@[::1]:8/b?c=%20#d",
            "978-3-16-148410-0",
            "4111 1111 1111 1111",
            "a-b.example.com",
            "1h2m3.5s",
            "5f2b48b6-3f0e-4b0e-9f0e-0123456789ab",
            "\"a b\"@example.com",
            "aGVsbG8=",
            "#fff rgb(1,2,3) 00:1a:2b:3c:4d:5e",
        ],
    ),
    (
        "continue-token",
        edge::continue_token,
        &["eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJhXHUwMDAwIn0"],
    ),
    (
        "request-target",
        edge::request_target,
        &[
            "/api/v1/watch/namespaces/a/pods/b/log?watch=1&fieldSelector=metadata.name%3Dx",
            "/apis/g/v1/namespaces/a/c/d%2Fe//f?b=2&a=1&a=%zz;k=v&c=x+y",
            "//api/../v1/%ff",
        ],
    ),
    (
        "accept",
        edge::accept,
        &["application/json;as=Table;g=meta.k8s.io;v=v1;q=0.5,application/vnd.kubernetes.protobuf,*/*;q=0"],
    ),
    (
        "token-file",
        edge::token_file,
        &["token,user,uid,\"a,b\"\n\"x\"\"y\",u,1\n"],
    ),
    (
        "jwt",
        edge::jwt,
        &[
            "eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJ4IiwiYXVkIjpbImEiXSwiZXhwIjoxLjVlOX0.AAAA",
            "eyJhbGciOiJub25lIn0.e30.",
        ],
    ),
    (
        "keys",
        edge::keys,
        &[
            r#"{"kty":"EC","crv":"P-256","kid":"a","x":"1L5S9Za-6tfnuvJ42t85AHf3DRbqA_fFPLBcf514yl8","y":"1UiW4Xszzg16VK2hEDb9gR7-88pTmynL6zZOUQJFNZE"}"#,
            r#"{"kty":"RSA","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}"#,
            "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n",
        ],
    ),
    (
        "authentication-config",
        edge::authentication_config,
        &[
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: https://a\n    audiences: [x]\n  claimMappings:\n    username: {claim: sub, prefix: ''}\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n",
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: https://a, audiences: [x]}\n\
             \u{20} claimValidationRules:\n  - {expression: 'claims.?email_verified.orValue(false) == true', message: m}\n\
             \u{20} claimMappings:\n    username: {expression: \"claims.email + ':' + string(claims.n)\"}\n\
             \u{20}   groups: {expression: \"claims.groups.map(g, 'g:' + g)\"}\n    uid: {expression: claims.kubernetes__dot__io.pod.name}\n\
             \u{20}   extra: [{key: example.org/a, valueExpression: \"[claims.sub, '']\"}]\n\
             \u{20} userValidationRules: [{expression: \"user.extra['example.org/a'].size() == 1 && !('x' in user.groups)\"}]\n",
        ],
    ),
    (
        "extra-key",
        edge::extra_key,
        &["authentication.kubernetes.io%2fcredential-Id", "%%41%4"],
    ),
    (
        "certificates",
        edge::certificates,
        &["-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"],
    ),
    (
        "html",
        backends::html,
        &[
            "<!doctype html><HEAD><base href=/x/><script src='/a.js'>if (a<b) '<a href=/c>'</script></head><!-- <a href=/x> -->\n\
             <a class=q href=\"/apis/g?a=b&amp;c#d\">x</a><img usemap=#m longdesc=http://b:443/d src='//b:443/e.png'/>",
            "<!--><a href=/x><textarea><a href=/y></textarea ><iframe src=/z></iframe><?php <a href=/w> ?><a href=/v",
        ],
    ),
    (
        "spdy",
        backends::spdy,
        &["\0\0\0\x01\x01\0\0\x03abc\0\0\0\x03\0\0\0\x01x"],
    ),
    (
        "link",
        backends::link,
        &[
            "https://b:443/a/../b//c%2Fd?x=1#f",
            "/a/./b",
            "//b:443",
            "mailto:x",
            "/proxied/x",
        ],
    ),
    (
        "discovery",
        backends::discovery,
        &[
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"a","subresources":[{"subresource":"s"}]}]}]}]}"#,
            r#"{"kind":"APIResourceList","resources":[{"name":"a","namespaced":true,"verbs":["get"],"shortNames":["x"]},{"name":"a/s","namespaced":true},{"name":"b/s"}]}"#,
        ],
    ),
    (
        "openapi",
        backends::openapi,
        &[
            r##"{"swagger":"2.0","parameters":{"p":{"name":"p","in":"query","type":"string"}},"paths":{"/apis/a/":{},"/apis/b/":{"parameters":[{"$ref":"#/parameters/p"}],"post":{"consumes":["*/*"],"parameters":[{"in":"body","name":"body","schema":{"$ref":"#/definitions/A"}}],"responses":{"200":{"schema":{"$ref":"#/definitions/B"}}}}}},"definitions":{"A":{"properties":{"b":{"$ref":"#/definitions/B"}}},"B":{"x-kubernetes-group-version-kind":[{"group":"g"}],"items":{"$ref":"#/definitions/A"}}}}"##,
        ],
    ),
    (
        "annotations",
        backends::annotations,
        &[
            "urls=https://b;failover=1, https://a:1/x;weight=3\nserver-name=a\nca-from=configmap/a/b/ca.crt\nconnect-timeout=3s",
            "urls=https+unix:///run/b.sock;uid=0,h2c+unix:///c\nclient-certificate-from=secret/a/b\nrequest-timeout=-1h",
            "max-requests-inflight=7\nheader-timeout=500ms\nnope=1",
        ],
    ),
];

/// Decoded input encodes to bytes that decode and encode to the same bytes. (Not to an equal tree: a float
/// without a fraction prints without one, as in Go, and decodes as an integer.)
pub(crate) fn json_codec(data: &[u8]) {
    // The store's content is our own, but damaged bytes must not panic either.
    for mask in [Mask::Whole, Mask::Count, Mask::of(&["a", "metadata.name"])] {
        let _ = projection::read(data, &mask);
    }
    if let Ok(v) = json::decode(data) {
        let text = json::to_vec(&v);
        let again = json::decode(&text).expect("what we encode, we decode");
        assert_eq!(json::to_vec(&again), text);
        // Partial decoding agrees with full decoding for bytes that we encoded.
        assert_eq!(projection::read(&text, &Mask::Whole).as_ref(), Ok(&again));
        assert_ne!(
            projection::read(&text, &Mask::Count),
            Err(projection::UnexpectedEncoding)
        );
        let pretty = json::decode(&json::to_vec_pretty(&v)).expect("what we encode, we decode");
        assert_eq!(json::to_vec(&pretty), text);
    }
}

/// The same round trip as [`json_codec`].
pub(crate) fn yaml_codec(data: &[u8]) {
    if let Ok(v) = yaml::decode(data) {
        let text = yaml::to_string(&v);
        assert_eq!(yaml::decode(text.as_bytes()), Ok(v), "{text}");
    }
}

/// Decoded input encodes to bytes that decode to the same value. The seeds are text, so each input is also
/// decoded inside a map.
pub(crate) fn cbor_codec(data: &[u8]) {
    let mut inside = vec![0xbf, 0x41, b'k'];
    inside.extend_from_slice(data);
    inside.push(0xff);
    for bytes in [data, &inside] {
        if let Ok(v) = cbor::decode(bytes) {
            assert_eq!(cbor::decode(&cbor::to_vec(&v)), Ok(v));
        }
    }
}

fn document() -> Value {
    torana::json!({"a": [1, 2, {"x": "y"}], "b/c": {"d": null}, "e": "f"})
}

/// A patch applies or is refused.
pub(crate) fn json_patch(data: &[u8]) {
    if let Ok(p) = JsonPatch::decode(data, Decoding::Lenient) {
        let _ = p.apply(document());
    }
}

/// Applying a merge patch twice has the same effect as applying it once.
pub(crate) fn merge_patch(data: &[u8]) {
    if let Ok((patch, _)) = merge::decode(data, Decoding::Lenient) {
        let mut once = document();
        merge::apply(&mut once, patch.clone());
        let mut twice = once.clone();
        merge::apply(&mut twice, patch);
        assert_eq!(once, twice);
    }
}

/// A parsed selector prints as text that parses to the same selector.
pub(crate) fn label_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(s) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&s.to_string()).as_ref(), Ok(&s), "{s}");
        s.matches(&|k| (k == "a").then_some("b"));
    }
}

/// The same round trip as [`label_selector`].
pub(crate) fn field_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(s) = FieldSelector::parse(text) {
        assert_eq!(FieldSelector::parse(&s.to_string()).as_ref(), Ok(&s), "{s}");
    }
}

/// A decoded message encodes to bytes that decode again; damaged bytes are refused.
pub(crate) fn protobuf_message(data: &[u8]) {
    let enveloped = protobuf::open(data).ok();
    let named = enveloped
        .as_ref()
        .and_then(|u| Some((messages::definition(&u.api_version, &u.kind)?, u.raw)));
    let kinds = ["Pod", "Service", "ConfigMap"].map(|k| api::by_gvk("", "v1", k));
    let schema = api::by_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let bare = kinds.into_iter().chain([schema]).flatten().map(|def| (def, data));
    for (def, raw) in named.into_iter().chain(bare) {
        let Ok(mut v) = messages::decode_message(def, raw) else {
            continue;
        };
        let mut again = Vec::new();
        messages::encode_message(def, &v, &mut again);
        messages::decode_message(def, &again).expect("what we write, we read");
        let _ = api::decode::normalize(def, &mut v);
    }
}

/// Parsing a canonical form returns the same canonical form.
pub(crate) fn quantity_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(c) = quantity::canonicalize(text) {
        assert_eq!(quantity::canonicalize(&c).as_deref(), Ok(c.as_str()));
    }
}
