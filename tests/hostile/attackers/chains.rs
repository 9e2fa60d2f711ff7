//! Certificates that nobody trusts, of clients and of backends: chains in which the search for a path has many choices,
//! and leaves with many names.

use super::Cases;
use super::extenders::{API_SERVICES, register_trusting};
use crate::backend::Backend;
use crate::scale::Scale;
use crate::wire::{self, PeerCertificate, Request};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;
use std::time::Instant;

/// Authorities of one name in a chain.
const NAMESAKES: usize = 40;

pub(super) fn of_clients(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(100, 8);
    let mut presented = |name: &str, make: fn() -> PeerCertificate| {
        cases.add(format!("certificate: {name}, 100 times"), move |scene| {
            let certificate = make();
            for _ in 0..n {
                let Some(mut io) = scene.connect_as(&certificate) else {
                    break;
                };
                let _ = wire::send(&mut io, &Request::get("/api"), "");
                if let Some(answer) = scene.answered(&mut io, Instant::now()) {
                    scene.expect(answer.code == 401, || format!("it is refused, not {}", answer.code));
                }
            }
            scene.hold();
        });
    };
    presented("a leaf below forty authorities of one name", namesakes);
    presented("a leaf with 2,500 names", || leaf(2_500));
}

pub(super) fn of_backends(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(30, 10);
    cases.add(
        "certificate: below forty authorities of one name, of 30 APIServices",
        move |scene| {
            let backend = Backend::start_as(namesakes(), Arc::new(|_, _| {}));
            let (params, key) = authority();
            let trusted = params.self_signed(&key).expect("a certificate is made").pem();
            let groups: Vec<_> = (0..n)
                .map(|_| register_trusting(scene, backend.port, &trusted))
                .collect();
            for group in &groups {
                let path = format!("{API_SERVICES}/v1.{group}");
                scene.until("the certificate is refused", |scene| {
                    let text = scene.stage.admin(&Request::get(path.as_str())).text();
                    text.contains(r#""reason":"FailedDiscoveryCheck""#)
                });
                scene.send(&Request::get(format!("/apis/{group}/v1/namespaces/evil/things/a")));
            }
            scene.hold();
        },
    );
}

fn authority() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "namesake");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().expect("a key is made"))
}

/// A leaf, and authorities with the name of its issuer, each of which could have issued every other one.
fn namesakes() -> PeerCertificate {
    let mut certificate = leaf(1);
    certificate.chain.extend((0..NAMESAKES).map(|_| {
        let (params, key) = authority();
        let made = params.self_signed(&key).expect("a certificate is made");
        made.der().clone()
    }));
    certificate
}

/// A leaf for `localhost` and `names` other names.
fn leaf(names: usize) -> PeerCertificate {
    let (params, key) = authority();
    let issuer = Issuer::new(params, key);
    let others = (0..names).map(|i| format!("{i}.example.com"));
    let names: Vec<_> = std::iter::once("localhost".to_owned()).chain(others).collect();
    let mut params = CertificateParams::default();
    let alternative = |name: &String| SanType::DnsName(name.as_str().try_into().expect("the name is ASCII"));
    params.subject_alt_names = names.iter().map(alternative).collect();
    let key = KeyPair::generate().expect("a key is made");
    let made = params.signed_by(&key, &issuer).expect("a certificate is made");
    PeerCertificate {
        chain: vec![made.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key"),
    }
}
