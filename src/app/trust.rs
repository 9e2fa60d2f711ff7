//! Propagates reloaded certificates: to the published trust bundle, and to the client certificate presented
//! to backends.

use super::port::Port;
use crate::aggregator::Aggregator;
use crate::cli::CompletedOptions;
use crate::controlplane::bootstrap::{ClusterAuthenticationInfo, RequestHeaderInfo};
use crate::pki::certs::{DynamicCa, DynamicKeyPair};
use crate::tasks::TaskGroup;
use std::sync::Arc;
use tokio::sync::watch;

fn pem(ca: &DynamicCa) -> String {
    String::from_utf8_lossy(&ca.current().pem).into_owned()
}

fn trust(options: &CompletedOptions, clients: &DynamicCa, proxies: &DynamicCa) -> Arc<ClusterAuthenticationInfo> {
    let o = &options.authentication.request_header;
    Arc::new(ClusterAuthenticationInfo {
        client_ca: pem(clients),
        request_header: Some(RequestHeaderInfo {
            ca: pem(proxies),
            allowed_names: o.allowed_names.clone(),
            username_headers: o.username_headers.clone(),
            uid_headers: o.published_uid_headers.clone(),
            group_headers: o.group_headers.clone(),
            extra_headers_prefix: o.extra_prefixes.clone(),
        }),
    })
}

/// The trust bundle for backends; the channel follows changes of the CA files. The task ends with `tasks`.
pub(crate) fn published(
    options: &CompletedOptions,
    port: &Port,
    tasks: &TaskGroup,
) -> watch::Receiver<Arc<ClusterAuthenticationInfo>> {
    let (clients, proxies) = (port.client_ca.clone(), port.request_header_ca.clone());
    // Before the bundle is read, so that a change in between is not missed.
    let (mut a, mut b) = (clients.subscribe(), proxies.subscribe());
    let (send, receive) = watch::channel(trust(options, &clients, &proxies));
    let (options, stop) = (options.clone(), tasks.stop_signal().clone());
    tasks.spawn("published trust", async move {
        loop {
            // Biased towards stopping; the order of the two sources does not matter.
            let alive = tokio::select! {
                biased;
                () = stop.wait() => false,
                changed = a.changed() => changed.is_ok(),
                changed = b.changed() => changed.is_ok(),
            };
            if !alive {
                return;
            }
            // Works without receivers, unlike `send`.
            send.send_replace(trust(&options, &clients, &proxies));
        }
    });
    receive
}

/// Hands reloaded proxy client certificates to the aggregator.
pub(crate) fn follow_identity(pair: Arc<DynamicKeyPair>, aggregator: Aggregator, tasks: &TaskGroup) {
    let mut changes = pair.subscribe();
    // The aggregator was given the certificate when it was composed; it may have been replaced since.
    aggregator.set_identity(Some(pair.current().certified_key.clone()));
    let stop = tasks.stop_signal().clone();
    tasks.spawn("proxy client certificate", async move {
        loop {
            let alive = tokio::select! {
                biased;
                () = stop.wait() => false,
                changed = changes.changed() => changed.is_ok(),
            };
            if !alive {
                return;
            }
            aggregator.set_identity(Some(pair.current().certified_key.clone()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::proxy::Settings;
    use crate::aggregator::testing::{MemoryStorage, World, apiservice};
    use crate::pki::certs::KeyPairData;

    #[tokio::test]
    async fn a_certificate_replaced_before_it_is_followed_is_presented() {
        let w = World::start(MemoryStorage::new(), MemoryStorage::new()).await;
        w.api_services.set("v1.g", &apiservice("g", "", 443));
        let transport = || match &*w.aggregator.handler("v1.g")?.settings() {
            Settings::Remote(r) => r.transport.clone().ok(),
            Settings::Local => None,
        };
        let before = w.until("a handler", || async { transport() }).await;
        let pem = rcgen::generate_simple_self_signed(vec!["proxy".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let data = KeyPairData::from_pem(pem.cert.pem(), pem.signing_key.serialize_pem(), &provider).unwrap();
        let tasks = TaskGroup::new("test");
        follow_identity(DynamicKeyPair::fixed(data, provider), w.aggregator.clone(), &tasks);
        assert!(!Arc::ptr_eq(&before, &transport().unwrap()));
    }
}
