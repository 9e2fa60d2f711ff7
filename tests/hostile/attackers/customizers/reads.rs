//! Tables, selectors, watches and documents whose cost the definition decides.

use super::{DEFINITIONS, OBJECTS, define, definition, list, object, version};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const OPEN: &str = r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#;

/// The definition `bs<i>` with a version of this schema. `names` are its names besides the plural.
fn numbered(i: usize, schema: &str, names: &str) -> String {
    definition(&version("v1", true, schema, ""), "", "")
        .replace("as.custom.example", &format!("bs{i}.custom.example"))
        .replace(
            r#""plural":"as","singular":"a","kind":"A""#,
            &format!(r#""plural":"bs{i}",{names}"#),
        )
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    columns(cases, n);
    watches(cases, n, scale);
    documents(cases, n);
}

fn columns(cases: &mut Cases, n: usize) {
    for (name, path) in [
        ("all descendants", ".spec..k"),
        ("descendants of descendants", ".spec..l..k"),
        ("all members three times", ".spec.l[*][*][*]"),
        ("filters in filters", ".spec.l[?(@.k=='v')].l[?(@.k=='v')].k"),
    ] {
        cases.add(format!("custom: a column of {name} over 20,000 items"), move |scene| {
            let column = format!(
                r#","additionalPrinterColumns":[{}]"#,
                super::joined(20, |i| {
                    format!(r#"{{"name":"c{i}","type":"string","jsonPath":"{path}"}}"#)
                })
            );
            define(scene, definition(&version("v1", true, OPEN, &column), "", ""));
            let items = list(n * 2, |i| format!(r#"{{"k":"v","l":[{{"k":"{i}"}}]}}"#));
            scene.send(&Request::post(OBJECTS, object("a", &format!(r#"{{"l":{items}}}"#))));
            let table = Request::get(OBJECTS).header("Accept", TABLE);
            scene.send_all(&[table.clone(), table]);
        });
    }
    cases.add("custom: 10,000 columns of objects with 10,000 members", move |scene| {
        let columns = super::joined(n, |i| {
            format!(r#"{{"name":"c{i}","type":"string","jsonPath":".spec.c{i}"}}"#)
        });
        let columns = format!(r#","additionalPrinterColumns":[{columns}]"#);
        define(scene, definition(&version("v1", true, OPEN, &columns), "", ""));
        let members = super::joined(n, |i| format!(r#""c{i}":"v""#));
        for name in ["a", "b", "c", "d"] {
            scene.send(&Request::post(OBJECTS, object(name, &format!("{{{members}}}"))));
        }
        let table = Request::get(OBJECTS).header("Accept", TABLE);
        scene.send_all(&[table.clone(), table]);
    });
}

fn watches(cases: &mut Cases, n: usize, scale: &Scale) {
    let many = scale.reduced(200, 10);
    cases.add(
        "custom: 200 watches while the definition changes 50 times",
        move |scene| {
            define(scene, definition(&version("v1", true, OPEN, ""), "", ""));
            let text = "t".repeat(n);
            for i in 0..10 {
                scene.send(&Request::post(
                    OBJECTS,
                    object(&format!("a{i}"), &format!(r#"{{"t":"{text}"}}"#)),
                ));
            }
            let mut open = Vec::new();
            for _ in 0..many {
                let Some(mut io) = scene.connect() else { continue };
                let watch = Request::get(format!("{OBJECTS}?watch=true"));
                let _ = crate::wire::send(&mut io, &watch, scene.token());
                open.push(io);
            }
            for i in 0..many / 4 {
                let patch = format!(
                    r#"[{{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"d{i}"}}]"#
                );
                scene.send(&Request::patch(
                    "json",
                    format!("{DEFINITIONS}/as.custom.example"),
                    patch,
                ));
            }
            scene.hold();
        },
    );
    cases.add("custom: selectable fields of 50 KB, selected", move |scene| {
        let fields = super::joined(4, |i| format!(r#"{{"jsonPath":".spec.f{i}"}}"#));
        let properties = super::joined(4, |i| format!(r#""f{i}":{{"type":"string"}}"#));
        let spec = format!(r#"{{"type":"object","properties":{{{properties}}}}}"#);
        let more = format!(r#","selectableFields":[{fields}]"#);
        define(scene, definition(&version("v1", true, &spec, &more), "", ""));
        let value = "v".repeat(n * 5);
        let values = super::joined(4, |i| format!(r#""f{i}":"{value}""#));
        let create: Vec<_> = (0..20)
            .map(|i| Request::post(OBJECTS, object(&format!("a{i}"), &format!("{{{values}}}"))))
            .collect();
        scene.send_in_sequence(&create);
        scene.send_all(&vec![
            Request::get(format!(
                "{OBJECTS}?fieldSelector=spec.f1!={}",
                "x".repeat(n / 2)
            ));
            3
        ]);
    });
}

fn documents(cases: &mut Cases, n: usize) {
    let properties = move || {
        super::joined(n / 2, |i| {
            format!(
                r#""p{i}":{{"type":"object","description":"A property of a definition that is as large as it may be.","properties":{{"k":{{"type":"string","pattern":"^[a-z]+$"}}}}}}"#
            )
        })
    };
    cases.add(
        "custom: ten definitions of half a megabyte, and the documents of all",
        move |scene| {
            let schema = format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties());
            for i in 0..10 {
                let body = numbered(i, &schema, &format!(r#""kind":"B{i}""#));
                scene.send(&Request::post(DEFINITIONS, body));
                scene.delete_afterwards(format!("{DEFINITIONS}/bs{i}.custom.example"));
            }
            for _ in 0..2 {
                scene.send_all(&[
                    Request::get("/openapi/v2"),
                    Request::get("/openapi/v3/apis/custom.example/v1"),
                    Request::get("/openapi/v3/apis/custom.example/v1"),
                    Request::get("/apis/custom.example/v1"),
                    Request::get(format!("{OBJECTS}/a").replace("/as/", "/bs0/")),
                ]);
            }
        },
    );
    cases.add(
        "custom: 500 definitions of one group, and its discovery",
        move |scene| {
            let count = n / 20;
            for i in 0..count {
                let body = numbered(i, OPEN, &format!(r#""kind":"B{i}""#));
                scene.send(&Request::post(DEFINITIONS, body));
                scene.delete_afterwards(format!("{DEFINITIONS}/bs{i}.custom.example"));
            }
            scene.send(&Request::get("/apis/custom.example/v1"));
        },
    );
    cases.add("custom: 200 definitions that want the same names", move |scene| {
        let count = n / 50;
        for i in 0..count {
            let body = numbered(i, OPEN, r#""kind":"B","shortNames":["b"]"#);
            scene.send(&Request::post(DEFINITIONS, body));
        }
        // Each deletion frees the names for the next one.
        let deletions: Vec<_> = (0..count)
            .map(|i| Request::delete(format!("{DEFINITIONS}/bs{i}.custom.example")))
            .collect();
        scene.send_in_sequence(&deletions);
    });
}
