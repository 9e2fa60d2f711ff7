//! `torana completion` and the manual page, both generated from the definition of the command line.

use super::value::UsageError;
use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

const SHELLS: [(&str, Shell); 3] = [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

pub(super) fn completion() -> Command {
    Command::new("completion")
        .about("Print the completion script of a shell, for example: source <(torana completion bash)")
        .arg(
            Arg::new("shell")
                .required(true)
                .value_parser(SHELLS.map(|(name, _)| name))
                .help("Shell"),
        )
}

/// The completion script of the shell that was named.
pub(super) fn script(matches: &ArgMatches) -> String {
    let name = matches.get_one::<String>("shell").map_or("bash", String::as_str);
    let shell = SHELLS
        .iter()
        // Always found: clap accepts no other name.
        .find(|(known, _)| *known == name)
        .map_or(Shell::Bash, |(_, shell)| *shell);
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "torana", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The manual page torana(1): the commands, and the flags of `torana serve`.
pub(super) fn manual() -> Result<String, UsageError> {
    let mut out = Vec::new();
    let render = |command: Command, out: &mut Vec<u8>| clap_mangen::Man::new(command).render(out);
    render(super::command(), &mut out)
        .and_then(|()| {
            let mut page = Vec::new();
            let serve = super::serve::command().name("torana-serve").bin_name("torana serve");
            render(serve, &mut page).map(|()| page)
        })
        .map(|serve| {
            // One page: the header of the second would start a new one.
            let serve = String::from_utf8_lossy(&serve).into_owned();
            let body = serve.split_once(".SH SYNOPSIS").map_or("", |(_, body)| body);
            String::from_utf8_lossy(&out).into_owned() + ".SH \"torana serve\"" + body
        })
        .map_err(|e| UsageError::new(e.to_string()))
}
