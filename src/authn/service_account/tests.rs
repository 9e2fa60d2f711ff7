use super::*;
use crate::authn::jwt::PublicKey;
use crate::authn::jwt::tests::{ec, rsa};
use crate::authn::jwt::{Signer, Token};
use crate::authn::{CacheDependency, PresentedToken, TokenAuthenticator, TokenUser};
use crate::json;
use crate::sync::Mutex;
use base64::Engine;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

const NOW: i64 = 1_800_000_000;
const AUD: &str = "https://kubernetes.default.svc";

#[derive(Default)]
struct World {
    objects: Arc<Mutex<HashMap<String, Value>>>,
    labels: Mutex<Vec<String>>,
}

impl World {
    fn put(&self, resource: &str, object: Value) {
        let key = format!("{resource}/{}", object.str_at(&["metadata", "name"]));
        self.objects.lock().insert(key, object);
    }
    fn edit(&self, key: &str, path: &[&str], value: &str) {
        let mut all = self.objects.lock();
        all.get_mut(key).unwrap().set(path, value);
    }
    fn remove(&self, key: &str) {
        self.objects.lock().remove(key);
    }
}

#[derive(Debug)]
struct Unchanged {
    objects: Arc<Mutex<HashMap<String, Value>>>,
    key: String,
    object: Value,
}

impl CacheDependency for Unchanged {
    fn is_unchanged(&self) -> bool {
        self.objects.lock().get(&self.key) == Some(&self.object)
    }
}

#[async_trait]
impl ObjectReader for World {
    async fn get(&self, resource: &'static str, _: &str, name: &str) -> Result<Option<ResolvedObject>, Unreadable> {
        let key = format!("{resource}/{name}");
        let object = self.objects.lock().get(&key).cloned();
        Ok(object.map(|object| ResolvedObject {
            object: object.clone(),
            dependency: Arc::new(Unchanged {
                objects: self.objects.clone(),
                key,
                object,
            }),
        }))
    }
    async fn label_secret(&self, _: &str, name: &str, label: &'static str, value: &str) {
        self.labels.lock().push(format!("{name} {label}={value}"));
    }
}

struct Bench {
    world: Arc<World>,
    now: Arc<AtomicI64>,
    issuer: Issuer,
    bound: ServiceAccountTokens,
    legacy: ServiceAccountTokens,
}

fn bench_with(signer: Signer, keys: Vec<PublicKey>) -> Bench {
    let world = Arc::new(World::default());
    for (resource, name) in [
        ("serviceaccounts", "sa"),
        ("pods", "p"),
        ("secrets", "s"),
        ("nodes", "n"),
    ] {
        world.put(
            resource,
            json!({"metadata": {"name": name, "uid": (format!("{name}-uid"))}}),
        );
    }
    let now = Arc::new(AtomicI64::new(NOW));
    let clock: Clock = {
        let now = now.clone();
        Arc::new(move || now.load(Ordering::Relaxed))
    };
    let dependencies = VerificationDependencies {
        keys: VerificationKeys::new(keys),
        audiences: vec![AUD.to_owned()],
        objects: world.clone(),
        clock: clock.clone(),
    };
    let issuers = vec!["https://new".to_owned(), "https://old".to_owned()];
    Bench {
        bound: ServiceAccountTokens::bound(issuers, dependencies.clone()),
        legacy: ServiceAccountTokens::legacy(true, dependencies),
        issuer: Issuer::new("https://new".into(), Arc::new(signer), clock),
        world,
        now,
    }
}

fn bench() -> Bench {
    let signer = ec();
    let key = signer.public().clone();
    bench_with(signer, vec![key])
}

fn claimed(name: &str) -> Claimed {
    Claimed {
        name: name.into(),
        uid: format!("{name}-uid"),
    }
}

fn spec() -> Bound {
    Bound {
        namespace: "ns".into(),
        service_account: claimed("sa"),
        audiences: vec![AUD.into()],
        seconds: 3600,
        ..Bound::default()
    }
}

impl Bench {
    async fn ask(&self, token: &str) -> Result<Option<TokenUser>, String> {
        let presented = PresentedToken { token, audiences: &[] };
        self.bound.authenticate_token(presented).await.map_err(|e| e.0)
    }
    async fn refusal(&self, token: &str) -> String {
        self.ask(token).await.unwrap_err()
    }
    fn issue(&self, bound: &Bound) -> String {
        self.issuer.issue(bound).unwrap().0
    }
}

#[tokio::test]
async fn a_bound_token_identifies_its_account_pod_and_node() {
    let b = bench();
    let (token, id) = b
        .issuer
        .issue(&Bound {
            pod: Some(claimed("p")),
            node: Some(claimed("n")),
            ..spec()
        })
        .unwrap();
    let found = b.ask(&token).await.unwrap().unwrap();
    assert_eq!(found.audiences, [AUD]);
    let user = found.user;
    assert_eq!(
        (user.name.as_str(), user.uid.as_str()),
        ("system:serviceaccount:ns:sa", "sa-uid")
    );
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns"]);
    let extra: Vec<(String, String)> = user.extra.iter().map(|(k, v)| (k.clone(), v.join(","))).collect();
    let want = [
        ("credential-id", format!("JTI={id}")),
        ("node-name", "n".into()),
        ("node-uid", "n-uid".into()),
        ("pod-name", "p".into()),
        ("pod-uid", "p-uid".into()),
    ];
    let want: Vec<(String, String)> = want
        .into_iter()
        .map(|(k, v)| (format!("authentication.kubernetes.io/{k}"), v))
        .collect();
    assert_eq!(extra, want);
    let claims = Token::parse(&token).unwrap().claims;
    assert_eq!(
        claims.at(&["kubernetes.io", "serviceaccount"]),
        &json!({"name": "sa", "uid": "sa-uid"})
    );
    assert_eq!(claims.get("exp").as_i64(), Some(NOW + 3600));
}

#[tokio::test]
async fn a_token_is_valid_while_its_bound_objects_exist() {
    let gone = "service account token has been invalidated";
    for (resource, word, name) in [("pods", "pod", "p"), ("secrets", "secret", "s"), ("nodes", "node", "n")] {
        let b = bench();
        let mut bound = spec();
        match word {
            "pod" => bound.pod = Some(claimed(name)),
            "secret" => bound.secret = Some(claimed(name)),
            _ => bound.node = Some(claimed(name)),
        }
        let token = b.issue(&bound);
        let key = format!("{resource}/{name}");
        let found = b.ask(&token).await.unwrap().unwrap();
        assert!(found.is_current());
        b.world
            .edit(&key, &["metadata", "deletionTimestamp"], "2027-01-15T07:59:30Z");
        assert!(!found.is_current(), "the {word} has changed");
        assert!(b.ask(&token).await.unwrap().is_some(), "within the leeway");
        b.now.store(NOW + 31, Ordering::Relaxed);
        assert_eq!(b.refusal(&token).await, gone);
        b.world
            .put(resource, json!({"metadata": {"name": name, "uid": "another"}}));
        assert_eq!(
            b.refusal(&token).await,
            format!("{word} UID (another) does not match service account {word} ref claim ({name}-uid)")
        );
        b.world.remove(&key);
        assert_eq!(b.refusal(&token).await, gone);
    }
    let b = bench();
    let token = b.issue(&spec());
    let found = b.ask(&token).await.unwrap().unwrap();
    b.world.edit("serviceaccounts/sa", &["metadata", "uid"], "x");
    assert!(!found.is_current(), "the account has changed");
    assert_eq!(
        b.refusal(&token).await,
        "service account UID (x) does not match claim (sa-uid)"
    );
    b.world.remove("serviceaccounts/sa");
    assert_eq!(b.refusal(&token).await, "serviceaccounts \"sa\" not found");
}

#[tokio::test]
async fn times_have_a_minute_of_leeway() {
    let b = bench();
    let token = b.issue(&spec());
    for (at, want) in [
        (NOW - 61, Some("service account token is not valid yet")),
        (NOW - 60, None),
        (NOW + 3660, None),
        (NOW + 3661, Some("service account token has expired")),
    ] {
        b.now.store(at, Ordering::Relaxed);
        assert_eq!(b.ask(&token).await.err().as_deref(), want, "{}", at - NOW);
    }
}

#[tokio::test]
async fn a_token_for_other_audiences_is_rejected() {
    let b = bench();
    let token = b.issue(&Bound {
        audiences: vec!["vault".into(), "x".into()],
        ..spec()
    });
    assert_eq!(
        b.refusal(&token).await,
        format!("token audiences [\"vault\" \"x\"] is invalid for the target audiences [\"{AUD}\"]")
    );
    let presented = PresentedToken {
        token: &token,
        audiences: &["y".to_owned(), "x".to_owned()],
    };
    let found = b.bound.authenticate_token(presented).await.unwrap().unwrap();
    assert_eq!(found.audiences, ["x"]);
}

#[tokio::test]
async fn former_keys_and_issuers_are_accepted_and_unknown_ones_rejected() {
    let (old, new, foreign) = (rsa(), ec(), rsa());
    let keys = vec![new.public().clone(), old.public().clone()];
    let clock = system_clock();
    let issuer = |name: &str, signer: Signer| Issuer::new(name.into(), Arc::new(signer), clock.clone());
    let b = bench_with(new, keys);
    b.now.store(system_clock()(), Ordering::Relaxed);
    let former = issuer("https://old", old).issue(&spec()).unwrap().0;
    assert!(b.ask(&former).await.unwrap().is_some());
    let stranger = issuer("https://old", foreign);
    let forged = stranger.issue(&spec()).unwrap().0;
    assert_eq!(b.refusal(&forged).await, "invalid signature, no keys found");
    let elsewhere = issuer("https://elsewhere", rsa()).issue(&spec()).unwrap().0;
    assert!(
        b.ask(&elsewhere).await.unwrap().is_none(),
        "left to other authenticators"
    );
    // A signature by another key under the id of one of our keys.
    let claims = Token::parse(&forged).unwrap().claims;
    let confused = json!({"alg": "RS256", "kid": (Token::parse(&former).unwrap().key_id)});
    let forged = rsa().sign_with(&confused, &claims).unwrap();
    assert_eq!(
        b.refusal(&forged).await,
        "go-jose/go-jose: error in cryptographic primitive"
    );
}

#[tokio::test]
async fn a_stale_token_is_annotated() {
    let b = bench();
    let token = b.issue(&Bound {
        seconds: 100_000,
        warn_after: 3607,
        ..spec()
    });
    assert!(b.ask(&token).await.unwrap().unwrap().annotations.is_empty());
    b.now.store(NOW + 3700, Ordering::Relaxed);
    assert_eq!(
        b.ask(&token).await.unwrap().unwrap().annotations,
        [(
            "authentication.k8s.io/stale-token",
            "subject: system:serviceaccount:ns:sa, seconds after warning threshold: 93".to_owned()
        )]
    );
}

#[tokio::test]
async fn a_legacy_token_is_valid_while_its_secret_contains_it() {
    let b = bench();
    let token = b.issuer.issue_legacy("ns", &claimed("sa"), "s").unwrap();
    let ask = || async {
        let presented = PresentedToken {
            token: &token,
            audiences: &[],
        };
        b.legacy.authenticate_token(presented).await.map_err(|e| e.0)
    };
    assert_eq!(ask().await.unwrap_err(), "Token does not match server's copy");
    let copy = base64::engine::general_purpose::STANDARD.encode(&token);
    b.world.edit("secrets/s", &["data", "token"], &copy);
    let found = ask().await.unwrap().unwrap();
    assert_eq!(found.user.name, "system:serviceaccount:ns:sa");
    assert_eq!((found.dependencies.len(), found.is_current()), (2, true));
    assert_eq!((found.audiences, found.warnings.len()), (vec![AUD.to_owned()], 0));
    assert_eq!(
        *b.world.labels.lock(),
        ["s kubernetes.io/legacy-token-last-used=2027-01-15"]
    );
    b.world.edit(
        "secrets/s",
        &["metadata", "labels", "kubernetes.io/legacy-token-last-used"],
        "2027-01-15",
    );
    b.world.put(
        "serviceaccounts",
        json!({"metadata": {"name": "sa", "uid": "sa-uid"}, "secrets": [{"name": "s"}]}),
    );
    assert_eq!(ask().await.unwrap().unwrap().warnings.len(), 1);
    assert_eq!(b.world.labels.lock().len(), 1);
    b.world.edit(
        "secrets/s",
        &["metadata", "labels", "kubernetes.io/legacy-token-invalid-since"],
        "2027-01-01",
    );
    assert!(
        ask()
            .await
            .unwrap_err()
            .starts_with("the token in secret ns/s for service account ns/sa has been marked")
    );
    b.world.remove("secrets/s");
    assert_eq!(ask().await.unwrap_err(), "Token has been invalidated");
    assert!(b.ask(&token).await.unwrap().is_none(), "not a bound token");
}

#[test]
fn published_keys_verify_issued_tokens() {
    let signer = ec();
    let keys = VerificationKeys::new(vec![signer.public().clone(), rsa().public().clone()]);
    let d = discovery::Documents::new("https://new", &keys, "https://host:6443/openid/v1/jwks").unwrap();
    assert_eq!(
        d.configuration(),
        r#"{"issuer":"https://new","jwks_uri":"https://host:6443/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}"#
    );
    let set = crate::apimachinery::codec::json::decode(d.key_set().as_bytes()).unwrap();
    let first = PublicKey::from_jwk(&set.get("keys").items()[0]).unwrap().unwrap();
    let token = signer.sign(&json!({})).unwrap();
    assert!(Token::parse(&token).unwrap().verified_by(&first));
    for issuer in ["http://new", "kubernetes", "https://new?x=y", "https://new#f"] {
        assert!(discovery::Documents::new(issuer, &keys, "u").is_none(), "{issuer}");
    }
}
