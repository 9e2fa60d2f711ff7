//! Long metadata, and objects with large maps.

use super::{CONFIG_MAPS, config_map, joined};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;

fn with(metadata: String) -> Request {
    Request::post(CONFIG_MAPS, config_map("meta", &metadata, ""))
}

/// Stores an object with finalizers, then removes these so that it can be deleted.
fn finalized(scene: &mut Scene<'_>, metadata: String) {
    scene.send(&Request::post(CONFIG_MAPS, config_map("final", &metadata, "")));
    let none = Request::patch(
        "merge",
        format!("{CONFIG_MAPS}/final"),
        r#"{"metadata":{"finalizers":null}}"#,
    );
    scene.stage.admin(&none);
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(25_000, 2);
    let owner = |i: usize, uid: usize| {
        format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"o{i}","uid":"{uid:08}-0000-4000-8000-000000000000"}}"#)
    };
    cases.request("metadata: 25,000 owners", move || {
        with(format!(r#""ownerReferences":[{}]"#, joined(n, |i| owner(i, i))))
    });
    cases.request("metadata: one owner 25,000 times", move || {
        with(format!(r#""ownerReferences":[{}]"#, joined(n, |_| owner(1, 1))))
    });
    cases.request("metadata: 25,000 owners, each of which controls it", move || {
        let owner = |i: usize| owner(i, i).replace('}', r#","controller":true,"blockOwnerDeletion":true}"#);
        with(format!(r#""ownerReferences":[{}]"#, joined(n, owner)))
    });
    cases.request("metadata: 25,000 owners without anything", move || {
        with(format!(r#""ownerReferences":[{}]"#, joined(n * 2, |_| "{}".into())))
    });
    cases.add("metadata: 100,000 finalizers", move |scene| {
        finalized(
            scene,
            format!(r#""finalizers":[{}]"#, joined(n * 4, |i| format!(r#""e.example/{i}""#))),
        );
    });
    cases.add("metadata: 100,000 finalizers that do not parse", move |scene| {
        finalized(
            scene,
            format!(r#""finalizers":[{}]"#, joined(n * 4, |i| format!(r#""!{i}""#))),
        );
    });
    cases.add("metadata: one finalizer 150,000 times", move |scene| {
        finalized(
            scene,
            format!(r#""finalizers":[{}]"#, joined(n * 6, |_| r#""e.example/f""#.into())),
        );
    });
    cases.request("metadata: 100,000 labels", move || {
        with(format!(
            r#""labels":{{{}}}"#,
            joined(n * 4, |i| format!(r#""l{i}":"v""#))
        ))
    });
    cases.request("metadata: 100,000 labels that do not parse", move || {
        with(format!(
            r#""labels":{{{}}}"#,
            joined(n * 4, |i| format!(r#""!{i}":"!""#))
        ))
    });
    cases.request("metadata: a label key of 2 MB", move || {
        with(format!(r#""labels":{{"{}":"v"}}"#, "l".repeat(n * 80)))
    });
    cases.request("metadata: 20,000 annotations just below the limit", move || {
        with(format!(
            r#""annotations":{{{}}}"#,
            joined(n * 4 / 5, |i| format!(r#""a{i}":"v""#))
        ))
    });
    cases.request("metadata: annotations of 2 MB", move || {
        with(format!(r#""annotations":{{"a":"{}"}}"#, "a".repeat(n * 80)))
    });
    cases.request("metadata: 10,000 managers", move || {
        let entry = |i: usize| {
            format!(
                r#"{{"manager":"m{i}","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:k{i}":{{}}}}}}}}"#
            )
        };
        with(format!(r#""managedFields":[{}]"#, joined(n * 2 / 5, entry)))
    });
    cases.request("metadata: one manager 10,000 times", move || {
        let entry = r#"{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}"#;
        with(format!(r#""managedFields":[{}]"#, joined(n * 2 / 5, |_| entry.into())))
    });
    cases.request("metadata: a field set nested 100,000 deep", move || {
        let fields = format!("{}{}", r#"{"f:a":"#.repeat(n * 4) + "{}", "}".repeat(n * 4));
        with(format!(
            r#""managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}]"#
        ))
    });
    cases.request("metadata: a field set nested 900 deep", || {
        let fields = format!("{}{}", r#"{"f:a":"#.repeat(900) + "{}", "}".repeat(900));
        with(format!(
            r#""managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}]"#
        ))
    });
    cases.request("metadata: a field set of 100,000 keys of lists", move || {
        let fields = joined(n * 2, |i| format!(r#""k:{{\"name\":\"{i}\"}}":{{}}"#));
        with(format!(
            r#""managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:x":{{{fields}}}}}}}]"#
        ))
    });
    cases.request("metadata: a name of 2 MB", move || {
        Request::post(CONFIG_MAPS, config_map(&"n".repeat(n * 80), "", ""))
    });
    cases.request("metadata: a generateName of 2 MB", move || {
        let name = "g".repeat(n * 80);
        Request::post(
            CONFIG_MAPS,
            format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"generateName":"{name}"}}}}"#),
        )
    });
    cases.request("metadata: data of 50,000 keys", move || {
        let data = joined(n * 2, |i| format!(r#""k{i}":"v""#));
        Request::post(CONFIG_MAPS, config_map("meta", "", &format!(r#""data":{{{data}}}"#)))
    });
    cases.request("metadata: data and binaryData with the same 40,000 keys", move || {
        let data = joined(n * 8 / 5, |i| format!(r#""k{i}":"aaaa""#));
        let both = format!(r#""data":{{{data}}},"binaryData":{{{data}}}"#);
        Request::post(CONFIG_MAPS, config_map("meta", "", &both))
    });
    cases.request("metadata: an Event whose message is 2 MB", move || {
        let message = "e".repeat(n * 80);
        Request::post(
            "/api/v1/namespaces/evil/events",
            format!(
                r#"{{"apiVersion":"v1","kind":"Event","metadata":{{"name":"e"}},"involvedObject":{{"namespace":"evil"}},"message":"{message}"}}"#
            ),
        )
    });
}
