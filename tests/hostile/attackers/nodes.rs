//! A stolen kubelet credential, which can write its Node, its Lease and the status of its pods.

use super::Cases;
use super::writers::joined;
use crate::scale::Scale;
use crate::wire::Request;

const NODE: &str = "/api/v1/nodes/n1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let mut status = |name: &str, member: Box<dyn Fn() -> String + Send>| {
        cases.add(format!("node: {name}"), move |scene| {
            let body = format!(r#"{{"status":{{{}}}}}"#, member());
            for kind in ["strategic-merge", "merge"] {
                scene.send(&Request::patch(kind, format!("{NODE}/status"), body.as_str()));
            }
            let empty = r#"{"status":{"images":null,"conditions":null,"addresses":null,"capacity":null,"allocatable":null,"volumesAttached":null,"volumesInUse":null}}"#;
            scene.stage.admin(&Request::patch("merge", format!("{NODE}/status"), empty));
        });
    };
    status(
        "20,000 images",
        Box::new(move || {
            format!(
                r#""images":[{}]"#,
                joined(n * 2, |i| format!(r#"{{"names":["i{i}"],"sizeBytes":1}}"#))
            )
        }),
    );
    status(
        "20,000 conditions",
        Box::new(move || {
            format!(
                r#""conditions":[{}]"#,
                joined(n * 2, |i| format!(r#"{{"type":"t{i}","status":"True"}}"#))
            )
        }),
    );
    status(
        "20,000 addresses",
        Box::new(move || {
            format!(
                r#""addresses":[{}]"#,
                joined(n * 2, |i| format!(
                    r#"{{"type":"t{i}","address":"10.0.{}.{}"}}"#,
                    i / 256 % 256,
                    i % 256
                ))
            )
        }),
    );
    status(
        "20,000 addresses of one type",
        Box::new(move || {
            format!(
                r#""addresses":[{}]"#,
                joined(n * 2, |i| format!(
                    r#"{{"type":"InternalIP","address":"10.0.{}.{}"}}"#,
                    i / 256 % 256,
                    i % 256
                ))
            )
        }),
    );
    status(
        "40,000 resources",
        Box::new(move || {
            let all = joined(n * 2, |i| format!(r#""e.example/r{i}":"1""#));
            format!(r#""capacity":{{{all}}},"allocatable":{{{all}}}"#)
        }),
    );
    status(
        "20,000 volumes attached and in use",
        Box::new(move || {
            let attached = joined(n * 2, |i| format!(r#"{{"name":"v{i}","devicePath":"/d{i}"}}"#));
            let used = joined(n * 2, |i| format!(r#""v{i}""#));
            format!(r#""volumesAttached":[{attached}],"volumesInUse":[{used}]"#)
        }),
    );
    cases.request("node: 100,000 labels, taints and addresses of itself", move || {
        let labels = joined(n * 5, |i| format!(r#""l{i}":"v""#));
        let taints = joined(n * 2, |i| format!(r#"{{"key":"k{i}","effect":"NoSchedule"}}"#));
        let body = format!(r#"{{"metadata":{{"labels":{{{labels}}}}},"spec":{{"taints":[{taints}]}}}}"#);
        Request::patch("strategic-merge", NODE, body)
    });
    cases.add("lease: 10,000 owners, and a holder of 2 MB", move |scene| {
        let owners = joined(n, |i| format!(r#"{{"apiVersion":"v1","kind":"Node","name":"o{i}","uid":"{i}"}}"#));
        let holder = "h".repeat(n * 200);
        for body in [
            format!(r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"n1","ownerReferences":[{owners}]}}}}"#),
            format!(r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"n1"}},"spec":{{"holderIdentity":"{holder}"}}}}"#),
        ] {
            scene.send(&Request::post(LEASES, body));
        }
        scene.delete_afterwards(format!("{LEASES}/n1"));
    });
    let mut request = |name: &str, der: Box<dyn Fn() -> Vec<u8> + Send>| {
        cases.add(format!("certificate request: {name}"), move |scene| {
            use base64::Engine;
            let engine = base64::engine::general_purpose::STANDARD;
            let pem = format!(
                "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
                engine.encode(der())
            );
            let body = format!(
                r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"name":"csr"}},"spec":{{"request":"{}","signerName":"kubernetes.io/kube-apiserver-client-kubelet","usages":["client auth"]}}}}"#,
                engine.encode(pem)
            );
            if let Some(answer) = scene.send(&Request::post(REQUESTS, body)) {
                scene.expect(answer.code >= 400, || "it is refused".to_owned());
            }
            scene.delete_afterwards(format!("{REQUESTS}/csr"));
        });
    };
    request("1.5 MB of garbage", Box::new(move || vec![0xff; n * 150]));
    request(
        "sequences nested 100,000 deep",
        Box::new(move || [0x30, 0x80].repeat(n * 10)),
    );
    request(
        "a length of 2^63",
        Box::new(|| vec![0x30, 0x88, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    );
    request(
        "a sequence of 300,000 nulls",
        Box::new(move || {
            let length = u32::try_from(n * 60).expect("small").to_be_bytes();
            [&[0x30, 0x84][..], &length, &[5, 0].repeat(n * 30)].concat()
        }),
    );
    cases.request("certificate request: 40,000 usages", move || {
        let usages = joined(n * 4, |i| format!(r#""u{i}""#));
        Request::post(
            REQUESTS,
            format!(
                r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"name":"csr"}},"spec":{{"request":"YQ==","signerName":"a.b/c","usages":[{usages}]}}}}"#
            ),
        )
    });
    cases.add("node: reads it has no right to, 1,000 of them", move |scene| {
        let all: Vec<_> = (0..n / 10)
            .map(|i| Request::get(format!("/api/v1/namespaces/calm/secrets/s{i}")))
            .collect();
        let answers = scene.send_in_sequence(&all);
        let refused = answers.iter().all(|a| a.code == 403);
        scene.expect(refused, || "each is refused".to_owned());
    });
    cases.request("node: token of a service account with 20,000 audiences", move || {
        let audiences = joined(n * 2, |i| format!(r#""a{i}""#));
        Request::post(
            "/api/v1/namespaces/evil/serviceaccounts/default/token",
            format!(r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{{"audiences":[{audiences}]}}}}"#),
        )
    });
}
