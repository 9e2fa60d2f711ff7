//! A standalone extension API server for the group `gadgets.example.com/v1`, to be run behind a gateway. See
//! README.md.

mod kinds;
mod polish;
mod register;

use clap::Parser;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use torana::sdk::TaskGroup;
use torana::sdk::client::{Client, ClientConfig};
use torana::sdk::{ApiServer, Port, Running};
use torana::sdk::{authn, authz, pki};

/// Maximum time to wait for the gateway to become ready.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Serves gadgets.example.com/v1 behind an aggregating API server")]
struct Options {
    /// Kubeconfig of the gateway; waits up to a minute for the gateway
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Directory for objects and the certificate
    #[arg(long, default_value = "./gadgets-data")]
    data_dir: PathBuf,
    /// Port to serve on; 0 picks a free one
    #[arg(long, default_value_t = 0)]
    secure_port: u16,
    /// Create the Service and the APIService that route requests from the gateway to this server
    #[arg(long)]
    register: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("extension-server: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), String> {
    let listen = |kind| signal(kind).map_err(|e| format!("cannot listen for signals: {e}"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let tasks = TaskGroup::new("delegation");
    let mut running = None;
    // Biased: a signal also ends a start that is still waiting for the gateway.
    let outcome = tokio::select! {
        biased;
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        outcome = start(&options, &tasks, &mut running) => match outcome {
            Err(e) => Err(e),
            Ok(()) => {
                tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
                Ok(())
            }
        },
    };
    let down = async {
        if let Some(server) = running {
            server.shut_down().await;
        }
        // Tasks that do not end in time end with the process.
        let _ = tasks.shutdown(Instant::now() + Duration::from_secs(1)).await;
    };
    tokio::select! {
        () = down => outcome,
        _ = terminate.recv() => Err("ended by a second signal".to_owned()),
        _ = interrupt.recv() => Err("ended by a second signal".to_owned()),
    }
}

/// Connects to the gateway, starts the server, and prints the READY line.
async fn start(options: &Options, tasks: &TaskGroup, running: &mut Option<Running>) -> Result<(), String> {
    let gateway = connect(&options.kubeconfig).await?;
    let callers = authn::Delegated::start(gateway.clone(), tasks, PATIENCE).await;
    let callers = callers.map_err(|e| e.to_string())?;
    let access = authz::Delegated::recommended(gateway.clone());

    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let names = [register::SERVICE_NAME, "localhost"];
    let certificate = pki::ensure_serving(&options.data_dir.join("pki"), &names, &[localhost], SystemTime::now())
        .map_err(|e| e.to_string())?;
    let port = Port::bind(
        (localhost, options.secure_port).into(),
        &certificate,
        callers.client_cas(),
    )
    .map_err(|e| e.to_string())?;
    let address = port.local_addr();
    let server = ApiServer::builder(options.data_dir.join("store"))
        .group_version(kinds::GROUP, kinds::VERSION, kinds::all())
        .build(callers, Arc::new(access))
        .map_err(|e| e.to_string())?;
    *running = Some(server.open(port));

    if options.register {
        let ca = std::fs::read(&certificate.ca).map_err(|e| format!("{}: {e}", certificate.ca.display()))?;
        register::register(&gateway, address.port(), &ca).await?;
        say(&format!(
            "READY https://{address} ({} is Available)",
            register::API_SERVICE
        ))
    } else {
        say(&format!("READY https://{address} (not registered)"))
    }
}

/// Prints a line for scripts to wait for.
fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| format!("standard output: {e}"))
}

/// A client of the gateway, once its kubeconfig exists and `/readyz` passes.
async fn connect(kubeconfig: &Path) -> Result<Arc<Client>, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let why = match ClientConfig::from_kubeconfig(kubeconfig) {
            Err(e) => e.to_string(),
            Ok(config) => {
                let client = Client::try_new(&config).map_err(|e| format!("{}: {e}", kubeconfig.display()))?;
                match client.get("/readyz").await {
                    Ok(_) => return Ok(Arc::new(client)),
                    Err(e) => format!("the gateway is not ready: {e}"),
                }
            }
        };
        if Instant::now() > deadline {
            return Err(why);
        }
        sleep(Duration::from_millis(100)).await;
    }
}
