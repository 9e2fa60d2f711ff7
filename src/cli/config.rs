//! `torana config`: prints, checks and writes configuration files. Each subcommand takes the flags of
//! `torana serve`.

use super::configuration::{self, API_VERSION};
use super::flags::{self, Support};
use super::serve;
use super::value::{UsageError, Values};
use crate::apimachinery::codec::{json, yaml};
use crate::apimachinery::value::Value;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;

pub(super) fn command() -> Command {
    let print = serve::with_flags(Command::new("print").about("Print what --config and the flags result in"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_parser(["yaml", "json"])
                .default_value("yaml")
                .help("Format"),
        )
        .arg(
            Arg::new("defaults")
                .long("defaults")
                .action(ArgAction::SetTrue)
                // Only YAML has comments.
                .conflicts_with("output")
                .help("Add the fields that are not set, as comments with their default and meaning"),
        );
    let check =
        Command::new("check").about("Check --config, the flags, and the files that they name, as `serve` would");
    let migrate =
        Command::new("migrate").about("Print the file that replaces these flags, or those of a kube-apiserver");
    let migrate = serve::with_flags(migrate).arg(
        Arg::new("manifest")
            .long("manifest")
            .value_name("file")
            .help("Pod manifest of a kube-apiserver or of a gateway; its flags come before those given here"),
    );
    Command::new("config")
        .about("Print, check or migrate the configuration of `serve`")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(print)
        .subcommand(serve::with_flags(check))
        .subcommand(migrate)
}

/// Runs a subcommand and returns its output.
pub(super) fn run(matches: &ArgMatches) -> Result<String, UsageError> {
    match matches.subcommand() {
        Some(("print", matches)) => print(matches),
        Some(("check", matches)) => check(matches),
        Some(("migrate", matches)) => migrate(matches),
        // Not reached: clap requires a subcommand.
        _ => Err(UsageError::new(
            "torana config: missing subcommand (see torana config --help)",
        )),
    }
}

fn print(matches: &ArgMatches) -> Result<String, UsageError> {
    let values = serve::values(matches)?;
    if matches
        .get_one::<String>("output")
        .is_some_and(|format| format == "json")
    {
        let text = json::to_vec_pretty(&configuration::document(&values));
        return Ok(String::from_utf8_lossy(&text).into_owned() + "\n");
    }
    Ok(configuration::to_yaml(&values, matches.get_flag("defaults")))
}

fn check(matches: &ArgMatches) -> Result<String, UsageError> {
    let completed = serve::options(matches)?.complete()?;
    let mut out: String = completed.warnings.iter().map(|w| format!("warning: {w}\n")).collect();
    out += "the configuration is valid\n";
    Ok(out)
}

fn migrate(matches: &ArgMatches) -> Result<String, UsageError> {
    let mut values = serve::values(matches)?;
    if let Some(file) = matches.get_one::<String>("manifest") {
        // The command line wins, so that a migrated value can be corrected in the same call.
        values = values.over(manifest_values(file)?);
    }
    let mut comments = String::new();
    let given: Vec<_> = values.given().filter_map(flags::find).collect();
    for flag in given {
        let why = match flag.support {
            Support::Supported => continue,
            Support::Ignored(why) => format!("has no effect here: {why}"),
            Support::Rejected(why) => format!("is not possible here: {why}"),
        };
        // A flag that only repeats the default is not worth a comment.
        if !values.is_default(flag) {
            comments += &format!("# --{}={} {why}\n", flag.name, values.text(flag.name));
        }
        // Out of the file in any case: it would be refused, or warn at each start.
        values.remove(flag.name);
    }
    Ok(comments + &configuration::to_yaml(&values, false))
}

/// The flags of the API server's container in a manifest.
fn manifest_values(file: &str) -> Result<Values, UsageError> {
    let fail = |why: String| UsageError::new(format!("--manifest: {file}: {why}"));
    let text = std::fs::read(file).map_err(|e| fail(format!("cannot be read: {e}")))?;
    let document = yaml::decode(&text).map_err(|e| fail(e.to_string()))?;
    // A Deployment or DaemonSet, or else a Pod.
    let pod = [&["spec", "template", "spec"][..], &["spec"]].map(|path| document.at(path));
    let containers = pod.iter().flat_map(|spec| spec.get("containers").items());
    let flags_of = |container: &Value| -> Option<Vec<String>> {
        let words = ["command", "args"].map(|field| container.get(field).items());
        let words: Vec<String> = words
            .into_iter()
            .flatten()
            .filter_map(|w| w.as_str().map(str::to_owned))
            .collect();
        // The binary may be preceded by a wrapper such as a shell or an entry point.
        let is_server = |word: &String| word == "serve" || word.rsplit('/').next() == Some("kube-apiserver");
        let server = words.iter().position(is_server)?;
        Some(words[server + 1..].to_vec())
    };
    let flags = containers.into_iter().find_map(flags_of);
    let flags = flags.ok_or_else(|| {
        fail(format!(
            "no container runs kube-apiserver or `torana serve`; a {API_VERSION} file is generated from their flags"
        ))
    })?;
    let args = ["serve".to_owned()]
        .into_iter()
        .chain(flags)
        .map(OsString::from)
        // As for a command line: a manifest may spell flags with underscores.
        .map(super::with_dashes);
    let matches = serve::command().try_get_matches_from(args);
    let matches = matches.map_err(|e| match super::refused(&e) {
        Err(error) => fail(error.to_string()),
        Ok(_) => fail("its flags print help instead of running a server".to_owned()),
    })?;
    serve::values(&matches)
}

#[cfg(test)]
mod tests {
    use crate::cli::{Command, parse};
    use std::ffi::OsString;

    fn config(args: &[&str]) -> Result<String, String> {
        let args = ["torana", "config"].iter().chain(args).map(OsString::from);
        match parse(args) {
            Ok(Command::Print(text)) => Ok(text),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn print_merges_file_and_flags() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("torana.yaml");
        let text = "apiVersion: torana.dev/v1alpha1\nkind: ToranaConfiguration\nsecurePort: 1\nv: 4\n";
        std::fs::write(&path, text).unwrap();
        let file = format!("--config={}", path.display());
        let printed = config(&["print", &file, "--secure-port=2"]).unwrap();
        assert_eq!(printed, text.replace("securePort: 1", "securePort: 2"));
        let printed = config(&["print", &file, "-o", "json"]).unwrap();
        assert!(printed.contains("\"securePort\": 1"), "{printed}");
        assert_eq!(config(&["check", &file]), Ok("the configuration is valid\n".to_owned()));
        let error = config(&["check", &file, "--client-ca-file=/gone"]).unwrap_err();
        assert!(error.starts_with("--client-ca-file: cannot read /gone"), "{error}");
        let error = config(&["print", "--config=/gone"]).unwrap_err();
        assert!(error.starts_with("--config: cannot read /gone"), "{error}");
    }

    #[test]
    fn the_flags_of_a_kube_apiserver_become_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kube-apiserver.yaml");
        let pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: other\n    command: [sleep]\n  - name: kube-apiserver\n    \
                   command:\n    - kube-apiserver\n    - --etcd-servers=https://127.0.0.1:2379\n    - --goaway-chance=0.01\n    \
                   - --client_ca_file=/pki/ca.crt\n    - --egress-selector-config-file=/egress.yaml\n    - --profiling=true\n";
        std::fs::write(&path, pod).unwrap();
        let manifest = format!("--manifest={}", path.display());
        assert_eq!(
            config(&["migrate", &manifest, "--secure-port=7443"]).unwrap(),
            "# --egress-selector-config-file=/egress.yaml is not possible here: connections would bypass the proxy it names\n\
             # --goaway-chance=0.01 has no effect here: connections are only ended when they are idle, broken or unauthenticated\n\
             apiVersion: torana.dev/v1alpha1\nkind: ToranaConfiguration\nsecurePort: 7443\nclientCaFile: /pki/ca.crt\n\
             etcdServers:\n- https://127.0.0.1:2379\n"
        );
        std::fs::write(&path, pod.replace("--goaway-chance", "--goaway-chanze")).unwrap();
        let error = config(&["migrate", &manifest]).unwrap_err();
        assert!(
            error.contains("unknown flag: --goaway-chanze; did you mean --goaway-chance?"),
            "{error}"
        );
        std::fs::write(&path, "kind: Pod\n").unwrap();
        assert!(
            config(&["migrate", &manifest])
                .unwrap_err()
                .contains("no container runs kube-apiserver")
        );
    }
}
