//! Conversion between versions: by rules, and by a webhook that misbehaves.

use super::{DEFINITIONS, OBJECTS, define, definition, list, object, version};
use crate::attackers::Cases;
use crate::backend::{Backend, Tls, json, refuse};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;
use std::io::{Read, Write};
use std::sync::Arc;

const OPEN: &str = r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#;
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let few = scale.reduced(20, 4);
    rules(cases, n);
    let mut webhook = |name: &str, behaviour: Arc<dyn Fn(&mut Tls) + Send + Sync>| {
        cases.add(format!("custom: a conversion webhook that {name}"), move |scene| {
            let server = Backend::start(refuse());
            server.becomes(Arc::new(move |_, io| behaviour(io)));
            convert(scene, &server, few);
        });
    };
    webhook(
        "never answers",
        Arc::new(|io| {
            let mut rest = [0; 1024];
            while io.read(&mut rest).is_ok_and(|n| n > 0) {}
        }),
    );
    webhook(
        "answers with 60 MB",
        Arc::new(move |io| {
            let _ = io.write_all(format!("{OK}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
            let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
            for _ in 0..n * 6_000 / 0x4000 {
                if io.write_all(&chunk).is_err() {
                    return;
                }
            }
        }),
    );
    let deep = json(&"[".repeat(n * 100));
    webhook(
        "answers brackets nested a million deep",
        Arc::new(move |io| drop(io.write_all(&deep))),
    );
    let objects = list(n * 10, |_| "{}".into());
    let many = json(&format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{{"uid":"u","result":{{"status":"Success"}},"convertedObjects":{objects}}}}}"#
    ));
    webhook(
        "answers with 100,000 objects",
        Arc::new(move |io| drop(io.write_all(&many))),
    );
    let message = "m".repeat(n * 100);
    let long = json(&format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{{"uid":"u","result":{{"status":"Failure","message":"{message}"}}}}}}"#
    ));
    webhook(
        "fails with a message of a megabyte",
        Arc::new(move |io| drop(io.write_all(&long))),
    );
}

/// Stores objects, lets `server` convert the definition's other version, and asks for that.
fn convert(scene: &mut Scene<'_>, server: &Backend, few: usize) {
    let versions = format!("{},{}", version("v1", true, OPEN, ""), version("v2", false, OPEN, ""));
    let ca = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(server.certificate())
    };
    let conversion = format!(
        r#","conversion":{{"strategy":"Webhook","webhook":{{"conversionReviewVersions":["v1"],"clientConfig":{{"url":"https://localhost:{}/convert","caBundle":"{ca}"}}}}}}"#,
        server.port
    );
    define(scene, definition(&versions, "", &conversion));
    let create: Vec<_> = (0..few)
        .map(|i| Request::post(OBJECTS, object(&format!("a{i}"), r#"{"a":1}"#)))
        .collect();
    scene.send_in_sequence(&create);
    let other = OBJECTS.replace("/v1/", "/v2/");
    let mut open = Vec::new();
    let watch = format!("{other}?watch=true&resourceVersion=0");
    for path in [other.clone(), format!("{other}/a1"), watch]
        .into_iter()
        .cycle()
        .take(few * 3)
    {
        let Some(mut io) = scene.connect() else { continue };
        let _ = crate::wire::send(&mut io, &Request::get(path), scene.token());
        open.push(io);
    }
    scene.hold();
    // The definition can still be changed: conversion is not needed for that.
    scene.send(&Request::patch(
        "merge",
        format!("{DEFINITIONS}/as.custom.example"),
        r#"{"spec":{"conversion":{"strategy":"None","webhook":null}}}"#,
    ));
    drop(open);
    scene.until("the other version is served", |scene| {
        scene.send(&Request::get(&other)).is_some_and(|a| a.code == 200)
    });
}

fn rules(cases: &mut Cases, n: usize) {
    cases.add("custom: 5,000 rules of conversion", move |scene| {
        let versions = format!("{},{}", version("v1", true, OPEN, ""), version("v2", false, OPEN, ""));
        let rules = list(n / 2, |i| {
            format!(r#"{{\"move\":{{\"from\":\".spec.a{i}\",\"to\":\".spec.b{i}\"}}}}"#)
        });
        let annotation = format!(r#","annotations":{{"torana.dev/conversion":"{{\"v1\":{{\"v2\":{rules}}}}}"}}"#);
        scene.send(&Request::post(DEFINITIONS, definition(&versions, &annotation, "")));
        scene.delete_afterwards(format!("{DEFINITIONS}/as.custom.example"));
    });
    cases.add(
        "custom: 20 stored objects of 100 KB, listed in another version",
        move |scene| {
            let versions = format!("{},{}", version("v1", true, OPEN, ""), version("v2", false, OPEN, ""));
            define(scene, definition(&versions, "", ""));
            let text = "t".repeat(n * 10);
            let create: Vec<_> = (0..20)
                .map(|i| Request::post(OBJECTS, object(&format!("a{i}"), &format!(r#"{{"t":"{text}"}}"#))))
                .collect();
            scene.send_in_sequence(&create);
            scene.send_all(&vec![Request::get(OBJECTS.replace("/v1/", "/v2/")); 4]);
        },
    );
}
