//! TLS configuration and timeouts for connections to kubelets, pods and service endpoints. Start at
//! [`BackendConnector::backend`].

use crate::apimachinery::status::Status;
use crate::pki::certs::{CaPool, DynamicCa, DynamicKeyPair, KeyPairData};
use crate::proxy::backend::Backend;
use crate::proxy::places::{Place, Places};
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::resolver::Resolver;
use crate::proxy::tcp::DIAL_TIMEOUT;
use crate::proxy::tls::{self, ClientTls, TlsBuilder, TlsInputs};
use crate::request::UserInfo;
use crate::tasks::TaskGroup;
use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;

/// Connections to kubelets, pods and endpoints at a time. With TLS each takes some 60 KB, its stream and buffers
/// included, and two descriptors.
const MAX_CONNECTIONS: usize = 1024;

/// How to connect to kubelets: the `--kubelet-*` flags. Certificate files are reloaded when they change.
pub(crate) struct KubeletConfig {
    /// `--kubelet-certificate-authority`; `None` disables verification of kubelets, as upstream does.
    pub certificate_authority: Option<Arc<DynamicCa>>,
    /// `--kubelet-client-certificate` and its key.
    pub client: Option<Arc<DynamicKeyPair>>,
    /// `--kubelet-preferred-address-types`
    pub preferred_address_types: Vec<String>,
    /// `--kubelet-port`, for nodes whose status has no kubelet port.
    pub port: u16,
    /// `--kubelet-timeout`: timeout for establishing a connection.
    pub timeout: Duration,
    /// The TLS crypto provider.
    pub provider: Arc<CryptoProvider>,
    /// Task group that owns connections and tunnels.
    pub tasks: TaskGroup,
    /// Policy for proxied requests to pods, services and nodes.
    pub policy: ProxyPolicy,
    /// Resolves node addresses that are host names.
    pub names: Arc<dyn Resolver>,
}

/// Connections to kubelets, pods and endpoints.
pub(in crate::controlplane) struct BackendConnector {
    builder: TlsBuilder,
    authority: Option<Arc<DynamicCa>>,
    client: Option<Arc<DynamicKeyPair>>,
    kubelets: ArcSwap<Kubelets>,
    workload: ClientTls,
    pub(super) preferred: Vec<String>,
    pub(super) port: u16,
    timeout: Duration,
    pub(super) tasks: TaskGroup,
    policy: ProxyPolicy,
    pub(super) names: Arc<dyn Resolver>,
    places: Arc<Places>,
}

/// TLS configuration towards kubelets, and the certificates it was built from.
struct Kubelets {
    authority: Option<Arc<CaPool>>,
    client: Option<Arc<KeyPairData>>,
    verified: ClientTls,
    unverified: ClientTls,
}

/// The type of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A kubelet, with client certificate and server verification.
    Kubelet,
    /// A kubelet without server verification, at the caller's request.
    UnverifiedKubelet,
    /// A pod or service endpoint; `true` for HTTPS, whose certificate is not verified.
    Workload(bool),
}

impl BackendConnector {
    /// Builds the TLS configurations.
    ///
    /// # Errors
    /// If the certificate authority cannot be used.
    pub(in crate::controlplane) fn new(config: KubeletConfig) -> Result<Self, tls::Error> {
        let builder = TlsBuilder::new(config.provider);
        let authority = config.certificate_authority.as_ref().map(|ca| ca.current());
        let client = config.client.as_ref().map(|pair| pair.current());
        Ok(Self {
            kubelets: ArcSwap::from_pointee(Kubelets::new(&builder, authority, client)?),
            // Without an identity: workloads must not see the certificate that authenticates this server to
            // kubelets.
            workload: tls(&builder, true, None, None)?,
            builder,
            authority: config.certificate_authority,
            client: config.client,
            preferred: config.preferred_address_types,
            port: config.port,
            timeout: config.timeout,
            tasks: config.tasks,
            policy: config.policy,
            names: config.names,
            places: Places::new(MAX_CONNECTIONS),
        })
    }

    /// A place for one more connection of this user.
    ///
    /// # Errors
    /// 429 if there is none.
    pub(super) fn enter(&self, user: &UserInfo) -> Result<Arc<Place>, Status> {
        self.places.enter(user).ok_or_else(|| {
            let why = "too many connections to nodes, pods and services are open, please try again later";
            Status::too_many_requests(why, 1)
        })
    }

    /// The arguments of [`relay`](super::relay)'s functions.
    pub(super) fn passing(&self) -> (&TaskGroup, &ProxyPolicy) {
        (&self.tasks, &self.policy)
    }

    /// The current kubelet TLS configuration, rebuilt if a certificate file has changed. A failed rebuild
    /// keeps the old one. Concurrent rebuilds are harmless: the last one wins.
    fn kubelets(&self) -> Arc<Kubelets> {
        // Checked for each connection instead of on reload: it costs two pointer comparisons and needs no
        // subscription.
        let known = self.kubelets.load_full();
        let authority = self.authority.as_ref().map(|ca| ca.current());
        let client = self.client.as_ref().map(|pair| pair.current());
        if known.is_of(authority.as_ref(), client.as_ref()) {
            return known;
        }
        match Kubelets::new(&self.builder, authority, client) {
            Ok(made) => {
                let made = Arc::new(made);
                self.kubelets.store(made.clone());
                made
            }
            Err(why) => {
                tracing::warn!("the new kubelet certificates are unusable, keeping the previous ones: {why}");
                known
            }
        }
    }

    /// The backend at this host and port.
    pub(super) fn backend(&self, peer: Peer, host: &str, port: &str) -> Backend {
        let kubelets = self.kubelets();
        let tls = match peer {
            Peer::Kubelet => Some(&kubelets.verified),
            Peer::UnverifiedKubelet => Some(&kubelets.unverified),
            Peer::Workload(true) => Some(&self.workload),
            Peer::Workload(false) => None,
        };
        // The configurations are shared by all hosts; only the server name is specific.
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
            addresses: None,
            place: None,
        }
    }
}

fn tls(
    builder: &TlsBuilder,
    insecure: bool,
    authority: Option<&Arc<CaPool>>,
    client: Option<&Arc<KeyPairData>>,
) -> Result<ClientTls, tls::Error> {
    builder.build(&TlsInputs {
        insecure,
        ca_bundle: authority.map(|ca| ca.pem.clone().into()).unwrap_or_default(),
        server_name: String::new(),
        identity: client.map(|pair| pair.certified_key.clone()),
    })
}

impl Kubelets {
    fn new(
        builder: &TlsBuilder,
        authority: Option<Arc<CaPool>>,
        client: Option<Arc<KeyPairData>>,
    ) -> Result<Self, tls::Error> {
        Ok(Self {
            // As upstream, kubelets are not verified unless an authority is configured.
            verified: tls(builder, authority.is_none(), authority.as_ref(), client.as_ref())?,
            unverified: tls(builder, true, None, client.as_ref())?,
            authority,
            client,
        })
    }

    /// Whether this was built from these certificates. A reload replaces the `Arc`, so identity is enough.
    fn is_of(&self, authority: Option<&Arc<CaPool>>, client: Option<&Arc<KeyPairData>>) -> bool {
        fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
            a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
        }
        same(self.authority.as_ref(), authority) && same(self.client.as_ref(), client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::resolver::SystemResolver;

    #[tokio::test]
    async fn reloaded_certificates_apply_to_the_next_connection() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let pair = |name: &str| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
            KeyPairData::from_pem(cert, key, &provider).unwrap()
        };
        let client = DynamicKeyPair::fixed(pair("a"), provider.clone());
        let authority = CaPool::from_pem(pair("b").cert_pem).unwrap();
        let authority = DynamicCa::fixed(authority);
        let connector = BackendConnector::new(KubeletConfig {
            certificate_authority: Some(authority.clone()),
            client: Some(client.clone()),
            preferred_address_types: Vec::new(),
            port: 10250,
            timeout: Duration::from_secs(1),
            provider: provider.clone(),
            tasks: TaskGroup::new("test"),
            policy: ProxyPolicy::default(),
            names: Arc::new(SystemResolver),
        })
        .unwrap();
        let config = || connector.backend(Peer::Kubelet, "node", "1").tls.unwrap().http1.clone();
        let first = config();
        assert!(Arc::ptr_eq(&first, &config()), "unchanged certificates are not rebuilt");
        client.replace(pair("c"));
        let second = config();
        assert!(!Arc::ptr_eq(&first, &second));
        authority.replace(CaPool::from_pem(pair("d").cert_pem).unwrap());
        assert!(!Arc::ptr_eq(&second, &config()));
    }
}
