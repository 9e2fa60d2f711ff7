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
    let (send, receive) = watch::channel(trust(options, &clients, &proxies));
    let (mut a, mut b) = (clients.subscribe(), proxies.subscribe());
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
            send.send_replace(trust(&options, &clients, &proxies));
        }
    });
    receive
}

/// Hands reloaded proxy client certificates to the aggregator.
pub(crate) fn follow_identity(pair: Arc<DynamicKeyPair>, aggregator: Aggregator, tasks: &TaskGroup) {
    let mut changes = pair.subscribe();
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
