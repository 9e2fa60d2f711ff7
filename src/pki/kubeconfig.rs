//! The administrator's kubeconfig.

use super::{PkiError, files};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// What a kubeconfig says; everything embedded, so that the file can be carried elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    /// `https://host:port`.
    pub server: &'a str,
    /// PEM bundle that verifies the server.
    pub certificate_authority: &'a [u8],
    /// PEM certificate of the user.
    pub client_certificate: &'a [u8],
    /// PEM key of the user.
    pub client_key: &'a [u8],
}

impl Kubeconfig<'_> {
    /// The file's text.
    pub fn to_yaml(&self) -> String {
        let b64 = |bytes: &[u8]| STANDARD.encode(bytes);
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: torana\n  \
               cluster:\n    \
                 certificate-authority-data: {ca}\n    \
                 server: {server}\n\
             contexts:\n\
             - name: kubernetes-admin@torana\n  \
               context:\n    \
                 cluster: torana\n    \
                 user: kubernetes-admin\n\
             current-context: kubernetes-admin@torana\n\
             preferences: {{}}\n\
             users:\n\
             - name: kubernetes-admin\n  \
               user:\n    \
                 client-certificate-data: {certificate}\n    \
                 client-key-data: {key}\n",
            ca = b64(self.certificate_authority),
            server = self.server,
            certificate = b64(self.client_certificate),
            key = b64(self.client_key),
        )
    }
}

/// Writes the file (0600) unless it says the same already.
///
/// # Errors
/// The file cannot be written.
pub fn write_kubeconfig(path: &Path, kubeconfig: &Kubeconfig<'_>) -> Result<(), PkiError> {
    let yaml = kubeconfig.to_yaml();
    if files::read(path)?.as_deref() == Some(&yaml) {
        return Ok(());
    }
    files::write(path, &yaml, files::SECRET)
}
