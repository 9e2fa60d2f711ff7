//! A gateway to attack, with an identity for each kind of attacker.

use crate::backend::{Backend, refuse};
use crate::scale;
use crate::support::Gateway;
use crate::wire::{self, Request, Target};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

pub(crate) const ADMIN: &str = "t-admin";
pub(crate) const PROBER: &str = "t-prober";
/// The small object that the prober requests.
pub(crate) const PROBED: &str = "/api/v1/namespaces/calm/configmaps/small";

const TOKENS: &str = "t-admin,root,u1,system:masters\n\
    t-prober,prober,u2\n\
    t-account,system:serviceaccount:evil:default,u3,\"system:serviceaccounts,system:serviceaccounts:evil\"\n\
    t-writer,writer,u4\n\
    t-node,system:node:n1,u5,system:nodes\n\
    t-extender,extender,u6\n\
    t-definer,definer,u7\n\
    t-audited,audited,u8\n\
    t-customizer,customizer,u9\n";

/// Objects that the attackers need: collection path and object.
fn objects() -> Vec<(&'static str, String)> {
    let namespace = |name: &str| {
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
        ("/api/v1/namespaces", body)
    };
    let role = |name: &str, rules: &str| {
        let body = format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{{"name":"{name}"}},"rules":[{rules}]}}"#
        );
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", body)
    };
    let bound = |user: &str, role: &str, namespace: Option<&str>| {
        let kind = if namespace.is_some() {
            "RoleBinding"
        } else {
            "ClusterRoleBinding"
        };
        let body = format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"{kind}","metadata":{{"name":"{user}-{role}"}},
            "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"{role}"}},
            "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{user}"}}]}}"#
        );
        let path = match namespace {
            Some("evil") => "/apis/rbac.authorization.k8s.io/v1/namespaces/evil/rolebindings",
            Some(_) => "/apis/rbac.authorization.k8s.io/v1/namespaces/calm/rolebindings",
            None => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        };
        (path, body)
    };
    let all = |group: &str, resources: &str| {
        format!(r#"{{"apiGroups":["{group}"],"resources":[{resources}],"verbs":["*"]}}"#)
    };
    let more = [
        all("", r#""configmaps","secrets","services","pods","serviceaccounts""#),
        all("", r#""resourcequotas","limitranges","events","podtemplates""#),
        all("resource.k8s.io", r#""resourceclaims","resourceclaimtemplates""#),
        all("networking.k8s.io", r#""ingresses","networkpolicies""#),
        all("discovery.k8s.io", r#""endpointslices""#),
        all("", r#""endpoints""#),
        all("coordination.k8s.io", r#""leases""#),
        all("autoscaling", r#""*""#),
    ];
    vec![
        namespace("evil"),
        namespace("calm"),
        (
            "/api/v1/namespaces/calm/configmaps",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"small"},"data":{"a":"b"}}"#.into(),
        ),
        (
            "/api/v1/nodes",
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#.into(),
        ),
        // There is no controller to create it, and pods are refused without it.
        (
            "/api/v1/namespaces/evil/serviceaccounts",
            r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#.into(),
        ),
        role("more", &more.join(",")),
        role(
            "extender",
            &[
                all("apiregistration.k8s.io", r#""apiservices""#),
                all("*", r#""things""#),
            ]
            .join(","),
        ),
        role(
            "definer",
            &[
                all("apiextensions.k8s.io", r#""*""#),
                all("admissionregistration.k8s.io", r#""*""#),
                all("flowcontrol.apiserver.k8s.io", r#""*""#),
            ]
            .join(","),
        ),
        // There is no controller to aggregate view, edit and admin, so bind their parts.
        role(
            "customizer",
            &[all("apiextensions.k8s.io", r#""*""#), all("custom.example", r#""*""#)].join(","),
        ),
        bound("customizer", "customizer", None),
        bound("prober", "system:aggregate-to-view", Some("calm")),
        bound("writer", "system:aggregate-to-view", Some("evil")),
        bound("writer", "system:aggregate-to-edit", Some("evil")),
        bound("writer", "system:aggregate-to-admin", Some("evil")),
        bound("writer", "more", Some("evil")),
        bound("audited", "system:aggregate-to-edit", Some("evil")),
        bound("extender", "extender", None),
        bound("extender", "system:aggregate-to-edit", Some("evil")),
        bound("extender", "more", Some("evil")),
        bound("definer", "definer", None),
    ]
}

pub(crate) struct Stage {
    pub gateway: Gateway,
    pub target: Target,
    pub pid: u32,
    /// The server that all of the gateway's webhooks call.
    pub webhook: Option<Backend>,
    // Declared last, so that the directory is deleted after the process has ended.
    _dir: tempfile::TempDir,
}

impl Stage {
    /// A new gateway, optionally with webhooks for authentication, authorization and audit.
    pub(crate) fn start(webhooks: bool) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, TOKENS).expect("written");
        let mut flags = vec![format!("--token-auth-file={}", tokens.display())];
        let webhook = webhooks.then(|| {
            let server = Backend::start(refuse());
            flags.extend(webhook_flags(dir.path(), &server));
            server
        });
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let gateway = match scale::binary() {
            Some(binary) => Gateway::start_binary(&binary, dir.path(), &flags, &[]),
            None => Gateway::start_with(dir.path(), &flags),
        };
        let ca = std::fs::read(dir.path().join("data/pki/ca.crt")).expect("the CA was made");
        let port = gateway.url().rsplit(':').next().and_then(|p| p.parse().ok());
        let stage = Self {
            pid: gateway.process.child.id(),
            target: Target::new(port.expect("a port"), &ca),
            gateway,
            webhook,
            _dir: dir,
        };
        for (path, body) in objects() {
            let answer = stage.admin(&Request::post(path, body));
            assert!(matches!(answer.code, 201 | 409), "{path}: {}", answer.text());
        }
        stage
    }

    /// Sends a request as an administrator.
    pub(crate) fn admin(&self, request: &Request) -> wire::GatewayResponse {
        let asked = self.target.tls(Ipv4Addr::LOCALHOST).and_then(|mut io| {
            wire::send(&mut io, request, ADMIN)?;
            wire::answer(&mut io, Duration::from_secs(60))
        });
        asked.unwrap_or_else(|e| panic!("{} {}: {e}", request.method, request.path))
    }

    pub(crate) fn metrics(&self) -> String {
        // Uses curl, because `GatewayResponse` keeps only the beginning of a long body.
        self.gateway.curl(&["/metrics"]).unwrap_or_default()
    }
}

/// Flags that make `server` the webhook for all three purposes.
fn webhook_flags(dir: &Path, server: &Backend) -> Vec<String> {
    let ca = dir.join("webhook-ca.crt");
    std::fs::write(&ca, server.certificate()).expect("written");
    let config = dir.join("webhook.kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    \
         server: https://localhost:{}/ask\n    certificate-authority: {}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
         users:\n- name: u\n  user: {{}}\n",
        server.port,
        ca.display()
    );
    std::fs::write(&config, text).expect("written");
    let policy = dir.join("policy.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n  users: [audited]\n- level: None\n";
    std::fs::write(&policy, text).expect("written");
    let config = config.display();
    vec![
        format!("--authentication-token-webhook-config-file={config}"),
        "--authentication-token-webhook-version=v1".to_owned(),
        "--authentication-token-webhook-cache-ttl=1s".to_owned(),
        "--authorization-mode=Node,RBAC,Webhook".to_owned(),
        format!("--authorization-webhook-config-file={config}"),
        "--authorization-webhook-version=v1".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-webhook-config-file={config}"),
    ]
}
