//! Flags of authentication, authorization and audit.

use super::*;
use crate::authn::oidc::{Mapping, Prefixed};

#[test]
fn node_restriction_is_enabled_with_the_node_authorizer() {
    let plugin = "NodeRestriction";
    let is_on = |args: &[&str]| {
        let completed = serve(args).complete().unwrap();
        (
            completed.admission.on().any(|p| p == plugin),
            completed.warnings.iter().any(|w| w.contains(plugin)),
        )
    };
    for args in [
        &[][..],
        &["--authorization-mode=Node,RBAC"],
        &["--enable-admission-plugins=NodeRestriction"],
        &["--disable-admission-plugins=PodSecurity"],
        &["--admission-control=PodSecurity"],
    ] {
        assert_eq!(is_on(args), (true, false), "{args:?}");
    }
    assert_eq!(is_on(&["--disable-admission-plugins=NodeRestriction"]), (false, true));
    assert_eq!(is_on(&["--authorization-mode=RBAC"]), (false, false));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authorizers.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
                - {type: Node, name: node}\n- {type: RBAC, name: rbac}\n";
    std::fs::write(&path, text).unwrap();
    let config = format!("--authorization-config={}", path.display());
    assert_eq!(is_on(&[&config]), (true, false), "authorizers from a file count");

    let completed = serve(&[]).complete().unwrap();
    let order: Vec<&str> = completed.admission.on().collect();
    let at = |name| order.iter().position(|p| *p == name);
    assert!(
        at("ServiceAccount") < at(plugin) && at(plugin) < at("TaintNodesByCondition"),
        "{order:?}"
    );
}

#[test]
fn always_allow_disables_anonymous_requests() {
    let completed = serve(&["--authorization-mode=AlwaysAllow"]).complete().unwrap();
    assert!(!completed.authentication.anonymous);
}

#[test]
fn authorizer_modes_require_their_files() {
    assert!(error(&["--authorization-mode=Webhook"]).contains("config file not passed"));
    assert!(error(&["--authorization-mode=ABAC"]).contains("policy file not passed"));
    assert!(error(&["--authorization-policy-file=x"]).contains("without mode ABAC"));
    assert!(error(&["--authorization-config=x", "--authorization-mode=RBAC"]).contains("can not be specified when"));
    assert!(error(&["--authorization-mode=RBAC,RBAC"]).contains("more than once"));
}

#[test]
fn audit_flags_are_cross_checked() {
    use crate::audit::{Batching, Mode};
    let given = [
        "--audit-policy-file=p",
        "--audit-log-path=l",
        "--audit-webhook-config-file=w",
    ];
    let audit = serve(&given).audit;
    let (log, webhook) = (audit.log.unwrap(), audit.webhook.unwrap());
    assert_eq!(log.mode, Mode::Blocking);
    let batching = Batching {
        buffer: 10_000,
        max_size: 400,
        max_wait: Duration::from_secs(30),
        throttle: Some((10.0, 15)),
    };
    assert_eq!(webhook.mode, Mode::Batch(batching));
    assert_eq!(webhook.initial_backoff, Duration::from_secs(10));
    for (flag, want) in [
        ("--audit-log-format=xml", "allowed formats are"),
        ("--audit-log-mode=async", "allowed modes are"),
        ("--audit-log-maxage=-1", "can't be a negative number"),
        ("--audit-log-version=audit.k8s.io/v1beta1", "expected audit.k8s.io/v1"),
        ("--audit-webhook-batch-buffer-size=0", "must be a positive number"),
        ("--audit-webhook-batch-throttle-qps=0", "must be a positive number"),
    ] {
        let text = error(&[given[0], given[1], given[2], flag]);
        assert!(text.contains(want), "{flag}: {text}");
    }
    let limits = [
        "--audit-log-path=l",
        "--audit-log-truncate-enabled",
        "--audit-log-truncate-max-batch-size=10",
    ];
    assert!(error(&limits).contains("must not be less than --audit-log-truncate-max-event-size"));
    let idle = serve(&["--audit-policy-file=p"]);
    assert!(idle.warnings[0].starts_with("--audit-policy-file has no effect: "));
}

#[test]
fn oidc_flags_and_authentication_config_are_exclusive() {
    let options = serve(&[
        "--oidc-issuer-url=https://idp",
        "--oidc-client-id=me",
        "--oidc-required-claim=a=b",
    ]);
    let issuer = options.authentication.oidc.unwrap().issuer;
    let name = Prefixed {
        claim: "sub".to_owned(),
        prefix: "https://idp#".to_owned(),
    };
    assert_eq!(issuer.username, Mapping::Claim(name));
    assert_eq!(issuer.required, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(issuer.algorithms.len(), 1);
    for (flags, part) in [
        (&["--oidc-issuer-url=https://idp"][..], "must be specified together"),
        (
            &[
                "--oidc-client-id=x",
                "--oidc-issuer-url=https://i",
                "--authentication-config=f",
            ],
            "mutually exclusive",
        ),
        (&["--oidc-client-id=x", "--oidc-issuer-url=http://i"], "https"),
        (
            &[
                "--oidc-client-id=x",
                "--oidc-issuer-url=https://i",
                "--oidc-signing-algs=none",
            ],
            "unsupported",
        ),
        (
            &[
                "--authentication-token-webhook-config-file=f",
                "--authentication-token-webhook-version=v2",
            ],
            "v1beta1",
        ),
    ] {
        let args = ["torana", "serve"].iter().chain(flags).map(OsString::from);
        let error = parse(args).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}
