//! Publishes the ConfigMap `kube-system/extension-apiserver-authentication`, from which aggregated API
//! servers learn the certificate authorities and header names of this front proxy (upstream's
//! `pkg/controlplane/controller/clusterauthenticationtrust`). Start at [`publish`].
//!
//! Several servers may contribute, so values are merged into the existing ones. Certificates are
//! deduplicated, and removed after they expire.

use super::super::ControlPlane;
use super::{MANAGER, change, create_if_missing, find, report};
use crate::apimachinery::codec::json;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{same, strings};
use crate::storage::interface::WatchItem;
use crate::storage::{Error, WatchOptions};
use crate::x509::pem;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Expired certificates are kept this long, for servers whose clocks are behind.
const GRACE_SECONDS: i64 = 300;
/// Delay before a failed watch is restarted.
const RETRY: Duration = Duration::from_secs(1);

/// The trust configuration to publish for backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterAuthenticationInfo {
    /// PEM bundle of `--client-ca-file`; empty if unset.
    pub client_ca: String,
    /// Request header authentication; `None` if disabled.
    pub request_header: Option<RequestHeaderInfo>,
}

/// How backends authenticate the front proxy and read the user from its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestHeaderInfo {
    /// PEM bundle of the front proxy's certificate authorities (`--requestheader-client-ca-file`).
    pub ca: String,
    /// Accepted common names of its client certificate; empty accepts any.
    pub allowed_names: Vec<String>,
    /// Headers that carry the user name.
    pub username_headers: Vec<String>,
    /// Headers that carry the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers that carry the user's groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers that carry the user's extra attributes.
    pub extra_headers_prefix: Vec<String>,
}

/// Merges `trust` into the ConfigMap, creating it if missing. Idempotent, hence cancel safe.
///
/// # Errors
/// The read or write failed.
pub(crate) async fn publish(plane: &ControlPlane, trust: &ClusterAuthenticationInfo) -> Result<()> {
    let store = plane.store("", "configmaps");
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let Some(live) = find(store, NAMESPACE, NAME).await? else {
        let mut object = crate::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE},
        });
        object.set(&["data"], merged(&Value::Null, trust, now));
        return create_if_missing(store, object, MANAGER).await;
    };
    let data = merged(live.get("data"), trust, now);
    if same(&data, live.get("data")) {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| {
        let data = merged(v.get("data"), trust, now);
        v.set(&["data"], data);
    })
    .await
}

/// Watches the ConfigMap and merges `trust` into it again after every change or deletion.
///
/// # Cancel safety
/// Cancel safe. Runs until cancelled.
pub(super) async fn reconcile(plane: Arc<ControlPlane>, trust: watch::Receiver<Arc<ClusterAuthenticationInfo>>) {
    loop {
        if let Err(e) = follow(&plane, &trust).await {
            tracing::debug!("the watch of {NAME} failed: {e}");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow(
    plane: &ControlPlane,
    trust: &watch::Receiver<Arc<ClusterAuthenticationInfo>>,
) -> std::result::Result<(), Error> {
    let options = WatchOptions::one(&format!("{NAMESPACE}/{NAME}"));
    let mut changes = plane.store("", "configmaps").storage().watch(options).await?;
    loop {
        // The first iteration covers changes from before the watch started.
        let now = trust.borrow().clone();
        let published = publish(plane, &now).await;
        report("publishing the certificate authorities again", published);
        loop {
            match changes.next().await {
                None | Some(WatchItem::Failed(_)) => return Ok(()),
                Some(WatchItem::Change(..)) => break,
                Some(WatchItem::Initial(_) | WatchItem::Bookmark { .. }) => {}
            }
        }
    }
}

/// The ConfigMap's data after merging `trust` into the existing data.
fn merged(there: &Value, trust: &ClusterAuthenticationInfo, now: i64) -> Value {
    let mut data = if there.as_object().is_some() {
        there.clone()
    } else {
        Value::object()
    };
    let certificates = |key: &str, own: &str| union_of_certificates(there.str_at(&[key]), own, now);
    let client = certificates("client-ca-file", &trust.client_ca);
    set_or_drop(&mut data, "client-ca-file", client);
    let Some(proxy) = &trust.request_header else {
        return data;
    };
    let ca = certificates("requestheader-client-ca-file", &proxy.ca);
    set_or_drop(&mut data, "requestheader-client-ca-file", ca);
    let lists = [
        ("requestheader-allowed-names", &proxy.allowed_names, false),
        ("requestheader-username-headers", &proxy.username_headers, true),
        ("requestheader-uid-headers", &proxy.uid_headers, true),
        ("requestheader-group-headers", &proxy.group_headers, true),
        ("requestheader-extra-headers-prefix", &proxy.extra_headers_prefix, true),
    ];
    for (key, own, headers) in lists {
        // Unlike the others, this key is omitted while no server configures it.
        if key == "requestheader-uid-headers" && own.is_empty() && there.get(key).is_null() {
            continue;
        }
        // An empty list of names accepts any name, so the union with an empty list must be empty.
        let stood = there.get(key).as_str();
        let all = if !headers && (own.is_empty() || stood == Some("[]")) {
            Vec::new()
        } else {
            union(stood.unwrap_or(""), own, headers)
        };
        data.set(&[key], json::to_string(&Value::from(all)));
    }
    data
}

fn set_or_drop(data: &mut Value, key: &str, text: String) {
    if text.is_empty() {
        data.unset(&[key]);
    } else {
        data.set(&[key], text);
    }
}

/// Existing values, then new ones. Header names compare case-insensitively.
fn union(there: &str, own: &[String], ignore_case: bool) -> Vec<String> {
    let there = json::decode(there.as_bytes()).unwrap_or_default();
    let mut all: Vec<String> = Vec::new();
    for s in strings(&there).into_iter().chain(own.iter().map(String::as_str)) {
        let known = |k: &String| k == s || (ignore_case && k.eq_ignore_ascii_case(s));
        if !all.iter().any(known) {
            all.push(s.to_owned());
        }
    }
    all
}

fn union_of_certificates(there: &str, own: &str, now: i64) -> String {
    let mut all: Vec<CertificateDer<'static>> = Vec::new();
    for pem in [there, own] {
        for cert in CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(std::result::Result::ok) {
            if !all.contains(&cert) && !has_expired(&cert, now) {
                all.push(cert);
            }
        }
    }
    all.iter().map(|cert| pem::encode(pem::CERTIFICATE, cert)).collect()
}

fn has_expired(cert: &CertificateDer<'_>, now: i64) -> bool {
    // An unparsable certificate is kept; its consumer will reject it.
    x509_parser::parse_x509_certificate(cert)
        .is_ok_and(|(_, c)| c.validity().not_after.timestamp() < now - GRACE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cert(name: &str, until: (i32, u8, u8)) -> String {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    fn count(data: &Value, key: &str) -> usize {
        data.str_at(&[key]).matches("BEGIN CERTIFICATE").count()
    }

    #[test]
    fn certificates_are_deduplicated_and_removed_after_expiry() {
        let (a, b, old) = (
            cert("a", (4000, 1, 1)),
            cert("b", (4000, 1, 1)),
            cert("c", (2001, 1, 1)),
        );
        let trust = |ca: &str| ClusterAuthenticationInfo {
            client_ca: ca.to_owned(),
            request_header: None,
        };
        let now = 1_700_000_000;
        let first = merged(&Value::Null, &trust(&a), now);
        assert_eq!(merged(&first, &trust(&a), now), first);
        let both = merged(&first, &trust(&format!("{b}{old}")), now);
        assert_eq!(count(&both, "client-ca-file"), 2);
        assert!(
            both.str_at(&["client-ca-file"])
                .starts_with(first.str_at(&["client-ca-file"]))
        );
        assert_eq!(merged(&both, &trust(&a), now), both);
    }

    #[test]
    fn header_names_merge_case_insensitively() {
        let trust = ClusterAuthenticationInfo {
            client_ca: String::new(),
            request_header: Some(RequestHeaderInfo {
                ca: cert("p", (4000, 1, 1)),
                allowed_names: vec!["front-proxy-client".into()],
                username_headers: vec!["X-Remote-User".into()],
                group_headers: vec!["X-Remote-Group".into()],
                extra_headers_prefix: vec!["X-Remote-Extra-".into()],
                uid_headers: vec![],
            }),
        };
        let data = merged(
            &crate::json!({"requestheader-username-headers": "[\"X-User\",\"x-remote-user\"]"}),
            &trust,
            0,
        );
        assert_eq!(
            data.str_at(&["requestheader-allowed-names"]),
            "[\"front-proxy-client\"]"
        );
        assert_eq!(data.str_at(&["requestheader-group-headers"]), "[\"X-Remote-Group\"]");
        assert_eq!(
            data.str_at(&["requestheader-extra-headers-prefix"]),
            "[\"X-Remote-Extra-\"]"
        );
        assert_eq!(
            data.str_at(&["requestheader-username-headers"]),
            "[\"X-User\",\"x-remote-user\"]"
        );
        assert!(data.get("requestheader-uid-headers").is_null());
        assert!(data.get("client-ca-file").is_null());
    }
}
