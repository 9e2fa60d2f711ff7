//! The command line: `torana serve` and its configuration file, and the commands that examine, query and
//! maintain a server (`torana --help` lists them).
//!
//! [`parse`] turns arguments into a [`Command`]. [`Options::complete`](crate::cli::Options::complete) then
//! validates the options against each other and against the files they name, and fills in defaults. Nothing
//! in this module binds a socket, writes a file or starts a task; that is left to `app`.

pub(crate) mod complete;
mod config;
mod configuration;
pub(crate) mod credentials;
mod dev;
mod doctor;
mod explain;
pub(crate) mod flags;
mod health;
pub(crate) mod options;
mod serve;
mod shell;
mod status;
pub(crate) mod store;
pub(crate) mod value;
mod version;

pub use complete::CompletedOptions;
pub use credentials::{KubeconfigCommand, TokenCommand};
pub use dev::DevCommand;
pub use doctor::DoctorCommand;
pub use explain::ExplainAccess;
pub use health::HealthCommand;
pub use options::Options;
pub use status::StatusCommand;
pub use value::UsageError;

use crate::apimachinery::codec::yaml;
use crate::client::{ClientConfig, ClientError, KubeconfigError};
use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A parsed command line.
#[derive(Debug)]
pub enum Command {
    /// Run the server.
    Serve(Box<Options>),
    /// Run the server on a developer's machine.
    Dev(DevCommand),
    /// Maintain the store.
    Store(Box<store::StoreCommand>),
    /// Query a running server for the reason of an access decision.
    ExplainAccess(ExplainAccess),
    /// Query a running server for the state of its backends.
    Status(StatusCommand),
    /// Examine this machine and what the server would use.
    Doctor(Box<DoctorCommand>),
    /// Query a running server for its health.
    Health(HealthCommand),
    /// Print this text and exit successfully.
    Print(String),
    /// Request a service account token from the running server and print it.
    Token(TokenCommand),
    /// Generate a kubeconfig with new credentials and print it.
    Kubeconfig(KubeconfigCommand),
}

const ABOUT: &str = "An aggregating API gateway, wire-compatible with the Kubernetes API server v1.36";

/// Parses the arguments, the program's name first.
///
/// ```
/// use torana::gateway::{Command, parse};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let command = parse(["my-gateway", "serve", "--secure-port=6443"].map(Into::into))?;
/// assert!(matches!(command, Command::Serve(_)));
///
/// let wrong = parse(["my-gateway", "serve", "--secure-prot=6443"].map(Into::into));
/// assert!(wrong.is_err_and(|why| why.to_string().contains("--secure-prot")));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A one-line [`UsageError`].
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, UsageError> {
    let args = args.into_iter().map(with_dashes);
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => return refused(&error),
    };
    match matches.subcommand() {
        Some(("serve", matches)) => {
            // kube-apiserver has `--version` as a flag, and scripts call it without any other.
            if let Some(raw) = matches.get_one::<String>("version") {
                // Upstream's `--version=raw` prints all fields.
                let format = if raw == "raw" { "json" } else { "text" };
                return Ok(Command::Print(version::render(format)));
            }
            Ok(Command::Serve(Box::new(serve::options(matches)?)))
        }
        Some(("dev", matches)) => Ok(Command::Dev(dev::read(matches)?)),
        Some(("version", matches)) => {
            let format = matches.get_one::<String>("output").map_or("text", String::as_str);
            Ok(Command::Print(version::render(format)))
        }
        Some(("store", matches)) => Ok(Command::Store(Box::new(store::read(matches)?))),
        Some(("explain-access", matches)) => Ok(Command::ExplainAccess(ExplainAccess::read(matches))),
        Some(("status", matches)) => Ok(Command::Status(StatusCommand::read(matches))),
        Some(("token", matches)) => Ok(Command::Token(TokenCommand::read(matches)?)),
        Some(("kubeconfig", matches)) => Ok(Command::Kubeconfig(KubeconfigCommand::read(matches)?)),
        Some(("config", matches)) => Ok(Command::Print(config::run(matches)?)),
        Some(("doctor", matches)) => Ok(Command::Doctor(Box::new(DoctorCommand::read(matches)?))),
        Some(("health", matches)) => Ok(Command::Health(HealthCommand::read(matches))),
        Some(("completion", matches)) => Ok(Command::Print(shell::script(matches))),
        Some(("docs-flags", _)) => Ok(Command::Print(flags::markdown())),
        Some(("docs-config", _)) => Ok(Command::Print(configuration::markdown())),
        Some(("docs-man", _)) => shell::manual().map(Command::Print),
        // Not reached: clap requires a subcommand and knows no others.
        _ => Ok(Command::Print(version::render("text"))),
    }
}

/// Replaces `_` by `-` in flag names, as upstream's normaliser does (`k8s.io/component-base/cli/flag`).
fn with_dashes(arg: OsString) -> OsString {
    // Not a flag name, whatever it is; clap reports it.
    let Some(text) = arg.to_str() else { return arg };
    let Some(flag) = text.strip_prefix("--") else {
        return arg;
    };
    let (name, value) = match flag.find('=') {
        // Only the name: an underscore in the value is the user's.
        Some(at) => flag.split_at(at),
        None => (flag, ""),
    };
    if name.contains('_') {
        format!("--{}{value}", name.replace('_', "-")).into()
    } else {
        arg
    }
}

/// The kubeconfig to use: `--kubeconfig`, `$KUBECONFIG`, or the one written by a server in this directory.
fn kubeconfig(matches: &clap::ArgMatches) -> PathBuf {
    let given = matches.get_one::<String>("kubeconfig").map(PathBuf::from);
    let environment = || {
        std::env::var_os("KUBECONFIG")
            // As client-go, an empty variable counts as unset.
            .filter(|v| !v.is_empty())
            .map(|list| first_in_use(&list))
    };
    given
        .or_else(environment)
        .unwrap_or_else(|| "torana-data/admin.kubeconfig".into())
}

/// Chooses a file from the list in `$KUBECONFIG`: the first one with a current context, else the first one.
/// kubectl merges the files; the result is the same if each is complete. Missing files are skipped.
fn first_in_use(list: &OsStr) -> PathBuf {
    let files: Vec<PathBuf> = std::env::split_paths(list)
        .filter(|f| !f.as_os_str().is_empty())
        .collect();
    // Errors are skipped here: the file that is chosen in the end is read again, and reported.
    let names_one = |file: &&PathBuf| {
        let document = std::fs::read(file).ok().and_then(|text| yaml::decode(&text).ok());
        document.is_some_and(|d| !d.str_at(&["current-context"]).is_empty())
    };
    let first = files.iter().find(names_one).or(files.first());
    first.cloned().unwrap_or_else(|| list.into())
}

/// Why a command could not query a server.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The kubeconfig is wrong.
    #[error(transparent)]
    Kubeconfig(KubeconfigError),
    /// The kubeconfig does not exist. The remedy differs from that for an invalid one.
    #[error("{0}; name another with --kubeconfig or $KUBECONFIG")]
    NoKubeconfig(#[source] KubeconfigError),
    /// The server was not reached or rejects the request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system does not deliver signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[from] std::io::Error),
}

/// Reads the address of the server and the credentials.
fn client_config(kubeconfig: &Path) -> Result<ClientConfig, QueryError> {
    ClientConfig::from_kubeconfig(kubeconfig).map_err(|e| match kubeconfig.exists() {
        true => QueryError::Kubeconfig(e),
        false => QueryError::NoKubeconfig(e),
    })
}

fn command() -> clap::Command {
    clap::Command::new("torana")
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(serve::command())
        .subcommand(dev::command())
        .subcommand(config::command())
        .subcommand(doctor::command())
        .subcommand(health::command())
        .subcommand(store::command())
        .subcommand(
            clap::Command::new("version").about("Print the version").arg(
                Arg::new("output")
                    .short('o')
                    .long("output")
                    .value_parser(["json", "yaml", "text"])
                    .help("Format"),
            ),
        )
        .subcommand(explain::command())
        .subcommand(status::command())
        .subcommand(credentials::token())
        .subcommand(credentials::kubeconfig())
        .subcommand(shell::completion())
        // Hidden, because they only generate documents of the repository.
        .subcommand(clap::Command::new("docs-flags").about("Print docs/flags.md").hide(true))
        .subcommand(
            clap::Command::new("docs-config")
                .about("Print docs/configuration.md")
                .hide(true),
        )
        .subcommand(
            clap::Command::new("docs-man")
                .about("Print the manual page torana(1)")
                .hide(true),
        )
}

fn refused(error: &clap::Error) -> Result<Command, UsageError> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let arg = context(ContextKind::InvalidArg);
    // At most one of the two is there: clap suggests a flag or a subcommand.
    let like = match context(ContextKind::SuggestedArg) + &context(ContextKind::SuggestedSubcommand) {
        similar if similar.is_empty() => String::new(),
        similar => format!("; did you mean {similar}?"),
    };
    Err(UsageError::new(match error.kind() {
        // clap reports help as an error, but it goes to standard output with exit code 0.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Ok(Command::Print(error.render().to_string()));
        }
        ErrorKind::UnknownArgument if arg.starts_with('-') => format!("unknown flag: {arg}{like}"),
        // Usually a flag without its dashes, or a value after a space that its flag does not take.
        ErrorKind::UnknownArgument => format!("unexpected argument {arg:?}: flags only{like}"),
        ErrorKind::MissingRequiredArgument => format!("missing argument: {arg}"),
        ErrorKind::InvalidSubcommand => {
            format!(
                "unknown command {:?}{like} (torana --help lists them)",
                context(ContextKind::InvalidSubcommand)
            )
        }
        ErrorKind::InvalidValue if !context(ContextKind::InvalidValue).is_empty() => format!(
            "invalid argument {:?} for {}: expected one of {}",
            context(ContextKind::InvalidValue),
            arg.split_whitespace().next().unwrap_or_default(),
            context(ContextKind::ValidValue),
        ),
        ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!("flag needs an argument: {arg}")
        }
        _ => {
            let text = error.render().to_string();
            // One line, as all our errors; clap adds a usage summary that a log does not need.
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    }))
}

#[cfg(test)]
mod tests;
