//! `--runtime-config`: parses the key-value pairs. The application decides which of the built-in APIs they
//! apply to.

use super::{UsageError, Values};
use std::collections::BTreeMap;

const FLAG: &str = "runtime-config";

/// Keys that stand for many versions, in order of precedence, lowest first.
pub(crate) const WIDE_KEYS: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];

/// Enabled the versions before v1. Accepted and ignored, as upstream.
const OBSOLETE_KEY: &str = "api/legacy";
/// The key of the core group's version.
const CORE: &str = "/v1";

/// The key that a pair applies to. As upstream, all spellings of the core version, even those with a
/// resource, mean the whole version.
fn canonical(key: &str) -> String {
    let core = key.strip_prefix("api/").unwrap_or(key);
    match core == "v1" || core.starts_with("v1/") {
        true => CORE.to_owned(),
        false => key.to_owned(),
    }
}

/// The pairs. If a key is repeated, the last value wins. A key without a value has an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeConfig(pub BTreeMap<String, String>);

impl RuntimeConfig {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let pairs = values.list(FLAG);
        let pairs = pairs.iter().map(|pair| match pair.split_once('=') {
            Some((key, value)) => (key.trim(), value.trim().to_owned()),
            None => (pair.as_str(), String::new()),
        });
        let pairs: BTreeMap<String, String> = pairs
            .filter(|(key, _)| *key != OBSOLETE_KEY)
            .map(|(key, value)| (canonical(key), value))
            .collect();
        let refused = |why: String| Err(UsageError::new(format!("--{FLAG}: {why}")));
        // As upstream: turning everything off and nothing on is surely a mistake.
        if pairs.len() == 1 && pairs.get("api/all").is_some_and(|v| v == "false") {
            return refused("invalid key with only api/all=false".to_owned());
        }
        for key in pairs.keys().filter(|k| !WIDE_KEYS.contains(&k.as_str())) {
            if !(2..=3).contains(&key.split('/').count()) {
                return refused(format!("runtime-config invalid key {key}"));
            }
        }
        Ok(Self(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flag: &str) -> Result<RuntimeConfig, String> {
        let mut values = Values::default();
        values.put(FLAG, vec![flag.to_owned()]);
        RuntimeConfig::read(&values).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_are_group_versions_resources_or_wide_keys() {
        let c = read("api/all=false, apps/v1 = true,/v1,batch/v1/jobs=0").unwrap();
        let pairs: Vec<(&str, &str)> = c.0.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("/v1", ""),
                ("api/all", "false"),
                ("apps/v1", "true"),
                ("batch/v1/jobs", "0")
            ]
        );
        assert_eq!(
            read("v2=true").unwrap_err(),
            "--runtime-config: runtime-config invalid key v2"
        );
        assert_eq!(
            read("api/all=false").unwrap_err(),
            "--runtime-config: invalid key with only api/all=false"
        );
    }

    #[test]
    fn spellings_of_the_core_version_are_rewritten() {
        for key in ["/v1", "v1", "api/v1", "v1/pods", "api/v1/pods"] {
            let config = read(&format!("{key}=false,api/legacy=true")).unwrap();
            assert_eq!(
                config.0,
                BTreeMap::from([(CORE.to_owned(), "false".to_owned())]),
                "{key}"
            );
        }
    }
}
