//! Kubeconfig files, as far as server programs need them: certificates, keys and tokens, inline or in files.
//! Exec plugins and auth providers are rejected with an error. Entry point:
//! [`ClientConfig::from_kubeconfig`].

use super::bearer::BearerToken;
use crate::apimachinery::Value;
use crate::apimachinery::codec::{InFile, yaml};
use base64::Engine;
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
    /// Sent as a bearer token, unless `token_file` has a newer one.
    pub token: Option<String>,
    /// File with a newer token, which is read again once a minute.
    pub token_file: Option<PathBuf>,
}

/// The credentials of a user of a kubeconfig.
pub(super) struct UserCredentials {
    /// Client certificate chain and private key, in PEM.
    pub client_identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token; with a file, the one in it.
    pub token: Option<String>,
    /// File with a newer token.
    pub token_file: Option<PathBuf>,
}

impl UserCredentials {
    /// The token to present.
    ///
    /// # Errors
    /// The token contains bytes that are not allowed in a header.
    pub(super) fn bearer(&self) -> Result<Option<BearerToken>, http::header::InvalidHeaderValue> {
        bearer(self.token.as_deref(), self.token_file.as_deref())
    }
}

fn bearer(token: Option<&str>, file: Option<&Path>) -> Result<Option<BearerToken>, http::header::InvalidHeaderValue> {
    token
        .map(|token| BearerToken::try_new(token, file.map(Path::to_owned)))
        .transpose()
}

/// An invalid kubeconfig. `Display` names the file and the entry.
#[derive(Debug, thiserror::Error)]
#[error("kubeconfig {0}")]
pub struct KubeconfigError(#[source] InFile<Invalid>);

/// An error in a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub(super) enum Invalid {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    #[error("it names no current-context")]
    NoContext,
    #[error("{list}: there is no entry named {name:?}")]
    NoEntry { list: &'static str, name: String },
    #[error("users: {0}")]
    User(#[source] InvalidUser),
    #[error("clusters: server {0:?} must be an https:// URL")]
    Server(String),
    #[error("clusters: insecure-skip-tls-verify is refused; give certificate-authority-data")]
    Insecure,
    #[error(transparent)]
    Authority(#[from] InvalidData),
}

/// Why the credentials of a user cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidUser {
    #[error("`{0}` is not supported; give a client certificate or a token")]
    Unsupported(&'static str),
    #[error("client-certificate and client-key must be given together")]
    Incomplete,
    #[error("tokenFile {}: {source}", .file.display())]
    TokenFile { file: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Data(#[from] InvalidData),
}

/// Why a field that is given inline or as a file has no content.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidData {
    #[error("{field}-data is not base64: {source}")]
    Base64 {
        field: &'static str,
        source: base64::DecodeError,
    },
    #[error("{field} {}: {source}", .file.display())]
    File {
        field: &'static str,
        file: PathBuf,
        source: std::io::Error,
    },
}

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
                // Without roots, each handshake would fail with an error that does not point to the
                // configuration.
                if roots.is_empty() {
                    return Err(CredentialsError::NoAuthority);
                }
            }
            None => {
                // Unlike a configured bundle: one odd certificate of the system must not make all others
                // useless.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(roots)
    }

    /// A TLS configuration that verifies the server, and presents the client certificate. It offers no
    /// protocol by ALPN.
    ///
    /// # Errors
    /// A certificate or key cannot be used.
    pub(super) fn tls(&self) -> Result<rustls::ClientConfig, CredentialsError> {
        // Named here, since a library must not depend on what the process installed as its default.
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

    /// The token to present.
    ///
    /// # Errors
    /// The token contains bytes that are not allowed in a header.
    pub(super) fn authorization(&self) -> Result<Option<BearerToken>, CredentialsError> {
        Ok(bearer(self.token.as_deref(), self.token_file.as_deref())?)
    }

    /// Reads the current context of a kubeconfig file.
    ///
    /// # Errors
    /// [`KubeconfigError`] names the file and what is missing or malformed in it.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, KubeconfigError> {
        Self::read(path).map_err(|e| KubeconfigError(InFile::at(path)(e)))
    }

    fn read(path: &Path) -> Result<Self, Invalid> {
        let doc = yaml::decode(&std::fs::read(path)?)?;
        // As client-go, relative paths are relative to the kubeconfig and not to the working directory.
        Self::from_document(&doc, path.parent().unwrap_or(Path::new(".")))
    }

    fn from_document(doc: &Value, base: &Path) -> Result<Self, Invalid> {
        let current = doc.str_at(&["current-context"]);
        if current.is_empty() {
            return Err(Invalid::NoContext);
        }
        let context = named(doc, "contexts", current, "context")?;
        let cluster = named(doc, "clusters", context.str_at(&["cluster"]), "cluster")?;
        let user = match context.str_at(&["user"]) {
            // As in client-go, a context may name no user: the client is then anonymous.
            "" => &Value::Null,
            name => named(doc, "users", name, "user")?,
        };
        let user = user_credentials(user, base).map_err(Invalid::User)?;
        // Paths are appended with a slash of their own.
        let server = cluster.str_at(&["server"]).trim_end_matches('/').to_owned();
        // A token or client certificate must not be sent in the clear, so plain http is not accepted.
        if !server.starts_with("https://") {
            return Err(Invalid::Server(server));
        }
        if cluster.get("insecure-skip-tls-verify").as_bool() == Some(true) {
            return Err(Invalid::Insecure);
        }
        let tls_server_name = cluster.get("tls-server-name").as_str().map(str::to_owned);
        Ok(Self {
            server,
            ca_pem: data(cluster, "certificate-authority", base)?,
            tls_server_name,
            client_identity: user.client_identity,
            token: user.token,
            token_file: user.token_file,
        })
    }
}

/// The credentials of a user; relative paths are below `base`.
pub(super) fn user_credentials(user: &Value, base: &Path) -> Result<UserCredentials, InvalidUser> {
    // Exec plugins and auth providers run code that the file chooses; upstream has no basic authentication
    // any more.
    for unsupported in ["exec", "auth-provider", "username"] {
        if !user.get(unsupported).is_null() {
            return Err(InvalidUser::Unsupported(unsupported));
        }
    }
    let cert = data(user, "client-certificate", base)?;
    let key = data(user, "client-key", base)?;
    let client_identity = match (cert, key) {
        (Some(c), Some(k)) => Some((c, k)),
        (None, None) => None,
        _ => return Err(InvalidUser::Incomplete),
    };
    let token_file = user.get("tokenFile").as_str().map(|file| base.join(file));
    // As upstream: with both, the file wins if it can be read when the token is used.
    let token = match (user.get("token").as_str(), &token_file) {
        (Some(t), _) => Some(t.to_owned()),
        (None, Some(file)) => match std::fs::read_to_string(file) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(source) => {
                let file = file.clone();
                return Err(InvalidUser::TokenFile { file, source });
            }
        },
        (None, None) => None,
    };
    Ok(UserCredentials {
        client_identity,
        token,
        token_file,
    })
}

fn named<'a>(doc: &'a Value, list: &'static str, name: &str, member: &str) -> Result<&'a Value, Invalid> {
    doc.get(list)
        .items()
        .iter()
        .find(|e| e.str_at(&["name"]) == name)
        .map(|e| e.get(member))
        .ok_or_else(|| Invalid::NoEntry {
            list,
            name: name.to_owned(),
        })
}

/// `<field>-data` (base64), or the content of the file that `<field>` names.
fn data(entry: &Value, field: &'static str, base: &Path) -> Result<Option<Vec<u8>>, InvalidData> {
    // As in client-go, inline data wins over a file.
    if let Some(inline) = entry.get(&format!("{field}-data")).as_str() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(inline.trim());
        return decoded
            .map(Some)
            .map_err(|source| InvalidData::Base64 { field, source });
    }
    match entry.get(field).as_str() {
        None => Ok(None),
        Some(file) => {
            let file = base.join(file);
            std::fs::read(&file)
                .map(Some)
                .map_err(|source| InvalidData::File { field, file, source })
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
    fn a_token_file_is_read_and_remembered() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t"), "secret\n").unwrap();
        let c = ClientConfig::from_document(&doc(json!({"tokenFile": "t"})), dir.path()).unwrap();
        assert_eq!(c.token.as_deref(), Some("secret"));
        assert_eq!(c.token_file, Some(dir.path().join("t")));
    }

    #[test]
    fn unsupported_and_incomplete_credentials_are_named() {
        let e = ClientConfig::from_document(&doc(json!({"exec": {"command": "aws"}})), Path::new(".")).unwrap_err();
        assert!(e.to_string().contains("`exec` is not supported"), "{e}");
        let e =
            ClientConfig::from_document(&doc(json!({"client-certificate-data": "QQ=="})), Path::new(".")).unwrap_err();
        assert!(e.to_string().contains("together"), "{e}");
    }
}
