mod configuration;
mod expressions;

use super::authenticator::JwtAuthenticatorSet;
use super::configuration::{Configuration, JwtIssuer, Mapping, Prefixed};
use super::provider::Provider;
use super::*;
use crate::apimachinery::value::Value;
use crate::authn::jwt::tests::{ec, rsa};
use crate::authn::jwt::{Algorithm, Signer};
use crate::authn::{PresentedToken, TokenAuthenticator, TokenUser};
use crate::client::testing;
use crate::json;
use crate::sync::Mutex;
use crate::tasks::TaskGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NOW: i64 = 1_800_000_000;

/// A minimal identity provider: a discovery document and a key set that tests can change.
struct Idp {
    url: String,
    ca: String,
    keys: Arc<Mutex<Vec<String>>>,
    key_sets_served: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Idp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn claim(claim: &str, prefix: &str) -> Mapping {
    let (claim, prefix) = (claim.to_owned(), prefix.to_owned());
    Mapping::Claim(Prefixed { claim, prefix })
}

async fn idp() -> Idp {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let served = Arc::new(AtomicUsize::new(0));
    let (published, count) = (keys.clone(), served.clone());
    let server = testing::serve(move |head, host| {
        let body = if head.starts_with(b"GET /.well-known/openid-configuration ") {
            format!(r#"{{"issuer":"https://{host}","jwks_uri":"https://{host}/keys"}}"#)
        } else {
            count.fetch_add(1, Ordering::Relaxed);
            format!(r#"{{"keys":[{}]}}"#, published.lock().join(","))
        };
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    });
    let server = server.await;
    Idp {
        url: format!("https://{}", server.host),
        ca: server.certificate,
        keys,
        key_sets_served: served,
        task: server.task,
    }
}

impl Idp {
    fn publish(&self, signers: &[&Signer]) {
        *self.keys.lock() = signers.iter().map(|s| s.public().to_jwk()).collect();
    }

    fn issuer(&self) -> JwtIssuer {
        JwtIssuer {
            url: self.url.clone(),
            discovery_url: None,
            ca_pem: Some(self.ca.clone()),
            audiences: vec!["kubernetes".into(), "other".into()],
            required: vec![],
            claim_rules: vec![],
            username: claim("sub", "oidc:"),
            groups: Some(claim("groups", "g:")),
            uid: None,
            extra: vec![],
            user_rules: vec![],
            algorithms: Algorithm::ALL.to_vec(),
        }
    }

    async fn authenticators(&self, issuer: JwtIssuer, tasks: &TaskGroup) -> JwtAuthenticators {
        let provider = Provider::try_new(&issuer).unwrap().refreshing_every(Duration::ZERO);
        let set = super::authenticator::set(vec![(issuer, provider)], tasks);
        settled(|| set.is_ready()).await;
        JwtAuthenticators::new(set, Arc::new(|| NOW))
    }

    fn claims(&self) -> Value {
        json!({"iss": (self.url.as_str()), "sub": "jane", "aud": ["x", "kubernetes"], "exp": (NOW + 60),
            "groups": ["dev", "ops"], "jti": "7"})
    }
}

async fn settled(is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
}

async fn ask(tokens: &JwtAuthenticators, token: &str) -> Result<Option<TokenUser>, String> {
    let presented = PresentedToken { token, audiences: &[] };
    tokens.authenticate_token(presented).await.map_err(|e| e.0)
}

#[tokio::test]
async fn tokens_are_verified_across_key_rotation() {
    let (idp, tasks) = (idp().await, TaskGroup::new("test"));
    let (first, second) = (rsa(), ec());
    idp.publish(&[&first]);
    let tokens = idp.authenticators(idp.issuer(), &tasks).await;
    let user = ask(&tokens, &first.sign(&idp.claims()).unwrap())
        .await
        .unwrap()
        .unwrap()
        .user;
    assert_eq!(
        (user.name.as_str(), user.groups.join(" ")),
        ("oidc:jane", "g:dev g:ops".into())
    );
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=7"]);
    assert_eq!(idp.key_sets_served.load(Ordering::Relaxed), 1);

    let new = second.sign(&idp.claims()).unwrap();
    assert!(ask(&tokens, &new).await.is_err(), "not published yet");
    idp.publish(&[&second]);
    assert!(
        ask(&tokens, &new).await.unwrap().is_some(),
        "an unknown key is looked for"
    );
    let served = idp.key_sets_served.load(Ordering::Relaxed);
    assert!(ask(&tokens, &new).await.unwrap().is_some());
    assert_eq!(
        idp.key_sets_served.load(Ordering::Relaxed),
        served,
        "a known key is not"
    );
    assert!(
        ask(&tokens, &first.sign(&idp.claims()).unwrap()).await.is_err(),
        "the former key is gone"
    );
}

#[tokio::test]
async fn invalid_tokens_are_rejected() {
    let (idp, tasks) = (idp().await, TaskGroup::new("test"));
    let (key, other) = (rsa(), rsa());
    idp.publish(&[&key]);
    let mut issuer = idp.issuer();
    issuer.algorithms = vec![Algorithm::Rs256];
    issuer.required = vec![("hd".into(), "example.org".into())];
    let tokens = idp.authenticators(issuer, &tasks).await;
    let with = |path: &str, v: Value| {
        let mut claims = idp.claims();
        claims.set(&["hd"], "example.org");
        match v {
            Value::Null => drop(claims.unset(&[path])),
            v => claims.set(&[path], v),
        }
        claims
    };
    assert!(
        ask(&tokens, &key.sign(&with("x", Value::from(1i64))).unwrap())
            .await
            .unwrap()
            .is_some()
    );
    for (claims, why) in [
        (with("exp", Value::from(NOW - 1)), "token is expired"),
        (with("exp", Value::Null), "token is expired"),
        (with("exp", Value::from("soon")), "exp"),
        (with("nbf", Value::from(NOW + 301)), "before the nbf"),
        (with("aud", Value::from("elsewhere")), "expected audience"),
        (with("aud", Value::Null), "expected audience"),
        (with("sub", Value::Null), "claim not present"),
        (
            with("sub", Value::from(1i64)),
            "parse username claims \"sub\": json: cannot unmarshal number into Go value of type string",
        ),
        (
            with("groups", Value::from(1i64)),
            "parse groups claim \"groups\": json: cannot unmarshal number into Go value of type string",
        ),
        (with("hd", Value::Null), "required claim hd not present in ID token"),
        (
            with("hd", Value::from("x")),
            "required claim hd value does not match. Got = x, want = example.org",
        ),
        (with("_claim_names", json!({"groups": "src"})), ""),
    ] {
        let got = ask(&tokens, &key.sign(&claims).unwrap()).await;
        match why {
            "" => assert!(got.is_ok()),
            why => {
                let got = got.unwrap_err();
                assert!(got.starts_with("oidc: ") && got.contains(why), "{got}");
            }
        }
    }
    let near = with("nbf", Value::from(NOW + 300));
    assert!(
        ask(&tokens, &key.sign(&near).unwrap()).await.unwrap().is_some(),
        "five minutes of leeway"
    );
    let good = with("x", Value::Null);
    let own = key.public().id.as_str();
    let evil = crate::apimachinery::codec::json::decode(other.public().to_jwk().as_bytes()).unwrap();
    let mut embedded = json!({"alg": "RS256"});
    embedded.set(&["jwk"], evil);
    for (signer, header) in [
        (&key, json!({"alg": "none"})),
        (&key, json!({"alg": "HS256"})),
        (&key, json!({"alg": "RS512", "kid": own})),
        (&key, json!({"alg": "ES256", "kid": own})),
        (&other, json!({"alg": "RS256", "kid": own})),
        (&other, json!({"alg": "RS256"})),
        (&other, embedded),
        (
            &other,
            json!({"alg": "RS256", "x5u": "https://localhost/x", "jku": "https://localhost/y"}),
        ),
    ] {
        let token = signer.sign_with(&header, &good).unwrap();
        assert!(ask(&tokens, &token).await.is_err(), "{header:?}");
    }
    let elsewhere = with("iss", Value::from("https://elsewhere"));
    assert!(ask(&tokens, &key.sign(&elsewhere).unwrap()).await.unwrap().is_none());
    assert!(ask(&tokens, "opaque").await.unwrap().is_none());
}

#[tokio::test]
async fn an_email_is_accepted_unless_marked_unverified() {
    let (idp, tasks, key) = (idp().await, TaskGroup::new("test"), ec());
    idp.publish(&[&key]);
    let mut issuer = idp.issuer();
    issuer.username = claim("email", "");
    let tokens = idp.authenticators(issuer, &tasks).await;
    for (verified, fine) in [
        (Value::Null, true),
        (Value::from(true), true),
        (Value::from(false), false),
    ] {
        let mut claims = idp.claims();
        claims.set(&["email"], "j@x");
        claims.set(&["email_verified"], verified);
        claims.set(&["groups"], "one");
        let got = ask(&tokens, &key.sign(&claims).unwrap()).await;
        assert_eq!(got.is_ok(), fine);
        if let Ok(Some(found)) = got {
            assert_eq!(
                (found.user.name.as_str(), found.user.groups.join(" ")),
                ("j@x", "g:one".into())
            );
        }
    }
}

#[tokio::test]
async fn tokens_are_rejected_until_discovery_and_dropping_the_set_ends_it() {
    let tasks = TaskGroup::new("test");
    let text = "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration, jwt: [{issuer: {url: 'https://localhost:1', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]}";
    let config = Configuration::parse(text, &[]).unwrap();
    let tokens = JwtAuthenticators::new(discover(&config.issuers, &tasks).unwrap(), Arc::new(|| NOW));
    let token = ec().sign(&json!({"iss": "https://localhost:1"})).unwrap();
    assert_eq!(
        ask(&tokens, &token).await.unwrap_err(),
        "oidc: authenticator not initialized"
    );
    assert_eq!(tasks.len(), 1);
    tokens.replace(JwtAuthenticatorSet::default());
    assert!(ask(&tokens, &token).await.unwrap().is_none());
    settled(|| tasks.is_empty()).await;
}
