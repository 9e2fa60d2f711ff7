//! Roles whose combinations of groups, resources and verbs are expensive to enumerate, and bindings of many subjects.

use super::{CONFIG_MAPS, ROLES, joined};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/evil/rolebindings";

fn role(name: &str, rules: &str) -> String {
    format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{{"name":"{name}"}},"rules":[{rules}]}}"#
    )
}

fn strings(n: usize, prefix: &str) -> String {
    joined(n, |i| format!(r#""{prefix}{i}""#))
}

/// A rule with this many groups, resources and verbs.
fn rule(groups: usize, resources: usize, verbs: usize) -> String {
    format!(
        r#"{{"apiGroups":[{}],"resources":[{}],"verbs":[{}]}}"#,
        strings(groups, "g"),
        strings(resources, "r"),
        strings(verbs, "v")
    )
}

/// Stores a role as the administrator and binds it to the user `writer`.
fn grant(scene: &mut crate::scene::Scene<'_>, name: &str, rules: &str) {
    let stored = scene.stage.admin(&Request::post(ROLES, role(name, rules)));
    let binding = format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{{"name":"{name}"}},
        "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{name}"}},
        "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"writer"}}]}}"#
    );
    scene.stage.admin(&Request::post(BINDINGS, binding));
    scene.delete_afterwards(format!("{BINDINGS}/{name}"));
    scene.delete_afterwards(format!("{ROLES}/{name}"));
    scene.expect(stored.code == 201, || {
        format!("the role is stored: {:.200}", stored.text())
    });
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    cases.request("role: three rules of 100 groups × 100 resources × 100 verbs", || {
        let rules = joined(3, |_| rule(100, 100, 100));
        Request::post(ROLES, role("cross", &rules))
    });
    let n = scale.size(4_000);
    cases.request(
        "role: one rule of 4,000 groups × 4,000 resources × 4,000 verbs",
        move || Request::post(ROLES, role("cross", &rule(n, n, n))),
    );
    cases.request("role: 20,000 rules of one verb each", move || {
        let one = |i: usize| format!(r#"{{"apiGroups":["g{i}"],"resources":["r"],"verbs":["get"]}}"#);
        Request::post(ROLES, role("many", &joined(n * 5, one)))
    });
    cases.request("role: 20,000 rules that its author has, of one name each", move || {
        let one = |i: usize| {
            format!(
                r#"{{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list"],"resourceNames":["n{i}"]}}"#
            )
        };
        Request::post(ROLES, role("names", &joined(n * 5, one)))
    });
    cases.request("role: one rule of 100,000 names", move || {
        let rules = format!(
            r#"{{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"],"resourceNames":[{}]}}"#,
            strings(n * 25, "n")
        );
        Request::post(ROLES, role("names", &rules))
    });
    cases.request("role: 50,000 empty rules", move || {
        Request::post(ROLES, role("empty", &joined(n * 12, |_| "{}".into())))
    });
    cases.request("role: 5,000 non-resource paths", move || {
        let rules = format!(
            r#"{{"nonResourceURLs":[{}],"verbs":[{}]}}"#,
            strings(n, "/p"),
            strings(n, "v")
        );
        Request::post(ROLES, role("paths", &rules))
    });
    cases.at_once("role: eight cross products at once", 8, || {
        let rules = joined(3, |_| rule(100, 100, 100));
        Request::post(ROLES, role("cross", &rules))
    });
    cases.add(
        "role: its holder with 100,000 names asks for objects and for its rights",
        move |scene| {
            let rules = format!(
                r#"{{"apiGroups":[""],"resources":["secrets"],"verbs":["get"],"resourceNames":[{}]}}"#,
                strings(n * 25, "n")
            );
            grant(scene, "holder-names", &rules);
            scene.send(&Request::get(format!("{CONFIG_MAPS}/none")));
            scene.send(&Request::get("/api/v1/namespaces/evil/persistentvolumes/none"));
            review(scene);
        },
    );
    cases.add(
        "role: its holder with a cross product of a million asks for its rights",
        move |scene| {
            grant(scene, "holder-cross", &rule(100, 100, 100));
            review(scene);
            scene.send(&Request::post(ROLES, role("copy", &rule(100, 100, 100))));
        },
    );
    cases.add(
        "role: its holder with 20,000 rules asks for objects and for its rights",
        move |scene| {
            let one = |i: usize| format!(r#"{{"apiGroups":["g{i}"],"resources":["r"],"verbs":["get"]}}"#);
            grant(scene, "holder-rules", &joined(n * 5, one));
            let denied = vec![Request::get("/api/v1/namespaces/evil/nodes/none"); 20];
            scene.send_in_sequence(&denied);
            review(scene);
            scene.send(&Request::post(ROLES, role("copy", &joined(n * 5, one))));
        },
    );
    cases.add("binding: 30,000 subjects", move |scene| {
        let subject = |i: usize| format!(r#"{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u{i}"}}"#);
        let body = format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{{"name":"subjects"}},
            "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:aggregate-to-view"}},"subjects":[{}]}}"#,
            joined(n * 7, subject)
        );
        scene.send(&Request::post(BINDINGS, body));
        scene.delete_afterwards(format!("{BINDINGS}/subjects"));
    });
    // Service accounts, since the group that users and groups have by default would take half of an object's size.
    let subjects = scale.size(26_000);
    cases.add("binding: all of its 26,000 subjects replaced, again and again", move |scene| {
        let binding = |round: usize| {
            let subject = |i: usize| format!(r#"{{"kind":"ServiceAccount","name":"s{round}-{i}","namespace":"e"}}"#);
            format!(
                r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{{"name":"replaced"}},
                "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:aggregate-to-view"}},"subjects":[{}]}}"#,
                joined(subjects, subject)
            )
        };
        scene.send(&Request::post(BINDINGS, binding(0)));
        scene.delete_afterwards(format!("{BINDINGS}/replaced"));
        let path = format!("{BINDINGS}/replaced");
        let replacements: Vec<Request> = (1..9).map(|round| Request::put(path.as_str(), binding(round))).collect();
        let answers = scene.send_in_sequence(&replacements);
        let replaced = answers.iter().filter(|a| a.code == 200).count();
        scene.expect(replaced == replacements.len(), || {
            format!("{replaced} replacements are stored")
        });
    });
}

fn review(scene: &mut crate::scene::Scene<'_>) {
    let body =
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"evil"}}"#;
    scene.send(&Request::post(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        body,
    ));
}
