//! Revokes permissions while other threads use them, and checks that no later request is still allowed.

use crate::support::Gateway;
use crate::wire::{Caller, Identity};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CORE: &str = "/api/v1/namespaces/team";
const ASKED: &str = "/api/v1/namespaces/team/configmaps";
/// Threads that use the permission.
const READERS: usize = 3;
/// Refused requests that each thread must see before it stops.
const AFTER: usize = 5;

/// The object or part whose removal revokes the permission.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Revoked {
    RoleBinding,
    Role,
    Subject,
    ClusterRoleBinding,
    ServiceAccount,
    BoundPod,
    BoundSecret,
    BootstrapToken,
}

pub(crate) const ALL: [Revoked; 8] = [
    Revoked::RoleBinding,
    Revoked::Role,
    Revoked::Subject,
    Revoked::ClusterRoleBinding,
    Revoked::ServiceAccount,
    Revoked::BoundPod,
    Revoked::BoundSecret,
    Revoked::BootstrapToken,
];

/// An administrator of a gateway whose requests must succeed.
pub(crate) struct Administrator(Caller);

impl Administrator {
    pub(crate) fn of(g: &Gateway) -> Self {
        let read = |name: &str| std::fs::read_to_string(g.dir.join("data/pki").join(name)).expect("it was generated");
        let identity = Identity {
            cert: read("admin.crt"),
            key: read("admin.key"),
        };
        Self(Caller::of(g, Some(&identity)))
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let text = match body {
            Value::Null => String::new(),
            body => String::from_utf8(json::to_vec(body)).expect("JSON is text"),
        };
        let answer = self.0.send(method, path, &[], &text);
        assert!(answer.code < 300, "{method} {path}: {answer:?}");
        answer.json()
    }

    pub(crate) fn create(&mut self, path: &str, body: &Value) -> Value {
        self.send("POST", path, body)
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn binding(name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({"metadata": {"name": name}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
}

fn account(name: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": name, "namespace": "team"}])
}

/// Creates the objects that every round needs.
pub(crate) fn prepare(admin: &mut Administrator) {
    admin.create("/api/v1/namespaces", &named("team"));
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "lister"}, "rules": rules});
    admin.create(&format!("{RBAC}/clusterroles"), &role);
}

/// Grants a permission in the way that will be revoked, and returns the token that has it.
fn grant(admin: &mut Administrator, how: Revoked, name: &str) -> String {
    let roles = format!("{RBAC}/namespaces/team/rolebindings");
    let subjects = match how {
        Revoked::BootstrapToken => {
            json!([{"kind": "Group", "name": "system:bootstrappers", "apiGroup": "rbac.authorization.k8s.io"}])
        }
        _ => account(name),
    };
    admin.create(&format!("{CORE}/serviceaccounts"), &named(name));
    match how {
        Revoked::Role => {
            let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
            let role = json!({"metadata": {"name": name}, "rules": rules});
            admin.create(&format!("{RBAC}/namespaces/team/roles"), &role);
            admin.create(&roles, &binding(name, "Role", name, subjects));
        }
        Revoked::ClusterRoleBinding => {
            let path = format!("{RBAC}/clusterrolebindings");
            admin.create(&path, &binding(name, "ClusterRole", "lister", subjects));
        }
        _ => drop(admin.create(&roles, &binding(name, "ClusterRole", "lister", subjects))),
    }
    let bound = match how {
        Revoked::BoundPod => {
            let spec = json!({"serviceAccountName": name, "containers": [{"name": "c", "image": "i"}]});
            let pod = json!({"metadata": {"name": name}, "spec": spec});
            let pod = admin.create(&format!("{CORE}/pods"), &pod);
            json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": (pod.str_at(&["metadata", "uid"]))})
        }
        Revoked::BoundSecret => {
            let secret = admin.create(&format!("{CORE}/secrets"), &named(name));
            json!({"apiVersion": "v1", "kind": "Secret", "name": name, "uid": (secret.str_at(&["metadata", "uid"]))})
        }
        Revoked::BootstrapToken => {
            let id = format!("{:0>6}", name.trim_start_matches('n'));
            let data = json!({"token-id": (id.as_str()), "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true"});
            let secret = json!({"metadata": {"name": (format!("bootstrap-token-{id}"))},
                "type": "bootstrap.kubernetes.io/token", "stringData": data});
            admin.create("/api/v1/namespaces/kube-system/secrets", &secret);
            return format!("{id}.0123456789abcdef");
        }
        _ => Value::Null,
    };
    let mut request = json!({"spec": {}});
    if !bound.is_null() {
        request.set(&["spec", "boundObjectRef"], bound);
    }
    let made = admin.create(&format!("{CORE}/serviceaccounts/{name}/token"), &request);
    made.str_at(&["status", "token"]).to_owned()
}

fn revoke(admin: &mut Administrator, how: Revoked, name: &str) {
    let bindings = format!("{RBAC}/namespaces/team/rolebindings");
    let path = match how {
        Revoked::RoleBinding => format!("{bindings}/{name}"),
        Revoked::Role => format!("{RBAC}/namespaces/team/roles/{name}"),
        Revoked::Subject => {
            let nobody = binding(name, "ClusterRole", "lister", account("nobody"));
            admin.send("PUT", &format!("{bindings}/{name}"), &nobody);
            return;
        }
        Revoked::ClusterRoleBinding => format!("{RBAC}/clusterrolebindings/{name}"),
        Revoked::ServiceAccount => format!("{CORE}/serviceaccounts/{name}"),
        Revoked::BoundPod => format!("{CORE}/pods/{name}?gracePeriodSeconds=0"),
        Revoked::BoundSecret => format!("{CORE}/secrets/{name}"),
        Revoked::BootstrapToken => {
            let id = format!("{:0>6}", name.trim_start_matches('n'));
            format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{id}")
        }
    };
    admin.send("DELETE", &path, &Value::Null);
    if matches!(how, Revoked::BootstrapToken) {
        // Each round has its own binding for the bootstrap group.
        admin.send("DELETE", &format!("{bindings}/{name}"), &Value::Null);
    }
}

/// One round: grants a permission, lets several threads use it at the gateway `asked`, and revokes it at
/// `admin`'s gateway meanwhile. Returns how long after the acknowledgement the last request began that was
/// still allowed, or `None` if there was none.
pub(crate) fn revocation_round(
    admin: &mut Administrator,
    asked: &Gateway,
    how: Revoked,
    name: &str,
) -> Option<Duration> {
    let token = grant(admin, how, name);
    let headers = [("Authorization", &*format!("Bearer {token}"))];
    let gone = AtomicBool::new(false);
    let users: Vec<AtomicBool> = (0..READERS).map(|_| AtomicBool::new(false)).collect();
    let acknowledged: Mutex<Option<Instant>> = Mutex::new(None);
    let late: Mutex<Option<Duration>> = Mutex::new(None);
    let until = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|threads| {
        for user in &users {
            let (gone, late, acknowledged) = (&gone, &late, &acknowledged);
            threads.spawn(move || {
                let mut caller = Caller::of(asked, None);
                let mut refused = 0;
                while refused < AFTER {
                    assert!(Instant::now() < until, "{how:?}: used and refused within a minute");
                    let after = gone.load(Ordering::SeqCst);
                    let began = Instant::now();
                    let code = caller.get(ASKED, &headers).code;
                    match code {
                        200 if after => {
                            let at = acknowledged.lock().expect("nobody panics").expect("it is gone");
                            let mut late = late.lock().expect("nobody panics");
                            *late = (*late).max(Some(began - at));
                        }
                        200 => user.store(true, Ordering::SeqCst),
                        401 | 403 if after => {
                            refused += 1;
                        }
                        // Not yet granted at this gateway, or revoked but not yet acknowledged.
                        401 | 403 => {}
                        code => panic!("{how:?}: {code}"),
                    }
                }
            });
        }
        while !users.iter().all(|u| u.load(Ordering::SeqCst)) {
            assert!(Instant::now() < until, "{how:?}: everybody uses it within a minute");
            std::thread::yield_now();
        }
        revoke(admin, how, name);
        *acknowledged.lock().expect("nobody panics") = Some(Instant::now());
        gone.store(true, Ordering::SeqCst);
    });
    late.into_inner().expect("nobody panics")
}

/// Grants and revokes unrelated permissions until `end` is set, as background noise.
pub(crate) fn background_noise(admin: &mut Administrator, end: &AtomicBool, prefix: &str) {
    let bindings = format!("{RBAC}/namespaces/team/rolebindings");
    let mut n = 0;
    while !end.load(Ordering::SeqCst) {
        let name = format!("{prefix}{}", n % 20);
        admin.create(&bindings, &binding(&name, "ClusterRole", "lister", account(&name)));
        admin.create(&format!("{CORE}/secrets"), &named(&name));
        admin.send("DELETE", &format!("{bindings}/{name}"), &Value::Null);
        admin.send("DELETE", &format!("{CORE}/secrets/{name}"), &Value::Null);
        n += 1;
    }
}
