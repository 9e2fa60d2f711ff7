//! A gateway process for tests that kill it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A gateway on one address over restarts, killed when dropped.
pub struct Server {
    pub client: Client,
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/torana");
    let path = std::env::var_os("TORANA_BIN").map_or_else(built, PathBuf::from);
    assert!(
        path.exists(),
        "{} does not exist: build it or set TORANA_BIN",
        path.display()
    );
    path
}

fn spawn(dir: &Path, port: u16) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("torana.log"));
    let log = log.expect("the log can be written");
    Command::new(binary())
        .args(["serve", "--bind-address=127.0.0.1"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--data-dir={}", dir.join("data").display()))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log can be shared"))
        .stderr(log)
        .spawn()
        .expect("the binary starts")
}

/// Polls until `ready` holds; panics with `what` after a minute.
pub async fn wait_for<F, Fut>(what: &str, mut ready: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let until = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < until, "{what} within a minute");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Server {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let child = spawn(dir.path(), 0);
        let kubeconfig = dir.path().join("data/admin.kubeconfig");
        wait_for("the kubeconfig is written", || async { kubeconfig.exists() }).await;
        let file = Kubeconfig::read_from(&kubeconfig).expect("the kubeconfig parses");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let config = config.expect("the kubeconfig is complete");
        let server = Self {
            port: config.cluster_url.port_u16().expect("a port"),
            client: Client::try_from(config).expect("a client"),
            child,
            dir,
        };
        server.ready().await;
        server
    }

    /// Ends the process as a crash does, and starts it again on the same address.
    pub async fn kill_and_restart(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
        self.child = spawn(self.dir.path(), self.port);
        self.ready().await;
    }

    /// Runs kubectl with `given` on its standard input, and returns what it prints. Fails if kubectl does.
    pub fn kubectl(&self, args: &[&str], given: &str) -> String {
        let (done, text, errors) = self.run_kubectl(args, given);
        assert!(done, "kubectl {}: {errors}", args.join(" "));
        text
    }

    /// As [`kubectl`](Self::kubectl), for what is refused: returns the errors.
    pub fn kubectl_fails(&self, args: &[&str], given: &str) -> String {
        let (done, text, errors) = self.run_kubectl(args, given);
        assert!(!done, "kubectl {} succeeds: {text}", args.join(" "));
        errors
    }

    /// Whether kubectl succeeds.
    pub fn kubectl_try(&self, args: &[&str]) -> bool {
        self.run_kubectl(args, "").0
    }

    fn run_kubectl(&self, args: &[&str], given: &str) -> (bool, String, String) {
        let mut child = Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", self.dir.path().join("data/admin.kubeconfig"))
            .env("HOME", self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl is installed");
        let mut to = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut to, given.as_bytes()).expect("kubectl reads");
        drop(to);
        let done = child.wait_with_output().expect("kubectl ends");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (done.status.success(), text(done.stdout), text(done.stderr))
    }

    /// The body of a GET.
    pub async fn get(&self, path: &str) -> String {
        self.request(path).await.expect("an answer")
    }

    async fn request(&self, path: &str) -> kube::Result<String> {
        let request = http::Request::get(path).body(Vec::new()).expect("a valid request");
        self.client.request_text(request).await
    }

    async fn ready(&self) {
        wait_for("the gateway is ready", || async {
            self.request("/readyz").await.is_ok_and(|t| t == "ok")
        })
        .await;
    }
}

/// The sum of the metric's series that have all these labels.
pub fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let series = metrics.lines().filter(|l| {
        l.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && labels.iter().all(|label| l.contains(label))
    });
    series.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
