//! `--admission-control-config-file`: plugin configuration, read at startup. Parsing is strict: unknown fields are
//! errors. Entry point: [`Configuration::read`].

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
    /// Its `kind`.
    pub kind: &'static str,
    /// Its fields besides these two, each with its permitted subfields (empty: not checked).
    pub fields: &'static [(&'static str, &'static [&'static str])],
}

const OUTER: ConfigSchema = ConfigSchema {
    versions: &["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"],
    kind: "AdmissionConfiguration",
    fields: &[("plugins", &[])],
};

/// Reads a file; injectable for tests.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>;

fn document(path: &Path, read: Read<'_>) -> Result<Value, String> {
    let at = path.display();
    let bytes = read(path).map_err(|e| format!("cannot read {at}: {e}"))?;
    let (value, doubled) = yaml::decode_with_duplicates(&bytes).map_err(|e| format!("{at}: {e}"))?;
    match doubled.first() {
        None => Ok(value),
        Some(first) => Err(format!("{at}: strict decoding error: {first}")),
    }
}

impl Configuration {
    /// Reads the file at `path` and the files it refers to, relative to its directory.
    ///
    /// # Errors
    /// A one-line message with the file at fault.
    pub(crate) fn read(path: &Path, read: Read<'_>) -> Result<Self, String> {
        let value = document(path, read)?;
        let at = path.display();
        let untyped = value.api_version().is_empty() && ObjectView::kind(&value).is_empty();
        if untyped && !value.get("podNodeSelectorPluginConfig").is_null() {
            // PodNodeSelector's legacy format, from before AdmissionConfiguration existed.
            return Ok(Self(vec![("PodNodeSelector".to_owned(), value)]));
        }
        OUTER.check(&value).map_err(|e| format!("{at}: {e}"))?;
        let mut all: Vec<(String, Value)> = Vec::new();
        for (i, plugin) in value.get("plugins").items().iter().enumerate() {
            let wrong = |why: String| format!("{at}: plugins[{i}]: {why}");
            only(plugin, &["name", "path", "configuration"]).map_err(wrong)?;
            for field in ["name", "path"] {
                let value = plugin.get(field);
                if !value.is_null() && value.as_str().is_none() {
                    return Err(wrong(format!("{field} must be a string")));
                }
            }
            let name = plugin.str_at(&["name"]);
            // As upstream, the first of two entries for one plugin wins.
            if all.iter().any(|(known, _)| known == name) {
                continue;
            }
            let file = plugin.str_at(&["path"]);
            let given = plugin.get("configuration");
            let configuration = match (given.is_null(), file) {
                (false, _) => given.clone(),
                (true, "") => continue,
                (true, file) => {
                    let base = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
                    document(&base.join(file), read).map_err(wrong)?
                }
            };
            all.push((name.to_owned(), configuration));
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
    /// A one-line message if the kind is wrong or a field is unknown.
    pub(crate) fn checked(&self, plugin: &str, shape: &ConfigSchema) -> Result<Option<&Value>, String> {
        let Some(value) = self.of(plugin) else {
            return Ok(None);
        };
        shape.check(value).map_err(|e| format!("{plugin}: {e}"))?;
        Ok(Some(value))
    }
}

fn only(value: &Value, fields: &[&str]) -> Result<(), String> {
    let Some(object) = value.as_object() else {
        return Err("must be an object".to_owned());
    };
    match object.keys().find(|key| !fields.contains(key)) {
        None => Ok(()),
        Some(key) => Err(format!("strict decoding error: unknown field {key:?}")),
    }
}

impl ConfigSchema {
    fn check(&self, value: &Value) -> Result<(), String> {
        let (version, kind) = (value.api_version(), ObjectView::kind(value));
        if !self.versions.contains(&version) || kind != self.kind {
            return Err(format!(
                "no kind {kind:?} of version {version:?} is known here, only {} of {}",
                self.kind,
                self.versions.join(" or ")
            ));
        }
        let mut names = vec!["apiVersion", "kind", "metadata"];
        names.extend(self.fields.iter().map(|(name, _)| *name));
        only(value, &names)?;
        for (name, within) in self.fields.iter().filter(|(_, within)| !within.is_empty()) {
            let part = value.get(name);
            if !part.is_null() {
                only(part, within).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Configuration, String> {
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
        let of = |text: &str| read(&[("/etc/adm/c.yaml", text)]).unwrap_err();
        assert_eq!(
            of(&format!("{HEAD}plugin: []")),
            "/etc/adm/c.yaml: strict decoding error: unknown field \"plugin\""
        );
        assert_eq!(
            of(&format!("{HEAD}plugins:\n- name: A\n  file: x")),
            "/etc/adm/c.yaml: plugins[0]: strict decoding error: unknown field \"file\""
        );
        assert!(of("kind: Pod\napiVersion: v1").contains("only AdmissionConfiguration of"));
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
            got.checked("P", &shape).map(|v| v.is_some())
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
