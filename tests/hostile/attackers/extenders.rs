//! Authors of APIServices, who choose endpoints, certificates and targets. Also registers backends for other
//! cases.

use super::Cases;
use super::writers::joined;
use crate::backend::{Backend, Behaviour};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICES: &str = "/api/v1/namespaces/evil/services";

/// A new group per case, so that cached state of one case does not influence another.
pub(super) fn new_group() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("b{}.evil.example", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An APIService of the group, with this port of this Service.
pub(super) fn api_service(group: &str, service: &str, port: u16, annotations: &str, spec: &str) -> Request {
    let body = format!(
        r#"{{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{{"name":"v1.{group}","annotations":{{{annotations}}}}},
        "spec":{{"group":"{group}","version":"v1","groupPriorityMinimum":10,"versionPriority":10,{spec}
        "service":{{"namespace":"evil","name":"{service}","port":{port}}}}}}}"#
    );
    Request::post(API_SERVICES, body)
}

fn external(name: &str, host: &str) -> Request {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}"}},"spec":{{"type":"ExternalName","externalName":"{host}"}}}}"#
    );
    Request::post(SERVICES, body)
}

const UNVERIFIED: &str = r#""insecureSkipTLSVerify":true,"#;

/// Registers a server behind the gateway as this group. The APIService is deleted after the case.
fn register_as(scene: &mut Scene<'_>, group: &str, port: u16, trust: &str) {
    scene.send(&external("backend", "localhost"));
    scene.send(&api_service(group, "backend", port, "", trust));
    scene.delete_afterwards(format!("{API_SERVICES}/v1.{group}"));
}

/// The same with a new group, which is returned.
pub(super) fn register(scene: &mut Scene<'_>, port: u16) -> String {
    let group = new_group();
    register_as(scene, &group, port, UNVERIFIED);
    group
}

/// The same with a CA bundle.
pub(super) fn register_trusting(scene: &mut Scene<'_>, port: u16, pem: &str) -> String {
    use base64::Engine;
    let bundle = base64::engine::general_purpose::STANDARD.encode(pem);
    let group = new_group();
    register_as(scene, &group, port, &format!(r#""caBundle":"{bundle}","#));
    group
}

/// Starts a server with this behaviour for a new group, and waits until the group is available.
pub(super) fn register_until_available(
    scene: &mut Scene<'_>,
    behaviour: impl Fn(&str) -> Behaviour,
) -> (Backend, String) {
    let group = new_group();
    let backend = Backend::start(behaviour(&group));
    register_as(scene, &group, backend.port, UNVERIFIED);
    until_available(scene, &group);
    (backend, group)
}

/// Waits until the server of a group has passed its check.
pub(super) fn until_available(scene: &mut Scene<'_>, group: &str) {
    let path = format!("{API_SERVICES}/v1.{group}");
    scene.until("the backend is available", |scene| {
        let text = scene.stage.admin(&Request::get(path.as_str())).text();
        text.contains(r#""reason":"Passed""#)
    });
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let one = |annotations: String, spec: String| move || api_service(&new_group(), "none", 443, &annotations, &spec);
    cases.request(
        "apiservice: a caBundle of 2 MB of certificates",
        one(String::new(), {
            use base64::Engine;
            let pem = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".repeat(n * 2);
            format!(
                r#""caBundle":"{}","#,
                base64::engine::general_purpose::STANDARD.encode(pem)
            )
        }),
    );
    cases.request(
        "apiservice: 10,000 places",
        one(
            format!(
                r#""torana.dev/backend-urls":"{}""#,
                joined(n * 7 / 10, |i| format!("https://h{i}.example:1"))
            ),
            String::new(),
        ),
    );
    cases.request(
        "apiservice: a place 10,000 times",
        one(
            format!(
                r#""torana.dev/backend-urls":"{}""#,
                joined(n * 7 / 10, |_| "https://h.example:1".into())
            ),
            String::new(),
        ),
    );
    cases.request(
        "apiservice: 200 KB of separators",
        one(
            format!(r#""torana.dev/backend-urls":"{}""#, ",;=".repeat(n * 6)),
            String::new(),
        ),
    );
    cases.add("apiservice: sockets that are not the gateway's to open", |scene| {
        for place in [
            "http+unix:///etc/passwd",
            "http+unix:///run/torana/../docker.sock",
            "h2c+unix:///var/run/docker.sock",
            "https+unix:///proc/self/fd/1",
            "http+unix://relative",
            "http://127.0.0.1:1",
            "file:///etc/shadow",
        ] {
            let annotation = format!(r#""torana.dev/backend-urls":"{place}""#);
            let group = new_group();
            let made = scene.send(&api_service(&group, "none", 443, &annotation, ""));
            if made.is_some_and(|a| a.code == 201) {
                scene.delete_afterwards(format!("{API_SERVICES}/v1.{group}"));
                let used = scene.send(&Request::get(format!("/apis/{group}/v1/things?timeout=2s")));
                scene.expect(used.is_some_and(|a| a.code == 503), || format!("{place} is not used"));
            }
        }
    });
    cases.add(
        "apiservice: asks whether there is a Secret that its author may not read",
        |scene| {
            let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"stored-one"},"data":{"a":"YQ=="}}"#;
            scene
                .stage
                .admin(&Request::post("/api/v1/namespaces/calm/secrets", secret));
            let reports: Vec<String> = ["stored-one", "absent-one"]
                .iter()
                .map(|name| {
                    let group = new_group();
                    let annotation = format!(r#""torana.dev/backend-client-certificate-from":"secret/calm/{name}""#);
                    let made = scene.send(&api_service(&group, "none", 443, &annotation, ""));
                    if made.is_none_or(|a| a.code != 201) {
                        return "refused".to_owned();
                    }
                    let path = format!("{API_SERVICES}/v1.{group}");
                    scene.delete_afterwards(path.as_str());
                    let mut report = String::new();
                    scene.until("a condition is there", |scene| {
                        let text = scene.stage.admin(&Request::get(path.as_str())).text();
                        let text = text.replace("\\\"", "'");
                        let message = |part: &str| {
                            text.split(part)
                                .nth(1)
                                .and_then(|t| t.split('"').next())
                                .map(str::to_owned)
                        };
                        report = format!("{:?} {:?}", message(r#""reason":""#), message(r#""message":""#));
                        text.contains(r#""reason":"Reference"#)
                    });
                    report.replace(name, "NAME")
                })
                .collect();
            scene.expect(reports[0] == reports[1], || {
                format!("{} and {} are the same", reports[0], reports[1])
            });
        },
    );
    cases.add("apiservice: itself", |scene| {
        let port = scene.stage.target.address.port();
        let group = register(scene, port);
        for _ in 0..5 {
            scene.send(&Request::get(format!(
                "/apis/{group}/v1/namespaces/evil/things?timeout=2s"
            )));
        }
        scene.hold();
    });
    cases.add("apiservice: itself through two names", |scene| {
        let port = scene.stage.target.address.port();
        let (a, b) = (register(scene, port), register(scene, port));
        let paths = [
            format!("/apis/{a}/v1/things?timeout=2s"),
            format!("/apis/{b}/v1/things?timeout=2s"),
        ];
        scene.send_all(&paths.map(Request::get));
        scene.hold();
    });
    cases.add("apiservice: addresses nobody should dial", |scene| {
        for host in ["127.0.0.1", "0.0.0.0", "localhost.", "[::1]"] {
            scene.send(&external("place", host));
            let group = new_group();
            scene.send(&api_service(&group, "place", 1, "", UNVERIFIED));
            scene.send(&Request::get(format!("/apis/{group}/v1/things?timeout=2s")));
            scene
                .stage
                .admin(&Request::delete(format!("{API_SERVICES}/v1.{group}")));
            scene.stage.admin(&Request::delete(format!("{SERVICES}/place")));
        }
    });
    let many = scale.reduced(2_000, 40);
    cases.add("apiservice: 2,000 of them, and discovery meanwhile", move |scene| {
        scene.send(&external("backend", "localhost"));
        let groups: Vec<String> = (0..many).map(|_| new_group()).collect();
        for some in groups.chunks(100) {
            let mut requests: Vec<_> = some
                .iter()
                .map(|g| api_service(g, "backend", 1, "", UNVERIFIED))
                .collect();
            requests.push(Request::get("/apis"));
            requests.push(Request::get("/openapi/v3"));
            scene.send_in_sequence(&requests);
        }
        scene.hold();
        for group in groups {
            scene.delete_afterwards(format!("{API_SERVICES}/v1.{group}"));
        }
    });
    cases.add("apiservice: created and deleted 300 times", move |scene| {
        scene.send(&external("backend", "localhost"));
        let group = new_group();
        let mut requests = Vec::new();
        for _ in 0..n * 3 / 100 {
            requests.push(api_service(&group, "backend", 1, "", UNVERIFIED));
            requests.push(Request::delete(format!("{API_SERVICES}/v1.{group}")));
        }
        scene.send_in_sequence(&requests);
    });
    cases.add(
        "apiservice: a group that is built in, and names that do not parse",
        |scene| {
            for group in [
                "apps",
                "",
                "rbac.authorization.k8s.io",
                "a..b",
                "-",
                &"g".repeat(100_000),
            ] {
                let request = api_service(group, "none", 443, "", UNVERIFIED);
                if let Some(answer) = scene.send(&request) {
                    scene.expect(answer.code != 201, || {
                        format!("{group:.20} is refused, not {}", answer.code)
                    });
                }
            }
        },
    );
}
