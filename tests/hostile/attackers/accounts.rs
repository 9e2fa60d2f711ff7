//! Any service account: its only permissions are discovery and reviews of itself.

use super::Cases;
use super::anonymous::upgrade;
use super::writers::joined;
use crate::scale::Scale;
use crate::wire::Request;

const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const CONFIG_MAPS: &str = super::writers::CONFIG_MAPS;

fn access(spec: &str) -> Request {
    let body = format!(r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{spec}}}"#);
    Request::post(ACCESS, body)
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    reviews(cases, scale);
    refused(cases, scale);
    impersonation(cases, scale);
    discovery(cases, scale);
}

fn reviews(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    cases.request("review: a YAML alias bomb", move || {
        let text = format!(
            "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nx: &a {}\ny: [{}]\n",
            "s".repeat(100_000),
            "*a,".repeat(n * 10)
        );
        Request::new("POST", ACCESS).body("application/yaml", text)
    });
    cases.request("review: YAML merge keys doubled thirty times", || {
        let mut text = "apiVersion: v1\nm0: &m0 {a: b}\n".to_owned();
        for i in 1..30 {
            text += &format!("m{i}: &m{i} {{<<: [*m{0}, *m{0}], k{i}: v}}\n", i - 1);
        }
        Request::new("POST", ACCESS).body("application/yaml", text)
    });
    cases.request("review: of a path of 2 MB", move || {
        access(&format!(
            r#"{{"nonResourceAttributes":{{"path":"/{}","verb":"get"}}}}"#,
            "p".repeat(n * 200)
        ))
    });
    cases.request("review: of names of 600 KB each", move || {
        let long = "n".repeat(n * 60);
        access(&format!(
            r#"{{"resourceAttributes":{{"namespace":"{long}","name":"{long}","resource":"{long}","verb":"{long}"}}}}"#
        ))
    });
    cases.request("review: with 10,000 label requirements", move || {
        let terms = joined(n, |i| format!(r#"{{"key":"k{i}","operator":"In","values":["v"]}}"#));
        access(&format!(
            r#"{{"resourceAttributes":{{"resource":"pods","verb":"list","labelSelector":{{"requirements":[{terms}]}}}}}}"#
        ))
    });
    cases.request("review: with a raw selector of 2 MB", move || {
        let raw = joined(n * 10, |i| format!("k{i}!=v{i}"));
        access(&format!(
            r#"{{"resourceAttributes":{{"resource":"pods","verb":"list","labelSelector":{{"rawSelector":"{raw}"}}}}}}"#
        ))
    });
    cases.request("review: with 10,000 field requirements", move || {
        let terms = joined(n, |i| format!(r#"{{"key":"k{i}","operator":"In","values":["v"]}}"#));
        access(&format!(
            r#"{{"resourceAttributes":{{"resource":"pods","verb":"list","fieldSelector":{{"requirements":[{terms}]}}}}}}"#
        ))
    });
    cases.request("review: with 100,000 unknown fields", move || {
        access(&format!("{{{}}}", joined(n * 10, |i| format!(r#""u{i}":1"#))))
    });
    cases.request("review: with metadata of 10,000 owners", move || {
        let owners = joined(n, |i| format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"o{i}","uid":"{i}"}}"#));
        let body = format!(
            r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","metadata":{{"ownerReferences":[{owners}]}}}}"#
        );
        Request::post(WHOAMI, body)
    });
    cases.request("review: an answer of 2 MB that is asked for again", move || {
        let body = format!(
            r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{{"namespace":"{}"}}}}"#,
            "n".repeat(n * 200)
        );
        Request::post(RULES, body)
    });
    cases.at_once("review: nested a million deep, sixteen at once", 16, move || {
        access(&format!(r#"{{"x":{}"#, "[".repeat(n * 100)))
    });
    cases.at_once(
        "review: sixteen of 3 MB at once",
        if scale.full { 16 } else { 4 },
        || {
            access(&format!(
                r#"{{"nonResourceAttributes":{{"path":"/{}","verb":"get"}}}}"#,
                "p".repeat(2_900_000)
            ))
        },
    );
    cases.at_once(
        "review: sixteen of a million nodes at once",
        if scale.full { 16 } else { 4 },
        move || access(&format!(r#"{{"x":[{}]}}"#, joined(n * 90, |_| "{}".into()))),
    );
    cases.add("review: 2,000 different ones in turn", move |scene| {
        let all: Vec<_> = (0..n / 5)
            .map(|i| {
                access(&format!(
                    r#"{{"resourceAttributes":{{"namespace":"n{i}","name":"o{i}","resource":"r{i}","verb":"get"}}}}"#
                ))
            })
            .collect();
        scene.send_in_sequence(&all);
    });
    cases.add("review: 1,000 rules reviews in turn", move |scene| {
        let body =
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"evil"}}"#;
        scene.send_in_sequence(&vec![Request::post(RULES, body); n / 10]);
    });
    let held = scale.reduced(300, 6);
    cases.add("review: 300 bodies held half sent", move |scene| {
        // More requests than --max-mutating-requests-inflight allows.
        let head = Request::post(ACCESS, vec![b'{'; 100_000]).head(scene.token());
        let mut open = Vec::new();
        for _ in 0..held {
            let Some(mut io) = scene.connect() else { break };
            let _ = std::io::Write::write_all(&mut io, &head);
            let _ = std::io::Write::write_all(&mut io, b"{");
            open.push(io);
        }
        scene.hold();
    });
}

fn refused(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(100_000);
    cases.at_once("refused: creates of 3 MB, sixteen at once", 16, || {
        Request::post(CONFIG_MAPS, vec![b'{'; 3 << 20])
    });
    cases.at_once("refused: patches of 3 MB, sixteen at once", 16, || {
        Request::patch("json", format!("{CONFIG_MAPS}/x"), vec![b'['; 3 << 20])
    });
    cases.request("refused: a list by 100,000 terms", move || {
        Request::get(format!(
            "{CONFIG_MAPS}?labelSelector={}",
            joined(n, |i| format!("k{i}"))
        ))
    });
    cases.request("refused: fields by 20,000 terms", move || {
        Request::get(format!(
            "{CONFIG_MAPS}?fieldSelector={}",
            joined(n / 5, |i| format!("f{i}%3Dv"))
        ))
    });
    cases.request("refused: a name of 900 KB", move || {
        Request::get(format!("{CONFIG_MAPS}/{}", "n".repeat(n * 9)))
    });
    cases.request("refused: a namespace of 900 KB", move || {
        Request::get(format!("/api/v1/namespaces/{}/configmaps", "n".repeat(n * 9)))
    });
    cases.add(
        "refused: 1,000 groups, versions and resources that do not exist",
        move |scene| {
            let all: Vec<_> = (0..n / 100)
                .map(|i| Request::get(format!("/apis/g{i}.example/v{i}/namespaces/n{i}/r{i}/o{i}/s{i}")))
                .collect();
            scene.send_in_sequence(&all);
        },
    );
    cases.add("refused: 500 methods that do not exist", move |scene| {
        let all: Vec<_> = (0..n / 200)
            .map(|i| Request::new(&format!("M{i}"), CONFIG_MAPS))
            .collect();
        scene.send_in_sequence(&all);
    });
    cases.add("refused: 500 upgrades", |scene| {
        for _ in 0..50 {
            scene.send(&upgrade(
                "/api/v1/namespaces/evil/pods/p/exec?command=a&stdout=1",
                "SPDY/3.1",
            ));
        }
    });
    cases.add("refused: 600 requests in one packet", |scene| {
        let mut bytes = Vec::new();
        for _ in 0..600 {
            bytes.extend(Request::get(CONFIG_MAPS).head(scene.token()));
        }
        scene.send_raw(&bytes);
        scene.hold();
    });
}

fn impersonation(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(900, 1);
    let many = move |name: &'static str, value: fn(usize) -> String| {
        move || {
            let mut request = Request::get(CONFIG_MAPS).header("Impersonate-User", "a");
            for i in 0..n {
                request = request.header(name, value(i));
            }
            request
        }
    };
    cases.request(
        "impersonation: 900 groups",
        many("Impersonate-Group", |i| format!("g{i}")),
    );
    cases.request(
        "impersonation: 900 users",
        many("Impersonate-User", |i| format!("u{i}")),
    );
    cases.request(
        "impersonation: 900 extra values",
        many("Impersonate-Extra-k", |i| format!("v{i}")),
    );
    cases.add("impersonation: 900 extra keys", move |scene| {
        let mut request = Request::get(CONFIG_MAPS).header("Impersonate-User", "a");
        for i in 0..n {
            request = request.header(&format!("Impersonate-Extra-%6b{i}"), "v");
        }
        scene.send(&request);
    });
    cases.request("impersonation: a user of 500 KB", || {
        Request::get(CONFIG_MAPS).header("Impersonate-User", "u".repeat(500_000))
    });
    cases.request("impersonation: an extra key of 60 KB of escapes", || {
        Request::get(CONFIG_MAPS)
            .header("Impersonate-User", "a")
            .header(&format!("Impersonate-Extra-{}", "%41".repeat(20_000)), "v")
    });
    cases.request("impersonation: 900 extras without a user", move || {
        let mut request = Request::get(CONFIG_MAPS);
        for i in 0..n {
            request = request.header(&format!("Impersonate-Extra-{i}"), "v");
        }
        request
    });
}

fn discovery(cases: &mut Cases, scale: &Scale) {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let n = scale.reduced(16, 4);
    // OpenAPI documents are built on first request, which takes ten seconds each in an unoptimised build.
    if !scale.full {
        return;
    }
    cases.at_once("discovery: the OpenAPI document, sixteen at once", n, || {
        Request::get("/openapi/v2")
    });
    cases.at_once("discovery: the OpenAPI document as gzip, sixteen at once", n, || {
        Request::get("/openapi/v2").header("Accept-Encoding", "gzip")
    });
    cases.at_once(
        "discovery: the OpenAPI document as protobuf, sixteen at once",
        n,
        || Request::get("/openapi/v2").header("Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
    );
    cases.at_once("discovery: the aggregated document, sixteen at once", n, || {
        Request::get("/apis").header("Accept", AGGREGATED)
    });
    cases.add("discovery: OpenAPI with 500 hashes that are not there", move |scene| {
        let all: Vec<_> = (0..n * 30)
            .map(|i| Request::get(format!("/openapi/v3/apis/apps/v1?hash={i}")))
            .collect();
        scene.send_in_sequence(&all);
    });
    cases.add("discovery: every Accept there is", |scene| {
        for path in [
            "/api",
            "/apis",
            "/apis/apps/v1",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/api/v1",
            "/version",
        ] {
            for accept in [
                "*/*",
                "application/json",
                "application/yaml",
                "application/cbor",
                AGGREGATED,
                "text/html",
                "application/vnd.kubernetes.protobuf",
                "image/png",
            ] {
                scene.send(&Request::get(path).header("Accept", accept));
            }
        }
    });
}
