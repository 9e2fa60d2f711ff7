//! How the other ends are spoken to.

use crate::client::backend::Backend;
use crate::client::dial::DIAL_TIMEOUT;
use crate::client::tls::{ClientTls, TlsBuilder, TlsInputs};
use crate::tasks::TaskGroup;
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use std::time::Duration;

/// How kubelets are reached: the `--kubelet-*` flags, files read.
pub struct KubeletConfig {
    /// `--kubelet-certificate-authority`, PEM; `None`: kubelets are not verified, as upstream.
    pub certificate_authority: Option<Bytes>,
    /// `--kubelet-client-certificate` and its key.
    pub client: Option<Arc<CertifiedKey>>,
    /// `--kubelet-preferred-address-types`
    pub preferred_address_types: Vec<String>,
    /// `--kubelet-port`, for nodes that name none.
    pub port: u16,
    /// `--kubelet-timeout`: limit for a connection to come about.
    pub timeout: Duration,
    /// Cryptography.
    pub provider: Arc<CryptoProvider>,
    /// Owner of connections and tunnels.
    pub tasks: TaskGroup,
}

/// Connections to kubelets, pods and endpoints.
pub(in crate::controlplane) struct Links {
    kubelet: ClientTls,
    unverified_kubelet: ClientTls,
    workload: ClientTls,
    pub(super) preferred: Vec<String>,
    pub(super) port: u16,
    timeout: Duration,
    pub(super) tasks: TaskGroup,
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A kubelet, which knows us by our certificate.
    Kubelet,
    /// The same, not verified because the caller said so.
    UnverifiedKubelet,
    /// A pod: over HTTPS where `true`, with whatever certificate it has.
    Workload(bool),
}

impl Links {
    /// With these settings.
    ///
    /// # Errors
    /// Upstream's text about a certificate authority that cannot be used.
    pub(in crate::controlplane) fn new(config: KubeletConfig) -> Result<Self, String> {
        let builder = TlsBuilder::new(config.provider);
        let tls = |insecure: bool, ca: Option<&Bytes>, identity: Option<&Arc<CertifiedKey>>| {
            builder.build(&TlsInputs {
                insecure,
                ca_bundle: ca.cloned().unwrap_or_default(),
                server_name: String::new(),
                identity: identity.cloned(),
            })
        };
        let (ca, client) = (config.certificate_authority.as_ref(), config.client.as_ref());
        Ok(Self {
            kubelet: tls(ca.is_none(), ca, client)?,
            unverified_kubelet: tls(true, None, client)?,
            workload: tls(true, None, None)?,
            preferred: config.preferred_address_types,
            port: config.port,
            timeout: config.timeout,
            tasks: config.tasks,
        })
    }

    /// A peer at this host and port.
    pub(super) fn backend(&self, peer: Peer, host: &str, port: &str) -> Backend {
        let tls = match peer {
            Peer::Kubelet => Some(&self.kubelet),
            Peer::UnverifiedKubelet => Some(&self.unverified_kubelet),
            Peer::Workload(true) => Some(&self.workload),
            Peer::Workload(false) => None,
        };
        let named = |tls: &ClientTls| {
            Arc::new(ClientTls {
                any: tls.any.clone(),
                http1: tls.http1.clone(),
                server_name: ServerName::try_from(host.to_owned()).ok(),
            })
        };
        Backend {
            authority: super::target::join(host, port),
            tls: tls.map(named),
            connect_timeout: match peer {
                Peer::Workload(_) => DIAL_TIMEOUT,
                Peer::Kubelet | Peer::UnverifiedKubelet => self.timeout,
            },
        }
    }
}
