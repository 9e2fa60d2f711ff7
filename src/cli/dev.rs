//! `torana dev`: a gateway for a developer's machine. It takes the flags of `torana serve`, with other
//! defaults, and a few of its own.

use super::options::Options;
use super::serve;
use super::value::UsageError;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;

/// The flags that differ from the defaults of `serve`.
const DEFAULTS: [(&str, &str); 3] = [
    ("bind-address", "127.0.0.1"),
    ("controllers", "*,bootstrap-signer-controller,token-cleaner-controller"),
    // An RSA key takes longer to generate than everything else at a first start.
    ("generated-signing-key", "ES256"),
];

/// A parsed `torana dev` command.
#[derive(Clone, Debug)]
pub struct DevCommand {
    /// The options of the server.
    pub(crate) options: Box<Options>,
    /// Directory of manifests that are applied at the start and when they change.
    pub(crate) apply: Option<PathBuf>,
    /// Keep the store and the keys in a directory that is removed at the end.
    pub(crate) ephemeral: bool,
    /// Add a context for the gateway to the user's kubeconfig while it runs.
    pub(crate) merge_kubeconfig: bool,
}

pub(super) fn command() -> Command {
    let command = Command::new("dev")
        .about(
            "Run the server on a developer's machine, with control loops and everything else that `serve` leaves out",
        )
        .disable_version_flag(true)
        .arg(
            Arg::new("apply").long("apply").value_name("dir").help(
                "Directory of manifests (YAML, JSON) to apply at the start and when they change, definitions first",
            ),
        )
        .arg(
            Arg::new("ephemeral")
                .long("ephemeral")
                .action(ArgAction::SetTrue)
                .conflicts_with("data-dir")
                .help("Keep the store and the keys in memory, or in a temporary directory, until the server ends"),
        )
        .arg(
            Arg::new("merge-kubeconfig")
                .long("merge-kubeconfig")
                .action(ArgAction::SetTrue)
                .help("Add the context `torana` to $KUBECONFIG or ~/.kube/config and select it, until the server ends"),
        );
    serve::with_flags(command)
}

pub(super) fn read(matches: &ArgMatches) -> Result<DevCommand, UsageError> {
    let mut values = serve::values(matches)?;
    for (name, value) in DEFAULTS {
        // Put as if given: other defaults depend on them, and `/flagz` shows what is in force.
        if !values.is_given(name) {
            values.put(name, vec![value.to_owned()]);
        }
    }
    let mut options = Options::read(values.clone()).map_err(|error| values.locate(error))?;
    // The greeting is the output of a session; logs would bury it.
    options.logging.only_warnings = options.logging.verbosity == 0;
    Ok(DevCommand {
        options: Box::new(options),
        apply: matches.get_one::<String>("apply").map(PathBuf::from),
        ephemeral: matches.get_flag("ephemeral"),
        merge_kubeconfig: matches.get_flag("merge-kubeconfig"),
    })
}
