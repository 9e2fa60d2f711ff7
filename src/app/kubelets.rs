//! Configures the connections to kubelets from the `--kubelet-*` flags; the files are watched for changes.

use super::Error;
use crate::cli::CompletedOptions;
use crate::controlplane::KubeletConfig;
use crate::pki::certs::{DynamicCa, DynamicKeyPair, Reload, watch_files};
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::resolver::SystemResolver;
use crate::tasks::TaskGroup;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The kubelet configuration of the control plane. Its connections and the task that watches the files run in
/// `tasks`.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn config(
    options: &CompletedOptions,
    provider: &Arc<CryptoProvider>,
    tasks: &TaskGroup,
    policy: ProxyPolicy,
) -> Result<KubeletConfig, Error> {
    let o = &options.kubelet;
    let mut watched: Vec<Arc<dyn Reload>> = Vec::new();
    let certificate_authority = match &o.certificate_authority {
        None => None,
        Some(path) => {
            let ca = DynamicCa::from_file(path).map_err(Error::flag("kubelet-certificate-authority"))?;
            watched.push(ca.clone());
            Some(ca)
        }
    };
    let client = match &o.client {
        None => None,
        Some((cert, key)) => {
            let pair = DynamicKeyPair::from_files(cert, key, provider.clone());
            let pair = pair.map_err(Error::flag("kubelet-client-certificate"))?;
            watched.push(pair.clone());
            Some(pair)
        }
    };
    if !watched.is_empty() {
        tasks.spawn_until_stopped("certificates for kubelets", watch_files(watched, CHECK_INTERVAL));
    }
    Ok(KubeletConfig {
        certificate_authority,
        client,
        preferred_address_types: o.preferred_address_types.clone(),
        port: o.port,
        timeout: o.timeout,
        provider: provider.clone(),
        tasks: tasks.clone(),
        policy,
        names: Arc::new(SystemResolver),
    })
}
