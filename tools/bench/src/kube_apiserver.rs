//! kube-apiserver with its own etcd, measured like Torana if `KUBE_APISERVER` names its binary (`ETCD` names
//! that of etcd; default: in `PATH`). It is configured as in a cluster: TLS, RBAC, the aggregator with its
//! client certificate.

use crate::etcd;
use crate::gateway::{Gateway, TOKEN, ready};
use crate::process::{Server, free_port};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub struct KubeApiserver {
    binary: PathBuf,
    etcd: PathBuf,
    /// The directory for its files.
    pub dir: PathBuf,
    ports: [u16; 3],
}

impl KubeApiserver {
    /// `None` if no binary is named.
    pub fn find(dir: &Path) -> Result<Option<Self>, String> {
        let Some(binary) = std::env::var_os("KUBE_APISERVER") else {
            return Ok(None);
        };
        let dir = dir.join("kube-apiserver");
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let cert = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
            .map_err(|e| e.to_string())?;
        let write = |name: &str, text: String| std::fs::write(dir.join(name), text).map_err(|e| e.to_string());
        write("tls.crt", cert.cert.pem())?;
        write("tls.key", cert.signing_key.serialize_pem())?;
        write("accounts.pub", cert.signing_key.public_key_pem())?;
        write("tokens.csv", format!("{TOKEN},bench,bench-uid,\"system:masters\"\n"))?;
        Ok(Some(Self {
            binary: binary.into(),
            etcd: std::env::var_os("ETCD").unwrap_or_else(|| "etcd".into()).into(),
            dir,
            ports: [free_port()?, free_port()?, free_port()?],
        }))
    }

    /// Starts it with its existing data. The time excludes the start of etcd.
    pub async fn start(&self) -> Result<Gateway, String> {
        let [port, client, peer] = self.ports;
        let (etcd, client) = etcd::member_on(&self.etcd, &self.dir, [client, peer]).await?;
        let file = |name: &str| self.dir.join(name).display().to_string();
        let mut c = Command::new(&self.binary);
        c.arg(format!("--secure-port={port}"))
            .arg("--bind-address=127.0.0.1")
            // The endpoints of the Service "kubernetes" must not contain a loopback address.
            .arg("--advertise-address=192.0.2.1")
            .arg(format!("--etcd-servers={client}"))
            .arg(format!("--tls-cert-file={}", file("tls.crt")))
            .arg(format!("--tls-private-key-file={}", file("tls.key")))
            .arg(format!("--token-auth-file={}", file("tokens.csv")))
            .arg("--authorization-mode=Node,RBAC")
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", file("accounts.pub")))
            .arg(format!("--service-account-signing-key-file={}", file("tls.key")))
            .arg(format!("--requestheader-client-ca-file={}", file("tls.crt")))
            .arg(format!("--proxy-client-cert-file={}", file("tls.crt")))
            .arg(format!("--proxy-client-key-file={}", file("tls.key")))
            .arg("--requestheader-username-headers=X-Remote-User")
            .arg("--requestheader-group-headers=X-Remote-Group")
            .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
            .arg("--http2-max-streams-per-connection=250")
            .arg("--max-requests-inflight=2000")
            .arg("--max-mutating-requests-inflight=1000");
        let (t, log) = (Instant::now(), self.dir.join("log"));
        let server = Server::start(&mut c, &log)?.with(etcd);
        ready(server, port, t, &log).await
    }
}
