//! Adds the gateway to the user's own kubeconfig while a session runs. Entry point: [`Merged::add`]; dropping
//! the result removes the entries again. Entries of others, and a context that the user has selected
//! meanwhile, are left alone.

use crate::apimachinery::codec::yaml;
use crate::apimachinery::value::Value;
use crate::json;
use crate::pki::{self, PkiError};
use std::path::{Path, PathBuf};

/// Name of the entries.
const NAME: &str = "torana";
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// Why the entries cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The gateway has written none.
    #[error("the administrator's kubeconfig is missing")]
    NoOwn,
    /// The path of the user's kubeconfig is unknown.
    #[error("--merge-kubeconfig: neither KUBECONFIG nor HOME is set")]
    NoTarget,
    #[error("--merge-kubeconfig: {}: {source}", .file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("--merge-kubeconfig: {}: {source}", .file.display())]
    Yaml { file: PathBuf, source: yaml::Error },
    #[error("--merge-kubeconfig: cannot make {}: {source}", .dir.display())]
    Directory { dir: PathBuf, source: std::io::Error },
    #[error("--merge-kubeconfig: {0}")]
    Write(#[source] PkiError),
}

/// The entries in a kubeconfig; removed when dropped.
pub(super) struct Merged {
    path: PathBuf,
    /// The context that was selected before.
    selected: Value,
}

impl Merged {
    /// Adds the cluster, user and context of `own` to `$KUBECONFIG` (its first file) or `~/.kube/config`, and
    /// selects the context.
    pub(crate) fn add(own: &Path) -> Result<Self, Error> {
        let path = target()?;
        let own = read(own)?.ok_or(Error::NoOwn)?;
        let mut all = read(&path)?.unwrap_or_else(|| json!({"apiVersion": "v1", "kind": "Config"}));
        let selected = all.get("current-context").clone();
        merge(&mut all, &own);
        write(&path, &all)?;
        Ok(Self { path, selected })
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        // Read again: the user may have changed it.
        let removed = read(&self.path).and_then(|all| match all {
            Some(mut all) => {
                remove(&mut all, &self.selected);
                write(&self.path, &all)
            }
            None => Ok(()),
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "the context {NAME} could not be removed from the kubeconfig");
        }
    }
}

fn target() -> Result<PathBuf, Error> {
    let given = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty());
    if let Some(first) = given.and_then(|list| std::env::split_paths(&list).find(|p| !p.as_os_str().is_empty())) {
        return Ok(first);
    }
    let home = std::env::var_os("HOME").filter(|v| !v.is_empty());
    let home = home.ok_or(Error::NoTarget)?;
    Ok(Path::new(&home).join(".kube/config"))
}

fn read(path: &Path) -> Result<Option<Value>, Error> {
    match std::fs::read(path) {
        Ok(text) => match yaml::decode(&text) {
            Ok(Value::Null) => Ok(None),
            Ok(all) => Ok(Some(all)),
            Err(source) => Err(Error::Yaml {
                file: path.to_owned(),
                source,
            }),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read {
            file: path.to_owned(),
            source,
        }),
    }
}

fn write(path: &Path, all: &Value) -> Result<(), Error> {
    // A link to the file stays a link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|source| Error::Directory {
            dir: dir.to_owned(),
            source,
        })?;
    }
    // Atomic: kubectl may read the file at any moment.
    pki::write_secret(&path, &yaml::to_string(all)).map_err(Error::Write)
}

/// Replaces or adds the entries.
fn merge(all: &mut Value, own: &Value) {
    for list in LISTS {
        // The gateway's own file has exactly one entry of each.
        let mut entry = own.get(list).items().first().cloned().unwrap_or_default();
        entry.set(&["name"], NAME);
        if list == "contexts" {
            entry.set(&["context", "cluster"], NAME);
            entry.set(&["context", "user"], NAME);
        }
        // Replaced, not added: a session that crashed leaves its entries behind.
        let mut entries = others(all, list);
        entries.push(entry);
        all.set(&[list], entries);
    }
    all.set(&["current-context"], NAME);
}

/// Removes the entries, and selects the former context unless the user has selected another one.
fn remove(all: &mut Value, selected: &Value) {
    for list in LISTS {
        let entries = others(all, list);
        all.set(&[list], entries);
    }
    if all.str_at(&["current-context"]) == NAME {
        all.set(&["current-context"], selected.as_str().unwrap_or_default());
    }
}

fn others(all: &Value, list: &str) -> Vec<Value> {
    let entries = all.get(list).items().iter();
    entries.filter(|e| e.str_at(&["name"]) != NAME).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_and_removing_preserves_foreign_entries() {
        let own = json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://here"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]});
        let before = json!({"kind": "Config", "current-context": "mine", "clusters": [{"name": "mine"}], "users": [],
            "contexts": [{"name": "mine"}]});
        let mut all = before.clone();
        merge(&mut all, &own);
        merge(&mut all, &own);
        assert_eq!(all.str_at(&["current-context"]), NAME);
        assert_eq!(all.get("clusters").items().len(), 2);
        let context = &all.get("contexts").items()[1];
        assert_eq!(
            context,
            &json!({"name": NAME, "context": {"cluster": NAME, "user": NAME}})
        );
        remove(&mut all, &"mine".into());
        assert_eq!(all, before);
        let mut chosen = before.clone();
        merge(&mut chosen, &own);
        chosen.set(&["current-context"], "other");
        remove(&mut chosen, &"mine".into());
        assert_eq!(chosen.str_at(&["current-context"]), "other");
    }
}
