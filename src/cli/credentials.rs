//! The command lines of `torana token` and `torana kubeconfig`, which issue credentials, by default
//! short-lived. `app::credentials` runs them.

use super::value::UsageError;
use crate::apimachinery::time::parse_duration;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use std::time::Duration;

/// Requests a service account token with the administrator's kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenCommand {
    /// The kubeconfig to use.
    pub(crate) kubeconfig: PathBuf,
    /// The service account's namespace.
    pub(crate) namespace: String,
    /// The service account's name.
    pub(crate) name: String,
    /// Audiences of the token; empty means the server itself.
    pub(crate) audiences: Vec<String>,
    /// Validity of the token.
    pub(crate) duration: Duration,
}

/// The user of a generated kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A user with a client certificate, and optionally a group. (Only one, a limitation of the certificate
    /// library.)
    User(String, Option<String>),
    /// A service account with a token: namespace and name.
    ServiceAccount(String, String),
}

/// Generates a kubeconfig with new credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigCommand {
    /// The server's data directory.
    pub(crate) data_dir: PathBuf,
    /// The kubeconfig with the server's address, also used to request tokens.
    pub(crate) kubeconfig: PathBuf,
    /// Server URL to write instead of that kubeconfig's.
    pub(crate) server: Option<String>,
    /// The user of the kubeconfig.
    pub(crate) subject: Subject,
    /// Validity of the credentials.
    pub(crate) duration: Duration,
}

fn common(command: Command) -> Command {
    command
        .arg(
            Arg::new("data-dir")
                .long("data-dir")
                .default_value("./torana-data")
                .help("The server's data directory"),
        )
        .arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .help("Kubeconfig of an administrator; defaults to <data-dir>/admin.kubeconfig"),
        )
        .arg(
            Arg::new("duration")
                .long("duration")
                .default_value("1h")
                .help("Validity of the credentials, for example 30m or 12h"),
        )
        .arg(
            Arg::new("namespace")
                .long("namespace")
                .short('n')
                .default_value("default")
                .help("Namespace of the service account"),
        )
}

pub(super) fn token() -> Command {
    common(Command::new("token").about("Print a service account token issued by the running server"))
        .arg(
            Arg::new("name")
                .required(true)
                .help("The service account, as NAME or NAMESPACE/NAME"),
        )
        .arg(
            Arg::new("audience")
                .long("audience")
                .action(ArgAction::Append)
                .help("Audience of the token; may be repeated; defaults to the server itself"),
        )
}

pub(super) fn kubeconfig() -> Command {
    common(Command::new("kubeconfig").about("Print a kubeconfig with a client certificate or a token"))
        .arg(Arg::new("user").help("User name in a client certificate, signed with the data directory's client CA"))
        .arg(
            Arg::new("group")
                .long("group")
                .requires("user")
                .conflicts_with("serviceaccount")
                .help("Group in the certificate"),
        )
        .arg(
            Arg::new("serviceaccount")
                .long("serviceaccount")
                .conflicts_with("user")
                .help("Write a token of this service account, as NAME or NAMESPACE/NAME"),
        )
        .arg(
            Arg::new("server")
                .long("server")
                .help("URL to write instead of the administrator's"),
        )
}

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

fn all(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches
        .get_many::<String>(name)
        .into_iter()
        .flatten()
        .cloned()
        .collect()
}

fn duration(matches: &ArgMatches) -> Result<Duration, UsageError> {
    let given = text(matches, "duration").unwrap_or_default();
    let duration = parse_duration(&given).map_err(|e| UsageError::invalid("duration", &given, e))?;
    match duration.as_secs() {
        // Fractions of a second would be cut off to a credential that has expired already.
        0 => Err(UsageError::invalid("duration", &given, "must be a second or more")),
        _ => Ok(duration),
    }
}

fn places(matches: &ArgMatches) -> (PathBuf, PathBuf) {
    let data_dir = PathBuf::from(text(matches, "data-dir").unwrap_or_default());
    let kubeconfig = text(matches, "kubeconfig").map(PathBuf::from);
    let kubeconfig = kubeconfig.unwrap_or_else(|| data_dir.join("admin.kubeconfig"));
    (data_dir, kubeconfig)
}

fn account(matches: &ArgMatches, given: &str) -> Result<(String, String), UsageError> {
    let (namespace, name) = match given.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (text(matches, "namespace").unwrap_or_default(), given.to_owned()),
    };
    // The name goes into a URL path, so what could change the path is refused here.
    let fine = |s: &str| {
        !s.is_empty()
            && s.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
    };
    match fine(&namespace) && fine(&name) {
        true => Ok((namespace, name)),
        false => Err(UsageError::new(format!(
            "{given:?} is not a service account; write NAME or NAMESPACE/NAME"
        ))),
    }
}

impl TokenCommand {
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, UsageError> {
        let (namespace, name) = account(matches, &text(matches, "name").unwrap_or_default())?;
        Ok(Self {
            kubeconfig: places(matches).1,
            namespace,
            name,
            audiences: all(matches, "audience"),
            duration: duration(matches)?,
        })
    }
}

impl KubeconfigCommand {
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, UsageError> {
        let subject = match (text(matches, "user"), text(matches, "serviceaccount")) {
            // An empty name would be signed as a certificate without an identity.
            (Some(user), _) if !user.is_empty() => Subject::User(user, text(matches, "group")),
            (_, Some(given)) => {
                let (namespace, name) = account(matches, &given)?;
                Subject::ServiceAccount(namespace, name)
            }
            _ => return Err(UsageError::new("missing subject: give a user name or --serviceaccount")),
        };
        let server = text(matches, "server");
        // The credentials must not be sent in the clear.
        if server.as_deref().is_some_and(|s| !s.starts_with("https://")) {
            return Err(UsageError::new("--server must be an https:// URL"));
        }
        let (data_dir, kubeconfig) = places(matches);
        Ok(Self {
            data_dir,
            kubeconfig,
            server,
            subject,
            duration: duration(matches)?,
        })
    }
}
