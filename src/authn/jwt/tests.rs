use super::*;
use crate::json;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::encoding::Pkcs8V1Der;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, RsaKeyPair};
use proptest::prelude::*;

/// An RSA key of 2048 bits.
pub(crate) fn rsa() -> Signer {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    Signer::from_der(AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).unwrap().as_ref()).unwrap()
}

/// A key on P-256.
pub(crate) fn ec() -> Signer {
    on(&signature::ECDSA_P256_SHA256_FIXED_SIGNING)
}

fn on(curve: &'static signature::EcdsaSigningAlgorithm) -> Signer {
    let pair = EcdsaKeyPair::generate(curve).unwrap();
    Signer::from_der(pair.to_pkcs8v1().unwrap().as_ref()).unwrap()
}

fn part(v: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json::to_vec(v))
}

#[test]
fn only_the_signing_key_verifies() {
    let keys = [
        rsa(),
        ec(),
        on(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
        on(&signature::ECDSA_P521_SHA512_FIXED_SIGNING),
    ];
    let names = ["RS256", "ES256", "ES384", "ES512"];
    for (signer, name) in keys.iter().zip(names) {
        let text = signer.sign(&json!({"sub": "x", "aud": ["a"]})).unwrap();
        let token = Token::parse(&text).unwrap();
        assert_eq!(
            (token.algorithm.name(), token.audiences()),
            (name, vec!["a".to_owned()])
        );
        assert_eq!(token.key_id, signer.public().id);
        for other in &keys {
            assert_eq!(token.verified_by(other.public()), std::ptr::eq(signer, other), "{name}");
        }
        let jwk = json::decode(signer.public().to_jwk().as_bytes()).unwrap();
        let published = PublicKey::from_jwk(&jwk).unwrap().unwrap();
        assert!(token.verified_by(&published), "{name} through its key set");
        let forged = text.replacen(
            &part(&json!({"sub": "x", "aud": ["a"]})),
            &part(&json!({"sub": "y"})),
            1,
        );
        assert!(!Token::parse(&forged).unwrap().verified_by(signer.public()));
    }
}

#[test]
fn headers_cannot_choose_how_they_are_verified() {
    let signer = rsa();
    let claims = json!({"iss": "i"});
    for alg in ["none", "None", "HS256", "HS512", "EdDSA", ""] {
        let text = signer.sign_with(&json!({"alg": alg}), &claims).unwrap();
        assert!(Token::parse(&text).is_err(), "{alg:?}");
    }
    let unsigned = format!("{}.{}.", part(&json!({"alg": "none"})), part(&claims));
    assert!(Token::parse(&unsigned).is_err());
    // HS256 with the public key as the secret is rejected by the algorithm alone.
    let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, signer.public().to_jwk().as_bytes());
    let head = format!("{}.{}", part(&json!({"alg": "HS256"})), part(&claims));
    let tag = URL_SAFE_NO_PAD.encode(aws_lc_rs::hmac::sign(&secret, head.as_bytes()));
    assert!(Token::parse(&format!("{head}.{tag}")).is_err());
    assert!(
        Token::parse(
            &signer
                .sign_with(&json!({"alg": "RS256", "crit": ["b64"], "b64": false}), &claims)
                .unwrap()
        )
        .is_err()
    );
    // An RSA key never verifies ES256, whatever the header says, and keys embedded in the header are ignored.
    let confused = signer.sign_with(&json!({"alg": "ES256"}), &claims).unwrap();
    assert!(!Token::parse(&confused).unwrap().verified_by(signer.public()));
    let (attacker, own) = (rsa(), signer.public());
    let jwk = json::decode(attacker.public().to_jwk().as_bytes()).unwrap();
    let mut header = json!({"alg": "RS256", "kid": (own.id.as_str()), "x5u": "https://evil"});
    header.set(&["jwk"], jwk);
    assert!(
        !Token::parse(&attacker.sign_with(&header, &claims).unwrap())
            .unwrap()
            .verified_by(own)
    );
}

#[test]
fn a_key_with_alg_verifies_only_that_algorithm() {
    let signer = rsa();
    let text = signer.sign(&json!({})).unwrap();
    let mut jwk = json::decode(signer.public().to_jwk().as_bytes()).unwrap();
    jwk.set(&["alg"], "PS256");
    let bound = PublicKey::from_jwk(&jwk).unwrap().unwrap();
    assert!(!Token::parse(&text).unwrap().verified_by(&bound));
    jwk.set(&["use"], "enc");
    assert_eq!(PublicKey::from_jwk(&jwk), Ok(None));
    assert_eq!(PublicKey::from_jwk(&json!({"kty": "oct", "k": "c2VjcmV0"})), Ok(None));
    assert!(
        PublicKey::from_jwk(&json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"})).is_err(),
        "too short"
    );
}

#[test]
fn duplicate_members_are_rejected() {
    let twice = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","alg":"none"}"#);
    assert!(Token::parse(&format!("{twice}.e30.AA")).is_err());
    let twice = URL_SAFE_NO_PAD.encode(r#"{"iss":"a","iss":"b"}"#);
    assert!(unverified_claims(&format!("e30.{twice}.AA")).is_none());
}

#[test]
fn time_claims_must_be_numbers() {
    assert_eq!(seconds(&json!({"exp": 5}), "exp"), Ok(Some(5)));
    assert_eq!(seconds(&json!({"exp": 5.9}), "exp"), Ok(Some(5)));
    assert_eq!(seconds(&json!({}), "exp"), Ok(None));
    assert!(seconds(&json!({"exp": "5"}), "exp").is_err());
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[a-zA-Z0-9_.=-]{0,80}") {
        let _ = Token::parse(&text);
        let _ = unverified_claims(&text);
    }
}
