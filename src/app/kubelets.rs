//! `--kubelet-*` → how nodes are reached: the files read, once.

use crate::cli::CompletedOptions;
use crate::controlplane::KubeletConfig;
use crate::serving::KeyPairData;
use crate::tasks::TaskGroup;
use rustls::crypto::CryptoProvider;
use std::path::Path;
use std::sync::Arc;

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("--{flag}: cannot read {}: {e}", path.display()))
}

/// What the control plane is told; connections belong to `tasks`.
///
/// # Errors
/// One line that names the flag and the file.
pub fn config(
    options: &CompletedOptions,
    provider: &Arc<CryptoProvider>,
    tasks: &TaskGroup,
) -> Result<KubeletConfig, String> {
    const CERTIFICATE: &str = "kubelet-client-certificate";
    let o = &options.kubelet;
    let ca = o.certificate_authority.as_deref();
    let ca = ca.map(|path| read("kubelet-certificate-authority", path)).transpose()?;
    let client = match &o.client {
        None => None,
        Some((cert, key)) => {
            let (cert, key) = (read(CERTIFICATE, cert)?, read("kubelet-client-key", key)?);
            let pair = KeyPairData::from_pem(cert, key, provider).map_err(|e| format!("--{CERTIFICATE}: {e}"))?;
            Some(pair.certified_key)
        }
    };
    Ok(KubeletConfig {
        certificate_authority: ca.map(Into::into),
        client,
        preferred_address_types: o.preferred_address_types.clone(),
        port: o.port,
        timeout: o.timeout,
        provider: provider.clone(),
        tasks: tasks.clone(),
    })
}
