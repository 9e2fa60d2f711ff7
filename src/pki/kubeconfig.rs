//! Kubeconfig files: the administrator's, and those generated on request. [`Kubeconfig`] renders one;
//! [`write_kubeconfig`] writes it with the mode of a private key.

use super::{PkiError, files};
use crate::apimachinery::codec::yaml;
use crate::json;
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
    Token(&'a str),
}

impl Kubeconfig<'_> {
    /// Renders the file.
    pub(crate) fn to_yaml(self) -> String {
        let b64 = |bytes: &[u8]| STANDARD.encode(bytes);
        let credentials = match self.credentials {
            Credentials::Certificate { certificate, key } => json!({
                "client-certificate-data": (b64(certificate)),
                "client-key-data": (b64(key)),
            }),
            Credentials::Token(token) => json!({"token": token}),
        };
        let cluster = json!({
            "certificate-authority-data": (b64(self.certificate_authority)),
            "server": (self.server),
        });
        let context = format!("{}@torana", self.user);
        // Encoded rather than filled into a text: a user may be called `null` or `1`.
        yaml::to_string(&json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "torana", "cluster": cluster}],
            "contexts": [{"name": (&context), "context": {"cluster": "torana", "user": (self.user)}}],
            "current-context": (&context),
            "preferences": {},
            "users": [{"name": (self.user), "user": credentials}],
        }))
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
    // Keeps the modification time: tools watch this file.
    if files::read(path)?.as_deref() == Some(&yaml) {
        return Ok(());
    }
    files::write(path, &yaml, files::SECRET)
}
