//! The commands `torana token` and `torana kubeconfig`. Entry points: [`token`] asks a running server for a
//! service account token, [`kubeconfig`] signs a client certificate with the CA in the data directory or asks
//! for a token. Both return text; `main` prints it.

use super::Error;
use crate::cli::credentials::{KubeconfigCommand, Subject, TokenCommand};
use crate::client::{Client, ClientConfig};
use crate::pki::{self, Credentials, Kubeconfig};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::time::SystemTime;

/// Requests a service account token from the server.
///
/// # Errors
/// The kubeconfig cannot be used, or the server does not answer or rejects the request.
pub fn token(command: &TokenCommand) -> BoxFuture<'_, Result<String, Error>> {
    asked_for_token(command).boxed()
}

async fn asked_for_token(command: &TokenCommand) -> Result<String, Error> {
    let config = ClientConfig::from_kubeconfig(&command.kubeconfig).map_err(Error::other)?;
    let client = Client::try_new(&config).map_err(Error::other)?;
    let seconds = i64::try_from(command.duration.as_secs()).unwrap_or(i64::MAX);
    let mut request = crate::json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds},
    });
    if !command.audiences.is_empty() {
        request.set(&["spec", "audiences"], command.audiences.clone());
    }
    let (namespace, name) = (&command.namespace, &command.name);
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let answer = client.create(&path, &request).await.map_err(Error::other)?;
    match answer.str_at(&["status", "token"]) {
        "" => Err(Error::other(format!(
            "{}: the response contains no token",
            config.server
        ))),
        token => Ok(token.to_owned()),
    }
}

/// Renders a kubeconfig.
///
/// # Errors
/// A file cannot be used, or the server does not answer or rejects the request.
pub fn kubeconfig(command: &KubeconfigCommand) -> BoxFuture<'_, Result<String, Error>> {
    written(command).boxed()
}

async fn written(command: &KubeconfigCommand) -> Result<String, Error> {
    let admin = ClientConfig::from_kubeconfig(&command.kubeconfig).map_err(Error::other)?;
    let ca = match admin.ca_pem {
        Some(ca) => ca,
        // A kubeconfig without CA data relies on the system's roots, which the recipient of this file may not
        // have.
        None => read(&command.data_dir.join("pki/ca.crt"))?,
    };
    let server = command.server.as_deref().unwrap_or(&admin.server);
    let write = |user: &str, credentials| {
        Kubeconfig {
            server,
            certificate_authority: &ca,
            user,
            credentials,
        }
        .to_yaml()
    };
    match &command.subject {
        Subject::User(user, group) => {
            let dir = command.data_dir.join("pki");
            let issued = pki::issue_client(&dir, user, group.as_deref(), command.duration, SystemTime::now());
            let (certificate, key) = issued.map_err(Error::other)?;
            let (certificate, key) = (certificate.as_bytes(), key.as_bytes());
            Ok(write(user, Credentials::Certificate { certificate, key }))
        }
        Subject::ServiceAccount(namespace, name) => {
            let asked = TokenCommand {
                kubeconfig: command.kubeconfig.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                audiences: Vec::new(),
                duration: command.duration,
            };
            let token = token(&asked).await?;
            Ok(write(&format!("{namespace}-{name}"), Credentials::Token(&token)))
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|e| Error::other(format!("{}: cannot be read: {e}", path.display())))
}
