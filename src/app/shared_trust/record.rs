//! [`TrustRecord`]: what one gateway publishes, as it is stored. Records come from outside this process, so
//! parsing is lenient: a record that cannot be used is skipped and logged, never an error.

use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::authn::jwt::PublicKey;
use crate::json;
use crate::pki::certs::CaPool;
use crate::storage::{Draft, Entry};
use aws_lc_rs::digest;
use std::time::Duration;

/// Largest record that is read, in bytes.
const MAX_RECORD_BYTES: usize = 256 << 10;

/// The public keys and CA certificates (PEM) that verify what one gateway signs. Those that its flags name
/// are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verifiers {
    pub token_keys: String,
    pub client_ca: String,
    pub front_proxy_ca: String,
    pub serving_ca: String,
}

const FIELDS: [&str; 4] = ["tokenKeys", "clientCA", "frontProxyCA", "servingCA"];

impl Verifiers {
    fn texts(&self) -> [&String; 4] {
        [
            &self.token_keys,
            &self.client_ca,
            &self.front_proxy_ca,
            &self.serving_ca,
        ]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts().iter().all(|text| text.is_empty())
    }

    /// Names the record: the same after a restart, and another one once a key or CA has been replaced, so
    /// that what was signed before stays valid.
    pub(super) fn id(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for text in self.texts() {
            // Lengths, so that text cannot move from one field to the next under the same digest.
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        // 128 bits: only accidental collisions matter, as whoever can write here is trusted anyway.
        crate::apimachinery::codec::hex(&context.finish().as_ref()[..16])
    }
}

/// The record that one gateway publishes.
#[derive(Debug)]
pub(super) struct TrustRecord {
    pub verifiers: Verifiers,
    /// Host of the gateway, for logs.
    pub host: String,
    /// When its gateway last renewed the record, in Unix seconds.
    pub renewed: i64,
    /// How long after that it is trusted, in seconds.
    pub trusted_for: i64,
}

impl TrustRecord {
    pub(super) fn new(verifiers: Verifiers, host: &str, trusted_for: Duration) -> Self {
        Self {
            verifiers,
            host: host.to_owned(),
            renewed: unix_now(),
            trusted_for: i64::try_from(trusted_for.as_secs()).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn is_expired(&self, now: i64) -> bool {
        self.renewed.saturating_add(self.trusted_for) < now
    }

    pub(super) fn draft(&self) -> Draft {
        let mut object = json!({
            "apiVersion": "internal.torana.dev/v1", "kind": "TrustRecord",
            "metadata": {"name": (self.verifiers.id())},
            "host": (self.host.as_str()),
            "renewTime": (time::format_unix(self.renewed).unwrap_or_default()),
            "trustSeconds": (self.trusted_for),
        });
        for (field, text) in FIELDS.iter().zip(self.verifiers.texts()) {
            object.set(&[field], text.as_str());
        }
        Draft::new(&object, Vec::new())
    }

    /// The record of an entry; `None` if it is not one, or is too large.
    pub(super) fn from_entry(entry: &Entry) -> Option<Self> {
        // Keys and CAs of one gateway take a few KiB; anything larger is not a record of ours.
        if entry.json.len() > MAX_RECORD_BYTES {
            return None;
        }
        Self::from_value(&entry.decode())
    }

    fn from_value(object: &Value) -> Option<Self> {
        let renewed = time::parse(object.str_at(&["renewTime"])).ok()?;
        let text = |field: &str| object.str_at(&[field]).to_owned();
        let [token_keys, client_ca, front_proxy_ca, serving_ca] = FIELDS.map(text);
        Some(Self {
            verifiers: Verifiers {
                token_keys,
                client_ca,
                front_proxy_ca,
                serving_ca,
            },
            host: text("host"),
            renewed: renewed.unix_timestamp(),
            trusted_for: object.at(&["trustSeconds"]).as_i64()?,
        })
    }
}

/// Seconds since 1970.
pub(super) fn unix_now() -> i64 {
    ::time::OffsetDateTime::now_utc().unix_timestamp()
}

/// The CAs of a published bundle; `None` if it is empty. An unusable bundle is logged with its host.
pub(super) fn cas(pem: &str, host: &str) -> Option<CaPool> {
    if pem.is_empty() {
        return None;
    }
    let parsed = CaPool::from_pem(pem.as_bytes().to_vec());
    parsed
        .inspect_err(|error| tracing::warn!(host, %error, "a CA that another gateway shares cannot be used"))
        .ok()
}

/// The keys of a published bundle; none if it is empty or unusable, which is logged with its host.
pub(super) fn keys(pem: &str, host: &str) -> Vec<PublicKey> {
    if pem.is_empty() {
        return Vec::new();
    }
    PublicKey::from_pem(pem.as_bytes()).unwrap_or_else(|error| {
        tracing::warn!(host, error = %error.0, "token keys that another gateway shares cannot be used");
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Revision;

    fn verifiers(client_ca: &str) -> Verifiers {
        Verifiers {
            client_ca: client_ca.to_owned(),
            ..Verifiers::default()
        }
    }

    #[test]
    fn records_round_trip() {
        let record = TrustRecord::new(verifiers("PEM"), "a", Duration::from_secs(60));
        let read = TrustRecord::from_entry(&record.draft().into_entry("k", Revision(1))).unwrap();
        assert_eq!(read.verifiers, record.verifiers);
        assert_eq!(
            (read.host.as_str(), read.renewed, read.trusted_for),
            ("a", record.renewed, 60)
        );
    }

    #[test]
    fn a_record_expires_some_time_after_its_last_renewal() {
        let record = TrustRecord {
            renewed: 1000,
            ..TrustRecord::new(verifiers("PEM"), "a", Duration::from_secs(60))
        };
        assert!(!record.is_expired(1060));
        assert!(record.is_expired(1061));
        let unlimited = TrustRecord {
            trusted_for: i64::MAX,
            ..record
        };
        assert!(!unlimited.is_expired(i64::MAX));
    }

    #[test]
    fn a_record_is_named_by_its_content() {
        assert_eq!(verifiers("a").id(), verifiers("a").id());
        assert_ne!(verifiers("a").id(), verifiers("b").id());
        let moved = Verifiers {
            serving_ca: "a".into(),
            ..Verifiers::default()
        };
        assert_ne!(verifiers("a").id(), moved.id());
        assert!(Verifiers::default().is_empty() && !moved.is_empty());
    }

    #[test]
    fn invalid_records_are_ignored() {
        for object in [
            json!({}),
            json!({"renewTime": "yesterday", "trustSeconds": 1}),
            json!({"trustSeconds": 1}),
        ] {
            assert!(TrustRecord::from_value(&object).is_none());
        }
        assert!(cas("", "a").is_none() && cas("no PEM", "a").is_none());
        assert!(keys("", "a").is_empty() && keys("no PEM", "a").is_empty());
    }
}
