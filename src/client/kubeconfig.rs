//! Kubeconfig files, as far as server programs need them: certificates, keys and tokens, inline or in files. Exec
//! plugins and auth providers are rejected with an error. Entry point: [`ClientConfig::from_kubeconfig`].

use crate::apimachinery::Value;
use crate::apimachinery::codec::yaml;
use base64::Engine;
use http::HeaderValue;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Address of a server and credentials for it.
#[derive(Clone)]
pub struct ClientConfig {
    /// `https://host:port`, optionally with a path prefix.
    pub server: String,
    /// CA certificates in PEM that verify the server; `None` for those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// Name to verify instead of the host in `server`.
    pub tls_server_name: Option<String>,
    /// Client certificate chain and private key, in PEM.
    pub client_identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token.
    pub token: Option<String>,
}

/// What a user of a kubeconfig presents.
pub(super) struct UserCredentials {
    /// Client certificate chain and private key, in PEM.
    pub client_identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token.
    pub token: Option<String>,
}

/// An invalid kubeconfig. `Display` names the file and the entry.
#[derive(Debug)]
pub struct KubeconfigError {
    file: PathBuf,
    what: String,
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubeconfig {}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for KubeconfigError {}

// Keeps credentials out of logs.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Why certificates, keys or tokens of a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error("the kubeconfig's {of}: {}", crate::x509::pem::error_text(.source))]
    Pem {
        of: &'static str,
        source: rustls::pki_types::pem::Error,
    },
    #[error("the CA bundle holds no certificate")]
    NoAuthority,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Token(#[from] http::header::InvalidHeaderValue),
    #[error(transparent)]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
}

fn pem_error(of: &'static str) -> impl Fn(rustls::pki_types::pem::Error) -> CredentialsError {
    move |source| CredentialsError::Pem { of, source }
}

impl ClientConfig {
    /// The CA certificates that verify the server: the configured ones or the system's.
    ///
    /// # Errors
    /// A certificate cannot be used.
    fn roots(&self) -> Result<RootCertStore, CredentialsError> {
        let mut roots = RootCertStore::empty();
        match &self.ca_pem {
            Some(pem) => {
                for cert in CertificateDer::pem_slice_iter(pem) {
                    roots.add(cert.map_err(pem_error("certificate-authority"))?)?;
                }
                if roots.is_empty() {
                    return Err(CredentialsError::NoAuthority);
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(roots)
    }

    /// A TLS configuration that verifies the server, and presents the client certificate. It offers no protocol by ALPN.
    ///
    /// # Errors
    /// A certificate or key cannot be used.
    pub(super) fn tls(&self) -> Result<rustls::ClientConfig, CredentialsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?);
        match &self.client_identity {
            None => Ok(builder.with_no_client_auth()),
            Some((cert, key)) => {
                let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>();
                let key = PrivateKeyDer::from_pem_slice(key).map_err(pem_error("client-key"))?;
                let chain = chain.map_err(pem_error("client-certificate"))?;
                Ok(builder.with_client_auth_cert(chain, key)?)
            }
        }
    }

    /// The `Authorization` header for the token, marked as sensitive.
    ///
    /// # Errors
    /// The token contains bytes that are not allowed in a header.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, CredentialsError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Reads the current context of a kubeconfig file.
    ///
    /// # Errors
    /// [`KubeconfigError`] names the file and what is missing or malformed in it.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, KubeconfigError> {
        let fail = |what: String| KubeconfigError {
            file: path.to_owned(),
            what,
        };
        let text = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
        let doc = yaml::decode(&text).map_err(|e| fail(e.to_string()))?;
        Self::from_document(&doc, path.parent().unwrap_or(Path::new("."))).map_err(fail)
    }

    fn from_document(doc: &Value, base: &Path) -> Result<Self, String> {
        let current = doc.str_at(&["current-context"]);
        if current.is_empty() {
            return Err("it names no current-context".to_owned());
        }
        let context = named(doc, "contexts", current, "context")?;
        let cluster = named(doc, "clusters", context.str_at(&["cluster"]), "cluster")?;
        let user = match context.str_at(&["user"]) {
            "" => &Value::Null,
            name => named(doc, "users", name, "user")?,
        };
        let user = user_credentials(user, base).map_err(|e| format!("users: {e}"))?;
        let server = cluster.str_at(&["server"]).trim_end_matches('/').to_owned();
        if !server.starts_with("https://") {
            return Err(format!("clusters: server {server:?} must be an https:// URL"));
        }
        if cluster.get("insecure-skip-tls-verify").as_bool() == Some(true) {
            return Err("clusters: insecure-skip-tls-verify is refused; give certificate-authority-data".to_owned());
        }
        let tls_server_name = cluster.get("tls-server-name").as_str().map(str::to_owned);
        Ok(Self {
            server,
            ca_pem: data(cluster, "certificate-authority", base)?,
            tls_server_name,
            client_identity: user.client_identity,
            token: user.token,
        })
    }
}

/// The credentials of a user; relative paths are below `base`.
pub(super) fn user_credentials(user: &Value, base: &Path) -> Result<UserCredentials, String> {
    for unsupported in ["exec", "auth-provider", "username"] {
        if !user.get(unsupported).is_null() {
            return Err(format!(
                "`{unsupported}` is not supported; give a client certificate or a token"
            ));
        }
    }
    let cert = data(user, "client-certificate", base)?;
    let key = data(user, "client-key", base)?;
    let client_identity = match (cert, key) {
        (Some(c), Some(k)) => Some((c, k)),
        (None, None) => None,
        _ => return Err("client-certificate and client-key must be given together".to_owned()),
    };
    let token = match (user.get("token").as_str(), user.get("tokenFile").as_str()) {
        (Some(t), _) => Some(t.to_owned()),
        (None, Some(file)) => {
            let file = base.join(file);
            let text = std::fs::read_to_string(&file).map_err(|e| format!("tokenFile {}: {e}", file.display()))?;
            Some(text.trim().to_owned())
        }
        (None, None) => None,
    };
    Ok(UserCredentials { client_identity, token })
}

fn named<'a>(doc: &'a Value, list: &str, name: &str, member: &str) -> Result<&'a Value, String> {
    doc.get(list)
        .items()
        .iter()
        .find(|e| e.str_at(&["name"]) == name)
        .map(|e| e.get(member))
        .ok_or_else(|| format!("{list}: there is no entry named {name:?}"))
}

/// `<field>-data` (base64), or the content of the file that `<field>` names.
fn data(entry: &Value, field: &str, base: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(inline) = entry.get(&format!("{field}-data")).as_str() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(inline.trim());
        return decoded
            .map(Some)
            .map_err(|e| format!("{field}-data is not base64: {e}"));
    }
    match entry.get(field).as_str() {
        None => Ok(None),
        Some(file) => {
            let file = base.join(file);
            std::fs::read(&file)
                .map(Some)
                .map_err(|e| format!("{field} {}: {e}", file.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn doc(user: Value) -> Value {
        let mut d = json!({"current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", "certificate-authority-data": "QQ=="}}]});
        let mut entry = json!({"name": "u"});
        entry.set(&["user"], user);
        d.set(&["users"], vec![entry]);
        d
    }

    #[test]
    fn the_current_context_is_used() {
        let c = ClientConfig::from_document(&doc(json!({"token": "t"})), Path::new(".")).unwrap();
        assert_eq!(
            (c.server.as_str(), c.ca_pem.as_deref(), c.token.as_deref()),
            ("https://127.0.0.1:6443", Some(&b"A"[..]), Some("t"))
        );
        assert!(!format!("{c:?}").contains("\"t\""));
    }

    #[test]
    fn unsupported_and_incomplete_credentials_are_named() {
        let e = ClientConfig::from_document(&doc(json!({"exec": {"command": "aws"}})), Path::new(".")).unwrap_err();
        assert!(e.contains("`exec` is not supported"), "{e}");
        let e =
            ClientConfig::from_document(&doc(json!({"client-certificate-data": "QQ=="})), Path::new(".")).unwrap_err();
        assert!(e.contains("together"), "{e}");
    }
}
