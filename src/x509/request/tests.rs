use super::super::testing::{self, COMMON_NAME, EXTENSION_REQUEST, ORGANIZATION, attribute, name, tlv};
use super::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

fn read(text: &str) -> Result<CertificateRequest, Malformed> {
    CertificateRequest::from_pem(text.as_bytes())
}

fn subject() -> Vec<u8> {
    name(&[attribute(COMMON_NAME, 0x0c, b"jane")])
}

fn asking_for(extensions: &[(&[u8], &[u8])]) -> Result<CertificateRequest, Malformed> {
    CertificateRequest::from_der(&testing::request(&subject(), &testing::extension_request(extensions)))
}

#[test]
fn common_requests_are_accepted() {
    let algorithms = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ];
    for algorithm in algorithms {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        params.subject_alt_names = vec![
            SanType::DnsName("n.example.com".try_into().unwrap()),
            SanType::IpAddress("fd00::1".parse().unwrap()),
            SanType::URI("https://n.example.com/".try_into().unwrap()),
            SanType::Rfc822Name("n@example.com".try_into().unwrap()),
        ];
        let key = KeyPair::generate_for(algorithm).unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = read(&pem).unwrap();
        assert_eq!(request.subject.common_name(), "system:node:n");
        assert_eq!(request.subject.organizations(), ["system:nodes"]);
        assert!(
            read(&pem.replace('\n', "\r\n")).is_ok(),
            "CRLF line endings are accepted"
        );
    }
}

#[test]
fn invalid_signatures_are_rejected() {
    let mut der = testing::request(&subject(), &[]);
    assert!(CertificateRequest::from_der(&der).is_ok());
    let at = der.windows(4).position(|w| w == b"jane").unwrap();
    der[at] = b'J';
    assert_eq!(
        CertificateRequest::from_der(&der),
        Err(Malformed("x509: the request's signature is not one of its key"))
    );
}

#[test]
fn extra_data_around_the_request_is_rejected() {
    let good = testing::csr(ORGANIZATION, 0x0c, b"demo");
    let masters = testing::csr(ORGANIZATION, 0x0c, b"system:masters");
    assert!(read(&good).is_ok());
    assert!(
        read(&format!("\n{good}\n")).is_ok(),
        "surrounding white space is accepted"
    );
    for bad in [
        format!("{good}{masters}"),
        format!("{masters}junk"),
        format!("junk\n{good}"),
        good.replace("REQUEST-----\nMI", "REQUEST-----\nProc-Type: 4,ENCRYPTED\n\nMI"),
        good.replacen("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST", 2),
        good.replacen("-----END CERTIFICATE REQUEST", "-----END CERTIFICATE", 1),
    ] {
        let refused = read(&bad).unwrap_err();
        assert_eq!(refused.0, "PEM block type must be CERTIFICATE REQUEST", "{bad}");
    }
    let der = testing::request(&subject(), &[]);
    let followed = [&der[..], b"\x05\x00"].concat();
    assert!(
        CertificateRequest::from_der(&followed).is_err(),
        "data after the request"
    );
}

#[test]
fn extensions_are_parsed_completely() {
    let usage: &[u8] = &[0x55, 0x1d, 0x0f];
    let names = |names: &[Vec<u8>]| tlv(SEQUENCE, &names.concat());
    let good = names(&[
        tlv(0x82, b"a.example.com"),
        tlv(0x87, &[10, 0, 0, 1]),
        tlv(0x81, b"a@example.com"),
        tlv(0x86, b"https://a"),
    ]);
    assert!(asking_for(&[(ALTERNATIVE_NAMES, &good), (usage, b"\x03\x02\x05\xa0")]).is_ok());
    assert_eq!(
        asking_for(&[(ALTERNATIVE_NAMES, &good), (ALTERNATIVE_NAMES, &good)]),
        Err(Malformed(
            "x509: certificate request contains duplicate requested extensions"
        ))
    );
    for bad in [
        names(&[tlv(0x87, &[10, 0, 0])]),
        names(&[tlv(0x82, b"a\0.evil")]),
        names(&[tlv(0x81, b"a\x80")]),
        names(&[tlv(0x86, b"https://\n")]),
        names(&[tlv(0x0c, b"a")]),
        [good.clone(), vec![5, 0]].concat(),
    ] {
        assert!(asking_for(&[(ALTERNATIVE_NAMES, &bad)]).is_err(), "{bad:?}");
    }
    let twice = [
        testing::extension_request(&[(ALTERNATIVE_NAMES, &good)]),
        testing::extension_request(&[(ALTERNATIVE_NAMES, &good)]),
    ];
    let der = testing::request(&subject(), &twice.concat());
    assert!(
        CertificateRequest::from_der(&der).is_err(),
        "two attributes requesting the same extension"
    );
    let second_value = tlv(
        SEQUENCE,
        &[
            tlv(super::super::der::OBJECT_IDENTIFIER, EXTENSION_REQUEST),
            tlv(SET, &[tlv(SEQUENCE, &[]), tlv(SEQUENCE, &[])].concat()),
        ]
        .concat(),
    );
    let der = testing::request(&subject(), &second_value);
    assert!(
        CertificateRequest::from_der(&der).is_err(),
        "a second attribute value, which Go ignores"
    );
}
