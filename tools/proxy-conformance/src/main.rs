//! The command `proxy-conformance`: runs the cases against a gateway. `docs/proxy-conformance.md` is the
//! manual.

use proxy_conformance::case::Case;
use proxy_conformance::client::Credentials;
use proxy_conformance::environment::{Environment, Options, Via};
use proxy_conformance::report::{self, Format};
use proxy_conformance::{cases, run};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, ExitCode};
use std::sync::Arc;

const USAGE: &str = "\
usage: proxy-conformance (--kubeconfig=FILE | --server=URL --certificate-authority=FILE (--token=T | --client-certificate=FILE --client-key=FILE))

  --listen=IP           where the scripted backends listen (127.0.0.1)
  --backend-host=NAME   the name under which the gateway reaches them (localhost)
  --via=external-name   reach them through a Service of type ExternalName; or
  --via=endpoints       through a headless Service and an EndpointSlice with --backend-host=IP (--enable-aggregator-routing)
  --redirects=passed    the gateway passes redirects on (--aggregator-reject-forwarding-redirect=false)
  --front-proxy-certificate=FILE --front-proxy-key=FILE
                        of a front proxy that the gateway trusts
  --egress-proxy=IP:PORT
                        the address in the gateway's HTTPS_PROXY; the program listens there (not with --via=endpoints)
  --only=PREFIX         cases whose id has this prefix; repeatable
  --output=table        or json, tap
  --strict              cases that differ or are lacking count as failures
  --keep                do not delete the created objects
  --list                print the cases and exit

Exit code: 0 all hold, 1 some fail, 2 the suite could not run.";

struct Invocation {
    options: Options,
    server: String,
    trusted: String,
    credentials: Credentials,
    only: Vec<String>,
    format: Format,
    strict: bool,
    keep: bool,
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

/// Reads a kubeconfig's current context through `kubectl config view`, which also embeds referenced files.
fn kubeconfig(path: &str) -> Result<(String, String, Credentials), String> {
    use base64::Engine as _;
    let out = Command::new("kubectl")
        .args([
            "config",
            "view",
            "--raw",
            "--minify",
            "--flatten",
            "-o",
            "json",
            "--kubeconfig",
            path,
        ])
        .output()
        .map_err(|e| format!("cannot run kubectl to read the kubeconfig: {e}"))?;
    let config: Value = serde_json::from_slice(&out.stdout)
        .map_err(|_| format!("kubeconfig {path}: {}", String::from_utf8_lossy(&out.stderr).trim()))?;
    let decoded = |v: &Value| -> Option<String> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(v.as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    let server = cluster["server"]
        .as_str()
        .ok_or("the kubeconfig names no server")?
        .to_owned();
    let trusted = decoded(&cluster["certificate-authority-data"]).ok_or("the kubeconfig names no CA")?;
    let certificate = (
        decoded(&user["client-certificate-data"]),
        decoded(&user["client-key-data"]),
    );
    let credentials = match (certificate, user["token"].as_str()) {
        ((Some(cert), Some(key)), _) => Credentials::Certificate(cert, key),
        (_, Some(token)) => Credentials::Token(token.to_owned()),
        _ => return Err("the kubeconfig has neither a client certificate nor a token".into()),
    };
    Ok((server, trusted, credentials))
}

fn parse(args: &[String]) -> Result<Invocation, String> {
    let mut options = Options::default();
    let (mut only, mut format) = (vec![], Format::Table);
    let (mut strict, mut keep) = (false, false);
    let (mut config, mut server, mut trusted) = (None, None, None);
    let (mut token, mut certificate, mut key) = (None, None, None);
    let (mut proxy_certificate, mut proxy_key) = (None, None);
    for arg in args {
        let (name, value) = arg.split_once('=').unwrap_or((arg, ""));
        match name {
            "--kubeconfig" => config = Some(kubeconfig(value)?),
            "--server" => server = Some(value.to_owned()),
            "--certificate-authority" => trusted = Some(read(value)?),
            "--token" => token = Some(value.to_owned()),
            "--client-certificate" => certificate = Some(read(value)?),
            "--client-key" => key = Some(read(value)?),
            "--listen" => options.listen = value.parse().map_err(|e| format!("--listen: {e}"))?,
            "--backend-host" => options.host = value.to_owned(),
            "--via" if value == "external-name" => options.via = Via::ExternalName,
            "--via" if value == "endpoints" => options.via = Via::Endpoints,
            "--redirects" if value == "passed" => options.redirects_passed = true,
            "--front-proxy-certificate" => proxy_certificate = Some(read(value)?),
            "--front-proxy-key" => proxy_key = Some(read(value)?),
            "--egress-proxy" => {
                let listener = TcpListener::bind(value).map_err(|e| format!("--egress-proxy={value}: {e}"))?;
                options.egress = Some(Arc::new(listener));
            }
            "--only" => only.push(value.to_owned()),
            "--output" if value == "table" => format = Format::Table,
            "--output" if value == "json" => format = Format::Json,
            "--output" if value == "tap" => format = Format::Tap,
            "--strict" => strict = true,
            "--keep" => keep = true,
            _ => return Err(format!("{arg} is not understood\n\n{USAGE}")),
        }
    }
    options.front_proxy = match (proxy_certificate, proxy_key) {
        (Some(certificate), Some(key)) => Some(Credentials::Certificate(certificate, key)),
        (None, None) => None,
        _ => return Err("--front-proxy-certificate and --front-proxy-key belong together".into()),
    };
    let given = match (token, certificate, key) {
        (Some(token), ..) => Some(Credentials::Token(token)),
        (None, Some(certificate), Some(key)) => Some(Credentials::Certificate(certificate, key)),
        _ => None,
    };
    let (server, trusted, credentials) = match (config, server, trusted, given) {
        (Some(config), ..) => config,
        (None, Some(server), Some(trusted), Some(given)) => (server, trusted, given),
        (None, None, ..) => return Err(format!("which gateway?\n\n{USAGE}")),
        (None, Some(_), None, _) => return Err("--server needs --certificate-authority".into()),
        (None, Some(_), Some(_), None) => {
            return Err("--server needs --token, or --client-certificate and --client-key".into());
        }
    };
    Ok(Invocation {
        options,
        server,
        trusted,
        credentials,
        only,
        format,
        strict,
        keep,
    })
}

/// The cases to run. A prefix that matches none is an error, because a run of no cases would count as a
/// success.
fn selected(only: &[String]) -> Result<Vec<Case>, String> {
    let mut cases = cases::all();
    if let Some(prefix) = only
        .iter()
        .find(|p| !cases.iter().any(|case| case.id.starts_with(p.as_str())))
    {
        return Err(format!(
            "--only={prefix}: no case id has this prefix (--list prints them)"
        ));
    }
    cases.retain(|case| only.is_empty() || only.iter().any(|prefix| case.id.starts_with(prefix.as_str())));
    Ok(cases)
}

async fn all(command: Invocation) -> Result<bool, String> {
    let cases = selected(&command.only)?;
    let environment =
        Environment::try_new(&command.server, &command.trusted, &command.credentials, command.options).await?;
    let environment = Arc::new(environment);
    let results = run::run(environment.clone(), cases).await;
    if !command.keep {
        environment.clean_up().await;
    }
    print!("{}", report::format(&results, command.format));
    let c = report::counts(&results);
    Ok(c.failed == 0 && (!command.strict || c.differs + c.lacks == 0))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        for case in cases::all() {
            println!("{:9} {}", case.id, case.claim);
        }
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|a| a == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime
        .map_err(|e| e.to_string())
        .and_then(|runtime| runtime.block_on(async { all(parse(&args)?).await }));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("proxy-conformance: {why}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_matches_no_case_is_an_error() {
        let count = |only: &[&str]| selected(&only.iter().map(|&p| p.into()).collect::<Vec<String>>()).map(|r| r.len());
        assert_eq!(count(&[]).unwrap(), cases::all().len());
        assert!(count(&["3.4"]).unwrap() > 10);
        assert!(count(&["3.4", "99"]).unwrap_err().starts_with("--only=99: no case"));
    }

    #[test]
    fn missing_options_of_a_server_are_named() {
        let error_of = |args: &[&str]| {
            parse(&args.iter().map(|&a| a.into()).collect::<Vec<String>>())
                .err()
                .unwrap()
        };
        assert_eq!(
            error_of(&["--server=https://h", "--token=t"]),
            "--server needs --certificate-authority"
        );
        let ca = "--certificate-authority=Cargo.toml";
        assert!(error_of(&["--server=https://h", ca]).starts_with("--server needs --token"));
    }
}
