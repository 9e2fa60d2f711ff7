//! The AES providers. `aescbc`: a 16-byte IV, then CBC with PKCS#7 padding. `aesgcm`: a 12-byte nonce, then
//! ciphertext and tag, with the object's storage key as additional data, so that a value cannot be moved to
//! another key.

use super::{Keys, Provider, TransformError, random};
use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use bytes::Bytes;

const NONCE: usize = 12;
const IV: usize = 16;

pub(super) struct Cbc(pub Keys<Vec<u8>>);

pub(super) struct Gcm(pub Keys<Vec<u8>>);

fn cbc_key(key: &[u8]) -> Result<UnboundCipherKey, TransformError> {
    let algorithm = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        // Lengths were checked when the configuration was loaded; a wrong one fails in the constructor.
        _ => &AES_256,
    };
    UnboundCipherKey::new(algorithm, key).map_err(|_| TransformError::Key("the AES key has a wrong length"))
}

/// Encrypts to `nonce ‖ ciphertext ‖ tag` with a random nonce.
pub(super) fn gcm_seal(key: &[u8], object: &[u8], additional: &[u8]) -> Result<Vec<u8>, TransformError> {
    // Random 96-bit nonces are upstream's choice for this format. For static keys that limits the number of
    // writes per key, which is why upstream asks for key rotation.
    let nonce: [u8; NONCE] = random()?;
    let mut body = object.to_vec();
    gcm_key(key)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(additional), &mut body)
        .map_err(|_| TransformError::Encrypt)?;
    let mut out = nonce.to_vec();
    out.append(&mut body);
    Ok(out)
}

/// Decrypts the output of [`gcm_seal`].
pub(super) fn gcm_open(key: &[u8], value: &[u8], additional: &[u8]) -> Result<Bytes, TransformError> {
    let (nonce, body) = value.split_at_checked(NONCE).ok_or(TransformError::TooShort)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| TransformError::TooShort)?;
    // Decrypted in place in a copy: the stored value may be shared.
    let mut body = body.to_vec();
    let plain = gcm_key(key)?
        .open_in_place(nonce, Aad::from(additional), &mut body)
        .map_err(|_| TransformError::Rejected("cipher: message authentication failed"))?;
    Ok(Bytes::copy_from_slice(plain))
}

fn gcm_key(key: &[u8]) -> Result<LessSafeKey, TransformError> {
    let algorithm = match key.len() {
        16 => &AES_128_GCM,
        24 => &AES_192_GCM,
        _ => &AES_256_GCM,
    };
    let key = UnboundKey::new(algorithm, key).map_err(|_| TransformError::Key("the AES key has a wrong length"))?;
    Ok(LessSafeKey::new(key))
}

impl Provider for Cbc {
    fn prefix(&self) -> &str {
        "k8s:enc:aescbc:v1:"
    }

    // CBC authenticates nothing, so the object's key is not used: a limitation of the format.
    fn open(&self, _key: &str, value: &[u8]) -> Result<(Bytes, bool), TransformError> {
        self.0.open(value, "AES", |key, value| {
            let (iv, body) = value.split_at_checked(IV).ok_or(TransformError::TooShort)?;
            // Checked here, because upstream distinguishes it from wrong padding.
            if body.is_empty() || body.len() % IV != 0 {
                return Err(TransformError::Rejected(
                    "the stored data is not a multiple of the block size",
                ));
            }
            let iv: [u8; IV] = iv.try_into().map_err(|_| TransformError::TooShort)?;
            let decrypting = PaddedBlockDecryptingKey::cbc_pkcs7(cbc_key(key)?);
            let mut body = body.to_vec();
            let context = DecryptionContext::Iv128(FixedLength::from(iv));
            let plain = decrypting.and_then(|k| k.decrypt(&mut body, context).map(|p| Bytes::copy_from_slice(p)));
            plain.map_err(|_| TransformError::Rejected("invalid padding on input"))
        })
    }

    fn seal(&self, _key: &str, object: &[u8]) -> Result<Vec<u8>, TransformError> {
        self.0.seal(|key| {
            let iv: [u8; IV] = random()?;
            let encrypting = PaddedBlockEncryptingKey::cbc_pkcs7(cbc_key(key)?);
            let mut body = object.to_vec();
            let context = EncryptionContext::Iv128(FixedLength::from(iv));
            encrypting
                .and_then(|k| k.less_safe_encrypt(&mut body, context))
                .map_err(|_| TransformError::Encrypt)?;
            let mut out = iv.to_vec();
            out.append(&mut body);
            Ok(out)
        })
    }
}

impl Provider for Gcm {
    fn prefix(&self) -> &str {
        "k8s:enc:aesgcm:v1:"
    }

    fn open(&self, own: &str, value: &[u8]) -> Result<(Bytes, bool), TransformError> {
        self.0
            .open(value, "AES", |key, value| gcm_open(key, value, own.as_bytes()))
    }

    fn seal(&self, own: &str, object: &[u8]) -> Result<Vec<u8>, TransformError> {
        self.0.seal(|key| gcm_seal(key, object, own.as_bytes()))
    }
}
