//! Certificates that APIServices refer to, read from Secrets and ConfigMaps. A change applies to the next connection.
//! Entry points: [`References::roots`], [`References::pair`].
//!
//! The server reads the objects with its own rights: whoever may write an APIService can have a Secret of the type
//! `kubernetes.io/tls` used, but cannot read it.

use super::apiservice::ApiService;
use crate::apimachinery::value::Value;
use crate::client::target::{Reference, Source};
use crate::client::{Informer, InformerHandle};
use crate::serving::certs::KeyPairData;
use crate::storage::{Entry, Storage};
use crate::tasks::Signal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use std::sync::{Arc, OnceLock};

const TLS_SECRET: &str = "kubernetes.io/tls";

/// Informers of Secrets and ConfigMaps. An object is decoded only if an APIService refers to it.
pub struct References {
    secrets: Informer<Material>,
    config_maps: Informer<Material>,
    provider: Arc<CryptoProvider>,
}

/// Why a reference cannot be used: reason and message of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The condition's reason, a single CamelCase word.
    pub reason: &'static str,
    /// The condition's message. Everybody who can read APIServices sees it, so it discloses neither the content nor the
    /// existence of the object, which the APIService's author may not be allowed to know.
    pub message: String,
    /// The exact cause, for the gateway's log only.
    pub detail: String,
}

/// An object and the certificate decoded from it.
struct Material {
    entry: Entry,
    pair: OnceLock<Result<Arc<CertifiedKey>, Unmet>>,
}

/// The handles that run the informers.
pub struct Feeds {
    secrets: InformerHandle<Material>,
    config_maps: InformerHandle<Material>,
}

impl References {
    /// Creates informers over these stores. They are empty until the feeds run.
    pub fn new(
        secrets: Arc<dyn Storage>,
        config_maps: Arc<dyn Storage>,
        provider: Arc<CryptoProvider>,
    ) -> (Arc<Self>, Feeds) {
        let (secrets, secrets_feed) = Informer::new(secrets, Material::from_entry);
        let (config_maps, config_maps_feed) = Informer::new(config_maps, Material::from_entry);
        let references = Arc::new(Self {
            secrets,
            config_maps,
            provider,
        });
        let feeds = Feeds {
            secrets: secrets_feed,
            config_maps: config_maps_feed,
        };
        (references, feeds)
    }

    /// Fire when the initial lists are complete.
    pub fn synced(&self) -> [Signal; 2] {
        [self.secrets.synced().clone(), self.config_maps.synced().clone()]
    }

    /// Calls `f` for each object that has changed.
    pub fn subscribe(&self, f: impl Fn(Source, &str) + Clone + Send + Sync + 'static) {
        let told = f.clone();
        self.secrets.subscribe(move |c| told(Source::Secret, c.key));
        self.config_maps.subscribe(move |c| f(Source::ConfigMap, c.key));
    }

    /// The referenced CA certificates, in PEM.
    ///
    /// # Errors
    /// [`Unmet`].
    pub fn roots(&self, reference: &Reference) -> Result<Bytes, Unmet> {
        let material = self.material(reference)?;
        let pem = datum(&material.entry.decode(), reference)?;
        // An empty bundle would otherwise select the system's roots.
        if pem.iter().all(u8::is_ascii_whitespace) {
            return Err(unmet(reference, format!("its key {:?} is empty", reference.key)));
        }
        Ok(pem)
    }

    /// The referenced certificate and key. The same `Arc` until the Secret changes, so that connections can be shared.
    ///
    /// # Errors
    /// [`Unmet`].
    pub fn pair(&self, reference: &Reference) -> Result<Arc<CertifiedKey>, Unmet> {
        let material = self.material(reference)?;
        let made = material.pair.get_or_init(|| {
            let object = material.entry.decode();
            if object.str_at(&["type"]) != TLS_SECRET {
                let why = format!("it is of the type {:?}, not {TLS_SECRET:?}", object.str_at(&["type"]));
                return Err(unmet(reference, why));
            }
            let key = Reference {
                key: "tls.key".into(),
                ..reference.clone()
            };
            let (certificate, key) = (datum(&object, reference)?, datum(&object, &key)?);
            let pair = KeyPairData::from_pem(certificate, key, &self.provider);
            pair.map(|p| p.certified_key)
                .map_err(|e| unmet(reference, e.to_string()))
        });
        made.clone()
    }

    fn material(&self, reference: &Reference) -> Result<Arc<Material>, Unmet> {
        let objects = match reference.source {
            Source::Secret => &self.secrets,
            Source::ConfigMap => &self.config_maps,
        };
        objects
            .get(&reference.object)
            .ok_or_else(|| unmet(reference, "it is not present"))
    }
}

impl Material {
    fn from_entry(entry: &Entry) -> Self {
        Self {
            entry: entry.clone(),
            pair: OnceLock::new(),
        }
    }
}

impl Feeds {
    /// Keeps both informers up to date until dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn run(self) {
        tokio::join!(self.secrets.run(), self.config_maps.run());
    }
}

impl ApiService {
    /// Whether this object is used for the APIService's backend.
    pub fn refers_to(&self, source: Source, key: &str) -> bool {
        let both = [&self.backend.ca_from, &self.backend.certificate_from];
        both.into_iter()
            .flatten()
            .any(|r| r.source == source && *r.object == *key)
    }
}

/// The error for a reference to an absent or unusable object. The message is the same for both; only the gateway's log
/// distinguishes them.
pub(super) fn unmet(reference: &Reference, why: impl std::fmt::Display) -> Unmet {
    Unmet {
        reason: "ReferenceNotFound",
        message: format!(
            "{reference} is not present, or holds nothing usable under the key {:?}",
            reference.key
        ),
        detail: format!("{reference} cannot be used: {why}"),
    }
}

fn datum(object: &Value, reference: &Reference) -> Result<Bytes, Unmet> {
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
        return Err(unmet(reference, format!("it has no key {key:?}")));
    };
    let decoded = STANDARD.decode(encoded).map(Bytes::from);
    decoded.map_err(|_| unmet(reference, format!("its key {key:?} is not base64")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::testing::{MemoryStorage, client_pair, provider, running};
    use crate::json;

    #[tokio::test]
    async fn an_unusable_secret_reads_like_an_absent_one() {
        let secrets = MemoryStorage::new();
        let (references, feeds) = References::new(secrets.clone(), MemoryStorage::new(), provider());
        let [_, certificate, key] = client_pair();
        let encoded = |text: &str| STANDARD.encode(text);
        let secret = |kind: &str, certificate: &str, key: &str| {
            json!({"metadata": {"namespace": "n", "name": kind}, "type": kind,
                   "data": {"tls.crt": (encoded(certificate)), "tls.key": (encoded(key))}})
        };
        secrets.set("n/opaque", &secret("Opaque", &certificate, &key));
        secrets.set("n/broken", &secret(TLS_SECRET, &certificate, "junk"));
        secrets.set("n/empty", &json!({"metadata": {}, "type": TLS_SECRET}));
        let _running = running([feeds.run()]);
        for known in references.synced() {
            known.wait().await;
        }
        for name in ["absent", "opaque", "broken", "empty"] {
            let reference = |key: &str| Reference {
                source: Source::Secret,
                object: format!("n/{name}").into(),
                key: key.into(),
            };
            let told = |key: &str| {
                let why = format!("secret \"n/{name}\" is not present, or holds nothing usable under the key {key:?}");
                ("ReferenceNotFound", why)
            };
            let unmet = references.pair(&reference("tls.crt")).unwrap_err();
            assert_eq!((unmet.reason, unmet.message), told("tls.crt"));
            let unmet = references.roots(&reference("ca.crt")).unwrap_err();
            assert_eq!((unmet.reason, unmet.message), told("ca.crt"));
        }
    }
}
