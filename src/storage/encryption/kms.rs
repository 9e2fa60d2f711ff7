//! The `kms` v2 provider. The plugin encrypts one seed per process and key; objects are encrypted here with
//! AES-GCM, each with a key derived from the seed. The stored value is a protobuf `EncryptedObject` that
//! contains the encrypted seed (upstream: `pkg/storage/value/encrypt/envelope/kmsv2`). Communication with the
//! plugin is in `kms_plugin`.

use super::aes::{gcm_open, gcm_seal};
use super::kms_plugin::{MAX_LENGTH, Plugin, Source, check_key_id, hash};
use super::{Provider, TransformError, random};
use crate::apimachinery::codec::protobuf::{Payload, Reader, WireError, put_bytes, put_message, put_number};
use crate::storage::kms_error::SourceError;
use crate::telemetry::encryption::Direction;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Length of the random info from which each object's key is derived.
const INFO: usize = 32;
/// `encryptedDEKSourceType`: the encryption key itself, or a seed for keys.
const KEY: u64 = 0;
const SEED: u64 = 1;
/// Maximum total length of annotations, in bytes.
const MAX_ANNOTATIONS_LENGTH: usize = 32 << 10;

/// The message in which a value is stored (upstream's message of this name).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EncryptedObject {
    pub data: Vec<u8>,
    pub source: Source,
    pub kind: u64,
}

pub(super) struct Kms {
    prefix: String,
    plugin: Arc<Plugin>,
}

impl Kms {
    pub(crate) fn new(plugin: Arc<Plugin>) -> Self {
        Self {
            prefix: format!("k8s:enc:kms:v2:{}:", plugin.name()),
            plugin,
        }
    }

    fn used(&self, direction: Direction, source: &Source) {
        let hash = hash(&source.key_id);
        self.plugin.metrics().key_used(direction, self.plugin.name(), &hash);
    }
}

/// Derives the key of one object with HKDF-SHA256.
fn derive(seed: &[u8], info: &[u8]) -> Result<[u8; 32], TransformError> {
    let mut out = [0; 32];
    // The seed is uniformly random, so HKDF's extract step is not needed; upstream expands only, too.
    let prk = Prk::new_less_safe(HKDF_SHA256, seed);
    prk.expand(&[info], HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut out))
        .map_err(|_| TransformError::Key("the key cannot be derived"))?;
    Ok(out)
}

impl Source {
    /// Checks the limits that upstream's `validateEncryptedObject` imposes.
    ///
    /// # Errors
    /// The violated limit, worded as upstream.
    pub(crate) fn check(&self) -> Result<(), SourceError> {
        check_key_id(&self.key_id)?;
        match self.ciphertext.len() {
            0 => return Err(SourceError::Empty),
            n if n > MAX_LENGTH => {
                return Err(SourceError::Length {
                    length: n,
                    max: MAX_LENGTH,
                });
            }
            _ => {}
        }
        let size: usize = self.annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
        if size > MAX_ANNOTATIONS_LENGTH {
            return Err(SourceError::Annotations {
                length: size,
                max: MAX_ANNOTATIONS_LENGTH,
            });
        }
        Ok(())
    }
}

/// Encodes the annotations of a stored object.
fn put_annotations(out: &mut Vec<u8>, field: u8, annotations: &BTreeMap<String, Vec<u8>>) {
    // A `BTreeMap`, so that the same object always encodes to the same bytes.
    for (key, value) in annotations {
        put_message(out, field, |out| {
            put_bytes(out, 1, key.as_bytes());
            put_bytes(out, 2, value);
        });
    }
}

/// Decodes one annotation: key and value.
fn annotation(raw: &[u8]) -> Result<(String, Vec<u8>), WireError> {
    let (mut key, mut value) = (String::new(), Vec::new());
    let mut fields = Reader::new(raw);
    while let Some((number, payload)) = fields.next()? {
        match (number, payload) {
            (1, Payload::Bytes(b)) => key = String::from_utf8_lossy(b).into_owned(),
            (2, Payload::Bytes(b)) => value = b.to_vec(),
            _ => {}
        }
    }
    Ok((key, value))
}

impl EncryptedObject {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data.len() + 256);
        put_bytes(&mut out, 1, &self.data);
        put_bytes(&mut out, 2, self.source.key_id.as_bytes());
        put_bytes(&mut out, 3, &self.source.ciphertext);
        put_annotations(&mut out, 4, &self.source.annotations);
        // Protobuf's zero value is not written.
        if self.kind != 0 {
            put_number(&mut out, 5, self.kind);
        }
        out
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Self, TransformError> {
        let mut out = Self::default();
        let mut fields = Reader::new(raw);
        while let Some((number, payload)) = fields.next().map_err(TransformError::Envelope)? {
            match (number, payload) {
                (1, Payload::Bytes(b)) => out.data = b.to_vec(),
                (2, Payload::Bytes(b)) => out.source.key_id = String::from_utf8_lossy(b).into_owned(),
                (3, Payload::Bytes(b)) => out.source.ciphertext = b.to_vec(),
                (4, Payload::Bytes(b)) => {
                    out.source
                        .annotations
                        .extend([annotation(b).map_err(TransformError::Envelope)?]);
                }
                (5, Payload::Varint(n)) => out.kind = n,
                // Fields of later versions are ignored.
                _ => {}
            }
        }
        if out.data.is_empty() {
            return Err(TransformError::NoData);
        }
        // Limits are checked before the plugin is called with what may be garbage.
        out.source.check()?;
        Ok(out)
    }
}

impl Provider for Kms {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn open(&self, key: &str, value: &[u8]) -> Result<(Bytes, bool), TransformError> {
        let object = EncryptedObject::decode(value)?;
        let dek = self.plugin.decrypt(&object.source);
        let dek = dek.map_err(TransformError::DataKey)?;
        // The storage key is authenticated: a value copied to another key does not decrypt.
        let additional = key.as_bytes();
        let plain = match object.kind {
            KEY => gcm_open(&dek, &object.data, additional)?,
            SEED => {
                let (info, rest) = object.data.split_at_checked(INFO).ok_or(TransformError::TooShort)?;
                gcm_open(&derive(&dek, info)?, rest, additional)?
            }
            other => return Err(TransformError::KeyKind(other)),
        };
        self.used(Direction::FromStorage, &object.source);
        // A value with a key of its own (`KEY`) is from an older release and is rewritten with a derived one.
        let stale = object.kind != SEED || self.plugin.is_stale(&object.source);
        Ok((plain, stale))
    }

    fn seal(&self, key: &str, object: &[u8]) -> Result<Vec<u8>, TransformError> {
        let seed = self.plugin.seed()?;
        // A new key per object, so that random nonces cannot repeat under one key.
        let info: [u8; INFO] = random()?;
        let mut data = info.to_vec();
        data.extend(gcm_seal(&derive(&seed.plain, &info)?, object, key.as_bytes())?);
        let object = EncryptedObject {
            data,
            source: seed.source.clone(),
            kind: SEED,
        };
        self.used(Direction::ToStorage, &object.source);
        Ok(object.encode())
    }
}
