//! Kubeconfig files: the administrator's, and those generated on request.

use super::{PkiError, files};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// The content of a kubeconfig. Certificates are embedded, so that the file is self-contained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kubeconfig<'a> {
    /// `https://host:port`.
    pub server: &'a str,
    /// PEM bundle that verifies the server.
    pub certificate_authority: &'a [u8],
    /// Name of the user entry.
    pub user: &'a str,
    /// Credentials of the user entry.
    pub credentials: Credentials<'a>,
}

/// Credentials of a kubeconfig user.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credentials<'a> {
    /// A client certificate and its key, both PEM.
    Certificate {
        /// The certificate, PEM.
        certificate: &'a [u8],
        /// The private key, PEM.
        key: &'a [u8],
    },
    /// A bearer token.
    Token(&'a str),
}

/// A YAML scalar, quoted unless it is certainly safe as a plain one.
fn scalar(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@');
    match text.bytes().all(plain) && text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()) {
        true => text.to_owned(),
        false => crate::apimachinery::field::quote(text),
    }
}

impl Kubeconfig<'_> {
    /// Renders the file.
    pub(crate) fn to_yaml(self) -> String {
        let b64 = |bytes: &[u8]| STANDARD.encode(bytes);
        let credentials = match self.credentials {
            Credentials::Certificate { certificate, key } => format!(
                "client-certificate-data: {}\n    client-key-data: {}",
                b64(certificate),
                b64(key)
            ),
            Credentials::Token(token) => format!("token: {}", scalar(token)),
        };
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: torana\n  \
               cluster:\n    \
                 certificate-authority-data: {ca}\n    \
                 server: {server}\n\
             contexts:\n\
             - name: {context}\n  \
               context:\n    \
                 cluster: torana\n    \
                 user: {user}\n\
             current-context: {context}\n\
             preferences: {{}}\n\
             users:\n\
             - name: {user}\n  \
               user:\n    \
                 {credentials}\n",
            ca = b64(self.certificate_authority),
            server = self.server,
            context = scalar(&format!("{}@torana", self.user)),
            user = scalar(self.user),
        )
    }
}

/// Writes a file with secrets atomically, with mode 0600.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_secret(path: &Path, content: &str) -> Result<(), PkiError> {
    files::write(path, content, files::SECRET)
}

/// Writes the file with mode 0600, unless its content is unchanged. Blocking.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_kubeconfig(path: &Path, kubeconfig: &Kubeconfig<'_>) -> Result<(), PkiError> {
    let yaml = kubeconfig.to_yaml();
    if files::read(path)?.as_deref() == Some(&yaml) {
        return Ok(());
    }
    files::write(path, &yaml, files::SECRET)
}
