//! The cost of authenticating a known caller: a token in the token cache, a client certificate on its connection. For
//! the cost of an authorization decision over 10,000 bindings, see the ignored test `decision_latency` of
//! `authz::rbac`.

use http::{HeaderMap, header};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::sdk::authn::{Authenticator, BearerToken, Credentials, TokenFile};
use torana::testing::authn::{TokenCache, X509};
use torana::testing::pki::{CaPool, ClientCaSource, TrustAnchors};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Fixed(Arc<CaPool>);

impl ClientCaSource for Fixed {
    fn current(&self) -> Arc<dyn TrustAnchors> {
        self.0.clone()
    }
}

fn certificate() -> (Arc<CaPool>, Arc<Vec<CertificateDer<'static>>>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate");
    let pool = CaPool::from_pem(ca.pem()).expect("a bundle");
    let issuer = Issuer::new(params, key);
    let mut client = CertificateParams::default();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    client.distinguished_name.push(DnType::CommonName, "jane");
    client.distinguished_name.push(DnType::OrganizationName, "dev");
    let key = KeyPair::generate().expect("a key");
    let leaf = client.signed_by(&key, &issuer).expect("a certificate");
    (Arc::new(pool), Arc::new(vec![leaf.der().clone()]))
}

async fn measure(
    name: &str,
    who: &dyn Authenticator,
    from: impl Fn() -> (HeaderMap, Option<Arc<Vec<CertificateDer<'static>>>>),
) {
    let (headers, peer) = from();
    let mut best = Duration::MAX;
    for _ in 0..200 {
        let since = Instant::now();
        for _ in 0..1_000 {
            let credentials = Credentials {
                headers: &headers,
                peer: peer.as_ref(),
                path: "/api/v1/pods",
                warnings: None,
            };
            let known = who.authenticate(credentials).await;
            black_box(known.expect("not refused").expect("known"));
        }
        best = best.min(since.elapsed() / 1_000);
    }
    println!("{name:48} {:10.2} µs", best.as_secs_f64() * 1e6);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        // As long as a service account token.
        let token = "t".repeat(1_000);
        let file = TokenFile::parse("tokens", &format!("{token},jane,u,dev")).expect("a token");
        let cache = TokenCache::try_new(Arc::new(file), None).expect("random numbers");
        let bearer = BearerToken::new(Arc::new(cache));
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().expect("a value"),
        );
        measure("authenticate: a token in the cache", &bearer, || {
            (headers.clone(), None)
        })
        .await;

        let (pool, chain) = certificate();
        let x509 = X509::new(Arc::new(Fixed(pool)));
        measure("authenticate: a certificate on its connection", &x509, || {
            (HeaderMap::new(), Some(chain.clone()))
        })
        .await;
    });
}
