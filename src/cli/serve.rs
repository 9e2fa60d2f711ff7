//! The command line of `torana serve`, made from the flag table, and the configuration file below it. Other
//! commands that take the same flags use [`with_flags`] and [`values`].

use super::configuration::Configuration;
use super::flags::{FLAGS, Group, Support, ValueType};
use super::options::Options;
use super::value::{self, UsageError, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::Path;

const AFTER: &str = "Flags are kube-apiserver's; those not listed here are accepted with a warning or refused with a \
                     reason (docs/flags.md).\nWithout any flag, keys and certificates are generated under \
                     ./torana-data/pki, and ./torana-data/admin.kubeconfig is written.";

pub(super) fn command() -> Command {
    with_flags(Command::new("serve").about("Run the server").after_help(AFTER))
        // clap's own would print the version of this crate, and that of Kubernetes is expected here.
        .disable_version_flag(true)
        .arg(
            Arg::new("version")
                .long("version")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .hide(true),
        )
}

/// Adds all flags of `torana serve` to a command.
pub(super) fn with_flags(mut command: Command) -> Command {
    // As Go's flag package: the last occurrence of a flag wins.
    command = command.args_override_self(true).arg(
        Arg::new("config")
            .long("config")
            .value_name("file")
            .help("ToranaConfiguration file, YAML or JSON (docs/configuration.md); flags win"),
    );
    for group in Group::ALL {
        command = command.next_help_heading(group.title());
        for flag in FLAGS.iter().filter(|f| f.group == group) {
            let mut arg = Arg::new(flag.name)
                .long(flag.name)
                .help(flag.help)
                // Hidden, not left out: the parser must recognise every upstream flag to say why it has no
                // effect.
                .hide(flag.support != Support::Supported);
            if flag.name == "v" {
                arg = arg.short('v');
            }
            arg = match flag.value_type {
                ValueType::Bool => arg
                    .num_args(0..=1)
                    // Otherwise `--flag value` would swallow a positional argument; Go requires the `=` too.
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_name("bool"),
                // Values may begin with a dash: `--controllers=-name` and negative numbers.
                ValueType::List | ValueType::Array => arg
                    .action(ArgAction::Append)
                    .allow_hyphen_values(true)
                    .value_name("strings"),
                kind => arg.allow_hyphen_values(true).value_name(match kind {
                    ValueType::Int => "int",
                    ValueType::Float => "float",
                    ValueType::Duration => "duration",
                    _ => "string",
                }),
            };
            command = command.arg(arg);
        }
    }
    command
}

/// The values that flags and the configuration file give.
pub(super) fn values(matches: &ArgMatches) -> Result<Values, UsageError> {
    let mut values = Values::default();
    for flag in FLAGS {
        let Some(given) = matches.get_many::<String>(flag.name) else {
            continue;
        };
        let given: Vec<String> = given.cloned().collect();
        for value in &given {
            // Not by clap, so that errors read like those of a configuration file.
            value::check(flag, value)?;
        }
        values.put(flag.name, given);
    }
    match matches.get_one::<String>("config") {
        None => Ok(values),
        Some(file) => Ok(Configuration::load(Path::new(file))?.under(values)),
    }
}

pub(super) fn options(matches: &ArgMatches) -> Result<Options, UsageError> {
    let values = values(matches)?;
    // A copy is consumed: errors need the places of the values.
    Options::read(values.clone()).map_err(|error| values.locate(error))
}
