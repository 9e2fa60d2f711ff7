//! Certificates that APIServices refer to, read from Secrets and ConfigMaps. A change applies to the next
//! connection. Entry points: [`References::roots`], [`References::pair`].
//!
//! The server reads the objects with its own rights: whoever may write an APIService can have a Secret of the
//! type `kubernetes.io/tls` used, but cannot read it.

use crate::apimachinery::value::Value;
use crate::client::{Informer, InformerHandle};
use crate::pki::certs::KeyPairData;
use crate::proxy::ca_bundle::CaBundle;
use crate::proxy::target::{Reference, Source};
use crate::storage::{Entry, Storage};
use crate::sync::Mutex;
use crate::tasks::Signal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

const TLS_SECRET: &str = "kubernetes.io/tls";

/// Informers of Secrets and ConfigMaps. An object is decoded only if an APIService refers to it.
pub(crate) struct References {
    secrets: Informer<ReferencedObject>,
    config_maps: Informer<ReferencedObject>,
    provider: Arc<CryptoProvider>,
}

/// Why a reference cannot be used: reason and message of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferenceError {
    /// The condition's reason, a single CamelCase word.
    pub reason: &'static str,
    /// The condition's message. Everybody who can read APIServices sees it, so it discloses neither the
    /// content nor the existence of the object, which the APIService's author may not be allowed to know.
    pub message: String,
    /// The exact cause, for the gateway's log only.
    pub detail: String,
}

/// An object and what was decoded from it, which may be a megabyte and is wanted again at every probe.
struct ReferencedObject {
    entry: Entry,
    pair: OnceLock<Result<Arc<CertifiedKey>, ReferenceError>>,
    /// CA certificates by the key they are under.
    roots: Mutex<HashMap<Box<str>, Result<CaBundle, ReferenceError>>>,
}

/// The handles that run the informers.
pub(crate) struct InformerHandles {
    secrets: InformerHandle<ReferencedObject>,
    config_maps: InformerHandle<ReferencedObject>,
}

impl References {
    /// Creates informers over these stores. They are empty until the feeds run.
    pub(crate) fn new(
        secrets: Arc<dyn Storage>,
        config_maps: Arc<dyn Storage>,
        provider: Arc<CryptoProvider>,
    ) -> (Arc<Self>, InformerHandles) {
        let (secrets, secrets_feed) = Informer::new(secrets, ReferencedObject::from_entry);
        let (config_maps, config_maps_feed) = Informer::new(config_maps, ReferencedObject::from_entry);
        let references = Arc::new(Self {
            secrets,
            config_maps,
            provider,
        });
        let handles = InformerHandles {
            secrets: secrets_feed,
            config_maps: config_maps_feed,
        };
        (references, handles)
    }

    /// Fire when the initial lists are complete.
    pub(crate) fn synced(&self) -> [Signal; 2] {
        [self.secrets.synced().clone(), self.config_maps.synced().clone()]
    }

    /// Calls `f` for each object that has changed.
    pub(crate) fn subscribe(&self, f: impl Fn(Source, &str) + Clone + Send + Sync + 'static) {
        let notify = f.clone();
        self.secrets.subscribe(move |c| notify(Source::Secret, c.key));
        self.config_maps.subscribe(move |c| f(Source::ConfigMap, c.key));
    }

    /// The referenced CA certificates.
    ///
    /// # Errors
    /// [`ReferenceError`].
    pub(crate) fn roots(&self, reference: &Reference) -> Result<CaBundle, ReferenceError> {
        let referenced = self.referenced(reference)?;
        // Held while decoding, so that concurrent users decode a bundle once.
        let mut roots = referenced.roots.lock();
        if let Some(known) = roots.get(&*reference.key) {
            return known.clone();
        }
        let read = data_of(&referenced.entry.decode(), reference);
        let read = match read {
            // An empty bundle would otherwise select the system's roots.
            Ok(pem) if pem.iter().all(u8::is_ascii_whitespace) => Err(reference_error(
                reference,
                format!("its key {:?} is empty", reference.key),
            )),
            read => read.map(CaBundle::from),
        };
        // Failures are kept as well: only another version of the object can succeed, and that has a cache of
        // its own.
        roots.insert((*reference.key).into(), read.clone());
        read
    }

    /// The referenced certificate and key. The same `Arc` until the Secret changes, so that connections can
    /// be shared.
    ///
    /// # Errors
    /// [`ReferenceError`].
    pub(crate) fn pair(&self, reference: &Reference) -> Result<Arc<CertifiedKey>, ReferenceError> {
        let referenced = self.referenced(reference)?;
        // Errors are kept, too: only another version of the Secret can succeed.
        let made = referenced.pair.get_or_init(|| {
            let object = referenced.entry.decode();
            if object.str_at(&["type"]) != TLS_SECRET {
                let why = format!("it is of the type {:?}, not {TLS_SECRET:?}", object.str_at(&["type"]));
                return Err(reference_error(reference, why));
            }
            let key = Reference {
                // The reference itself names the certificate.
                key: "tls.key".into(),
                ..reference.clone()
            };
            let (certificate, key) = (data_of(&object, reference)?, data_of(&object, &key)?);
            let pair = KeyPairData::from_pem(certificate, key, &self.provider);
            pair.map(|p| p.certified_key)
                .map_err(|e| reference_error(reference, e.to_string()))
        });
        made.clone()
    }

    fn referenced(&self, reference: &Reference) -> Result<Arc<ReferencedObject>, ReferenceError> {
        let objects = match reference.source {
            Source::Secret => &self.secrets,
            Source::ConfigMap => &self.config_maps,
        };
        objects
            .get(&reference.object)
            .ok_or_else(|| reference_error(reference, "it is not present"))
    }
}

impl ReferencedObject {
    fn from_entry(entry: &Entry) -> Self {
        Self {
            entry: entry.clone(),
            pair: OnceLock::new(),
            roots: Mutex::default(),
        }
    }
}

impl InformerHandles {
    /// Keeps both informers up to date until dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn run(self) {
        tokio::join!(self.secrets.run(), self.config_maps.run());
    }
}

/// The error for a reference to an absent or unusable object. The message is the same for both; only the
/// gateway's log distinguishes them.
pub(super) fn reference_error(reference: &Reference, why: impl std::fmt::Display) -> ReferenceError {
    ReferenceError {
        reason: "ReferenceNotFound",
        message: format!(
            "{reference} is not present, or holds nothing usable under the key {:?}",
            reference.key
        ),
        detail: format!("{reference} cannot be used: {why}"),
    }
}

fn data_of(object: &Value, reference: &Reference) -> Result<Bytes, ReferenceError> {
    // Secrets and `binaryData` are base64; a ConfigMap's `data` is plain text.
    let key = &*reference.key;
    let plain = object.at(&["data", key]).as_str();
    let encoded = match reference.source {
        Source::Secret => plain,
        Source::ConfigMap => match plain {
            Some(text) => return Ok(Bytes::copy_from_slice(text.as_bytes())),
            None => object.at(&["binaryData", key]).as_str(),
        },
    };
    let Some(encoded) = encoded else {
        return Err(reference_error(reference, format!("it has no key {key:?}")));
    };
    let decoded = STANDARD.decode(encoded).map(Bytes::from);
    decoded.map_err(|_| reference_error(reference, format!("its key {key:?} is not base64")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::{MemoryStorage, client_pair, provider, running};
    use crate::json;

    #[tokio::test]
    async fn an_unusable_secret_reads_like_an_absent_one() {
        let secrets = MemoryStorage::new();
        let (references, handles) = References::new(secrets.clone(), MemoryStorage::new(), provider());
        let [_, certificate, key] = client_pair();
        let encoded = |text: &str| STANDARD.encode(text);
        let secret = |kind: &str, certificate: &str, key: &str| {
            json!({"metadata": {"namespace": "n", "name": kind}, "type": kind,
                   "data": {"tls.crt": (encoded(certificate)), "tls.key": (encoded(key))}})
        };
        secrets.set("n/opaque", &secret("Opaque", &certificate, &key));
        secrets.set("n/broken", &secret(TLS_SECRET, &certificate, "junk"));
        secrets.set("n/empty", &json!({"metadata": {}, "type": TLS_SECRET}));
        let _running = running([handles.run()]);
        for known in references.synced() {
            known.wait().await;
        }
        for name in ["absent", "opaque", "broken", "empty"] {
            let reference = |key: &str| Reference {
                source: Source::Secret,
                object: format!("n/{name}").into(),
                key: key.into(),
            };
            let expected = |key: &str| {
                let why = format!("secret \"n/{name}\" is not present, or holds nothing usable under the key {key:?}");
                ("ReferenceNotFound", why)
            };
            let reference_error = references.pair(&reference("tls.crt")).unwrap_err();
            assert_eq!((reference_error.reason, reference_error.message), expected("tls.crt"));
            let reference_error = references.roots(&reference("ca.crt")).unwrap_err();
            assert_eq!((reference_error.reason, reference_error.message), expected("ca.crt"));
        }
    }
}
