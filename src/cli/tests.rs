mod access;

use super::options::SniFiles;
use super::*;
use crate::authz::config::{AuthorizerConfig, Mode};
use crate::serving::TlsVersion;
use std::time::Duration;

fn read(args: &[&str]) -> Result<Command, UsageError> {
    parse(["torana"].iter().chain(args).map(OsString::from))
}

fn serve(args: &[&str]) -> Options {
    let args: Vec<&str> = ["serve"].iter().chain(args).copied().collect();
    match read(&args) {
        Ok(Command::Serve(options)) => *options,
        other => panic!("{other:?}"),
    }
}

fn error(args: &[&str]) -> String {
    let args: Vec<&str> = ["serve"].iter().chain(args).copied().collect();
    let text = match read(&args) {
        Ok(Command::Serve(options)) => options.complete().unwrap_err().to_string(),
        Ok(other) => panic!("{other:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!text.trim_end().contains('\n'), "one line: {text}");
    text
}

#[test]
fn an_invalid_choice_lists_the_possible_values() {
    let message = |args: &[&str]| read(args).unwrap_err().to_string();
    assert_eq!(
        message(&["status", "-o", "xml"]),
        "invalid argument \"xml\" for --output: expected one of table, wide, json, yaml"
    );
    assert_eq!(message(&["status", "-o"]), "flag needs an argument: --output <output>");
}

#[test]
fn the_first_kubeconfig_with_a_current_context_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (empty, used) = (file("empty", "kind: Config\n"), file("used", "current-context: c\n"));
    let list = |files: &[&Path]| std::env::join_paths(files).unwrap();
    let gone = Path::new("/gone");
    assert_eq!(super::first_in_use(&list(&[gone, &empty, &used])), used);
    assert_eq!(super::first_in_use(&list(&[gone])), gone);
    let message = super::client_config(gone).unwrap_err();
    assert!(
        message
            .to_string()
            .ends_with("; name another with --kubeconfig or $KUBECONFIG"),
        "{message}"
    );
    assert!(
        super::client_config(&empty)
            .unwrap_err()
            .to_string()
            .ends_with("it names no current-context")
    );
}

#[test]
fn no_flag_is_required() {
    let options = serve(&[]);
    assert!(options.warnings.is_empty());
    let completed = options.complete().unwrap();
    assert!(completed.warnings.is_empty(), "{:?}", completed.warnings);
    assert_eq!(completed.bind.to_string(), "0.0.0.0:6443");
    assert_eq!(completed.local_url(7443), "https://127.0.0.1:7443");
    assert_eq!(completed.storage.data_dir.to_str(), Some("./torana-data"));
    assert_eq!(completed.generic.request_timeout, Duration::from_secs(60));
    assert_eq!(
        completed.authorization.authorizers,
        [Mode::Node, Mode::Rbac].map(AuthorizerConfig::of)
    );
    let pki = completed.pki_options();
    assert!(pki.addresses.contains(&"10.0.0.1".parse().unwrap()));
    assert_eq!(
        completed.authentication.request_header.allowed_names,
        ["front-proxy-client"]
    );
}

#[test]
fn only_uid_headers_that_the_flag_names_are_published() {
    let of = |args: &[&str]| {
        let completed = serve(args).complete().unwrap();
        let headers = completed.authentication.request_header;
        (headers.uid_headers, headers.published_uid_headers)
    };
    let standard = vec!["X-Remote-Uid".to_owned()];
    assert_eq!(of(&[]), (standard.clone(), vec![]));
    assert_eq!(
        of(&["--requestheader-uid-headers=X-Remote-Uid"]),
        (standard.clone(), standard)
    );
}

#[test]
fn all_spellings_of_flag_values_are_accepted() {
    let options = serve(&[
        "--secure-port",
        "0",
        "--anonymous-auth=false",
        "--enable-aggregator-routing",
        "--tls_min_version=VersionTLS13",
        "--requestheader-allowed-names=a,b",
        "--requestheader-allowed-names=c",
        "--request-timeout=1m30s",
        "--request-timeout=2m",
        "-v",
        "4",
        "--vmodule=serving=6",
        "--tls-sni-cert-key=a.crt,a.key",
        "--tls-sni-cert-key=b.crt,b.key:x.example,*.y.example",
        "--service-cluster-ip-range=10.96.0.0/12,fd00::/108",
    ]);
    assert_eq!(options.serving.port, 0);
    assert!(!options.authentication.anonymous);
    assert!(options.aggregator.route_by_endpoint);
    assert_eq!(options.serving.tls.min_version, TlsVersion::Tls13);
    assert_eq!(options.authentication.request_header.allowed_names, ["a", "b", "c"]);
    assert_eq!(
        options.generic.request_timeout,
        Duration::from_secs(120),
        "the last value wins"
    );
    assert_eq!(options.logging.filter(), "warn,torana=debug,torana::serving=trace");
    let sni = |cert: &str, key: &str, names: &[&str]| SniFiles {
        cert: cert.into(),
        key: key.into(),
        names: names.iter().map(|n| (*n).to_owned()).collect(),
    };
    assert_eq!(
        options.serving.sni,
        [
            sni("a.crt", "a.key", &[]),
            sni("b.crt", "b.key", &["x.example", "*.y.example"])
        ]
    );
    let first: Vec<String> = options
        .network
        .service_cidrs
        .iter()
        .map(|c| c.first_service_address().to_string())
        .collect();
    assert_eq!(first, ["10.96.0.1", "fd00::1"]);
}

#[test]
fn flags_without_effect_warn_and_dangerous_ones_are_refused() {
    let options = serve(&[
        "--audit-log-path=/x",
        "--profiling",
        "--profiling=true",
        "--etcd-prefix=/registry",
    ]);
    assert_eq!(
        options.warnings.len(),
        1,
        "default values give no warning: {:?}",
        options.warnings
    );
    assert!(options.warnings[0].starts_with("--audit-log-path has no effect: "));
    let text = error(&["--logging-format=json"]);
    assert!(text.contains("--logging-format") && text.contains("refused"), "{text}");
}

#[test]
fn etcd_servers_select_the_etcd_backend() {
    let etcd = |args: &[&str]| serve(args).storage.etcd;
    assert!(etcd(&[]).is_none());
    let chosen = etcd(&[
        "--etcd-servers=https://a:2379,https://b:2379",
        "--etcd-prefix=/other",
        "--etcd-servers-overrides=/events#http://c:2379",
        "--storage-backend=etcd3",
        "--lease-reuse-duration-seconds=5",
    ]);
    let chosen = chosen.expect("chosen");
    assert_eq!((chosen.servers.len(), chosen.prefix.as_str()), (2, "/other"));
    assert_eq!(
        (chosen.overrides.len(), chosen.lease_reuse),
        (1, Duration::from_secs(5))
    );
    for (args, why) in [
        (&["--etcd-servers=x"][..], "is no http:// or https:// URL"),
        (&["--storage-backend=etcd3"], "--etcd-servers must be specified"),
        (&["--storage-backend=etcd2"], "allowed values: etcd3"),
        (
            &["--storage-media-type=text/plain"],
            "--storage-media-type \"text/plain\" invalid",
        ),
        (&["--etcd-servers=http://a", "--etcd-certfile=x"], "etcd-keyfile"),
        (
            &["--etcd-servers=http://a", "--etcd-servers-overrides=events"],
            "must be of format",
        ),
        (
            &["--encryption-provider-config-automatic-reload"],
            "must be set with --encryption-provider-config",
        ),
    ] {
        assert!(error(args).contains(why), "{}", error(args));
    }
}

#[test]
fn store_commands_parse_their_action_and_location() {
    use super::store::StoreAction;
    let store = |args: &[&str]| match read(&[&["store"][..], args].concat()) {
        Ok(Command::Store(command)) => Ok(*command),
        Ok(other) => panic!("{other:?}"),
        Err(e) => Err(e.to_string()),
    };
    let backup = store(&["backup", "--data-dir=/a", "--to=/b"]).unwrap();
    assert_eq!(backup.action, StoreAction::Backup("/b".into()));
    assert_eq!(backup.storage.data_dir.to_str(), Some("/a"));
    let restore = store(&["restore", "--from=/b", "--revisions-ahead=0"]).unwrap();
    assert_eq!(restore.action, StoreAction::Restore("/b".into(), 0));
    let export = store(&["export", "--etcd-servers=http://a", "--keep-revisions=true"]).unwrap();
    assert_eq!(export.action, StoreAction::Export(true));
    for (args, why) in [
        (&["backup"][..], "--to must be given"),
        (&["import"], "--etcd-servers must be specified"),
        (
            &["export", "--etcd-servers=http://a", "--keep-revisions=x"],
            "true or false",
        ),
        (&["check", "--secure-port=1"], "unknown flag"),
    ] {
        let text = store(args).unwrap_err();
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn usage_errors_are_one_line() {
    for (args, parts) in [
        (&["--secure-prt=1"][..], &["unknown flag", "--secure-port"][..]),
        (&["--secure-port=70000"], &["--secure-port", "70000", "65535"]),
        (&["--secure-port"], &["--secure-port", "argument"]),
        (&["--request-timeout=60"], &["--request-timeout", "90s"]),
        (
            &["--request-timeout=-1s"],
            &["--request-timeout can not be negative value"],
        ),
        (
            &["--max-requests-inflight=-1"],
            &["--max-requests-inflight can not be negative value"],
        ),
        (
            &["--goaway-chance=0.5"],
            &["--goaway-chance can not be less than 0 or greater than 0.02"],
        ),
        (
            &["--anonymous-auth=maybe"],
            &["--anonymous-auth", "maybe", "true or false"],
        ),
        (
            &["--tls-cert-file=x"],
            &["--tls-cert-file needs --tls-private-key-file"],
        ),
        (&["--bind-address=here"], &["--bind-address", "IP address"]),
        (&["--advertise-address=0.0.0.0"], &["--advertise-address"]),
        (
            &["--authorization-mode=RBCA"],
            &["authorization-mode \"RBCA\" is not a valid mode"],
        ),
        (
            &["--authorization-mode=RBAC,RBAC"],
            &["has mode specified more than once"],
        ),
        (
            &["--service-cluster-ip-range=10.0.0.0"],
            &["--service-cluster-ip-range", "CIDR"],
        ),
        (&["--requestheader-uid-headers=X-Uid"], &["X-Remote-Uid"]),
        (
            &["--client-ca-file=/nowhere/ca.crt"],
            &["--client-ca-file", "/nowhere/ca.crt", "No such file"],
        ),
        (
            &["--token-auth-file=/nowhere/t.csv"],
            &["--token-auth-file", "/nowhere/t.csv"],
        ),
        (&["extra"], &["extra"]),
    ] {
        let text = error(args);
        for part in parts {
            assert!(text.contains(part), "{args:?}: {text}");
        }
    }
    assert!(
        read(&["serv"])
            .unwrap_err()
            .to_string()
            .contains("did you mean dev, serve")
    );
}

#[test]
fn a_mismatched_key_is_reported_with_flag_and_files() {
    let tmp = tempfile::tempdir().unwrap();
    let options = crate::pki::PkiOptions {
        dir: tmp.path().to_owned(),
        serving_dir: None,
        names: vec![],
        addresses: vec![],
        rsa_signing_key: false,
        now: std::time::SystemTime::now(),
    };
    let pki = crate::pki::ensure(&options).unwrap();
    let cert = format!("--tls-cert-file={}", pki.apiserver().0.display());
    let key = format!("--tls-private-key-file={}", pki.admin().1.display());
    let text = error(&[&cert, &key]);
    for part in ["--tls-cert-file", "apiserver.crt", "admin.key", "does not belong"] {
        assert!(text.contains(part), "{text}");
    }
    let same = format!("={}", pki.client_ca().display());
    let text = error(&[
        &format!("--client-ca-file{same}"),
        &format!("--requestheader-client-ca-file{same}"),
    ]);
    assert!(text.contains("--requestheader-allowed-names"), "{text}");
}

#[test]
fn help_and_version_are_printed() {
    let printed = |args: &[&str]| match read(args) {
        Ok(Command::Print(text)) => text,
        other => panic!("{other:?}"),
    };
    let help = printed(&["serve", "--help"]);
    assert!(
        help.contains("--secure-port") && !help.contains("--cors-allowed-origins"),
        "{help}"
    );
    assert!(printed(&["--help"]).contains("serve"));
    assert!(printed(&["version", "-o", "json"]).contains("\"kubernetesVersion\":\"v1.36.2\""));
    assert!(printed(&["version"]).starts_with("Torana v"));
}

#[test]
fn location_flags_keep_files_out_of_the_working_directory() {
    let dir = |flags: &[&str]| serve(flags).complete().unwrap().storage.data_dir;
    for (flags, expected) in [
        (&[][..], "./torana-data"),
        (&["--etcd-servers=http://127.0.0.1:2379"][..], "/var/lib/torana"),
        (&["--cert-dir=/nowhere/certs"][..], "/nowhere/certs/torana"),
        (
            &["--cert-dir=/nowhere/certs", "--etcd-servers=http://127.0.0.1:2379"][..],
            "/nowhere/certs/torana",
        ),
        (&["--cert-dir=/nowhere/certs", "--data-dir=here"][..], "here"),
    ] {
        assert_eq!(dir(flags).to_str(), Some(expected), "{flags:?}");
    }
}

#[test]
fn half_a_pair_in_the_certificate_directory_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("apiserver.key"), "").unwrap();
    let text = error(&[&format!("--cert-dir={}", tmp.path().display())]);
    assert!(
        text.starts_with("--cert-dir: ") && text.contains("only one of"),
        "{text}"
    );
}

#[test]
fn credentials_are_valid_for_an_hour_by_default() {
    let of = |args: &[&str]| parse(["torana"].iter().chain(args).map(OsString::from));
    let Ok(Command::Token(token)) = of(&["token", "ci", "-n", "build", "--audience", "vault", "--duration=30m"]) else {
        panic!("a token command");
    };
    assert_eq!((token.namespace.as_str(), token.name.as_str()), ("build", "ci"));
    assert_eq!(
        (token.audiences, token.duration),
        (vec!["vault".to_owned()], Duration::from_secs(1800))
    );
    assert_eq!(token.kubeconfig.to_str(), Some("./torana-data/admin.kubeconfig"));
    let Ok(Command::Kubeconfig(config)) = of(&["kubeconfig", "jane", "--group=dev", "--data-dir=/d"]) else {
        panic!("a kubeconfig command");
    };
    assert_eq!(config.duration, Duration::from_secs(3600));
    assert_eq!(
        config.subject,
        credentials::Subject::User("jane".into(), Some("dev".into()))
    );
    for wrong in [
        &["token"][..],
        &["token", "A/b"],
        &["token", "x", "--duration=0s"],
        &["kubeconfig"],
        &["kubeconfig", "--group=x", "--serviceaccount=y"],
        &["kubeconfig", "x", "--serviceaccount=y"],
        &["kubeconfig", "x", "--server=http://y"],
    ] {
        assert!(of(wrong).is_err(), "{wrong:?}");
    }
}
