//! The command line of `torana doctor`: the flags of `torana serve`, since it examines what these would use.
//! `app::doctor` runs it.

use super::options::Options;
use super::serve;
use super::value::UsageError;
use clap::{Arg, ArgMatches, Command};

/// Examines this machine and what `options` name.
#[derive(Debug)]
pub struct DoctorCommand {
    /// The options of the server.
    pub(crate) options: Options,
    /// Print JSON instead of a table.
    pub(crate) json: bool,
}

pub(super) fn command() -> Command {
    let about = "Examine this machine and what the flags name before a server is trusted to them; exit code 1 if something is wrong";
    serve::with_flags(Command::new("doctor").about(about)).arg(
        Arg::new("output")
            .short('o')
            .long("output")
            .value_parser(["text", "json"])
            .default_value("text")
            .help("Format"),
    )
}

impl DoctorCommand {
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, UsageError> {
        Ok(Self {
            options: serve::options(matches)?,
            json: matches
                .get_one::<String>("output")
                .is_some_and(|format| format == "json"),
        })
    }
}
