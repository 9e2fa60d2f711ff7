//! The cost of a caller who is known: authenticated by the token cache or by the certificate of the
//! connection, and authorized by a role. Each is measured by both methods of its trait: with the future,
//! which waits for nothing here, and synchronously, which is what a request does first. For a decision over
//! 10,000 bindings, see the ignored test `decision_latency` of `authz::rbac`.

use http::{HeaderMap, Method, header};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::sdk::authn::{Authenticator, BearerToken, Credentials, SyncOutcome, TokenFile, Union};
use torana::sdk::authz::{Attributes, Authorizer, Decision};
use torana::testing::authn::{TokenCache, X509};
use torana::testing::pki::{CaPool, ClientCaSource, TrustAnchors};
use torana::testing::request::RequestInfo;
use torana::testing::roles;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCHES: usize = 200;
const BATCH: u32 = 1_000;

struct Fixed(Arc<CaPool>);

impl ClientCaSource for Fixed {
    fn current(&self) -> Arc<dyn TrustAnchors> {
        self.0.clone()
    }
}

type Certificates = Option<Arc<Vec<CertificateDer<'static>>>>;

fn certificate() -> (Arc<CaPool>, Certificates) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate");
    let pool = CaPool::from_pem(ca.pem()).expect("a bundle");
    let issuer = Issuer::new(params, key);
    let mut client = CertificateParams::default();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    client.distinguished_name.push(DnType::CommonName, "user-7");
    client.distinguished_name.push(DnType::OrganizationName, "dev");
    let key = KeyPair::generate().expect("a key");
    let leaf = client.signed_by(&key, &issuer).expect("a certificate");
    (Arc::new(pool), Some(Arc::new(vec![leaf.der().clone()])))
}

/// Prints the best of many batches, per call.
fn print(name: &str, best: Duration) {
    println!("{name:56} {:10.3} µs", best.as_secs_f64() * 1e6 / f64::from(BATCH));
}

/// Authenticates with the future of `who`, then synchronously.
async fn authenticate(name: &str, who: &dyn Authenticator, headers: &HeaderMap, peer: &Certificates) {
    let credentials = || Credentials {
        headers,
        peer: peer.as_ref(),
        path: "/api/v1/pods",
        warnings: None,
    };
    let mut best = Duration::MAX;
    for _ in 0..BATCHES {
        let since = Instant::now();
        for _ in 0..BATCH {
            let known = who.authenticate(black_box(credentials())).await;
            black_box(known.expect("not refused").expect("known"));
        }
        best = best.min(since.elapsed());
    }
    print(&format!("authenticate, future: {name}"), best);
    let mut best = Duration::MAX;
    for _ in 0..BATCHES {
        let since = Instant::now();
        for _ in 0..BATCH {
            let known = who.authenticate_sync(black_box(credentials()));
            assert!(matches!(black_box(&known), SyncOutcome::Authenticated(_)));
        }
        best = best.min(since.elapsed());
    }
    print(&format!("authenticate, synchronous: {name}"), best);
}

async fn authorize(name: &str, who: &dyn Authorizer, attributes: &Attributes<'_>) {
    let mut best = Duration::MAX;
    for _ in 0..BATCHES {
        let since = Instant::now();
        for _ in 0..BATCH {
            let verdict = who.authorize(black_box(attributes)).await;
            assert_eq!(black_box(verdict).decision, Decision::Allow);
        }
        best = best.min(since.elapsed());
    }
    print(&format!("authorize, future: {name}"), best);
    let mut best = Duration::MAX;
    for _ in 0..BATCHES {
        let since = Instant::now();
        for _ in 0..BATCH {
            let verdict = who.authorize_sync(black_box(attributes)).expect("it is known");
            assert_eq!(black_box(verdict).decision, Decision::Allow);
        }
        best = best.min(since.elapsed());
    }
    print(&format!("authorize, synchronous: {name}"), best);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        // As long as a service account token.
        let token = "t".repeat(1_000);
        let file = TokenFile::parse("tokens", &format!("{token},user-7,u,dev")).expect("a token");
        let cache = TokenCache::try_new(Arc::new(file), None).expect("random numbers");
        let (pool, chain) = certificate();
        // The order of the gateway: certificates, then tokens.
        let all = Union::new(vec![
            Arc::new(X509::new(Arc::new(Fixed(pool)))),
            Arc::new(BearerToken::new(Arc::new(cache))),
        ]);
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().expect("a value"),
        );
        authenticate("a token in the cache", &all, &headers, &None).await;
        authenticate("a certificate on its connection", &all, &HeaderMap::new(), &chain).await;

        let known = all.authenticate(Credentials {
            headers: &headers,
            peer: None,
            path: "/",
            warnings: None,
        });
        let user = known.await.expect("not refused").expect("known").user;
        let uri = "/api/v1/namespaces/default/pods/web".parse().expect("a URI");
        let info = RequestInfo::resolve(&Method::GET, &uri).expect("a resource request");
        let attributes = Attributes::of(&user, &info);
        authorize(
            "one of 1,000 users with a role",
            &*roles::authorizer(1_000),
            &attributes,
        )
        .await;
    });
}
