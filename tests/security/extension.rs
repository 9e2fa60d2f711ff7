//! The example extension server treats a user alike whether called directly or through the gateway.

use crate::behind::{TOKENS, bearer, send, write};
use crate::support::Gateway;
use crate::wire::{Ca, Caller};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use torana::apimachinery::codec::json;

const GADGETS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gadgets, namespace: default}
rules:
- {apiGroups: [gadgets.example.com], resources: [gadgets], verbs: [get, list, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gadgets, namespace: default}
roleRef: {kind: Role, name: gadgets, apiGroup: rbac.authorization.k8s.io}
subjects:
- {kind: Group, name: team, apiGroup: rbac.authorization.k8s.io}
- {kind: User, name: certified, apiGroup: rbac.authorization.k8s.io}
";

/// The example server delegates authentication and authorization to the gateway, however the user reaches it.
#[test]
fn an_extension_server_treats_users_alike_directly_and_behind_the_gateway() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let flag = format!("--token-auth-file={}", write(dir.path(), "tokens.csv", TOKENS));
    let g = Gateway::start_with(dir.path(), &[&flag]);
    g.kubectl_in(&["apply", "-f", "-"], Some(GADGETS));
    let _example = g.with_example();
    let object = g.curl(&["/apis/apiregistration.k8s.io/v1/apiservices/v1.gadgets.example.com"]);
    let object = json::decode(object.expect("it registered").as_bytes()).expect("JSON");
    let spec = object.get("spec");
    let port = spec.at(&["service", "port"]).as_i64().expect("a port");
    let ca = STANDARD.decode(spec.str_at(&["caBundle"])).expect("base64");
    let url = format!("https://127.0.0.1:{port}");

    let certified = Ca::of(&dir.path().join("data/pki"), "client-ca").client("certified", &[]);
    let mut allowed = 0;
    for (user, identity) in [
        ("t-dev", None),
        ("t-nobody", None),
        ("unheard-of", None),
        ("", None),
        ("", Some(&certified)),
    ] {
        let (front, direct) = (&mut Caller::of(&g, identity), &mut Caller::new(&url, &ca, identity));
        let authorization = bearer(user);
        let mut headers = vec![("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")];
        headers.extend((!user.is_empty()).then_some(("Authorization", authorization.as_str())));
        let base = "/apis/gadgets.example.com/v1";
        for (method, path) in [
            ("GET", "/namespaces/default/gadgets"),
            ("GET", "/namespaces/default/gadgets/absent"),
            ("DELETE", "/namespaces/default/gadgets/absent"),
            ("GET", "/namespaces/kube-system/gadgets"),
            ("GET", "/gadgets"),
            ("GET", "/workshops"),
        ] {
            let path = format!("{base}{path}");
            let through = send(front, method, &path, &headers, "");
            assert_eq!(
                through,
                send(direct, method, &path, &headers, ""),
                "{user:?} {method} {path}"
            );
            allowed += usize::from(!matches!(through.0, 401 | 403));
        }
    }
    assert_eq!(allowed, 4, "the two users of the group, and the certificate's user");
}
