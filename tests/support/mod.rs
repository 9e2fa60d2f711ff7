//! Shared by several test binaries: a gateway process per test, on an ephemeral port, in a temporary
//! directory.
#![allow(dead_code, reason = "each test binary uses only a part")]

pub(crate) mod kubelet;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;

/// A server process, killed by pid when dropped.
pub(crate) struct Process {
    pub child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command, log: PathBuf) -> Self {
        let out = std::fs::File::create(&log).expect("the log can be created");
        let err = out.try_clone().expect("the log can be shared");
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .expect("the binary starts");
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(done.expect("kill runs").success());
    }

    /// Waits for the process to exit. Returns the exit code, or `None` if it was killed by a signal.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Option<i32> {
        let until = Instant::now() + at_most;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status.code();
            }
            assert!(
                Instant::now() < until,
                "the process ends within {at_most:?}; its log:\n{}",
                self.log()
            );
            std::thread::yield_now();
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A failing test prints the log of its own server only.
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// Polls until `ready` holds; panics with `what` after a minute.
pub(crate) fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !ready() {
        assert!(Instant::now() < until, "{what} (waited a minute)");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// `TORANA_TEST_CONTROLLERS` runs a suite with these control loops on, except where a test chooses them
/// itself.
fn controllers(flags: &[&str]) -> Option<String> {
    let loops = std::env::var("TORANA_TEST_CONTROLLERS").ok()?;
    let chosen = flags.iter().any(|flag| flag.starts_with("--controllers"));
    (!chosen).then(|| format!("--controllers={loops}"))
}

pub(crate) struct Gateway {
    pub process: Process,
    pub dir: PathBuf,
    extra: Vec<String>,
}

impl Gateway {
    /// Starts a gateway in `dir` and waits until it is ready.
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    pub(crate) fn start_with(dir: &Path, extra: &[&str]) -> Self {
        Self::start_in(dir, extra, &[])
    }

    /// The same, with additional environment variables.
    pub(crate) fn start_in(dir: &Path, extra: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_binary(Path::new(env!("CARGO_BIN_EXE_torana")), dir, extra, environment)
    }

    /// The same, with another binary.
    pub(crate) fn start_binary(binary: &Path, dir: &Path, extra: &[&str], environment: &[(&str, &str)]) -> Self {
        let data = dir.join("data");
        // The readiness check below waits for the kubeconfig of this start, which has the new port.
        let _ = std::fs::remove_file(data.join("admin.kubeconfig"));
        let process = Process::spawn(
            Command::new(binary)
                .arg("serve")
                .args(["--secure-port=0", "--bind-address=127.0.0.1"])
                .arg(format!("--data-dir={}", data.display()))
                .args(controllers(extra))
                .args(extra)
                .envs(environment.iter().copied()),
            dir.join("torana.log"),
        );
        let mut g = Self {
            process,
            dir: dir.to_owned(),
            extra: extra.iter().map(|s| (*s).to_owned()).collect(),
        };
        let data = g.dir.join("data");
        wait_for("the gateway gets ready", || {
            if let Some(status) = g.process.child.try_wait().expect("the child is ours") {
                panic!("the gateway ended with {status}:\n{}", g.process.log());
            }
            data.join("admin.kubeconfig").exists() && g.curl(&["/readyz"]).is_ok_and(|t| t == "ok")
        });
        g
    }

    /// Kills the gateway with SIGKILL and starts a new process on the same directory.
    pub(crate) fn crash_and_restart(mut self) -> Self {
        self.process.child.kill().expect("the child is ours");
        self.process.child.wait().expect("the child is ours");
        let (dir, extra) = (self.dir.clone(), self.extra.clone());
        drop(self);
        let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
        Self::start_with(&dir, &extra)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("data/admin.kubeconfig")
    }

    pub(crate) fn url(&self) -> String {
        let text = std::fs::read_to_string(self.kubeconfig()).expect("the kubeconfig was written");
        let line = text
            .lines()
            .find_map(|l| l.trim().strip_prefix("server:"))
            .expect("it names the server");
        line.trim().trim_matches('"').to_owned()
    }

    /// Runs curl as the administrator; the last argument is the path.
    pub(crate) fn curl(&self, args: &[&str]) -> Result<String, String> {
        let pki = self.dir.join("data/pki");
        let (path, options) = args.split_last().expect("a path");
        let out = Command::new("curl")
            .args(["-sS", "--fail-with-body", "--max-time", "30", "--cacert"])
            .arg(pki.join("ca.crt"))
            .arg("--cert")
            .arg(pki.join("admin.crt"))
            .arg("--key")
            .arg(pki.join("admin.key"))
            .args(options)
            .arg(format!("{}{path}", self.url()))
            .output()
            .expect("curl is installed (make tools)");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() {
            Ok(text)
        } else {
            Err(format!("{text}{}", String::from_utf8_lossy(&out.stderr)))
        }
    }

    fn kubectl_output(&self, args: &[&str], stdin: Option<&str>) -> Output {
        self.kubectl_run(&[], args, stdin)
    }

    /// Runs kubectl with environment variables, expects success, and returns its standard output.
    pub(crate) fn kubectl_with(&self, environment: &[(&str, &str)], args: &[&str]) -> String {
        let out = self.kubectl_run(environment, args, None);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "kubectl {args:?}: {}\n{error}", out.status);
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn kubectl_run(&self, environment: &[(&str, &str)], args: &[&str], stdin: Option<&str>) -> Output {
        use std::io::Write;
        // A private cache directory: kubectl caches discovery on disk, and a shared cache would leak between
        // tests.
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("--cache-dir")
            .arg(self.dir.join("kube-cache"))
            .args(args)
            .envs(environment.iter().copied())
            .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl is installed (make tools)");
        if let Some(text) = stdin {
            child
                .stdin
                .take()
                .expect("it is piped")
                .write_all(text.as_bytes())
                .expect("kubectl reads it");
        }
        child.wait_with_output().expect("kubectl ends")
    }

    /// Runs kubectl, expects success, and returns its standard output.
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.kubectl_in(args, None)
    }

    pub(crate) fn kubectl_in(&self, args: &[&str], stdin: Option<&str>) -> String {
        let out = self.kubectl_output(args, stdin);
        assert!(
            out.status.success(),
            "kubectl {args:?}: {}\n{}{}",
            out.status,
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Runs kubectl; whether it succeeds.
    pub(crate) fn kubectl_try(&self, args: &[&str]) -> bool {
        self.kubectl_output(args, None).status.success()
    }

    /// Waits until a CustomResourceDefinition is served. Repeated, because `kubectl wait` fails on one without
    /// conditions, as those of a new one are for a moment (with kube-apiserver, too).
    pub(crate) fn until_established(&self, definition: &str) {
        let crd = format!("crd/{definition}");
        let wait = ["wait", "--for=condition=Established", "--timeout=120s", &crd];
        wait_for("the definition is established", || self.kubectl_try(&wait));
    }

    /// Runs kubectl, expects failure, and returns its standard error.
    pub(crate) fn kubectl_fails(&self, args: &[&str], stdin: Option<&str>) -> String {
        let out = self.kubectl_output(args, stdin);
        assert!(
            !out.status.success(),
            "kubectl {args:?} succeeds: {}",
            String::from_utf8_lossy(&out.stdout)
        );
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    /// Starts the example extension server behind this gateway and waits until its group is served.
    pub(crate) fn with_example(&self) -> Process {
        let example = Path::new(env!("CARGO_BIN_EXE_torana"))
            .with_file_name("examples")
            .join("extension-server");
        assert!(
            example.exists(),
            "{} is missing: cargo build --examples (make test does)",
            example.display()
        );
        let process = Process::spawn(
            Command::new(example)
                .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
                .arg(format!("--data-dir={}", self.dir.join("example").display()))
                .args(["--secure-port=0", "--register"]),
            self.dir.join("example.log"),
        );
        wait_for("the aggregated group answers", || {
            self.curl(&["/apis/gadgets.example.com/v1"]).is_ok()
        });
        // The group answers before the first probe of its backend. kubectl also needs the resources in discovery,
        // which has none until that probe succeeded.
        wait_for("the aggregated group is discovered", || {
            let seen = self.backend_status("v1.gadgets.example.com");
            seen.str_at(&["available"]) == "True" && seen.str_at(&["discovery"]) == "Current"
        });
        self.until_openapi_is_collected("v1.gadgets.example.com");
        process
    }

    /// The entry of an APIService in `/debug/aggregator`; null if there is none.
    fn backend_status(&self, name: &str) -> Value {
        let page = self.curl(&["-H", "Accept: application/json", "/debug/aggregator"]);
        let page = json::decode(page.unwrap_or_default().as_bytes()).unwrap_or_default();
        let items = page.get("items").items();
        let found = items.iter().find(|item| item.str_at(&["name"]) == name);
        found.cloned().unwrap_or_default()
    }

    /// Waits until the gateway has asked the backend of an APIService for its OpenAPI documents, and has parsed them.
    pub(crate) fn until_openapi_is_collected(&self, name: &str) {
        wait_for("the OpenAPI documents are collected", || {
            let seen = self.backend_status(name);
            ["openapiV2", "openapiV3"].into_iter().all(|key| {
                let document = seen.at(&["documents", key]);
                // A backend need not have both.
                document.str_at(&["state"]) == "Current" || !document.str_at(&["error"]).is_empty()
            })
        });
    }
}
