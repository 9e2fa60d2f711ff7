//! Access decisions for every route, verb and identity. The routes come from the server's own discovery; the
//! expected decision is computed from the stored roles by an independent evaluator. A route that bypasses the
//! filter chain, or a decision that differs from the roles, fails here without a new test.

mod support;

use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use support::Gateway;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

const TOKENS: &str = "t-nobody,nobody,u1\n\
    t-limited,limited,u2\n\
    t-node,system:node:n1,u3,system:nodes\n\
    t-robot,system:serviceaccount:team:robot,u4,\"system:serviceaccounts,system:serviceaccounts:team\"\n\
    t-boss,boss,u5\n\
    t-admin,root,u6,system:masters\n";

const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: team}
rules:
- {apiGroups: ["", apps], resources: ["*"], verbs: [get, list]}
- {apiGroups: [""], resources: [configmaps], verbs: [patch, update], resourceNames: [absent]}
- {apiGroups: [batch], resources: [jobs/status, "*/scale", cronjobs/*], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: team}
roleRef: {kind: Role, name: reader, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: User, name: limited, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: robot}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, patch]}
- {nonResourceURLs: ["/metrics", "/healthz/*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: robot}
roleRef: {kind: ClusterRole, name: robot, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: ServiceAccount, name: robot, namespace: team}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: boss}
rules:
- {apiGroups: [""], resources: [users], verbs: [impersonate], resourceNames: [limited]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: boss}
roleRef: {kind: ClusterRole, name: boss, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: User, name: boss, apiGroup: rbac.authorization.k8s.io}]
"#;

/// An identity: its token, the user it impersonates (if any), and the user and groups that the policy is
/// evaluated for.
struct Identity {
    token: &'static str,
    acts_as: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
}

const AUTHENTICATED: &[&str] = &["system:authenticated"];
const IDENTITIES: &[Identity] = &[
    Identity {
        token: "",
        acts_as: "",
        user: "system:anonymous",
        groups: &["system:unauthenticated"],
    },
    Identity {
        token: "t-nobody",
        acts_as: "",
        user: "nobody",
        groups: AUTHENTICATED,
    },
    Identity {
        token: "t-limited",
        acts_as: "",
        user: "limited",
        groups: AUTHENTICATED,
    },
    Identity {
        token: "t-node",
        acts_as: "",
        user: "system:node:n1",
        groups: &["system:nodes", "system:authenticated"],
    },
    Identity {
        token: "t-robot",
        acts_as: "",
        user: "system:serviceaccount:team:robot",
        groups: &[
            "system:serviceaccounts",
            "system:serviceaccounts:team",
            "system:authenticated",
        ],
    },
    Identity {
        token: "t-boss",
        acts_as: "limited",
        user: "limited",
        groups: AUTHENTICATED,
    },
    // Impersonating without permission: the request is refused before the impersonated user's roles matter.
    Identity {
        token: "t-nobody",
        acts_as: "root",
        user: "",
        groups: &[],
    },
];

/// A connection with one identity's token. It is reopened if the server closes it.
struct Asker {
    tls: tokio_rustls::TlsConnector,
    address: String,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Asker {
    fn new(g: &Gateway) -> Self {
        let pem = std::fs::read(g.dir.join("data/pki/ca.crt")).expect("the CA is there");
        let mut roots = rustls::RootCertStore::empty();
        for c in CertificateDer::pem_slice_iter(&pem) {
            roots.add(c.expect("a certificate")).expect("a CA");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = g.url().trim_start_matches("https://").to_owned();
        Self {
            tls: tokio_rustls::TlsConnector::from(Arc::new(tls)),
            address,
            sender: None,
        }
    }

    async fn connect(&mut self) -> &mut SendRequest<Full<Bytes>> {
        let closed = self.sender.as_ref().is_none_or(SendRequest::is_closed);
        if closed {
            let tcp = tokio::net::TcpStream::connect(&self.address).await.expect("it listens");
            let name = ServerName::try_from("localhost").expect("a name");
            let tls = self.tls.connect(name, tcp).await.expect("it speaks TLS");
            let (sender, connection) = handshake(TokioIo::new(tls)).await.expect("it speaks HTTP");
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        self.sender.as_mut().expect("just made")
    }

    async fn send(&mut self, who: &Identity, method: Method, path: &str, body: &str) -> http::Response<Incoming> {
        let mut req = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::HOST, "localhost");
        if !who.token.is_empty() {
            req = req.header(header::AUTHORIZATION, format!("Bearer {}", who.token));
        }
        if !who.acts_as.is_empty() {
            req = req.header("impersonate-user", who.acts_as);
        }
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let req = req
            .header(header::CONTENT_TYPE, kind)
            .body(Full::new(Bytes::from(body.to_owned())));
        let sender = self.connect().await;
        sender.ready().await.expect("the connection holds");
        sender.send_request(req.expect("a request")).await.expect("an answer")
    }

    /// Sends a request. Returns the status code, and the body if it is an error.
    async fn ask(&mut self, who: &Identity, method: Method, path: &str) -> (u16, String) {
        let body = if method == Method::GET { "" } else { "{}" };
        let answer = self.send(who, method, path, body).await;
        let code = answer.status().as_u16();
        let streams = code == 200 && path.contains("watch=1");
        let text = if streams {
            self.sender = None;
            String::new()
        } else {
            let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        (code, text)
    }

    async fn read(&mut self, path: &str) -> Value {
        let admin = Identity {
            token: "t-admin",
            acts_as: "",
            user: "",
            groups: &[],
        };
        let (code, text) = self.ask(&admin, Method::GET, path).await;
        assert_eq!(code, 200, "{path}: {text}");
        json::decode(text.as_bytes()).expect("JSON")
    }
}

/// One request and the attributes it is authorized by.
#[derive(Debug, Default)]
struct Try {
    method: Method,
    path: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

fn tries(lists: &[(String, Value)]) -> Vec<Try> {
    let mut out = Vec::new();
    for (base, list) in lists {
        let group = base
            .strip_prefix("/apis/")
            .and_then(|r| r.split_once('/'))
            .map_or("", |(g, _)| g);
        for r in list.get("resources").items() {
            let whole = r.str_at(&["name"]);
            let (resource, subresource) = whole.split_once('/').unwrap_or((whole, ""));
            let namespaced = r.get("namespaced").as_bool() == Some(true);
            let places: &[&str] = if namespaced { &["team", "other", ""] } else { &[""] };
            for verb in r.get("verbs").items().iter().filter_map(Value::as_str) {
                let collection =
                    matches!(verb, "list" | "watch" | "create" | "deletecollection") && subresource.is_empty();
                for ns in places {
                    let wanted: &[&str] = match *ns {
                        "team" => &[],
                        "other" => &["get", "list", "create"],
                        _ => &["list", "watch"],
                    };
                    if namespaced && !wanted.is_empty() && !wanted.contains(&verb) {
                        continue;
                    }
                    let name = if collection { "" } else { "absent" };
                    let mut path = base.clone();
                    if !ns.is_empty() {
                        path += &format!("/namespaces/{ns}");
                    }
                    path += &format!("/{resource}");
                    for part in [name, subresource].into_iter().filter(|p| !p.is_empty()) {
                        path += &format!("/{part}");
                    }
                    let method = match verb {
                        "create" => Method::POST,
                        "update" => Method::PUT,
                        "patch" => Method::PATCH,
                        "delete" | "deletecollection" => Method::DELETE,
                        _ => Method::GET,
                    };
                    if verb == "watch" {
                        path += "?watch=1&timeoutSeconds=1";
                    }
                    let own = resource == "namespaces" && !name.is_empty();
                    out.push(Try {
                        method,
                        path,
                        verb: verb.to_owned(),
                        group: group.to_owned(),
                        resource: resource.to_owned(),
                        subresource: subresource.to_owned(),
                        namespace: if own { name } else { ns }.to_owned(),
                        name: name.to_owned(),
                    });
                }
            }
        }
    }
    out
}

/// The stored roles and bindings, evaluated by a straightforward RBAC implementation.
struct Policy {
    cluster_roles: Value,
    cluster_bindings: Value,
    roles: Value,
    bindings: Value,
}

fn lists(rule: &Value, key: &str, wanted: &str) -> bool {
    let list = rule.get(key).items();
    list.iter().filter_map(Value::as_str).any(|x| x == "*" || x == wanted)
}

impl Policy {
    async fn read(asker: &mut Asker) -> Self {
        let of = |plural: &str| format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        Self {
            cluster_roles: asker.read(&of("clusterroles")).await,
            cluster_bindings: asker.read(&of("clusterrolebindings")).await,
            roles: asker.read(&of("roles")).await,
            bindings: asker.read(&of("rolebindings")).await,
        }
    }

    fn names(binding: &Value, who: &Identity) -> bool {
        binding
            .get("subjects")
            .items()
            .iter()
            .any(|s| match s.str_at(&["kind"]) {
                "User" => s.str_at(&["name"]) == who.user,
                "Group" => who.groups.contains(&s.str_at(&["name"])),
                _ => {
                    who.user
                        == format!(
                            "system:serviceaccount:{}:{}",
                            s.str_at(&["namespace"]),
                            s.str_at(&["name"])
                        )
                }
            })
    }

    fn rules<'a>(&'a self, who: &'a Identity, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        let local = self.bindings.get("items").items().iter();
        let local = local.filter(move |b| b.str_at(&["metadata", "namespace"]) == namespace);
        let all = self.cluster_bindings.get("items").items().iter().chain(local);
        all.filter(|b| Self::names(b, who)).flat_map(move |b| {
            let (kind, name) = (b.str_at(&["roleRef", "kind"]), b.str_at(&["roleRef", "name"]));
            let (roles, ns) = match kind {
                "Role" => (&self.roles, namespace),
                _ => (&self.cluster_roles, ""),
            };
            let found = roles.get("items").items().iter();
            found
                .filter(move |r| r.str_at(&["metadata", "name"]) == name && r.str_at(&["metadata", "namespace"]) == ns)
                .flat_map(|r| r.get("rules").items())
        })
    }

    fn allows(&self, who: &Identity, t: &Try) -> bool {
        self.rules(who, &t.namespace).any(|r| {
            let names = r.get("resourceNames").items();
            let resource = if t.subresource.is_empty() {
                lists(r, "resources", &t.resource)
            } else {
                lists(r, "resources", &format!("{}/{}", t.resource, t.subresource))
                    || lists(r, "resources", &format!("*/{}", t.subresource))
            };
            lists(r, "verbs", &t.verb)
                && lists(r, "apiGroups", &t.group)
                && resource
                && (names.is_empty() || names.iter().any(|n| n.as_str() == Some(&t.name)))
        })
    }

    fn allows_path(&self, who: &Identity, path: &str) -> bool {
        self.rules(who, "").any(|r| {
            let urls = r.get("nonResourceURLs").items().iter().filter_map(Value::as_str);
            let mut hit = urls.filter(|u| *u == path || u.strip_suffix('*').is_some_and(|p| path.starts_with(p)));
            lists(r, "verbs", "get") && hit.next().is_some()
        })
    }
}

/// Whether the request was refused for this verb. An update that may create is authorized for `create`
/// separately and later.
fn is_refused(code: u16, text: &str, verb: &str) -> bool {
    code == 403 && (text.contains(&format!(" cannot {verb} ")) || text.contains(" cannot impersonate"))
}

/// The server's own SubjectAccessReview, for identities whose rights are not RBAC's: a node's rights come
/// from a graph.
async fn reviewed(asker: &mut Asker, who: &Identity, t: &Try) -> bool {
    let admin = Identity {
        token: "t-admin",
        acts_as: "",
        user: "",
        groups: &[],
    };
    let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": (who.user), "resourceAttributes": {"verb": (t.verb.as_str()), "group": (t.group.as_str()),
            "resource": (t.resource.as_str()), "subresource": (t.subresource.as_str()),
            "namespace": (t.namespace.as_str()), "name": (t.name.as_str())}}});
    let groups: Vec<Value> = who.groups.iter().map(|g| Value::from(*g)).collect();
    review.set(&["spec", "groups"], groups);
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = asker.send(&admin, Method::POST, path, &json::to_string(&review)).await;
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    let answer = json::decode(&bytes).expect("JSON");
    answer.at(&["status", "allowed"]).as_bool().expect("a decision")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_and_identity_is_authorized_by_the_stored_roles() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, TOKENS).expect("written");
    let g = Gateway::start_with(dir.path(), &[&format!("--token-auth-file={}", tokens.display())]);
    g.kubectl_in(&["apply", "-f", "-"], Some(OBJECTS));
    let mut asker = Asker::new(&g);
    let mut bases = vec!["/api/v1".to_owned()];
    for group in asker.read("/apis").await.get("groups").items() {
        for v in group.get("versions").items() {
            bases.push(format!("/apis/{}", v.str_at(&["groupVersion"])));
        }
    }
    let mut lists = Vec::new();
    for base in bases {
        let list = asker.read(&base).await;
        lists.push((base, list));
    }
    let policy = Policy::read(&mut asker).await;
    let tries = tries(&lists);
    assert!(tries.len() > 500, "{}", tries.len());
    let root = asker.read("/").await;
    let paths: Vec<&str> = root.get("paths").items().iter().filter_map(Value::as_str).collect();
    assert!(paths.len() > 30, "{paths:?}");

    let (mut wrong, mut allowed) = (Vec::new(), 0);
    for who in IDENTITIES {
        for t in &tries {
            let expected = match who.user {
                user if user.starts_with("system:node:") => reviewed(&mut asker, who, t).await,
                _ => policy.allows(who, t),
            };
            let (code, text) = asker.ask(who, t.method.clone(), &t.path).await;
            let refused = is_refused(code, &text, &t.verb);
            allowed += usize::from(expected);
            if refused == expected || code == 401 {
                wrong.push(format!(
                    "{} {:?}: {} {} expected {expected}: {code} {text}",
                    who.user, who.acts_as, t.verb, t.path
                ));
            }
        }
        for path in &paths {
            let expected = policy.allows_path(who, path);
            let (code, text) = asker.ask(who, Method::GET, path).await;
            if is_refused(code, &text, "get") == expected {
                wrong.push(format!(
                    "{} {:?}: {path} expected {expected}: {code}",
                    who.user, who.acts_as
                ));
            }
        }
    }
    assert!(allowed > 300, "both outcomes occur: {allowed} allowed");
    assert!(
        wrong.is_empty(),
        "{} wrong, among them:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
}
