//! `--feature-gates`, parsed and validated like upstream's. This server always behaves like v1.36 with
//! default gates; setting a gate otherwise has no effect and gives a warning, except for the gates in
//! [`EFFECTIVE`].

mod gates;

use super::{UsageError, Values};
use crate::cli::value::go_bool;
use gates::{ALPHA, BETA_OFF, BETA_ON, DEPRECATED_LOCKED, DEPRECATED_OFF, DEPRECATED_ON, GA, GA_UNLOCKED};
use std::collections::BTreeMap;

const FLAG: &str = "feature-gates";

/// Maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Off by default.
    Alpha,
    /// Usually on by default.
    Beta,
    Ga,
    /// To be removed.
    Deprecated,
}

/// The definition of a gate.
#[derive(Clone, Copy, Debug)]
struct Gate {
    stage: Stage,
    default: bool,
    locked: bool,
}

/// The gates that were given, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeatureGates(BTreeMap<String, bool>);

fn gate(name: &str) -> Option<Gate> {
    let all: [(&[&str], Stage, bool, bool); 8] = [
        (GA, Stage::Ga, true, true),
        (GA_UNLOCKED, Stage::Ga, true, false),
        (BETA_ON, Stage::Beta, true, false),
        (BETA_OFF, Stage::Beta, false, false),
        (ALPHA, Stage::Alpha, false, false),
        (DEPRECATED_ON, Stage::Deprecated, true, false),
        (DEPRECATED_OFF, Stage::Deprecated, false, false),
        (DEPRECATED_LOCKED, Stage::Deprecated, false, true),
    ];
    all.into_iter()
        .find(|(names, ..)| names.contains(&name))
        .map(|(_, stage, default, locked)| Gate { stage, default, locked })
}

impl FeatureGates {
    /// Whether the feature is enabled; `None` if there is no such gate.
    pub(crate) fn enabled(&self, name: &str) -> Option<bool> {
        let gate = gate(name)?;
        let all = match gate.stage {
            // Weaker than the gate's own setting, whatever the order on the command line.
            Stage::Alpha => self.0.get("AllAlpha"),
            Stage::Beta => self.0.get("AllBeta"),
            _ => None,
        };
        Some(*self.0.get(name).or(all).unwrap_or(&gate.default))
    }

    pub(super) fn read(values: &Values, warnings: &mut Vec<String>) -> Result<Self, UsageError> {
        // A map: of a repeated gate, the last value wins.
        let mut given = BTreeMap::new();
        for pair in values.list(FLAG) {
            let (name, value) = parse(&pair).map_err(|why| UsageError::invalid(FLAG, &pair, why))?;
            given.insert(name, value);
        }
        for (name, value) in &given {
            let refused = |why: String| Err(UsageError::invalid(FLAG, &format!("{name}={value}"), why));
            if matches!(name.as_str(), "AllAlpha" | "AllBeta") {
                // The value that would change a default: AllAlpha=true, AllBeta=false.
                if *value != (name == "AllBeta") {
                    warnings.push(format!("--{FLAG}: {name}={value} has no effect: {NO_EFFECT}"));
                }
                continue;
            }
            let Some(gate) = gate(name) else {
                return refused(format!("unrecognized feature gate: {name}"));
            };
            if gate.locked && *value != gate.default {
                return refused(format!(
                    "cannot set feature gate {name} to {value}, feature is locked to {}",
                    gate.default
                ));
            }
            if *value != gate.default && !EFFECTIVE.contains(&name.as_str()) {
                warnings.push(format!("--{FLAG}: {name}={value} has no effect: {NO_EFFECT}"));
            }
            // As upstream, settings of gates that will disappear are remarked upon; those of alpha and beta
            // gates are not.
            let going = match gate.stage {
                Stage::Deprecated => "deprecated",
                Stage::Ga => "GA",
                _ => continue,
            };
            warnings.push(format!(
                "Setting {going} feature gate {name}={value}. It will be removed in a future release."
            ));
        }
        Ok(Self(given))
    }
}

/// The gates that have an effect here.
const EFFECTIVE: [&str; 1] = ["CBORServingAndStorage"];

const NO_EFFECT: &str = "features are as in v1.36's defaults";

/// Why `name=value` is not a valid setting of a feature gate. Messages as upstream words them.
#[derive(Debug, thiserror::Error)]
enum InvalidPair {
    #[error("missing bool value for {0}")]
    NoValue(String),
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    NotBool { name: String, value: String },
}

fn parse(pair: &str) -> Result<(String, bool), InvalidPair> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(InvalidPair::NoValue(pair.trim().to_owned()));
    };
    let (name, value) = (name.trim(), value.trim());
    match go_bool(value) {
        Some(b) => Ok((name.to_owned(), b)),
        None => Err(InvalidPair::NotBool {
            name: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flag: &str) -> Result<(FeatureGates, Vec<String>), String> {
        let mut values = Values::default();
        values.put(FLAG, vec![flag.to_owned()]);
        let mut warnings = Vec::new();
        let gates = FeatureGates::read(&values, &mut warnings).map_err(|e| e.to_string())?;
        Ok((gates, warnings))
    }

    #[test]
    fn invalid_gates_give_upstreams_messages() {
        let refused = |flag: &str| read(flag).unwrap_err();
        let words = |flag: &str, why: &str| format!("invalid argument {flag:?} for --feature-gates: {why}");
        assert_eq!(
            refused("Nope=true"),
            words("Nope=true", "unrecognized feature gate: Nope")
        );
        assert_eq!(
            refused("WatchList"),
            words("WatchList", "missing bool value for WatchList")
        );
        assert_eq!(
            refused("WatchList=yes"),
            words(
                "WatchList=yes",
                "invalid value of WatchList=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax"
            )
        );
        assert_eq!(
            refused("SidecarContainers=false"),
            words(
                "SidecarContainers=false",
                "cannot set feature gate SidecarContainers to false, feature is locked to true"
            )
        );
    }

    #[test]
    fn a_gate_without_effect_gives_a_warning() {
        let (gates, warnings) = read("WatchList=true,HPAScaleToZero=true").unwrap();
        assert_eq!(
            warnings,
            ["--feature-gates: HPAScaleToZero=true has no effect: features are as in v1.36's defaults"]
        );
        assert_eq!(gates.enabled("HPAScaleToZero"), Some(true));
        assert_eq!(gates.enabled("CBORServingAndStorage"), Some(false));
        let (gates, warnings) = read("CBORServingAndStorage=true").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(gates.enabled("CBORServingAndStorage"), Some(true));
        assert_eq!(gates.enabled("Nope"), None);
    }

    #[test]
    fn no_gate_is_listed_twice() {
        let lists = [
            GA,
            GA_UNLOCKED,
            BETA_ON,
            BETA_OFF,
            ALPHA,
            DEPRECATED_ON,
            DEPRECATED_OFF,
            DEPRECATED_LOCKED,
        ];
        let mut names: Vec<&str> = lists.concat();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
