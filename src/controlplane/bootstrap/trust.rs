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
use crate::controlplane::fields::{Seen, same, strings};
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
/// The key of the front proxies' certificate authorities.
const AUTHORITIES: &str = "requestheader-client-ca-file";
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
    // Without this, `follow` would answer each of its own writes with another.
    if same(&data, live.get("data")) {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| {
        // Merged again, because another server may have written since the read.
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
            // Only debug: `ensure` publishes every minute, whether or not the watch runs.
            tracing::debug!("the watch of {NAME} failed: {e}");
        }
        // Also after a watch that ended in order, so that a store which ends it at once is not asked in a
        // loop.
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
                // Includes this server's own write; publishing then finds nothing to do.
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
    // The keys that other servers wrote stay.
    let Some(proxy) = &trust.request_header else {
        return data;
    };
    let ca = certificates(AUTHORITIES, &proxy.ca);
    // Nobody can present these headers once all authorities have expired. A kube-apiserver then removes the keys, and
    // writing them again would have the two servers undo each other's writes.
    if ca.is_empty() {
        if let Some(all) = data.as_object_mut() {
            all.retain(|key, _| !key.starts_with("requestheader-"));
        }
        return data;
    }
    data.set(&[AUTHORITIES], ca);
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
        // For the names, too: an empty list accepts any name, but emptying the list of a kube-apiserver would not
        // last, since it adds its names again.
        let all = union(there.str_at(&[key]), own, headers);
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

/// Existing values, then new ones. Header names compare case-insensitively, but one that another server wrote
/// stays, however it is spelt: that server would add it again.
fn union(there: &str, own: &[String], ignore_case: bool) -> Vec<String> {
    // A list that does not parse counts as empty and is replaced.
    let there = json::decode(there.as_bytes()).unwrap_or_default();
    let mut seen = Seen::new();
    let listed = strings(&there).into_iter().filter(|s| seen.insert(*s));
    let mut all: Vec<String> = listed.map(str::to_owned).collect();
    for s in own {
        let is = |known: &String| known == s || (ignore_case && known.eq_ignore_ascii_case(s));
        if !all.iter().any(is) {
            all.push(s.clone());
        }
    }
    all
}

fn union_of_certificates(there: &str, own: &str, now: i64) -> String {
    let mut all: Vec<CertificateDer<'static>> = Vec::new();
    for pem in [there, own] {
        for cert in CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(std::result::Result::ok) {
            // Quadratic, but a bundle holds a handful of authorities.
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

    #[test]
    fn lists_of_other_servers_are_left_as_they_are() {
        let mut proxy = RequestHeaderInfo {
            ca: cert("p", (4000, 1, 1)),
            username_headers: vec!["X-Remote-User".into()],
            ..RequestHeaderInfo::default()
        };
        let data = |proxy: &RequestHeaderInfo, there: &Value| {
            let trust = ClusterAuthenticationInfo {
                client_ca: String::new(),
                request_header: Some(proxy.clone()),
            };
            merged(there, &trust, 1_700_000_000)
        };
        let there = crate::json!({"requestheader-allowed-names": "[\"a\"]",
            "requestheader-username-headers": "[\"X-Remote-User\",\"x-remote-user\"]"});
        let both = data(&proxy, &there);
        for key in ["requestheader-allowed-names", "requestheader-username-headers"] {
            assert_eq!(both.get(key), there.get(key), "{key}");
        }
        // Without an authority that is still valid, none of the keys remain.
        proxy.ca = cert("q", (2001, 1, 1));
        assert_eq!(data(&proxy, &there), Value::object());
    }
}
