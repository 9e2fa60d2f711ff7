//! How the server identifies itself to webhooks: the users of a kubeconfig, by the host of the webhook
//! (upstream: `apiserver/pkg/util/webhook/authentication.go`). Entry points: [`Identities::read`] and
//! [`Identities::of`].

use crate::apimachinery::codec::{InFile, yaml};
use crate::apimachinery::value::Value;
use crate::client::bearer::BearerToken;
use crate::client::kubeconfig::{self, InvalidUser};
use http::header::InvalidHeaderValue;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;

/// The users of a kubeconfig. The default value has none: the server stays anonymous.
#[derive(Default)]
pub(crate) struct Identities {
    users: Vec<(String, Arc<Identity>)>,
    /// The user of the current context.
    current: Option<Arc<Identity>>,
}

/// The credentials of one user.
#[derive(Default)]
pub(crate) struct Identity {
    /// The client certificate to present; `None`: none.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// The token of each call; `None`: none.
    pub(super) token: Option<Arc<BearerToken>>,
}

/// A kubeconfig cannot be used. `Display` names the file and the invalid user.
#[derive(Debug, thiserror::Error)]
#[error("kubeconfig {0}")]
pub(crate) struct InvalidKubeconfig(#[source] InFile<Invalid>);

/// An error in a kubeconfig.
#[derive(Debug, thiserror::Error)]
enum Invalid {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    #[error("users: {name:?}: {source}")]
    User { name: String, source: InvalidIdentity },
}

/// An error in a user.
#[derive(Debug, thiserror::Error)]
enum InvalidIdentity {
    #[error(transparent)]
    Credentials(#[from] InvalidUser),
    #[error("client-certificate: {0}")]
    Certificate(#[source] pem::Error),
    #[error("client-key: {0}")]
    Key(#[source] pem::Error),
    /// The key cannot be used, or does not belong to the certificate.
    #[error("client-key: {0}")]
    Pair(#[source] rustls::Error),
    #[error("token: {0}")]
    Token(#[source] InvalidHeaderValue),
}

impl Identities {
    /// Reads a kubeconfig.
    ///
    /// # Errors
    /// [`InvalidKubeconfig`].
    pub(crate) fn read(file: &Path, provider: &CryptoProvider) -> Result<Self, InvalidKubeconfig> {
        let read = || {
            let document = yaml::decode(&std::fs::read(file)?)?;
            Self::parse(&document, file.parent().unwrap_or(Path::new(".")), provider)
        };
        read().map_err(|e| InvalidKubeconfig(InFile::at(file)(e)))
    }

    fn parse(document: &Value, base: &Path, provider: &CryptoProvider) -> Result<Self, Invalid> {
        let mut users = Vec::new();
        // All users, not only that of the current context: the webhook decides which one applies.
        for entry in document.get("users").items() {
            let name = entry.str_at(&["name"]);
            let identity = Identity::read(entry.get("user"), base, provider).map_err(|source| Invalid::User {
                name: name.to_owned(),
                source,
            })?;
            users.push((name.to_owned(), Arc::new(identity)));
        }
        let current = document.str_at(&["current-context"]);
        let contexts = document.get("contexts").items();
        let context = contexts
            .iter()
            // Without a current context, a context without a name must not be taken for it.
            .find(|c| !current.is_empty() && c.str_at(&["name"]) == current);
        let user = context.map_or("", |c| c.str_at(&["context", "user"]));
        let current = users.iter().find(|(name, _)| name == user).map(|(_, i)| i.clone());
        Ok(Self { users, current })
    }

    /// The user for a webhook at `host:port`: the one of that name, the one with the longest wildcard, the
    /// same without the port if that is 443, the user `*`, the user of the current context.
    pub(crate) fn of(&self, authority: &str) -> Option<&Arc<Identity>> {
        self.named(authority)
            .or_else(|| self.named(authority.strip_suffix(":443")?))
            .or_else(|| self.exactly("*"))
            .or(self.current.as_ref())
    }

    fn exactly(&self, name: &str) -> Option<&Arc<Identity>> {
        self.users.iter().find(|(n, _)| n == name).map(|(_, identity)| identity)
    }

    fn named(&self, target: &str) -> Option<&Arc<Identity>> {
        self.exactly(target).or_else(|| {
            // From the left, so that the longest suffix is tried first.
            let suffixes = target.match_indices('.').map(|(at, _)| format!("*{}", &target[at..]));
            suffixes.into_iter().find_map(|name| self.exactly(&name))
        })
    }
}

impl Identity {
    fn read(user: &Value, base: &Path, provider: &CryptoProvider) -> Result<Self, InvalidIdentity> {
        let credentials = kubeconfig::user_credentials(user, base)?;
        let certificate = match &credentials.client_identity {
            None => None,
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
                let chain = chain.map_err(InvalidIdentity::Certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(InvalidIdentity::Key)?;
                // Fails if the key is not that of the certificate: better now than at the first call.
                let pair = CertifiedKey::from_der(chain, key, provider).map_err(InvalidIdentity::Pair)?;
                Some(Arc::new(pair))
            }
        };
        let token = credentials.bearer().map_err(InvalidIdentity::Token)?;
        Ok(Self {
            certificate,
            token: token.map(Arc::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[tokio::test]
    async fn users_are_found_by_host_then_wildcard_then_default() {
        let user = |name: &str| json!({"name": name, "user": {"token": name}});
        let names = ["a.ns.svc:443", "b.ns.svc", "*.ns.svc:8443", "*.svc", "current"];
        let document = json!({"current-context": "x", "contexts": [{"name": "x", "context": {"user": "current"}}],
            "users": (names.map(user).to_vec())});
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let identities = Identities::parse(&document, Path::new("."), &provider).unwrap();
        for (authority, token) in [
            ("a.ns.svc:443", "a.ns.svc:443"),
            ("b.ns.svc:443", "b.ns.svc"),
            ("b.ns.svc:8443", "*.ns.svc:8443"),
            ("c.other.svc:443", "*.svc"),
            ("10.0.0.1:9443", "current"),
        ] {
            let found = identities.of(authority).and_then(|i| i.token.clone());
            assert_eq!(found.unwrap().header().await, format!("Bearer {token}"), "{authority}");
        }
        assert!(Identities::default().of("a.ns.svc:443").is_none());
    }
}
