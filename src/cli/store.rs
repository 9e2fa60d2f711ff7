//! The command line of `torana store`, which maintains the store and copies it to and from etcd. `app::tool`
//! runs it.

use super::flags::FLAGS;
use super::options::StorageOptions;
use super::value::{self, UsageError, Values};
use clap::{Arg, ArgAction, ArgMatches};
use std::path::PathBuf;

/// A parsed `torana store` command.
#[derive(Clone, Debug)]
pub struct StoreCommand {
    pub(crate) action: StoreAction,
    /// The store to operate on.
    pub(crate) storage: StorageOptions,
}

/// Operations on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreAction {
    /// Read everything and verify checksums.
    Check,
    Stats,
    /// Copy the store into this file, while it may be in use.
    Backup(PathBuf),
    /// Replace the store by a backup. The number is added to the backup's revision.
    Restore(PathBuf, u64),
    /// Remove history and free space.
    Compact,
    /// Copy all objects to etcd; true to keep their revisions.
    Export(bool),
    /// Replace the store by the objects in etcd.
    Import,
}

const LOCATION_FLAGS: &[&str] = &["data-dir"];
const ETCD: &[&str] = &[
    "etcd-servers",
    "etcd-prefix",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "etcd-user-file",
];

/// Name, help, `serve` flags that apply, and flags of its own with their help.
type Subcommand = (
    &'static str,
    &'static str,
    &'static [&'static [&'static str]],
    &'static [(&'static str, &'static str)],
);

const SUBCOMMANDS: &[Subcommand] = &[
    (
        "check",
        "Read the whole store and verify its checksums; it may be in use",
        &[LOCATION_FLAGS, ETCD],
        &[],
    ),
    (
        "stats",
        "Print statistics of the store; it may be in use",
        &[LOCATION_FLAGS, ETCD],
        &[],
    ),
    (
        "backup",
        "Copy the store into a new file, while it is in use",
        &[LOCATION_FLAGS],
        &[("to", "File to write; must not exist")],
    ),
    (
        "restore",
        "Restore the store from a backup; an existing store is moved aside",
        &[LOCATION_FLAGS],
        &[
            ("from", "File written by `backup`"),
            (
                "revisions-ahead",
                "Number added to the backup's revision, so that clients do not mistake old objects for new ones [1000000]",
            ),
        ],
    ),
    (
        "compact",
        "Remove all history and release free space; a store under --data-dir must not be in use",
        &[LOCATION_FLAGS, ETCD],
        &[],
    ),
    (
        "export",
        "Copy the objects of the store under --data-dir to an etcd",
        &[LOCATION_FLAGS, ETCD, &["storage-media-type"]],
        &[(
            "keep-revisions",
            "true: objects keep their revisions, which needs an empty etcd [false]",
        )],
    ),
    (
        "import",
        "Create the store under --data-dir from the objects in an etcd; objects keep their revisions",
        &[LOCATION_FLAGS, ETCD, &["encryption-provider-config"]],
        &[],
    ),
];

pub(super) fn command() -> clap::Command {
    let mut store = clap::Command::new("store")
        .about("Check, measure, back up, restore or compact the store; copy it to or from etcd")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    for (name, about, flags, own) in SUBCOMMANDS {
        let mut subcommand = clap::Command::new(*name).about(*about).args_override_self(true);
        for flag in FLAGS.iter().filter(|f| flags.iter().any(|set| set.contains(&f.name))) {
            subcommand = subcommand.arg(
                Arg::new(flag.name)
                    .long(flag.name)
                    .help(flag.help)
                    // A list may be given in several parts; of any other flag, the last value counts.
                    .action(ArgAction::Append)
                    .value_name("string"),
            );
        }
        for (flag, help) in *own {
            subcommand = subcommand.arg(Arg::new(*flag).long(*flag).help(*help).value_name("string"));
        }
        store = store.subcommand(subcommand);
    }
    store
}

pub(super) fn read(matches: &ArgMatches) -> Result<StoreCommand, UsageError> {
    let Some((name, matches)) = matches.subcommand() else {
        return Err(UsageError::new(
            "torana store: missing subcommand (see torana store --help)",
        ));
    };
    let mut values = Values::default();
    for flag in FLAGS {
        // `Err`: this subcommand does not have the flag.
        let Ok(Some(given)) = matches.try_get_many::<String>(flag.name) else {
            continue;
        };
        let given: Vec<String> = given.cloned().collect();
        for one in &given {
            value::check(flag, one)?;
        }
        values.put(flag.name, given);
    }
    // `Err` here, too, if the subcommand does not have the flag.
    let own = |flag: &str| matches.try_get_one::<String>(flag).ok().flatten();
    let path = |flag: &str| {
        let path = own(flag).map(PathBuf::from);
        path.ok_or_else(|| UsageError::new(format!("torana store {name}: --{flag} must be given")))
    };
    let action = match name {
        "check" => StoreAction::Check,
        "stats" => StoreAction::Stats,
        "compact" => StoreAction::Compact,
        "backup" => StoreAction::Backup(path("to")?),
        "restore" => {
            // The default exceeds what most stores write between two backups.
            let ahead = own("revisions-ahead").map_or(Ok(1_000_000), |n| n.parse());
            let ahead = ahead.map_err(|_| UsageError::new("--revisions-ahead must be a number, 0 or more"))?;
            StoreAction::Restore(path("from")?, ahead)
        }
        "export" => StoreAction::Export(match own("keep-revisions").map(String::as_str) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(UsageError::new("--keep-revisions must be true or false")),
        }),
        // clap accepts no other name.
        _ => StoreAction::Import,
    };
    let mut storage = StorageOptions::read(&values)?;
    if !values.is_given("data-dir") {
        // `export` and `import` name an etcd beside the embedded store, which is where it is without one.
        storage.data_dir = values.text("data-dir").into();
    }
    if storage.etcd.is_none() && matches!(action, StoreAction::Export(_) | StoreAction::Import) {
        return Err(UsageError::new("--etcd-servers must be specified"));
    }
    Ok(StoreCommand { action, storage })
}
