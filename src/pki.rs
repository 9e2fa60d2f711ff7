//! The certificates and keys a server gets on its first start, under `<data-dir>/pki`.
//!
//! Entry point: [`ensure`]. What is there is kept and checked; a leaf that is missing, about to expire, from another CA
//! or without a name it needs is issued again as long as its CA's key is there. A CA is never replaced. What each file
//! proves to whom is told in `certs/README.md`.

mod files;
mod issue;
mod kubeconfig;

pub use kubeconfig::{Credentials, Kubeconfig, write_kubeconfig};

use issue::{Authority, Leaf};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Life of a CA made here.
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Life of a leaf made here.
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// A leaf with less than this left is issued again.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the certificates must say.
#[derive(Clone, Debug)]
pub struct PkiOptions {
    /// Where the files are.
    pub dir: PathBuf,
    /// Names of the serving certificate besides the usual ones: host name, `--external-hostname`.
    pub names: Vec<String>,
    /// Addresses of the serving certificate besides the loopback ones: advertised, bound, first service IP.
    pub addresses: Vec<IpAddr>,
    /// The moment certificates are judged at and issued for.
    pub now: SystemTime,
}

/// A complete set of files.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
    /// Files written by this start; empty where all were there.
    pub written: Vec<&'static str>,
}

/// The PKI cannot be had: one line that names the file and the mend.
#[derive(Debug)]
pub struct PkiError {
    path: PathBuf,
    reason: String,
}

impl PkiError {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for PkiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for PkiError {}

/// Makes the set complete and valid.
///
/// # Errors
/// A file that cannot be read or written, a key that does not fit, an expired CA, a leaf that cannot be issued because
/// its CA's key is elsewhere.
pub fn ensure(options: &PkiOptions) -> Result<Pki, PkiError> {
    files::create_dir(&options.dir)?;
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(options.names.iter().map(|n| n.to_ascii_lowercase()));
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    addresses.extend(&options.addresses);
    let leaves = [
        Leaf {
            ca: "ca",
            file: "apiserver",
            common_name: "kube-apiserver",
            organization: None,
            serves: Some((names, addresses)),
        },
        Leaf {
            ca: "front-proxy-ca",
            file: "front-proxy-client",
            common_name: "front-proxy-client",
            organization: None,
            serves: None,
        },
        Leaf {
            ca: "client-ca",
            file: "admin",
            common_name: "kubernetes-admin",
            organization: Some("system:masters"),
            serves: None,
        },
    ];
    let mut written = Vec::new();
    // An RSA key takes longer than everything else together.
    std::thread::scope(|scope| {
        let signer = scope.spawn(|| issue::ensure_signing_key(&options.dir));
        for (ca, common_name) in [
            ("ca", "torana-ca"),
            ("client-ca", "torana-client-ca"),
            ("front-proxy-ca", "torana-front-proxy-ca"),
        ] {
            let authority = Authority::ensure(&options.dir, ca, common_name, options.now, &mut written)?;
            for leaf in leaves.iter().filter(|leaf| leaf.ca == ca) {
                leaf.ensure(&options.dir, &authority, options.now, &mut written)?;
            }
        }
        let made = signer
            .join()
            .map_err(|_| PkiError::new(&options.dir.join("sa.key"), "key generation failed"))??;
        written.extend(made);
        Ok(())
    })?;
    Ok(Pki {
        dir: options.dir.clone(),
        written,
    })
}

/// A serving certificate, and the CA that clients are told to trust.
#[derive(Clone, Debug)]
pub struct ServingPair {
    /// PEM of the CA.
    pub ca: PathBuf,
    /// PEM of the certificate.
    pub cert: PathBuf,
    /// PEM of its key.
    pub key: PathBuf,
}

/// A serving certificate for these names by a CA of its own, made in `dir` where it is not there yet, issued again
/// before it expires or where the names are others. For servers that nobody gave a certificate.
///
/// # Errors
/// A file that cannot be read or written, a key that does not fit, an expired CA.
pub fn ensure_serving(
    dir: &Path,
    names: &[&str],
    addresses: &[IpAddr],
    now: SystemTime,
) -> Result<ServingPair, PkiError> {
    files::create_dir(dir)?;
    let leaf = Leaf {
        ca: "serving-ca",
        file: "serving",
        common_name: "extension-apiserver",
        organization: None,
        serves: Some((
            names.iter().map(|n| n.to_ascii_lowercase()).collect(),
            addresses.to_vec(),
        )),
    };
    let mut written = Vec::new();
    let authority = Authority::ensure(dir, leaf.ca, "extension-apiserver-ca", now, &mut written)?;
    leaf.ensure(dir, &authority, now, &mut written)?;
    Ok(ServingPair {
        ca: dir.join("serving-ca.crt"),
        cert: dir.join("serving.crt"),
        key: dir.join("serving.key"),
    })
}

/// A client certificate by the generated client CA, and its key, both PEM: for a user, maybe in a group, for `life` from now.
/// Nothing is written.
///
/// # Errors
/// The CA or its key is not in `dir`, or cannot be used.
pub fn issue_client(
    dir: &Path,
    user: &str,
    group: Option<&str>,
    life: Duration,
    now: SystemTime,
) -> Result<(String, String), PkiError> {
    for file in ["client-ca.crt", "client-ca.key"] {
        let path = dir.join(file);
        if !path.exists() {
            let mend = "name the server's data directory, in which it keeps what it generates";
            return Err(PkiError::new(&path, format!("is missing; {mend}")));
        }
    }
    Authority::ensure(dir, "client-ca", "torana-client-ca", now, &mut Vec::new())?.client(user, group, life, now)
}

impl Pki {
    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (
            self.dir.join(format!("{name}.crt")),
            self.dir.join(format!("{name}.key")),
        )
    }

    /// CA of the serving certificate: what clients trust.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// Serving certificate and key.
    pub fn apiserver(&self) -> (PathBuf, PathBuf) {
        self.pair("apiserver")
    }

    /// CA of client certificates.
    pub fn client_ca(&self) -> PathBuf {
        self.dir.join("client-ca.crt")
    }

    /// CA of front proxies: what backends trust to speak for users.
    pub fn front_proxy_ca(&self) -> PathBuf {
        self.dir.join("front-proxy-ca.crt")
    }

    /// Certificate and key shown to backends.
    pub fn front_proxy_client(&self) -> (PathBuf, PathBuf) {
        self.pair("front-proxy-client")
    }

    /// Certificate and key of the administrator.
    pub fn admin(&self) -> (PathBuf, PathBuf) {
        self.pair("admin")
    }

    /// Key that signs service-account tokens.
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    /// Keys that verify service-account tokens.
    pub fn service_account_public_key(&self) -> PathBuf {
        self.dir.join("sa.pub")
    }
}

#[cfg(test)]
mod tests;
