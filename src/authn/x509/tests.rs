use super::*;
use crate::request::TrustAnchors;
use http::HeaderMap;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};

struct Anchors(Vec<TrustAnchor<'static>>);

impl TrustAnchors for Anchors {
    fn roots(&self) -> &[TrustAnchor<'static>] {
        &self.0
    }
}

struct Source(arc_swap::ArcSwap<Anchors>);

impl ClientCaSource for Source {
    fn current(&self) -> Arc<dyn TrustAnchors> {
        self.0.load_full()
    }
}

pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pool: Arc<Anchors>,
    pem: String,
}

pub(crate) fn ca(name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let root = webpki::anchor_from_trusted_cert(cert.der()).unwrap().to_owned();
    Ca {
        issuer: Issuer::new(params, key),
        pool: Arc::new(Anchors(vec![root])),
        pem: cert.pem(),
    }
}

impl Ca {
    pub(crate) fn pem(&self) -> String {
        self.pem.clone()
    }

    pub(crate) fn pool(&self) -> Arc<dyn ClientCaSource> {
        Arc::new(Source(arc_swap::ArcSwap::new(self.pool.clone())))
    }

    pub(crate) fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<Vec<CertificateDer<'static>>> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Arc::new(vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()])
    }

    /// A client whose certificate has more than 16 KiB of names.
    pub(crate) fn large_client(&self, cn: &str) -> Arc<Vec<CertificateDer<'static>>> {
        let name = |i| SanType::DnsName(format!("{i}.example.com").try_into().expect("the name is ASCII"));
        self.sign(|p| {
            p.distinguished_name.push(DnType::CommonName, cn);
            p.subject_alt_names = (0..1_500).map(name).collect();
        })
    }

    pub(crate) fn client(&self, cn: &str, groups: &[&str]) -> Arc<Vec<CertificateDer<'static>>> {
        self.sign(|p| {
            p.distinguished_name.push(DnType::CommonName, cn);
            for g in groups {
                p.distinguished_name.push(DnType::OrganizationName, *g);
            }
        })
    }
}

pub(crate) async fn ask(
    a: &dyn Authenticator,
    chain: &Arc<Vec<CertificateDer<'static>>>,
    headers: &HeaderMap,
) -> Result<Option<Arc<UserInfo>>, AuthenticationError> {
    let from = Credentials {
        headers,
        peer: Some(chain),
        path: "/",
        warnings: None,
    };
    Ok(a.authenticate(from).await?.map(|i| i.user))
}

#[tokio::test]
async fn the_subject_names_user_and_groups() {
    let ca = ca("ca");
    let a = X509::new(ca.pool());
    let chain = ca.client("jane", &["dev"]);
    let user = ask(&a, &chain, &HeaderMap::new()).await.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", ""));
    assert_eq!(user.groups, ["dev", "system:authenticated"]);
    let id = &user.extra[CREDENTIAL_ID][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == 75, "{id}");
    let again = ask(&a, &chain, &HeaderMap::new()).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&user, &again), "cached for the connection");
}

#[tokio::test]
async fn large_chains_are_not_verified_on_the_reactor() {
    let ca = ca("ca");
    let a = X509::new(ca.pool());
    let headers = HeaderMap::new();
    let sync = |chain: &Arc<Vec<CertificateDer<'static>>>| {
        a.authenticate_sync(Credentials {
            headers: &headers,
            peer: Some(chain),
            path: "/",
            warnings: None,
        })
    };
    assert!(matches!(sync(&ca.client("jane", &[])), SyncOutcome::Authenticated(_)));
    let large = ca.large_client("jane");
    assert!(matches!(sync(&large), SyncOutcome::Unknown));
    let user = ask(&a, &large, &headers).await.unwrap().unwrap();
    assert_eq!(user.name, "jane");
    assert!(matches!(sync(&large), SyncOutcome::Authenticated(_)), "remembered");
}

#[tokio::test]
async fn certificates_of_version_1_authenticate() {
    use crate::x509::testing::version_one;
    let issued = version_one("jane", "490101000000Z");
    let anchors = |ca| Anchors(vec![webpki::anchor_from_trusted_cert(ca).unwrap().to_owned()]);
    let a = X509::new(Arc::new(Source(arc_swap::ArcSwap::from_pointee(anchors(&issued.ca)))));
    let h = HeaderMap::new();
    let user = ask(&a, &Arc::new(vec![issued.certificate]), &h).await.unwrap();
    assert_eq!(user.unwrap().name, "jane");
    let other = version_one("jane", "490101000000Z").certificate;
    assert!(
        ask(&a, &Arc::new(vec![other]), &h).await.is_err(),
        "issued by another CA"
    );
    let expired = version_one("jane", "210101000000Z");
    let a = X509::new(Arc::new(Source(arc_swap::ArcSwap::from_pointee(anchors(&expired.ca)))));
    let refused = ask(&a, &Arc::new(vec![expired.certificate]), &h).await.unwrap_err();
    assert!(refused.0.ends_with("expired or is not yet valid"), "{}", refused.0);
}

#[tokio::test]
async fn groups_of_every_string_type_are_read_and_invalid_ones_rejected() {
    use rcgen::DnValue;
    use rcgen::string::{BmpString, TeletexString, UniversalString};
    let ca = ca("ca");
    let a = X509::new(ca.pool());
    for group in [
        DnValue::TeletexString(TeletexString::try_from("dev").unwrap()),
        DnValue::BmpString(BmpString::try_from("dev").unwrap()),
        DnValue::UniversalString(UniversalString::try_from("dev").unwrap()),
    ] {
        let chain = ca.sign(|p| {
            p.distinguished_name.push(DnType::CommonName, "jane");
            p.distinguished_name.push(DnType::OrganizationName, group.clone());
        });
        let user = ask(&a, &chain, &HeaderMap::new()).await.unwrap().unwrap();
        assert_eq!(user.groups, ["dev", "system:authenticated"], "{group:?}");
    }
    let ended = ca.client("jane\0.example.com", &[]);
    let refused = ask(&a, &ended, &HeaderMap::new()).await.unwrap_err();
    assert!(
        refused.0.ends_with("an attribute of the subject holds a NUL"),
        "{}",
        refused.0
    );
}

#[tokio::test]
async fn the_uid_comes_from_its_own_attribute() {
    let ca = ca("ca");
    let a = X509::new(ca.pool());
    let chain = ca.sign(|p| {
        p.distinguished_name.push(DnType::CommonName, "jane");
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        p.distinguished_name.push(uid, "u-1");
    });
    assert_eq!(ask(&a, &chain, &HeaderMap::new()).await.unwrap().unwrap().uid, "u-1");
}

#[tokio::test]
async fn unverifiable_chains_are_rejected_and_nameless_ones_ignored() {
    let (ours, theirs) = (ca("ca"), ca("ca"));
    let a = X509::new(ours.pool());
    let h = HeaderMap::new();
    assert!(ask(&a, &theirs.client("jane", &[]), &h).await.is_err());
    let server_only = ours.sign(|p| {
        p.distinguished_name.push(DnType::CommonName, "jane");
        p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert!(ask(&a, &server_only, &h).await.is_err());
    let expired = ours.sign(|p| {
        p.distinguished_name.push(DnType::CommonName, "jane");
        p.not_after = rcgen::date_time_ymd(2020, 1, 1);
        p.not_before = rcgen::date_time_ymd(2019, 1, 1);
    });
    assert!(ask(&a, &expired, &h).await.is_err());
    let no_usage = ours.sign(|p| {
        p.distinguished_name.push(DnType::CommonName, "jane");
        p.extended_key_usages = vec![];
    });
    assert!(ask(&a, &no_usage, &h).await.unwrap().is_some());
    let nameless = ours.sign(|p| p.distinguished_name = rcgen::DistinguishedName::new());
    assert!(ask(&a, &nameless, &h).await.unwrap().is_none());
}

#[test]
fn a_path_is_found_among_few_intermediates_of_one_name_and_not_searched_among_many() {
    use rustls::pki_types::pem::PemObject as _;
    let root = ca("root");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "namesake");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let issued = params.signed_by(&key, &root.issuer).unwrap().der().clone();
    let issuer = Issuer::new(params, key);
    let mut leaf = CertificateParams::default();
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let leaf = leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    let leaf = leaf.der().clone();
    let namesake = || CertificateDer::from_pem_slice(ca("namesake").pem.as_bytes()).unwrap();
    let verify = |chain: &[CertificateDer<'_>]| verify_chain(chain, root.pool.roots(), SystemTime::now());
    assert_eq!(verify(&[leaf.clone(), namesake(), namesake(), issued]), Ok(()));
    // A search among all of them would end with the library's own limit, 200,000 steps.
    let many: Vec<_> = std::iter::once(leaf).chain((0..12).map(|_| namesake())).collect();
    let unknown = Untrusted(webpki::Error::UnknownIssuer.to_string());
    assert_eq!(verify(&many), Err(unknown));
}

#[tokio::test]
async fn replacing_the_ca_revalidates_open_connections() {
    let (old, new) = (ca("ca"), ca("ca"));
    let source = Arc::new(Source(arc_swap::ArcSwap::new(old.pool.clone())));
    let a = X509::new(source.clone());
    let chain = old.client("jane", &[]);
    let h = HeaderMap::new();
    assert!(ask(&a, &chain, &h).await.unwrap().is_some());
    source.0.store(new.pool.clone());
    assert!(ask(&a, &chain, &h).await.is_err());
}
