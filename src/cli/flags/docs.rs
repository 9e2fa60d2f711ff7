//! docs/flags.md, out of the table.

use super::{FLAGS, Fate, Flag, Group, Kind};
use std::fmt::Write;

/// The document.
pub fn markdown() -> String {
    let count = |fate: fn(&Fate) -> bool| FLAGS.iter().filter(|f| fate(&f.fate)).count();
    let mut text = format!(
        "# Flags of `torana serve`\n\n\
         Made by `torana docs-flags` from `src/cli/flags/table.rs`; a test fails when they differ.\n\n\
         All flags of kube-apiserver v1.36 are known: {} are honoured, {} are accepted and named in a start-up warning, \
         {} are refused with a reason. Given with its default value, any flag passes in silence.\n\
         Booleans are `--flag`, `--flag=true` or `--flag=false`; durations are Go's (`1m30s`); lists are \
         comma-separated and may be repeated; `_` in a name is read as `-`.\n",
        count(|f| matches!(f, Fate::Honoured)),
        count(|f| matches!(f, Fate::Ignored(_))),
        count(|f| matches!(f, Fate::Refused(_))),
    );
    for group in Group::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n| flag | default | what it does |\n| --- | --- | --- |\n",
            group.title()
        );
        for flag in FLAGS.iter().filter(|f| f.group == group) {
            row(&mut text, flag);
        }
    }
    text
}

fn row(text: &mut String, flag: &Flag) {
    let takes = match flag.kind {
        Kind::Bool => "",
        Kind::Int => "=int",
        Kind::Float => "=float",
        Kind::Duration => "=duration",
        Kind::Text => "=string",
        Kind::List => "=strings",
        Kind::Array => "=string …",
    };
    let default = match flag.default {
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let help = flag.help.replace('|', "\\|");
    let said = match flag.fate {
        Fate::Honoured => help,
        Fate::Ignored(why) => format!("{help}. *Accepted with a warning*: {why}"),
        Fate::Refused(why) => format!("{help}. **Refused**: {why}"),
    };
    let _ = writeln!(text, "| `--{}{takes}` | {default} | {said} |", flag.name);
}
