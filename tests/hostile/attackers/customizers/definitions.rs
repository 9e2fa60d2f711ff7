//! Definitions that change all the time, or are as large as they may be.

use super::{DEFINITIONS, OBJECTS, define, definition, object, version};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let large = move |mark: usize| {
        let properties = super::joined(n, |i| {
            format!(
                r#""p{i}":{{"type":"string","description":"property {i} of change {mark}","pattern":"^[a-z]{{1,20}}$"}}"#
            )
        });
        format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
    };
    cases.add("custom: a definition of a megabyte, changed 20 times and used after each", move |scene| {
        define(scene, definition(&version("v1", true, &large(0), ""), "", ""));
        let path = format!("{DEFINITIONS}/as.custom.example");
        for i in 0..20 {
            let patch = format!(
                r#"[{{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/p0/description","value":"d{i}"}}]"#
            );
            scene.send(&Request::patch("json", path.clone(), patch));
            scene.send(&Request::post(OBJECTS, object(&format!("a{i}"), r#"{"p1":"a"}"#)));
        }
    });
    cases.add(
        "custom: a definition of a megabyte, applied by ten managers",
        move |scene| {
            for manager in 0..10 {
                let path = format!("{DEFINITIONS}/as.custom.example?fieldManager=m{manager}&force=true");
                let body = definition(&version("v1", true, &large(0), ""), "", "");
                scene.send(&Request::patch("apply", path, body));
            }
            scene.delete_afterwards(format!("{DEFINITIONS}/as.custom.example"));
        },
    );
    cases.add(
        "custom: a definition created and deleted 100 times, with an object",
        move |scene| {
            for _ in 0..(n / 100).min(100) {
                let name = format!("{DEFINITIONS}/as.custom.example");
                scene.until("the last definition is gone", |scene| {
                    scene.send(&Request::get(&name)).is_some_and(|a| a.code == 404)
                });
                define(
                    scene,
                    definition(&version("v1", true, r#"{"type":"object"}"#, ""), "", ""),
                );
                scene.send(&Request::post(OBJECTS, object("a", "{}")));
                scene.send(&Request::delete(name));
            }
            scene.leftovers.clear();
        },
    );
    cases.add("custom: 100 versions of a large schema, each used", move |scene| {
        let versions = super::joined(100, |i| {
            let properties = super::joined(n / 100, |p| {
                format!(r#""p{p}":{{"type":"string","pattern":"^[a-z]{{1,20}}v{i}$"}}"#)
            });
            let schema = format!(r#"{{"type":"object","properties":{{{properties}}}}}"#);
            version(&format!("v{}", i + 1), i == 0, &schema, "")
        });
        define(scene, definition(&versions, "", ""));
        let gets: Vec<_> = (1..=100)
            .map(|i| Request::get(OBJECTS.replace("/v1/", &format!("/v{i}/"))))
            .collect();
        scene.send_in_sequence(&gets);
    });
}
