//! The gateway under test: in this process, on an ephemeral port, in a temporary directory.

use crate::http::Endpoint;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use torana::gateway::{self, Command, CompletedOptions, Gateway, parse};

/// The administrator's token.
pub(crate) const ADMIN: &str = "admintoken";

/// The users of the recordings.
const TOKENS: &str = "admintoken,admin,admin-uid,\"system:masters\"\n\
    limitedtoken,limited-user,limited-uid,\"parity-limited\"\n\
    viewertoken,viewer-user,viewer-uid,\"parity-viewers,parity-extra\"\n";

/// The configuration of the recorded server (README.md), as far as it differs from the defaults.
const FLAGS: &[&str] = &[
    "--secure-port=0",
    "--bind-address=127.0.0.1",
    "--authorization-mode=Node,RBAC",
    "--allow-privileged=true",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--etcd-compaction-interval=5s",
];

pub(crate) struct Running {
    runtime: Runtime,
    gateway: Option<Gateway>,
    pub endpoint: Endpoint,
    _dir: tempfile::TempDir,
}

impl Running {
    /// Starts a gateway. It may not be ready yet; see [`wait_until_ready`].
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            // Deeply nested values are walked recursively, in the large frames of an unoptimised build.
            .thread_stack_size(64 << 20)
            .enable_all()
            .build()
            .unwrap();
        let gateway = runtime.block_on(gateway::start(options(dir.path()))).unwrap();
        let ca = std::fs::read(dir.path().join("data/pki/ca.crt")).unwrap();
        Self {
            endpoint: Endpoint::new(gateway.url(), &ca),
            runtime,
            gateway: Some(gateway),
            _dir: dir,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            self.runtime.block_on(async {
                // Watches that a failed case left open would delay the end.
                let _ = tokio::time::timeout(Duration::from_secs(5), gateway.shut_down()).await;
            });
        }
    }
}

fn options(dir: &Path) -> CompletedOptions {
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, TOKENS).unwrap();
    let args = ["torana", "serve"].iter().chain(FLAGS).map(|a| (*a).to_owned()).chain([
        format!("--token-auth-file={}", tokens.display()),
        format!("--data-dir={}", dir.join("data").display()),
    ]);
    match parse(args.map(OsString::from)) {
        Ok(Command::Serve(options)) => options.complete().unwrap(),
        _ => panic!("these are flags of serve"),
    }
}

/// Waits until a server is ready.
pub(crate) fn wait_until_ready(endpoint: &Endpoint) {
    let limit = Instant::now() + Duration::from_secs(60);
    let request = crate::tidy::request(ADMIN, "GET", "/readyz", None);
    let mut client = crate::http::Client::new(endpoint.clone());
    while !client.send(&request).is_ok_and(|r| r.status == 200) {
        assert!(Instant::now() < limit, "the server is not ready after a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}
