//! External tokens through a whole gateway: OpenID Connect by flags and by file, and a token webhook.

use crate::provider::{Provider, Webhook, now, p256, p384, rsa};
use crate::support::{Gateway, wait_for};
use crate::wire::{Caller, Who};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::path::Path;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

const ROLES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: team}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dev, namespace: team}
roleRef: {kind: Role, name: reader, apiGroup: rbac.authorization.k8s.io}
subjects: [{kind: Group, name: 'oidc:dev', apiGroup: rbac.authorization.k8s.io}]
";

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    // Replaced atomically, as a mounted Secret is.
    let fresh = dir.join(format!("{name}.new"));
    std::fs::write(&fresh, text).expect("it can be written");
    std::fs::rename(&fresh, &path).expect("it can be moved");
    path.display().to_string()
}

fn part(v: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json::to_vec(v))
}

fn with(mut claims: Value, key: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(claims.unset(&[key])),
        value => claims.set(&[key], value),
    }
    claims
}

fn refused(caller: &mut Caller, token: &str, why: &str) {
    match caller.whoami_with_token(token) {
        Ok(who) => panic!("{why}: accepted as {who:?}"),
        Err(answer) => {
            assert_eq!(answer.code, 401, "{why}: {answer:?}");
            let status = answer.json();
            assert_eq!(
                status.str_at(&["message"]),
                "Unauthorized",
                "{why}: the response does not reveal the reason"
            );
        }
    }
    // Even where anonymous access is allowed, an invalid token is refused.
    let authorization = format!("Bearer {token}");
    let answer = caller.get("/version", &[("Authorization", &authorization)]);
    assert_eq!(answer.code, 401, "{why}: {answer:?}");
}

#[test]
fn tokens_of_a_provider_authenticate_and_forged_ones_do_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (first, second, stranger) = (rsa(), p256(), rsa());
    let provider = Provider::start(&[&first, &second]);
    let flags = [
        format!("--oidc-issuer-url={}", provider.url),
        "--oidc-client-id=torana".to_owned(),
        format!("--oidc-ca-file={}", file(dir.path(), "idp.crt", &provider.ca)),
        "--oidc-username-prefix=oidc:".to_owned(),
        "--oidc-groups-claim=groups".to_owned(),
        "--oidc-groups-prefix=oidc:".to_owned(),
        "--oidc-signing-algs=RS256,ES256".to_owned(),
    ];
    let g = Gateway::start_with(dir.path(), &flags.each_ref().map(String::as_str));
    g.kubectl_in(&["apply", "-f", "-"], Some(ROLES));
    let caller = &mut Caller::of(&g, None);
    wait_for("the provider is discovered", || {
        caller.whoami_with_token(&provider.token(&first)).is_ok()
    });

    for (signer, name) in [(&first, "RSA"), (&second, "EC")] {
        let claims = with(provider.claims(), "jti", Value::from("7"));
        let token = signer.sign(&claims).expect("it signs");
        let expected = Who {
            name: "oidc:jane".into(),
            uid: String::new(),
            groups: ["oidc:dev", "oidc:ops", "system:authenticated"]
                .map(str::to_owned)
                .into(),
            extra: r#"{"authentication.kubernetes.io/credential-id":["JTI=7"]}"#.into(),
        };
        assert_eq!(
            caller.whoami_with_token(&token).expect("it is good"),
            expected,
            "{name}"
        );
        let authorization = format!("Bearer {token}");
        let mut get = |path: &str| caller.get(path, &[("Authorization", &authorization)]);
        assert_eq!(
            get("/api/v1/namespaces/team/configmaps").code,
            200,
            "{name}: the binding says so"
        );
        let no = get("/api/v1/namespaces/default/configmaps");
        assert_eq!(
            (no.code, no.json().str_at(&["message"])),
            (
                403,
                "configmaps is forbidden: User \"oidc:jane\" cannot list resource \"configmaps\" in API group \"\" \
                 in the namespace \"default\""
            ),
            "{name}"
        );
    }

    let good = || provider.claims();
    for (why, claims) in [
        ("expired", with(good(), "exp", Value::from(now() - 5))),
        ("without an end", with(good(), "exp", Value::Null)),
        ("not yet valid", with(good(), "nbf", Value::from(now() + 900))),
        ("for somebody else", with(good(), "aud", Value::from("elsewhere"))),
        ("for nobody", with(good(), "aud", Value::Null)),
        ("by nobody", with(good(), "sub", Value::Null)),
        (
            "of another issuer",
            with(good(), "iss", Value::from("https://elsewhere.example")),
        ),
    ] {
        refused(caller, &first.sign(&claims).expect("it signs"), why);
    }

    let kid = first.public().id.as_str();
    let jwk = json::decode(stranger.public().to_jwk().as_bytes()).expect("JSON");
    let embedded = with(json!({"alg": "RS256", "kid": kid}), "jwk", jwk);
    for (why, signer, header) in [
        ("another's signature", &stranger, json!({"alg": "RS256", "kid": kid})),
        ("another's signature, no key named", &stranger, json!({"alg": "RS256"})),
        ("a key brought along", &stranger, embedded),
        (
            "a key to be fetched",
            &stranger,
            json!({"alg": "RS256", "kid": kid, "jku": (format!("{}/keys", provider.url)), "x5u": "https://localhost/x"}),
        ),
        ("none with a signature", &first, json!({"alg": "none", "kid": kid})),
        (
            "an algorithm that is not allowed",
            &first,
            json!({"alg": "RS512", "kid": kid}),
        ),
        (
            "an algorithm of another key type",
            &first,
            json!({"alg": "ES256", "kid": kid}),
        ),
    ] {
        refused(caller, &signer.sign_with(&header, &good()).expect("it signs"), why);
    }
    for alg in ["none", "None", ""] {
        let token = format!("{}.{}.", part(&json!({"alg": alg})), part(&good()));
        refused(caller, &token, "unsigned");
    }
    let jwk = first.public().to_jwk();
    let modulus = json::decode(jwk.as_bytes()).expect("JSON").str_at(&["n"]).to_owned();
    for secret in [
        jwk.as_bytes(),
        modulus.as_bytes(),
        &URL_SAFE_NO_PAD.decode(&modulus).expect("base64"),
    ] {
        let text = format!("{}.{}", part(&json!({"alg": "HS256", "kid": kid})), part(&good()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag));
        refused(caller, &token, "the public key as a secret");
    }
    let token = provider.token(&first);
    let mut parts: Vec<&str> = token.split('.').collect();
    let forged = part(&with(good(), "groups", json!(["system:masters"])));
    parts[1] = &forged;
    refused(caller, &parts.join("."), "other claims under the same signature");

    // After the provider rotates its keys, the new key is accepted and tokens signed with the removed one are
    // refused.
    let third = rsa();
    provider.publish(&[&third, &second]);
    wait_for("the new key is fetched", || {
        caller.whoami_with_token(&provider.token(&third)).is_ok()
    });
    refused(caller, &provider.token(&first), "by a key that was withdrawn");
    assert!(
        caller.whoami_with_token(&provider.token(&second)).is_ok(),
        "a key that stayed"
    );
    let masters = with(good(), "groups", json!(["system:masters"]));
    let who = caller
        .whoami_with_token(&third.sign(&masters).expect("it signs"))
        .expect("it is good");
    assert_eq!(
        who.groups,
        ["oidc:system:masters", "system:authenticated"],
        "the prefix separates their names"
    );
}

fn configuration(providers: &[(&Provider, &str)]) -> String {
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n".to_owned();
    for (provider, prefix) in providers {
        let ca = provider.ca.replace('\n', "\n      ");
        text += &format!(
            "- issuer:\n    url: {}\n    audiences: [torana, other]\n    audienceMatchPolicy: MatchAny\n    \
             certificateAuthority: |\n      {}\n  claimMappings:\n    username: {{claim: sub, prefix: '{prefix}'}}\n    \
             groups: {{claim: groups, prefix: '{prefix}'}}\n",
            provider.url,
            ca.trim_end()
        );
    }
    text
}

#[test]
fn several_providers_and_a_webhook_coexist_and_reload() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (rsa, ec) = (rsa(), p384());
    let (one, two) = (Provider::start(&[&rsa]), Provider::start(&[&ec]));
    let webhook = Webhook::start();
    let both = configuration(&[(&one, "one:"), (&two, "two:")]);
    let path = file(dir.path(), "authentication.yaml", &both);
    let flags = [
        format!("--authentication-config={path}"),
        format!(
            "--authentication-token-webhook-config-file={}",
            file(dir.path(), "webhook.kubeconfig", &webhook.kubeconfig())
        ),
        "--authentication-token-webhook-version=v1".to_owned(),
    ];
    let g = Gateway::start_with(dir.path(), &flags.each_ref().map(String::as_str));
    let caller = &mut Caller::of(&g, None);
    let name = |who: Result<Who, _>| who.map_or_else(|_: crate::wire::GatewayResponse| String::new(), |who| who.name);
    wait_for("both are discovered", || {
        name(caller.whoami_with_token(&one.token(&rsa))) == "one:jane"
            && name(caller.whoami_with_token(&two.token(&ec))) == "two:jane"
    });
    // A key of one issuer must not verify tokens in the name of another.
    refused(
        caller,
        &ec.sign(&one.claims()).expect("it signs"),
        "another issuer's key",
    );
    refused(
        caller,
        &rsa.sign(&with(two.claims(), "aud", json!(["torana"])))
            .expect("it signs"),
        "another issuer's key",
    );

    let who = caller.whoami_with_token("reviewed").expect("the webhook knows it");
    assert_eq!(
        who,
        Who {
            name: "walter".into(),
            uid: "w1".into(),
            groups: ["dev", "system:authenticated"].map(str::to_owned).into(),
            extra: r#"{"example.org/k":["v"]}"#.into(),
        }
    );
    assert!(caller.whoami_with_token("reviewed").is_ok());
    assert_eq!(webhook.asked_about("reviewed"), 1, "the review is cached");
    refused(caller, "unheard-of", "the webhook refuses it");
    refused(caller, "elsewhere", "it is for another audience");
    {
        let asked = webhook.asked.lock().expect("no code panics while holding this lock");
        let review = asked
            .iter()
            .find(|r| r.str_at(&["spec", "token"]) == "reviewed")
            .expect("it was asked");
        assert_eq!(review.str_at(&["apiVersion"]), "authentication.k8s.io/v1");
        assert_eq!(
            review.at(&["spec", "audiences"]).items(),
            [Value::from("https://kubernetes.default.svc.cluster.local")]
        );
    }

    // An invalid file changes nothing; a valid one replaces the providers.
    file(
        dir.path(),
        "authentication.yaml",
        &both.replace("claimMappings", "claimMapping"),
    );
    wait_for("the broken file is refused", || {
        let metrics = g.curl(&["/metrics"]).expect("they are served");
        metrics.contains("automatic_reloads_total{") && metrics.contains("status=\"failure\"} 1")
    });
    assert!(caller.whoami_with_token(&one.token(&rsa)).is_ok());
    file(dir.path(), "authentication.yaml", &configuration(&[(&two, "zwei:")]));
    wait_for("the new file counts", || {
        name(caller.whoami_with_token(&two.token(&ec))) == "zwei:jane"
    });
    refused(caller, &one.token(&rsa), "a provider that is gone");
}
