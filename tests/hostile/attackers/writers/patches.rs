//! Patches: small requests that cause much work on an object.

use super::{CONFIG_MAPS, PODS, config_map, joined};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/evil/deployments";

fn stored(scene: &mut Scene<'_>, rest: &str) -> String {
    scene.send(&Request::post(CONFIG_MAPS, config_map("patched", "", rest)));
    format!("{CONFIG_MAPS}/patched")
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    json_patches(cases, scale);
    merges(cases, scale);
    applies(cases, scale);
}

fn json_patches(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let mut with = |name: &str, rest: String, ops: Box<dyn Fn() -> String + Send>| {
        cases.add(format!("json patch: {name}"), move |scene| {
            let path = stored(scene, &rest);
            scene.send(&Request::patch("json", path, format!("[{}]", ops())));
        });
    };
    let small = || r#""data":{"k":"v"}"#.to_owned();
    with(
        "10,000 operations that add keys",
        small(),
        Box::new(move || joined(n, |i| format!(r#"{{"op":"add","path":"/data/k{i}","value":"v"}}"#))),
    );
    with(
        "9,000 operations that prepend to a list",
        small(),
        Box::new(move || {
            let first = r#"{"op":"add","path":"/metadata/finalizers","value":[]},"#;
            let more = joined(n - n / 10, |_| {
                r#"{"op":"add","path":"/metadata/finalizers/0","value":"e.example/f"}"#.into()
            });
            format!("{first}{more}")
        }),
    );
    with(
        "copies that double a list forty times",
        small(),
        Box::new(|| {
            let first = r#"{"op":"add","path":"/x","value":{"a":["0123456789"]}},"#;
            let more = joined(40, |_| r#"{"op":"copy","from":"/x","path":"/x/a/-"}"#.into());
            format!("{first}{more}")
        }),
    );
    with(
        "copies into themselves that double the depth",
        small(),
        Box::new(|| {
            let deep = format!("{}{{}}{}", r#"{"a":"#.repeat(800), "}".repeat(800));
            let first = format!(r#"{{"op":"add","path":"/x","value":{deep}}},"#);
            let more = joined(6, |i| {
                let path = "/a".repeat((800 << i) + i);
                format!(r#"{{"op":"copy","from":"/x","path":"/x{path}/a"}}"#)
            });
            format!("{first}{more}")
        }),
    );
    with(
        "100 copies of a list of 1,000 strings, in 7 KB",
        small(),
        Box::new(|| {
            let list = vec!["0"; 1_000].join(",");
            let first = format!(r#"{{"op":"add","path":"/y","value":[{list}]}},"#);
            let more = joined(100, |i| format!(r#"{{"op":"copy","from":"/y","path":"/x{i}"}}"#));
            format!("{first}{more}")
        }),
    );
    with(
        "9,000 copies of a string of 100 KB",
        format!(r#""data":{{"k":"{}"}}"#, "s".repeat(100_000)),
        Box::new(move || {
            joined(n - n / 10, |i| {
                format!(r#"{{"op":"copy","from":"/data/k","path":"/data/k{i}"}}"#)
            })
        }),
    );
    with(
        "9,000 tests of a map of 100 KB",
        format!(r#""data":{{{}}}"#, joined(n, |i| format!(r#""k{i}":"v""#))),
        Box::new(move || {
            let data = joined(200, |i| format!(r#""k{i}":"v""#));
            joined(200, |_| format!(r#"{{"op":"test","path":"/data","value":{{{data}}}}}"#))
        }),
    );
    with(
        "9,000 moves in a ring",
        small(),
        Box::new(move || {
            joined(n - n / 10, |i| {
                let (from, to) = if i % 2 == 0 { ("k", "l") } else { ("l", "k") };
                format!(r#"{{"op":"move","from":"/data/{from}","path":"/data/{to}"}}"#)
            })
        }),
    );
    with(
        "a move into itself",
        small(),
        Box::new(|| r#"{"op":"move","from":"/data","path":"/data/x"}"#.into()),
    );
    with(
        "a pointer of a million segments",
        small(),
        Box::new(move || format!(r#"{{"op":"add","path":"{}","value":1}}"#, "/a".repeat(n * 100))),
    );
    with(
        "a pointer of a million escapes",
        small(),
        Box::new(move || format!(r#"{{"op":"test","path":"/data/{}","value":1}}"#, "~1~0".repeat(n * 50))),
    );
    with(
        "100,000 operations, more than are allowed",
        small(),
        Box::new(move || joined(n * 5, |_| r#"{"op":"test","path":"/data/k","value":"v"}"#.into())),
    );
    with(
        "an index of twenty digits",
        small(),
        Box::new(|| r#"{"op":"add","path":"/metadata/finalizers/99999999999999999999","value":"a"}"#.into()),
    );
}

fn pod(containers: usize, env: usize) -> String {
    let env = joined(env, |i| format!(r#"{{"name":"E{i}","value":"v"}}"#));
    joined(containers, |i| {
        let env = if i == 0 { &env } else { "" };
        format!(r#"{{"name":"c{i}","image":"i","env":[{env}]}}"#)
    })
}

fn deployment(name: &str, containers: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{containers}]}}}}}}}}"#
    )
}

fn merges(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    cases.add("merge patch: 100,000 keys onto 50,000", move |scene| {
        let path = stored(
            scene,
            &format!(r#""data":{{{}}}"#, joined(n * 5, |i| format!(r#""k{i}":"v""#))),
        );
        let data = joined(n * 10, |i| format!(r#""n{i}":"w""#));
        scene.send(&Request::patch("merge", path, format!(r#"{{"data":{{{data}}}}}"#)));
    });
    cases.add("merge patch: 150,000 nulls", move |scene| {
        let path = stored(scene, r#""data":{"k":"v"}"#);
        let data = joined(n * 15, |i| format!(r#""n{i}":null"#));
        scene.send(&Request::patch("merge", path, format!(r#"{{"data":{{{data}}}}}"#)));
    });
    cases.add("merge patch: nested 200,000 deep", move |scene| {
        let path = stored(scene, r#""data":{"k":"v"}"#);
        let body = format!("{}1{}", r#"{"a":"#.repeat(n * 20), "}".repeat(n * 20));
        scene.send(&Request::patch("merge", path, body));
    });
    let mut strategic = |name: &str, patch: Box<dyn Fn(usize) -> String + Send>| {
        cases.add(format!("strategic merge: {name}"), move |scene| {
            let containers = pod(n / 5, n);
            scene.send(&Request::post(DEPLOYMENTS, deployment("patched", &containers)));
            let spec = patch(n);
            let body = format!(r#"{{"spec":{{"template":{{"spec":{spec}}}}}}}"#);
            scene.send(&Request::patch(
                "strategic-merge",
                format!("{DEPLOYMENTS}/patched"),
                body,
            ));
        });
    };
    strategic(
        "10,000 variables into 10,000",
        Box::new(|n| {
            let env = joined(n, |i| format!(r#"{{"name":"N{i}","value":"w"}}"#));
            format!(r#"{{"containers":[{{"name":"c0","env":[{env}]}}]}}"#)
        }),
    );
    strategic(
        "the same variable 10,000 times",
        Box::new(|n| {
            let env = joined(n, |_| r#"{"name":"E1","value":"w"}"#.into());
            format!(r#"{{"containers":[{{"name":"c0","env":[{env}]}}]}}"#)
        }),
    );
    strategic(
        "an order of 10,000 names",
        Box::new(|n| {
            let order = joined(n, |i| format!(r#"{{"name":"E{}"}}"#, n - i));
            let env = joined(n, |i| format!(r#"{{"name":"E{i}","value":"w"}}"#));
            format!(r#"{{"containers":[{{"name":"c0","$setElementOrder/env":[{order}],"env":[{env}]}}]}}"#)
        }),
    );
    strategic(
        "10,000 deletions",
        Box::new(|n| {
            let env = joined(n, |i| format!(r#"{{"name":"E{i}","$patch":"delete"}}"#));
            format!(r#"{{"containers":[{{"name":"c0","env":[{env}]}}]}}"#)
        }),
    );
    strategic(
        "10,000 directives that contradict each other",
        Box::new(|n| {
            let all = joined(n, |i| {
                let directive = ["delete", "replace", "merge"][i % 3];
                format!(r#"{{"name":"c{i}","$patch":"{directive}"}}"#)
            });
            format!(r#"{{"containers":[{all}]}}"#)
        }),
    );
    strategic(
        "deletions from a list of primitives",
        Box::new(|n| {
            let names = joined(n, |i| format!(r#""f{i}""#));
            format!(r#"{{"$deleteFromPrimitiveList/imagePullSecrets":[{names}],"$retainKeys":[{names}]}}"#)
        }),
    );
}

fn applies(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let apply = |path: String, manager: &str, body: String| {
        Request::patch("apply", format!("{path}?fieldManager={manager}"), body)
    };
    cases.add("apply: 1,000 managers of one object", move |scene| {
        let path = format!("{CONFIG_MAPS}/applied");
        let requests: Vec<_> = (0..n / 10)
            .map(|i| {
                apply(
                    path.clone(),
                    &format!("m{i}"),
                    config_map("applied", "", &format!(r#""data":{{"k{i}":"v"}}"#)),
                )
            })
            .collect();
        scene.send_in_sequence(&requests);
        scene.delete_afterwards(CONFIG_MAPS);
    });
    cases.add("apply: a conflict over 20,000 fields", move |scene| {
        let path = format!("{CONFIG_MAPS}/applied");
        for (manager, value) in [("a", "v"), ("b", "w")] {
            let data = joined(n * 2, |i| format!(r#""k{i}":"{value}""#));
            scene.send(&apply(
                path.clone(),
                manager,
                config_map("applied", "", &format!(r#""data":{{{data}}}"#)),
            ));
        }
        scene.delete_afterwards(CONFIG_MAPS);
    });
    cases.add(
        "apply: 10,000 variables, then the same in another order",
        move |scene| {
            let path = format!("{DEPLOYMENTS}/applied");
            for forwards in [true, false] {
                let env = joined(n, |i| {
                    format!(r#"{{"name":"E{}","value":"v"}}"#, if forwards { i } else { n - 1 - i })
                });
                let containers = format!(r#"{{"name":"c","image":"i","env":[{env}]}}"#);
                scene.send(&apply(path.clone(), "a", deployment("applied", &containers)));
            }
            scene.delete_afterwards(DEPLOYMENTS);
        },
    );
    cases.add("apply: one key of a list 10,000 times", move |scene| {
        let containers = joined(n, |_| r#"{"name":"c","image":"i"}"#.into());
        scene.send(&apply(
            format!("{DEPLOYMENTS}/applied"),
            "a",
            deployment("applied", &containers),
        ));
        scene.delete_afterwards(DEPLOYMENTS);
    });
    cases.add("apply: a set of 50,000 finalizers by two managers", move |scene| {
        for manager in ["a", "b"] {
            let all = joined(n * 5, |i| format!(r#""e.example/{manager}{i}""#));
            let body = config_map("applied", &format!(r#""finalizers":[{all}]"#), "");
            scene.send(&apply(format!("{CONFIG_MAPS}/applied"), manager, body));
        }
        let none = r#"{"metadata":{"finalizers":null}}"#;
        scene.send(&Request::patch("merge", format!("{CONFIG_MAPS}/applied"), none));
        scene.delete_afterwards(CONFIG_MAPS);
    });
    cases.add("apply: a YAML alias bomb", move |scene| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nx: &a {}\ny: [{}]\n",
            "s".repeat(100_000),
            "*a,".repeat(n)
        );
        scene.send(&apply(format!("{CONFIG_MAPS}/applied"), "a", text));
    });
    cases.add("apply: a manager's name of 500 KB", move |scene| {
        scene.send(&apply(
            format!("{CONFIG_MAPS}/applied"),
            &"m".repeat(n * 50),
            config_map("applied", "", ""),
        ));
    });
    cases.add("patch: a body of the wrong kind", move |scene| {
        for kind in ["json", "merge", "strategic-merge", "apply"] {
            for body in ["[]", "null", "1", "\"\"", "[[[]]]", "{\"a\":{\"$patch\":1}}"] {
                scene.send(&Request::patch(kind, format!("{PODS}/none?fieldManager=m"), body));
            }
        }
    });
}
