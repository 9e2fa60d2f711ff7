//! Objects that make the rules of their schema expensive.

use super::{OBJECTS, case, define, list, object, of_spec};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;

fn items(of: &str) -> String {
    format!(r#"{{"type":"object","properties":{{"l":{{"type":"array",{of}}}}}}}"#)
}

fn with_list(items: String) -> Request {
    Request::post(OBJECTS, object("a", &format!(r#"{{"l":{items}}}"#)))
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    lists(cases, n);
    branches(cases, n);
    defaults(cases, n);
    unknown(cases, n);
    patches(cases, n);
}

fn lists(cases: &mut Cases, n: usize) {
    const SET: &str = r#""x-kubernetes-list-type":"set","items":{"type":"string"}"#;
    const MAP: &str = r#""x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
        "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string"}}}"#;
    case(
        cases,
        "custom: a set of 200,000 strings",
        || items(SET),
        move || with_list(list(n * 20, |i| format!(r#""s{i}""#))),
    );
    case(
        cases,
        "custom: a set of one string 200,000 times",
        || items(SET),
        move || with_list(list(n * 20, |_| r#""s""#.into())),
    );
    case(
        cases,
        "custom: a set of 3,000 objects that differ in their last field",
        || {
            items(
                r#""x-kubernetes-list-type":"set","items":{"type":"object","x-kubernetes-map-type":"atomic","x-kubernetes-preserve-unknown-fields":true}"#,
            )
        },
        move || {
            let same = super::joined(60, |i| format!(r#""k{i}":"v""#));
            with_list(list(n * 3 / 10, |i| format!(r#"{{{same},"z":{i}}}"#)))
        },
    );
    case(
        cases,
        "custom: a list map of 50,000 keys",
        || items(MAP),
        move || with_list(list(n * 5, |i| format!(r#"{{"k":"k{i}"}}"#))),
    );
    case(
        cases,
        "custom: a list map of one key 50,000 times",
        || items(MAP),
        move || with_list(list(n * 5, |_| r#"{"k":"k"}"#.into())),
    );
    case(
        cases,
        "custom: 200,000 items of a wrong type",
        || items(r#""items":{"type":"integer"}"#),
        move || with_list(list(n * 20, |_| r#""s""#.into())),
    );
    case(
        cases,
        "custom: 100,000 items that match no pattern",
        || items(r#""items":{"type":"string","pattern":"^(a+)+$","format":"date-time"}"#),
        move || with_list(list(n * 10, |_| r#""aaaaaaaaaaaaaaaaaaab""#.into())),
    );
    case(
        cases,
        "custom: a string of 2 MB and a pattern of nested repeats",
        || r#"{"type":"object","properties":{"l":{"type":"string","pattern":"^((a|b|ab)*){1,30}c$"}}}"#.into(),
        move || with_list(format!(r#""{}""#, "ab".repeat(n * 100))),
    );
    case(
        cases,
        "custom: uniqueItems among 20,000 objects",
        || items(r#""items":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"maxItems":30000"#),
        move || with_list(list(n * 2, |i| format!(r#"{{"a":{{"b":{{"c":{i}}}}}}}"#))),
    );
    case(
        cases,
        "custom: an enumeration of 5,000 for each of 50,000 items",
        move || {
            let values = super::joined(n / 2, |i| format!(r#""e{i}""#));
            items(&format!(r#""items":{{"type":"string","enum":[{values}]}}"#))
        },
        move || with_list(list(n * 5, |_| r#""absent""#.into())),
    );
}

fn branches(cases: &mut Cases, n: usize) {
    let alternatives = |word: &'static str, m: usize| {
        move || {
            let all = super::joined(m, |i| {
                format!(r#"{{"properties":{{"k":{{"minimum":{i}}}}},"required":["r{i}"]}}"#)
            });
            items(&format!(
                r#""items":{{"type":"object","properties":{{"k":{{"type":"integer"}}}},"x-kubernetes-preserve-unknown-fields":true,"{word}":[{all}]}}"#
            ))
        }
    };
    for word in ["oneOf", "anyOf", "allOf"] {
        case(
            cases,
            &format!("custom: 100 branches of {word} for each of 20,000 items"),
            alternatives(word, 100),
            move || with_list(list(n * 2, |_| r#"{"k":-1}"#.into())),
        );
    }
    case(
        cases,
        "custom: alternatives in alternatives for each of 5,000 items",
        || {
            fn level(depth: usize) -> String {
                match depth {
                    0 => r#"{"minimum":1}"#.into(),
                    d => format!(r#"{{"anyOf":[{0},{0}],"not":{0}}}"#, level(d - 1)),
                }
            }
            items(&format!(r#""items":{{"type":"integer","allOf":[{}]}}"#, level(5)))
        },
        move || with_list(list(n / 2, |i| i.to_string())),
    );
    case(
        cases,
        "custom: a required list of 2,000 for each of 20,000 items",
        move || {
            let names = super::joined(n / 5, |i| format!(r#""r{i}""#));
            items(&format!(
                r#""items":{{"type":"object","x-kubernetes-preserve-unknown-fields":true,"required":[{names}]}}"#
            ))
        },
        move || with_list(list(n * 2, |_| "{}".into())),
    );
}

fn defaults(cases: &mut Cases, n: usize) {
    let large = move || format!(r#"{{"type":"string","default":"{}"}}"#, "d".repeat(n));
    case(
        cases,
        "custom: a default of 10 KB for each of 100,000 items",
        move || {
            items(&format!(
                r#""items":{{"type":"object","properties":{{"k":{}}}}}"#,
                large()
            ))
        },
        move || with_list(list(n * 10, |_| "{}".into())),
    );
    case(
        cases,
        "custom: a default of 100 fields for each of 100,000 items",
        move || {
            let fields = super::joined(100, |i| format!(r#""k{i}":{{"type":"string","default":"d"}}"#));
            items(&format!(r#""items":{{"type":"object","properties":{{{fields}}}}}"#))
        },
        move || with_list(list(n * 10, |_| "{}".into())),
    );
    case(
        cases,
        "custom: defaults nested 10 deep for each of 20,000 items",
        || {
            let deep = (0..10).fold(r#"{"type":"string","default":"d"}"#.to_owned(), |inner, _| {
                format!(r#"{{"type":"object","default":{{}},"properties":{{"a":{inner}}}}}"#)
            });
            items(&format!(r#""items":{deep}"#))
        },
        move || with_list(list(n * 2, |_| "{}".into())),
    );
    cases.add("custom: stored objects that a new default makes a hundred times as large, listed", move |scene| {
        let plain = items(r#""items":{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#);
        define(scene, of_spec(&plain));
        let one = |i: usize| Request::post(OBJECTS, object(&format!("a{i}"), &format!(r#"{{"l":{}}}"#, list(n / 5, |_| "{}".into()))));
        let create: Vec<_> = (0..20).map(one).collect();
        scene.send_in_sequence(&create);
        let grown = items(&format!(r#""items":{{"type":"object","properties":{{"k":{}}}}}"#, large()));
        let patch = format!(
            r#"[{{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":{grown}}}]"#
        );
        scene.send(&Request::patch("json", format!("{}/as.custom.example", super::DEFINITIONS), patch));
        scene.send_all(&vec![Request::get(OBJECTS); 4]);
        scene.send(&Request::get(format!("{OBJECTS}/a1")));
        scene.send(&Request::patch("merge", format!("{OBJECTS}/a1"), r#"{"metadata":{"labels":{"a":"b"}}}"#));
    });
}

fn unknown(cases: &mut Cases, n: usize) {
    for validation in ["Strict", "Warn"] {
        case(
            cases,
            &format!("custom: 100,000 unknown fields, {validation}"),
            || r#"{"type":"object"}"#.into(),
            move || {
                let fields = super::joined(n * 10, |i| format!(r#""u{i}":1"#));
                Request::post(
                    format!("{OBJECTS}?fieldValidation={validation}"),
                    object("a", &format!("{{{fields}}}")),
                )
            },
        );
        case(
            cases,
            &format!("custom: a field 100,000 times, {validation}"),
            || r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#.into(),
            move || {
                let fields = super::joined(n * 10, |_| r#""u":1"#.into());
                Request::post(
                    format!("{OBJECTS}?fieldValidation={validation}"),
                    object("a", &format!("{{{fields}}}")),
                )
            },
        );
    }
    case(
        cases,
        "custom: an object nested 9,000 deep",
        || r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#.into(),
        move || {
            let deep = r#"{"a":"#.repeat(n - n / 10) + "1" + &"}".repeat(n - n / 10);
            Request::post(OBJECTS, object("a", &deep))
        },
    );
    case(
        cases,
        "custom: 10,000 embedded objects with wrong names",
        || {
            items(
                r#""items":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}"#,
            )
        },
        move || {
            with_list(list(n, |i| {
                format!(
                    r#"{{"apiVersion":"a/b/c","kind":"K k","metadata":{{"name":"-{i}","labels":{{"-":"-"}},"x":1}}}}"#
                )
            }))
        },
    );
}

fn patches(cases: &mut Cases, n: usize) {
    const MAP: &str = r#"{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map",
        "x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],
        "properties":{"k":{"type":"string"},"v":{"type":"string"}}}}}}"#;
    let keys = move |from: usize| list(n * 2, |i| format!(r#"{{"k":"k{}","v":"v"}}"#, from + i));
    cases.add("custom: 20,000 keys applied by five managers", move |scene| {
        define(scene, of_spec(MAP));
        for manager in 0..5 {
            let body = object("a", &format!(r#"{{"l":{}}}"#, keys(manager * n)));
            let path = format!("{OBJECTS}/a?fieldManager=m{manager}&force=true");
            scene.send(&Request::patch("apply", path, body));
        }
    });
    cases.add("custom: 10,000 operations of a JSON patch", move |scene| {
        define(scene, of_spec(MAP));
        scene.send(&with_list(keys(0)));
        let ops = list(n, |i| {
            format!(r#"{{"op":"add","path":"/spec/l/0","value":{{"k":"p{i}"}}}}"#)
        });
        scene.send(&Request::patch("json", format!("{OBJECTS}/a"), ops));
    });
    cases.add("custom: an update of 20,000 items with ratcheted errors", move |scene| {
        let loose = r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}}}}"#;
        define(scene, of_spec(loose));
        let strings = |first: &str| format!(r#"["{first}",{}]"#, super::joined(n * 2, |i| format!(r#""s{i}""#)));
        scene.send(&with_list(strings("a")));
        let patch = r#"[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/l/items/maxLength","value":1}]"#;
        scene.send(&Request::patch("json", format!("{}/as.custom.example", super::DEFINITIONS), patch));
        let body = object("a", &format!(r#"{{"l":{}}}"#, strings("b")));
        scene.send(&Request::patch("merge", format!("{OBJECTS}/a"), body));
    });
}
