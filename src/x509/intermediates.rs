//! [`intermediates_to_try`]: the certificates of a peer's chain from which its verifier builds a path. Whether the path
//! is trusted is the verifier's to decide.

use rustls::pki_types::CertificateDer;

/// Certificates above the leaf, as many as the verifier accepts in a path.
const MAX_INTERMEDIATES: usize = 6;
/// Their size in all, in bytes: the search parses each of them at each step.
const MAX_BYTES: usize = 32 << 10;
/// Certificates whose subject an earlier one has, as with cross-signed authorities.
const MAX_NAMESAKES: usize = 2;

/// The first intermediates of a chain, with few of the same name. The search for a path tries those in every order:
/// a dozen certificates that anybody can make would keep a reactor busy for a second.
pub(crate) fn intermediates_to_try<'a>(intermediates: &'a [CertificateDer<'_>]) -> Vec<CertificateDer<'a>> {
    let (mut kept, mut subjects) = (Vec::new(), Vec::new());
    let (mut bytes, mut namesakes) = (0, 0);
    for der in intermediates.iter().take(MAX_INTERMEDIATES) {
        bytes += der.len();
        // With the verifier's own parser, which skips what it cannot parse, too.
        let Ok(parsed) = webpki::anchor_from_trusted_cert(der) else {
            continue;
        };
        namesakes += usize::from(subjects.contains(&parsed.subject));
        if bytes > MAX_BYTES || namesakes > MAX_NAMESAKES {
            break;
        }
        subjects.push(parsed.subject);
        kept.push(CertificateDer::from(&**der));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(name: &str, length: usize) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let organization = "o".repeat(length);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let key = KeyPair::generate().expect("a key is made");
        let made = params.self_signed(&key).expect("a certificate is made");
        made.der().clone()
    }

    #[test]
    fn intermediates_are_limited_in_total_and_per_name() {
        let kept = |chain: &[CertificateDer<'_>]| intermediates_to_try(chain).len();
        let distinct: Vec<_> = (0..8).map(|i| certificate(&format!("ca-{i}"), 1)).collect();
        assert_eq!(intermediates_to_try(&distinct), distinct[..MAX_INTERMEDIATES]);
        let namesakes: Vec<_> = (0..6).map(|_| certificate("ca", 1)).collect();
        assert_eq!(kept(&namesakes), 1 + MAX_NAMESAKES);
        // Its name makes up most of a certificate, once as the subject and once as the issuer.
        let large: Vec<_> = (0..6).map(|i| certificate(&format!("ca-{i}"), 5_000)).collect();
        assert_eq!(kept(&large), 3);
        assert_eq!(kept(&[CertificateDer::from(vec![0]), distinct[0].clone()]), 1);
    }
}
