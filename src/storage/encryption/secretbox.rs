//! The `secretbox` provider: XSalsa20-Poly1305. A value is a 24-byte nonce followed by the box. There is no
//! additional data, so a value is not bound to its storage key.

use super::{Keys, Provider, TransformError, random};
use bytes::Bytes;
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead, KeyInit};

const NONCE: usize = 24;

pub(super) struct Secretbox(pub Keys<[u8; 32]>);

impl Provider for Secretbox {
    fn prefix(&self) -> &str {
        "k8s:enc:secretbox:v1:"
    }

    fn open(&self, _key: &str, value: &[u8]) -> Result<(Bytes, bool), TransformError> {
        self.0.open(value, "Secretbox", |key, value| {
            let (nonce, body) = value.split_at_checked(NONCE).ok_or(TransformError::TooShort)?;
            let nonce: [u8; NONCE] = nonce.try_into().map_err(|_| TransformError::TooShort)?;
            let plain = XSalsa20Poly1305::new(key.into()).decrypt(&nonce.into(), body);
            plain
                .map(Bytes::from)
                .map_err(|_| TransformError::Rejected("output array was not large enough for encryption"))
        })
    }

    fn seal(&self, _key: &str, object: &[u8]) -> Result<Vec<u8>, TransformError> {
        self.0.seal(|key| {
            // XSalsa20's nonces are long enough to be random without a limit on the number of writes.
            let nonce: [u8; NONCE] = random()?;
            let body = XSalsa20Poly1305::new(key.into()).encrypt(&nonce.into(), object);
            let mut out = nonce.to_vec();
            out.append(&mut body.map_err(|_| TransformError::Encrypt)?);
            Ok(out)
        })
    }
}
