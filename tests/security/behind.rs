//! A second gateway as the backend of the first: a user has the same permissions through the first gateway as
//! directly at the second, and the second learns only of users that the first authenticated.

use crate::support::{Gateway, wait_for};
use crate::wire::{Ca, Caller, GatewayResponse, Who};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use torana::apimachinery::codec::json;

pub(crate) const TOKENS: &str = "t-dev,dev,u1,\"team,extra\"\nt-reader,reader,u2\nt-nobody,nobody,u3\n\
    t-boss,boss,u4\nt-front,only-front,u5\nt-back,only-back,u6\n";

const COMMON: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: jobs}
rules:
- {apiGroups: [batch], resources: [jobs, cronjobs], verbs: [get, list, create, delete]}
- {apiGroups: [batch], resources: [jobs/status], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: jobs-reader}
rules:
- {apiGroups: [batch], resources: [jobs], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jobs, namespace: team}
roleRef: {kind: ClusterRole, name: jobs, apiGroup: rbac.authorization.k8s.io}
subjects:
- {kind: Group, name: team, apiGroup: rbac.authorization.k8s.io}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: jobs-reader}
roleRef: {kind: ClusterRole, name: jobs-reader, apiGroup: rbac.authorization.k8s.io}
subjects:
- {kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}
- {kind: User, name: certified, apiGroup: rbac.authorization.k8s.io}
";

/// A binding that lets one more user read jobs: a different user in each gateway.
fn reader(name: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: one-more}}\n\
         roleRef: {{kind: ClusterRole, name: jobs-reader, apiGroup: rbac.authorization.k8s.io}}\n\
         subjects: [{{kind: User, name: {name}, apiGroup: rbac.authorization.k8s.io}}]\n"
    )
}

/// In the front gateway only: impersonation is authorized there, so the impersonator needs no permissions
/// behind it.
const BOSS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: boss}
rules:
- {apiGroups: [''], resources: [users], verbs: [impersonate], resourceNames: [reader, dev, jane]}
- {apiGroups: [''], resources: [groups], verbs: [impersonate], resourceNames: [team]}
- {apiGroups: [authentication.k8s.io], resources: [uids, userextras/scopes], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: boss}
roleRef: {kind: ClusterRole, name: boss, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: User, name: boss, apiGroup: rbac.authorization.k8s.io}]
";

struct Two {
    front: Gateway,
    back: Gateway,
    users: Ca,
    _dirs: [tempfile::TempDir; 2],
}

pub(crate) fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("it can be written");
    path.display().to_string()
}

fn start(dir: &Path, users: &Ca, more: &[String]) -> Gateway {
    let own = Ca::of(&dir.join("data/pki"), "client-ca");
    let mut flags = vec![
        format!("--token-auth-file={}", write(dir, "tokens.csv", TOKENS)),
        format!(
            "--client-ca-file={}",
            write(dir, "clients.crt", &(own.pem + &users.pem))
        ),
    ];
    flags.extend_from_slice(more);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Gateway::start_with(dir, &flags)
}

impl Two {
    /// `batch` and `authentication.k8s.io` are served by the back gateway only.
    fn start() -> Self {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        for dir in &dirs {
            // The first start generates the certificates that the other gateway is configured with.
            drop(Gateway::start(dir.path()));
        }
        let users = Ca::new("users of both");
        let serving = Ca::new("the backend's serving CA");
        let identity = serving.server(&["backend.default.svc"]);
        let proxies = dirs[0].path().join("data/pki/front-proxy-ca.crt");
        let back = start(
            dirs[1].path(),
            &users,
            &[
                format!("--requestheader-client-ca-file={}", proxies.display()),
                "--requestheader-allowed-names=front-proxy-client".to_owned(),
                format!(
                    "--tls-sni-cert-key={},{}",
                    write(dirs[1].path(), "svc.crt", &identity.cert),
                    write(dirs[1].path(), "svc.key", &identity.key)
                ),
            ],
        );
        let front = start(
            dirs[0].path(),
            &users,
            &["--runtime-config=batch/v1=false,authentication.k8s.io/v1=false".to_owned()],
        );
        for g in [&front, &back] {
            g.kubectl_in(&["apply", "-f", "-"], Some(COMMON));
        }
        front.kubectl_in(&["apply", "-f", "-"], Some(BOSS));
        front.kubectl_in(&["apply", "-f", "-"], Some(&reader("only-front")));
        back.kubectl_in(&["apply", "-f", "-"], Some(&reader("only-back")));
        let two = Self {
            front,
            back,
            users,
            _dirs: dirs,
        };
        two.register(&serving.pem);
        two
    }

    fn register(&self, bundle: &str) {
        let port: u16 = self
            .back
            .url()
            .rsplit(':')
            .next()
            .and_then(|p| p.parse().ok())
            .expect("a port");
        let mut objects = "apiVersion: v1\nkind: Service\nmetadata: {name: backend}\n\
             spec: {type: ExternalName, externalName: localhost}\n"
            .to_owned();
        let bundle = STANDARD.encode(bundle);
        for group in ["batch", "authentication.k8s.io"] {
            objects += &format!(
                "---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{group}}}\n\
                 spec: {{group: {group}, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, \
                 caBundle: {bundle}, service: {{name: backend, namespace: default, port: {port}}}}}\n"
            );
        }
        self.front.kubectl_in(&["apply", "-f", "-"], Some(&objects));
        for group in ["batch", "authentication.k8s.io"] {
            let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{group}");
            let front = &self.front;
            wait_for("the backend is available", || {
                let object = json::decode(front.curl(&[&path]).expect("it is stored").as_bytes()).expect("JSON");
                let conditions = object.at(&["status", "conditions"]).items();
                conditions.iter().any(|c| c.str_at(&["status"]) == "True")
            });
        }
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn outcome(answer: &GatewayResponse) -> (u16, String) {
    (answer.code, answer.json().str_at(&["message"]).to_owned())
}

fn job(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"{name}"}},"spec":{{"template":{{"spec":
           {{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
    )
}

#[test]
fn users_have_the_same_rights_through_the_front_and_cannot_be_forged() {
    let two = Two::start();
    let certified = two.users.client("certified", &["by-certificate"]);
    let front = &mut Caller::of(&two.front, Some(&certified));
    let back = &mut Caller::of(&two.back, Some(&certified));
    let direct = back.whoami(&[]).expect("it is known");
    assert_eq!(direct.name, "certified");
    let through = front.whoami(&[]).expect("it is known");
    assert_eq!(through, direct, "the groups and the credential id are forwarded");
    for (path, code) in [("/apis/batch/v1/jobs", 200), ("/apis/batch/v1/cronjobs", 403)] {
        let (a, b) = (outcome(&front.get(path, &[])), outcome(&back.get(path, &[])));
        assert_eq!((a.0, &a), (code, &b), "{path}");
    }

    let front = &mut Caller::of(&two.front, None);
    the_same_either_way(front, &mut Caller::of(&two.back, None));
    impersonation_ends_in_front(front);
    identity_headers_from_clients_are_ignored(front, &two);
}

/// Every user, verb and path of a small matrix, directly and through the front gateway.
fn the_same_either_way(front: &mut Caller, back: &mut Caller) {
    let mut allowed = 0;
    for token in ["t-dev", "t-reader", "t-nobody"] {
        let authorization = bearer(token);
        let headers = [("Authorization", authorization.as_str())];
        for (method, path, body) in [
            ("GET", "/apis/batch/v1/jobs", String::new()),
            ("GET", "/apis/batch/v1/namespaces/team/jobs", String::new()),
            ("GET", "/apis/batch/v1/namespaces/team/jobs/absent", String::new()),
            (
                "GET",
                "/apis/batch/v1/namespaces/team/jobs/absent/status",
                String::new(),
            ),
            ("GET", "/apis/batch/v1/namespaces/other/jobs", String::new()),
            ("GET", "/apis/batch/v1/namespaces/team/cronjobs", String::new()),
            ("GET", "/apis/batch/v1/cronjobs?limit=1", String::new()),
            ("POST", "/apis/batch/v1/namespaces/other/jobs", job("a")),
            ("PUT", "/apis/batch/v1/namespaces/team/jobs/absent", job("absent")),
            ("DELETE", "/apis/batch/v1/namespaces/team/jobs/absent", String::new()),
            ("DELETE", "/apis/batch/v1/namespaces/team/jobs", String::new()),
            ("GET", "/apis/batch/v1/namespaces/team/secrets", String::new()),
            ("GET", "/apis/batch/v1", String::new()),
        ] {
            let through = send(front, method, path, &headers, &body);
            let direct = send(back, method, path, &headers, &body);
            assert_eq!(through, direct, "{token} {method} {path}");
            allowed += usize::from(through.0 != 403);
        }
    }
    assert!(
        (10..30).contains(&allowed),
        "some are allowed and some are not: {allowed}"
    );
}

pub(crate) fn send(
    caller: &mut Caller,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    outcome(&caller.send(method, path, headers, body))
}

fn impersonation_ends_in_front(front: &mut Caller) {
    let boss = bearer("t-boss");
    let who = front.whoami(&[
        ("Authorization", &boss),
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "team"),
        ("Impersonate-Uid", "77"),
        ("Impersonate-Extra-Scopes", "read"),
    ]);
    assert_eq!(
        who.expect("the boss may"),
        Who {
            name: "jane".into(),
            uid: "77".into(),
            groups: ["team", "system:authenticated"].map(str::to_owned).into(),
            extra: r#"{"scopes":["read"]}"#.into(),
        },
        "the backend sees only the impersonated user"
    );
    // The back gateway authorizes the impersonated user, not the impersonator.
    let mut list = |path: &str, user: &str| {
        let headers = [("Authorization", boss.as_str()), ("Impersonate-User", user)];
        front.get(path, &headers).code
    };
    assert_eq!(list("/apis/batch/v1/jobs", "reader"), 200);
    assert_eq!(list("/apis/batch/v1/cronjobs", "reader"), 403);
    assert_eq!(
        list("/apis/batch/v1/jobs", "only-back"),
        403,
        "impersonation of this user is not allowed"
    );
    assert_eq!(list("/apis/batch/v1/jobs", "system:admin"), 403);
    let own = front.get("/apis/batch/v1/jobs", &[("Authorization", &boss)]);
    assert_eq!(own.code, 403);
    for (token, code) in [("t-front", 403), ("t-back", 403)] {
        let answer = front.get("/apis/batch/v1/jobs", &[("Authorization", &bearer(token))]);
        assert_eq!(answer.code, code, "{token}: both gateways must allow it");
    }
    // Incomplete impersonation headers are refused, not forwarded.
    let answer = front.whoami(&[("Authorization", &boss), ("Impersonate-Group", "system:masters")]);
    assert_eq!(answer.expect_err("there is no user").code, 400);
    let answer = front.whoami(&[
        ("Authorization", &boss),
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "system:masters"),
    ]);
    assert_eq!(answer.expect_err("he may not").code, 403);
}

fn identity_headers_from_clients_are_ignored(front: &mut Caller, two: &Two) {
    const LIES: &[(&str, &str)] = &[
        ("X-Remote-User", "root"),
        ("X-Remote-Uid", "0"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Extra-Scopes", "all"),
        ("x-remote-extra-authentication.kubernetes.io%2fnode-name", "n"),
        ("Impersonate-User", ""),
        ("X_Remote_User", "root"),
    ];
    let dev = bearer("t-dev");
    let lying = |token: Option<&'static str>, more: &[(&'static str, &'static str)]| {
        let mut headers: Vec<(&str, String)> = LIES.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        headers.extend(token.map(|t| ("Authorization", bearer(t))));
        headers.extend(more.iter().map(|(k, v)| (*k, (*v).to_owned())));
        headers
    };
    let mut back = Caller::of(&two.back, None);
    let honest = back.whoami(&[("Authorization", &dev)]).expect("it is known");
    assert_eq!(
        (honest.name.as_str(), honest.uid.as_str(), honest.groups.len()),
        ("dev", "u1", 3)
    );
    let hop = "close, X-Remote-User, X-Remote-Group, X-Remote-Uid, Authorization, X-Forwarded-For";
    for more in [
        &[][..],
        &[("Connection", hop)],
        &[("Connection", "keep-alive"), ("TE", "trailers")],
    ] {
        let headers = lying(Some("t-dev"), more);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
        front.close();
        assert_eq!(front.whoami(&headers).expect("it is known"), honest, "{more:?}");
        back.close();
        assert_eq!(back.whoami(&headers).expect("it is known"), honest, "{more:?}");
    }
    // Identity headers are ignored: without credentials the request is anonymous, with a certificate it is
    // its subject's.
    let headers = lying(None, &[]);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
    for caller in [&mut *front, &mut back] {
        let answer = caller.whoami(&headers).expect_err("anonymous callers may not ask");
        assert!(answer.body.contains("system:anonymous"), "{answer:?}");
    }
    let masked = two.users.client("masked", &[]);
    for g in [&two.front, &two.back] {
        let who = Caller::of(g, Some(&masked)).whoami(&headers).expect("it is known");
        assert_eq!((who.name.as_str(), who.uid.as_str()), ("masked", ""));
        assert_eq!(who.groups, ["system:authenticated"]);
    }
    // The back gateway accepts front-proxy headers only from the front's CA and under the allowed name.
    let proxies = Ca::of(&two.front.dir.join("data/pki"), "front-proxy-ca");
    let lies = &LIES[..4];
    let mallory = Caller::of(&two.back, Some(&proxies.client("mallory", &["system:masters"]))).whoami(lies);
    assert_eq!(mallory.expect_err("the name is not allowed").code, 401);
    let stranger = Ca::new("front-proxy-ca").client("front-proxy-client", &[]);
    let stranger = Caller::of(&two.back, Some(&stranger)).whoami(lies);
    assert_eq!(stranger.expect_err("another CA of the same name").code, 401);
    let proxy = Caller::of(&two.back, Some(&proxies.client("front-proxy-client", &[]))).whoami(lies);
    assert_eq!(proxy.expect("the front itself may").name, "root");
}
