//! Authors of CustomResourceDefinitions, webhook configurations, policies and flow schemas.

mod configurations;

use super::Cases;
use super::writers::joined;
use crate::scale::Scale;
use crate::wire::Request;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition with this schema, and these additional members of version and spec.
fn definition(schema: &str, version: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"as.evil.example"}},
        "spec":{{"group":"evil.example","scope":"Namespaced","names":{{"plural":"as","singular":"a","kind":"A"}}{spec},
        "versions":[{{"name":"v1","served":true,"storage":true{version},"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
    )
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    schemas(cases, scale);
    definitions(cases, scale);
    configurations::all(cases, scale);
}

fn object(properties: String) -> String {
    format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
}

fn schemas(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let mut schema = |name: &str, make: Box<dyn Fn() -> String + Send>| {
        cases.add(format!("schema: {name}"), move |scene| {
            scene.send(&Request::post(DEFINITIONS, definition(&make(), "", "")));
            scene.delete_afterwards(format!("{DEFINITIONS}/as.evil.example"));
        });
    };
    schema(
        "nested 20,000 deep",
        Box::new(move || r#"{"type":"object","properties":{"a":"#.repeat(n * 2) + "{}" + &"}}".repeat(n * 2)),
    );
    schema(
        "of 40,000 properties",
        Box::new(move || object(joined(n * 4, |i| format!(r#""p{i}":{{"type":"string"}}"#)))),
    );
    schema(
        "of 40,000 required names",
        Box::new(move || {
            format!(
                r#"{{"type":"object","required":[{}]}}"#,
                joined(n * 10, |i| format!(r#""r{i}""#))
            )
        }),
    );
    schema(
        "of an enumeration of 200,000",
        Box::new(move || {
            object(format!(
                r#""a":{{"type":"string","enum":[{}]}}"#,
                joined(n * 20, |i| format!(r#""e{i}""#))
            ))
        }),
    );
    schema(
        "of an enumeration of one value 200,000 times",
        Box::new(move || {
            object(format!(
                r#""a":{{"type":"string","enum":[{}]}}"#,
                joined(n * 20, |_| r#""e""#.into())
            ))
        }),
    );
    schema(
        "of alternatives, ten levels of four",
        Box::new(|| {
            fn level(depth: usize) -> String {
                match depth {
                    0 => r#"{"minimum":1}"#.into(),
                    d => format!(r#"{{"allOf":[{0},{0}],"anyOf":[{0},{0}]}}"#, level(d - 1)),
                }
            }
            format!(r#"{{"type":"object","allOf":[{}]}}"#, level(7))
        }),
    );
    schema(
        "with the properties of allOf not told outside",
        Box::new(move || {
            let all = joined(n, |i| format!(r#"{{"properties":{{"p{i}":{{"minimum":1}}}}}}"#));
            format!(r#"{{"type":"object","allOf":[{all}]}}"#)
        }),
    );
    schema(
        "with a pattern of 500 KB",
        Box::new(move || {
            object(format!(
                r#""a":{{"type":"string","pattern":"{}"}}"#,
                "(a|b)".repeat(n * 10)
            ))
        }),
    );
    schema(
        "with a pattern of nested repeats",
        Box::new(|| object(r#""a":{"type":"string","pattern":"((((((a{100}){100}){100}){100}){100}){100})"}"#.into())),
    );
    schema(
        "with a pattern nested 20,000 deep",
        Box::new(move || {
            object(format!(
                r#""a":{{"type":"string","pattern":"{}{}"}}"#,
                "(".repeat(n * 2),
                ")".repeat(n * 2)
            ))
        }),
    );
    schema(
        "with 1,000 patterns of large classes",
        Box::new(move || {
            object(joined(n / 10, |i| {
                format!(r#""p{i}":{{"type":"string","pattern":"[\\p{{L}}\\p{{N}}]{{50}}"}}"#)
            }))
        }),
    );
    schema(
        "with a default of 2 MB",
        Box::new(move || {
            object(format!(
                r#""a":{{"type":"string","default":"{}"}}"#,
                "d".repeat(n * 200)
            ))
        }),
    );
    schema(
        "with a default of a million items",
        Box::new(move || {
            let items = joined(n * 50, |_| "{}".into());
            object(format!(
                r#""a":{{"type":"array","items":{{"type":"object"}},"default":[{items}]}}"#
            ))
        }),
    );
    schema(
        "with 10,000 rules",
        Box::new(move || {
            let rules = joined(n, |_| r#"{"rule":"self.all(x, self.all(y, x == y))"}"#.into());
            object(format!(
                r#""a":{{"type":"array","items":{{"type":"string"}},"x-kubernetes-validations":[{rules}]}}"#
            ))
        }),
    );
    schema(
        "with a rule of a megabyte",
        Box::new(move || {
            format!(
                r#"{{"type":"object","x-kubernetes-validations":[{{"rule":"{}true"}}]}}"#,
                "true && ".repeat(n * 10)
            )
        }),
    );
    schema(
        "with a rule nested 100,000 deep",
        Box::new(move || {
            let rule = "(".repeat(n * 10) + "true" + &")".repeat(n * 10);
            format!(r#"{{"type":"object","x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
        }),
    );
    schema(
        "of a list with 20,000 keys",
        Box::new(move || {
            let keys = joined(n * 2, |i| format!(r#""k{i}""#));
            object(format!(
                r#""a":{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[{keys}],"items":{{"type":"object"}}}}"#
            ))
        }),
    );
    schema(
        "that refers to itself",
        Box::new(|| r##"{"type":"object","$ref":"#"}"##.into()),
    );
}

fn definitions(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    cases.add("definition: 3,000 versions", move |scene| {
        let version = |i: usize| {
            format!(
                r#"{{"name":"v{i}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}"#,
                i == 1
            )
        };
        let versions = joined(n * 3 / 10, |i| version(i + 1));
        scene.send(&Request::post(
            DEFINITIONS,
            format!(
                r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"as.evil.example"}},"spec":{{"group":"evil.example","scope":"Namespaced","names":{{"plural":"as","kind":"A"}},"versions":[{versions}]}}}}"#
            ),
        ));
        scene.delete_afterwards(format!("{DEFINITIONS}/as.evil.example"));
    });
    let mut with = |name: &str, make: Box<dyn Fn() -> (String, String) + Send>| {
        cases.add(format!("definition: {name}"), move |scene| {
            let (version, spec) = make();
            scene.send(&Request::post(
                DEFINITIONS,
                definition(r#"{"type":"object"}"#, &version, &spec),
            ));
            scene.delete_afterwards(format!("{DEFINITIONS}/as.evil.example"));
        });
    };
    with(
        "20,000 printer columns",
        Box::new(move || {
            let columns = joined(n * 2, |i| {
                format!(r#"{{"name":"c{i}","type":"string","jsonPath":".spec.c{i}"}}"#)
            });
            (format!(r#","additionalPrinterColumns":[{columns}]"#), String::new())
        }),
    );
    with(
        "a printer column whose path is 500 KB",
        Box::new(move || {
            let path = ".a[*]".repeat(n * 10);
            (
                format!(r#","additionalPrinterColumns":[{{"name":"c","type":"string","jsonPath":"{path}"}}]"#),
                String::new(),
            )
        }),
    );
    with(
        "a printer column whose path nests 100,000 filters",
        Box::new(move || {
            let path = "[?(@".repeat(n * 10);
            (
                format!(r#","additionalPrinterColumns":[{{"name":"c","type":"string","jsonPath":".a{path}"}}]"#),
                String::new(),
            )
        }),
    );
    with(
        "20,000 selectable fields",
        Box::new(move || {
            let fields = joined(n * 2, |i| format!(r#"{{"jsonPath":".spec.f{i}"}}"#));
            (format!(r#","selectableFields":[{fields}]"#), String::new())
        }),
    );
    with(
        "100,000 conversion versions",
        Box::new(move || {
            let versions = joined(n * 10, |i| format!(r#""v{i}""#));
            (
                String::new(),
                format!(
                    r#","conversion":{{"strategy":"Webhook","webhook":{{"conversionReviewVersions":[{versions}],"clientConfig":{{"url":"https://127.0.0.1:1/"}}}}}}"#
                ),
            )
        }),
    );
    cases.request("definition: 100,000 short names and categories", move || {
        let names = joined(n * 5, |i| format!(r#""s{i}""#));
        let body = definition(r#"{"type":"object"}"#, "", "").replace(
            r#""kind":"A""#,
            &format!(r#""kind":"A","shortNames":[{names}],"categories":[{names}]"#),
        );
        Request::post(DEFINITIONS, body)
    });
    cases.add(
        "definition: 300 of them, and discovery after each tenth",
        move |scene| {
            let one = |i: usize| {
                let body = definition(r#"{"type":"object"}"#, "", "");
                let body = body
                    .replace("as.evil.example", &format!("as.e{i}.example"))
                    .replace("evil.example", &format!("e{i}.example"));
                Request::post(DEFINITIONS, body)
            };
            for tens in 0..n * 3 / 1_000 {
                let mut requests: Vec<_> = (0..10).map(|i| one(tens * 10 + i)).collect();
                requests.push(Request::get("/apis"));
                scene.send_in_sequence(&requests);
            }
            for i in 0..n * 3 / 100 {
                scene.delete_afterwards(format!("{DEFINITIONS}/as.e{i}.example"));
            }
        },
    );
}
