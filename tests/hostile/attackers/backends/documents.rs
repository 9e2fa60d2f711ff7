//! Discovery and OpenAPI documents that are large, deep, wrong or endless.

use super::{OK, gzip_of_spaces};
use crate::attackers::Cases;
use crate::attackers::extenders::register_until_available;
use crate::attackers::writers::joined;
use crate::backend::{json, with_discovery};
use crate::scale::Scale;
use crate::wire::Request;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A case in which requests for a document get this response. Waits until the gateway has fetched it.
fn document(
    cases: &mut Cases,
    name: &str,
    of: &'static [&'static str],
    body: impl Fn(&str) -> Vec<u8> + Send + 'static,
) {
    cases.add(format!("document: {name}"), move |scene| {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let (_backend, _) = register_until_available(scene, move |group| {
            let (body, counter) = (Arc::new(body(group)), counter.clone());
            with_discovery(group, move |path, io| {
                if of.iter().any(|p| path.starts_with(p)) {
                    counter.fetch_add(1, Ordering::Relaxed);
                    let _ = io.write_all(&body);
                }
            })
        });
        scene.until("the document is asked for", |_| asked.load(Ordering::Relaxed) > 0);
        // The gateway processes the document while the prober measures.
        for _ in 0..if scene.scale.full { 8 } else { 2 } {
            scene.hold();
        }
        let listed = scene.stage.admin(&Request::get("/apis").header(
            "Accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ));
        scene.expect(listed.length < 8 << 20, || {
            format!("discovery has {} bytes", listed.length)
        });
    });
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1_000_000);
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = |body: String| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {AGGREGATED}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    document(
        cases,
        "discovery of 62 MB of unknown members",
        &["/apis"],
        move |group| {
            let unknown = joined(n * 4, |i| format!(r#""u{i:07}":1"#));
            aggregated(format!(
                r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{{"metadata":{{"name":"{group}"}},"versions":[{{"version":"v1","resources":[{{"resource":"things",{unknown}}}]}}]}}]}}"#
            ))
        },
    );
    document(cases, "discovery of 100,000 resources", &["/apis"], move |group| {
        let resources = joined(n / 10, |i| {
            format!(r#"{{"resource":"r{i}","responseKind":{{"kind":"K{i}"}},"scope":"Namespaced","verbs":["get"]}}"#)
        });
        aggregated(format!(
            r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{{"metadata":{{"name":"{group}"}},"versions":[{{"version":"v1","resources":[{resources}]}}]}}]}}"#
        ))
    });
    document(cases, "discovery nested a million deep", &["/apis"], move |_| {
        aggregated(format!(r#"{{"items":{}"#, "[".repeat(n)))
    });
    document(cases, "OpenAPI v2 of 62 MB", &["/openapi/v2"], move |group| {
        let paths = joined(n / 2, |i| {
            format!(r#""/apis/{group}/v1/p{i}":{{"get":{{"responses":{{}}}}}}"#)
        });
        json(&format!(r#"{{"swagger":"2.0","paths":{{{paths}}}}}"#))
    });
    document(
        cases,
        "OpenAPI v2 of definitions that refer to each other",
        &["/openapi/v2"],
        move |group| {
            let all = joined(n / 20, |i| {
                format!(
                    r##""d{i}":{{"properties":{{"a":{{"$ref":"#/definitions/d{}"}}}}}}"##,
                    i + 1
                )
            });
            json(&format!(
                r##"{{"swagger":"2.0","paths":{{"/apis/{group}/v1/things":{{"get":{{"responses":{{"200":{{"schema":{{"$ref":"#/definitions/d0"}}}}}}}}}}}},"definitions":{{{all}}}}}"##
            ))
        },
    );
    document(
        cases,
        "OpenAPI v2 whose names are the gateway's own",
        &["/openapi/v2"],
        move |group| {
            let all = joined(n / 100, |i| {
                format!(r#""io.k8s.api.core.v1.Pod_{i}":{{"type":"string"}}"#)
            });
            json(&format!(
                r##"{{"swagger":"2.0","paths":{{"/apis/{group}/v1/things":{{"get":{{"responses":{{"200":{{"schema":{{"$ref":"#/definitions/io.k8s.api.core.v1.Pod"}}}}}}}}}}}},"definitions":{{"io.k8s.api.core.v1.Pod":{{"type":"integer"}},{all}}}}}"##
            ))
        },
    );
    document(cases, "OpenAPI v3 of 100,000 paths", &["/openapi/v3"], move |group| {
        let all = joined(n / 10, |i| {
            format!(r#""apis/{group}/v{i}":{{"serverRelativeURL":"/openapi/v3/apis/{group}/v{i}?hash=1"}}"#)
        });
        json(&format!(r#"{{"paths":{{{all}}}}}"#))
    });
    document(
        cases,
        "OpenAPI v3 that points elsewhere",
        &["/openapi/v3"],
        move |group| {
            json(&format!(
                r#"{{"paths":{{"apis/{group}/v1":{{"serverRelativeURL":"https://evil.example/x"}},"api/v1":{{"serverRelativeURL":"/../../metrics"}}}}}}"#
            ))
        },
    );
    let size = scale.reduced(256, 64) << 20;
    for (name, paths) in [("OpenAPI v2", &["/openapi/v2"][..]), ("discovery", &["/apis"])] {
        document(cases, &format!("{name}, a gzip bomb of 256 MB"), paths, move |_| {
            let bomb = gzip_of_spaces(size);
            let head = format!(
                "{OK}Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            );
            [head.as_bytes(), &bomb].concat()
        });
    }
    document(cases, "discovery that does not end", &["/apis"], move |_| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {AGGREGATED}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
        [head.into_bytes(), chunk.repeat(n * 64 / 0x4000)].concat()
    });
}
