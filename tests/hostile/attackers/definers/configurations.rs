//! Webhook configurations, policies and flow schemas.

use crate::attackers::Cases;
use crate::attackers::writers::joined;
use crate::scale::Scale;
use crate::wire::Request;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let strings = |n: usize, prefix: &str| joined(n, |i| format!(r#""{prefix}{i}""#));
    for (path, kind) in [
        (WEBHOOKS, "ValidatingWebhookConfiguration"),
        (MUTATING, "MutatingWebhookConfiguration"),
    ] {
        let webhook = |i: usize, rules: &str| {
            format!(
                r#"{{"name":"w{i}.evil.example","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{{"url":"https://127.0.0.1:1/"}},"rules":[{rules}]}}"#
            )
        };
        let config = move |webhooks: String| {
            Request::post(
                path,
                format!(
                    r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}","metadata":{{"name":"w"}},"webhooks":[{webhooks}]}}"#
                ),
            )
        };
        // The rules match nothing, so that other clients' requests are not affected by design.
        let rule = |i: usize| {
            format!(r#"{{"apiGroups":["g{i}"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["r{i}"]}}"#)
        };
        cases.add(format!("{kind}: 5,000 webhooks"), move |scene| {
            scene.send(&config(joined(n / 2, |i| webhook(i, &rule(i)))));
            scene.delete_afterwards(format!("{path}/w"));
        });
        cases.add(format!("{kind}: 20,000 rules"), move |scene| {
            scene.send(&config(webhook(0, &joined(n * 2, rule))));
            scene.delete_afterwards(format!("{path}/w"));
        });
        cases.add(format!("{kind}: 20,000 conditions"), move |scene| {
            let conditions = joined(n * 2, |i| format!(r#"{{"name":"c{i}","expression":"true"}}"#));
            let webhook = webhook(0, &rule(0)).replacen('{', &format!(r#"{{"matchConditions":[{conditions}],"#), 1);
            scene.send(&config(webhook));
            scene.delete_afterwards(format!("{path}/w"));
        });
        cases.add(format!("{kind}: a rule of 50,000 resources"), move |scene| {
            let resources = strings(n * 5, "r");
            let rule = format!(
                r#"{{"apiGroups":["g"],"apiVersions":["v1"],"operations":["CREATE"],"resources":[{resources}]}}"#
            );
            scene.send(&config(webhook(0, &rule)));
            scene.delete_afterwards(format!("{path}/w"));
        });
    }
    cases.add("policy: 10,000 validations, variables and parameters", move |scene| {
        let many = |what: &str| joined(n, |i| format!(r#"{{"{what}":"n{i}","expression":"true"}}"#));
        let validations = joined(n, |_| r#"{"expression":"object.metadata.name.matches('(a+)+$')"}"#.into());
        let body = format!(
            r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{{"name":"p"}},"spec":{{"matchConstraints":{{"resourceRules":[{{"apiGroups":["g"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["r"]}}]}},"validations":[{validations}],"variables":[{}],"matchConditions":[{}]}}}}"#,
            many("name"),
            many("name")
        );
        scene.send(&Request::post(POLICIES, body));
        scene.delete_afterwards(format!("{POLICIES}/p"));
    });
    cases.add("policy: a binding that selects by 20,000 expressions", move |scene| {
        let terms = joined(n * 2, |i| format!(r#"{{"key":"k{i}","operator":"Exists"}}"#));
        let body = format!(
            r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{{"name":"b"}},"spec":{{"policyName":"p","validationActions":["Deny"],"matchResources":{{"objectSelector":{{"matchExpressions":[{terms}]}}}}}}}}"#
        );
        scene.send(&Request::post(BINDINGS, body));
        scene.delete_afterwards(format!("{BINDINGS}/b"));
    });
    cases.add("flow schema: 10,000 rules", move |scene| {
        let rule = |i: usize| {
            format!(
                r#"{{"subjects":[{{"kind":"User","user":{{"name":"u{i}"}}}}],"resourceRules":[{{"verbs":["get"],"apiGroups":["g{i}"],"resources":["r"],"clusterScope":true}}]}}"#
            )
        };
        let body = format!(
            r#"{{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{{"name":"f"}},"spec":{{"matchingPrecedence":1,"priorityLevelConfiguration":{{"name":"global-default"}},"rules":[{}]}}}}"#,
            joined(n, rule)
        );
        scene.send(&Request::post(FLOWS, body));
        scene.delete_afterwards(format!("{FLOWS}/f"));
    });
    cases.add("flow schema: one rule of 50,000 subjects and verbs", move |scene| {
        let subjects = joined(n * 3, |i| format!(r#"{{"kind":"User","user":{{"name":"u{i}"}}}}"#));
        let body = format!(
            r#"{{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{{"name":"f"}},"spec":{{"matchingPrecedence":1,"priorityLevelConfiguration":{{"name":"global-default"}},"rules":[{{"subjects":[{subjects}],"nonResourceRules":[{{"verbs":[{}],"nonResourceURLs":["/x"]}}]}}]}}}}"#,
            strings(n * 2, "v")
        );
        scene.send(&Request::post(FLOWS, body));
        scene.delete_afterwards(format!("{FLOWS}/f"));
    });
    let subjects = scale.size(26_000);
    cases.add("flow schema: 20 of 26,000 groups, one changed again and again", move |scene| {
        for number in 0..20 {
            let groups = joined(subjects, |i| format!(r#"{{"kind":"Group","group":{{"name":"g{number}-{i}"}}}}"#));
            let body = format!(
                r#"{{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{{"name":"f{number}"}},"spec":{{"matchingPrecedence":500,"priorityLevelConfiguration":{{"name":"global-default"}},"rules":[{{"subjects":[{groups}],"nonResourceRules":[{{"verbs":["get"],"nonResourceURLs":["/x"]}}]}}]}}}}"#
            );
            scene.send(&Request::post(FLOWS, body));
            scene.delete_afterwards(format!("{FLOWS}/f{number}"));
        }
        let patch = |round: usize| format!(r#"{{"metadata":{{"labels":{{"round":"r{round}"}}}}}}"#);
        let path = format!("{FLOWS}/f0");
        let changes: Vec<Request> = (0..20).map(|round| Request::patch("merge", path.as_str(), patch(round))).collect();
        let changed = scene.send_in_sequence(&changes).iter().filter(|a| a.code == 200).count();
        scene.expect(changed == changes.len(), || format!("{changed} changes are stored"));
    });
    let schemas = scale.size(2_000);
    cases.add("flow schema: 2,000 small ones of one level", move |scene| {
        let made: Vec<Request> = (0..schemas)
            .map(|i| {
                Request::post(
                    FLOWS,
                    format!(
                        r#"{{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{{"name":"many-{i}"}},"spec":{{"matchingPrecedence":500,"priorityLevelConfiguration":{{"name":"global-default"}},"rules":[{{"subjects":[{{"kind":"Group","group":{{"name":"system:authenticated"}}}}],"nonResourceRules":[{{"verbs":["get"],"nonResourceURLs":["/x"]}}]}}]}}}}"#
                    ),
                )
            })
            .collect();
        let created = scene.send_in_sequence(&made).iter().filter(|a| a.code == 201).count();
        scene.expect(created == schemas, || format!("{created} are stored"));
        scene.hold();
        (0..schemas).for_each(|i| scene.delete_afterwards(format!("{FLOWS}/many-{i}")));
    });
}
