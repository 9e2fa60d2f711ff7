//! `--admission-control-config-file`: plugin configuration, read at startup. Parsing is strict: unknown
//! fields are errors. Entry point: [`Configuration::read`].

use crate::apimachinery::codec::yaml;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use std::path::{Path, PathBuf};

/// The configuration objects by plugin. The default value has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configuration(Vec<(String, Value)>);

/// The schema of a plugin's configuration object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigSchema {
    /// Accepted `apiVersion`s.
    pub versions: &'static [&'static str],
    /// The required `kind`.
    pub kind: &'static str,
    /// Permitted fields besides `apiVersion` and `kind`, each with its permitted subfields (empty: not checked).
    pub fields: &'static [(&'static str, &'static [&'static str])],
}

const OUTER: ConfigSchema = ConfigSchema {
    versions: &["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"],
    kind: "AdmissionConfiguration",
    fields: &[("plugins", &[])],
};

/// Why the configuration of the plugins cannot be used. `Display` names the file or the plugin at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}: {source}", .file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{}: {source}", .file.display())]
    Yaml { file: PathBuf, source: yaml::Error },
    #[error("{}: strict decoding error: {first}", .file.display())]
    Duplicate { file: PathBuf, first: String },
    #[error("{}: {source}", .file.display())]
    File { file: PathBuf, source: InvalidObject },
    #[error("{}: plugins[{index}]: {source}", .file.display())]
    Entry {
        file: PathBuf,
        index: usize,
        source: InvalidEntry,
    },
    #[error("{plugin}: {source}")]
    Plugin { plugin: String, source: InvalidObject },
}

/// An error in the entry of a plugin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidEntry {
    #[error(transparent)]
    Object(#[from] InvalidObject),
    #[error("{0} must be a string")]
    NotString(&'static str),
    /// The file of the plugin cannot be used.
    #[error(transparent)]
    File(#[from] Box<Error>),
}

/// An error in an object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidObject {
    #[error("must be an object")]
    NotObject,
    #[error("strict decoding error: unknown field {0:?}")]
    UnknownField(String),
    #[error("unsupported kind {kind:?} of version {version:?}, expected {expected} of {}", .versions.join(" or "))]
    Kind {
        kind: String,
        version: String,
        expected: &'static str,
        versions: &'static [&'static str],
    },
    #[error("{field}: {source}")]
    Field { field: &'static str, source: Box<Self> },
}

/// Reads a file; injectable for tests.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>;

fn document(path: &Path, read: Read<'_>) -> Result<Value, Error> {
    let file = || path.to_owned();
    let bytes = read(path).map_err(|source| Error::Read { file: file(), source })?;
    let decoded = yaml::decode_with_duplicates(&bytes);
    // Strict, as upstream's decoder for component configuration: the last duplicate would win silently.
    let (value, duplicates) = decoded.map_err(|source| Error::Yaml { file: file(), source })?;
    match duplicates.into_iter().next() {
        None => Ok(value),
        Some(first) => Err(Error::Duplicate { file: file(), first }),
    }
}

impl Configuration {
    /// Reads the file at `path` and the files it refers to, relative to its directory.
    ///
    /// # Errors
    /// [`Error`].
    pub(crate) fn read(path: &Path, read: Read<'_>) -> Result<Self, Error> {
        let value = document(path, read)?;
        let untyped = value.api_version().is_empty() && ObjectView::kind(&value).is_empty();
        if untyped && !value.get("podNodeSelectorPluginConfig").is_null() {
            // PodNodeSelector's legacy format, from before AdmissionConfiguration existed.
            return Ok(Self(vec![("PodNodeSelector".to_owned(), value)]));
        }
        OUTER.check(&value).map_err(|source| Error::File {
            file: path.to_owned(),
            source,
        })?;
        let mut all: Vec<(String, Value)> = Vec::new();
        for (index, plugin) in value.get("plugins").items().iter().enumerate() {
            let name = plugin.str_at(&["name"]);
            // A later entry of the plugin is still parsed, so that its errors are reported.
            let known = all.iter().any(|(known, _)| known == name);
            let configuration = entry(plugin, path, read, known).map_err(|source| Error::Entry {
                file: path.to_owned(),
                index,
                source,
            })?;
            all.extend(configuration.map(|value| (name.to_owned(), value)));
        }
        Ok(Self(all))
    }

    /// The configuration of a plugin, unchecked.
    pub(crate) fn of(&self, plugin: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == plugin).map(|(_, value)| value)
    }

    /// The configuration of a plugin, checked against its schema.
    ///
    /// # Errors
    /// [`Error::Plugin`] if the kind is wrong or a field is unknown.
    pub(crate) fn checked(&self, plugin: &str, shape: &ConfigSchema) -> Result<Option<&Value>, Error> {
        let Some(value) = self.of(plugin) else {
            return Ok(None);
        };
        shape.check(value).map_err(|source| Error::Plugin {
            plugin: plugin.to_owned(),
            source,
        })?;
        Ok(Some(value))
    }
}

/// The configuration in the entry of a plugin, or in the file that the entry names. `None` if there is none,
/// or if the plugin was configured before: as upstream, the first of two entries for one plugin wins.
fn entry(plugin: &Value, path: &Path, read: Read<'_>, known: bool) -> Result<Option<Value>, InvalidEntry> {
    only(plugin, &["name", "path", "configuration"])?;
    for field in ["name", "path"] {
        let value = plugin.get(field);
        if !value.is_null() && value.as_str().is_none() {
            return Err(InvalidEntry::NotString(field));
        }
    }
    let given = plugin.get("configuration");
    match (given.is_null(), plugin.str_at(&["path"])) {
        // Before the path is opened: a superseded entry need not have a readable file.
        _ if known => Ok(None),
        (false, _) => Ok(Some(given.clone())),
        (true, "") => Ok(None),
        (true, file) => {
            // Relative to the file, not to the working directory. `join` keeps absolute paths.
            let base = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
            Ok(Some(document(&base.join(file), read).map_err(Box::new)?))
        }
    }
}

fn only(value: &Value, fields: &[&str]) -> Result<(), InvalidObject> {
    let Some(object) = value.as_object() else {
        return Err(InvalidObject::NotObject);
    };
    match object.keys().find(|key| !fields.contains(key)) {
        None => Ok(()),
        Some(key) => Err(InvalidObject::UnknownField(key.to_owned())),
    }
}

impl ConfigSchema {
    fn check(&self, value: &Value) -> Result<(), InvalidObject> {
        let (version, kind) = (value.api_version(), ObjectView::kind(value));
        if !self.versions.contains(&version) || kind != self.kind {
            return Err(InvalidObject::Kind {
                kind: kind.to_owned(),
                version: version.to_owned(),
                expected: self.kind,
                versions: self.versions,
            });
        }
        let mut names = vec!["apiVersion", "kind", "metadata"];
        names.extend(self.fields.iter().map(|(name, _)| *name));
        only(value, &names)?;
        for (name, within) in self.fields.iter().filter(|(_, within)| !within.is_empty()) {
            let part = value.get(name);
            if !part.is_null() {
                only(part, within).map_err(|source| InvalidObject::Field {
                    field: name,
                    source: Box::new(source),
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Configuration, Error> {
        let open = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found
                .map(|(_, text)| text.as_bytes().to_vec())
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
        };
        Configuration::read(Path::new("/etc/adm/c.yaml"), &open)
    }

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";

    #[test]
    fn configuration_is_inline_or_in_a_file_and_the_first_entry_wins() {
        let outer = format!(
            "{HEAD}plugins:\n- name: A\n  configuration: {{x: 1}}\n  path: absent.yaml\n- name: B\n  path: b.yaml\n- name: \
             A\n  configuration: {{x: 2}}\n- name: C\n"
        );
        let got = read(&[("/etc/adm/c.yaml", &outer), ("/etc/adm/b.yaml", "z: 2")]).unwrap();
        assert_eq!(*got.of("A").unwrap(), crate::json!({"x": 1}));
        assert_eq!(*got.of("B").unwrap(), crate::json!({"z": 2}));
        assert!(got.of("C").is_none());
    }

    #[test]
    fn unknown_fields_are_errors_with_their_location() {
        let of = |text: &str| read(&[("/etc/adm/c.yaml", text)]).unwrap_err().to_string();
        assert_eq!(
            of(&format!("{HEAD}plugin: []")),
            "/etc/adm/c.yaml: strict decoding error: unknown field \"plugin\""
        );
        assert_eq!(
            of(&format!("{HEAD}plugins:\n- name: A\n  file: x")),
            "/etc/adm/c.yaml: plugins[0]: strict decoding error: unknown field \"file\""
        );
        assert!(of("kind: Pod\napiVersion: v1").contains("expected AdmissionConfiguration of"));
        assert!(of(&format!("{HEAD}plugins:\n- name: A\n  path: gone")).contains("cannot read /etc/adm/gone"));
        assert!(of(&format!("{HEAD}plugins:\n- name: A\n  path: no")).contains("path must be a string"));
        assert!(of(&format!("{HEAD}plugins: []\nplugins: []")).contains("strict decoding error"));
    }

    #[test]
    fn configuration_is_checked_against_the_plugins_schema() {
        let shape = ConfigSchema {
            versions: &["x/v1"],
            kind: "K",
            fields: &[("a", &["b"])],
        };
        let of = |text: &str| {
            let outer = format!("{HEAD}plugins:\n- name: P\n  configuration: {text}");
            let got = read(&[("/etc/adm/c.yaml", &outer)]).unwrap();
            got.checked("P", &shape).map(|v| v.is_some()).map_err(|e| e.to_string())
        };
        assert_eq!(of("{apiVersion: x/v1, kind: K, a: {b: 1}}"), Ok(true));
        assert_eq!(
            of("{apiVersion: x/v1, kind: K, a: {c: 1}}"),
            Err("P: a: strict decoding error: unknown field \"c\"".to_owned())
        );
        assert!(of("{kind: K}").is_err());
        let legacy = read(&[("/etc/adm/c.yaml", "podNodeSelectorPluginConfig: {a: b=c}")]).unwrap();
        assert!(legacy.of("PodNodeSelector").is_some());
    }
}
