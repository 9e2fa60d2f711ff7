//! A recorded case: the requests of one scenario, in order, and the parts of each response that are compared.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// An unknown member is an error: a rule that the harness does not know must not be ignored.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Case {
    pub area: String,
    pub name: String,
    /// A note for readers.
    pub about: String,
    /// Requirements besides the server: `callback` (the webhooks of [`crate::callback`]), or `sample`.
    pub requires: Vec<String>,
    /// Changes state that other cases see, so it runs alone.
    pub exclusive: bool,
    /// The case creates its own namespaces, or needs none.
    pub no_namespace: bool,
    pub ns_labels: Option<Value>,
    /// The case's namespaces need a ServiceAccount `default`, which a controller would create.
    pub sa: bool,
    /// Responses of the callback server, by the name in the last part of the URL.
    pub callbacks: BTreeMap<String, Box<RawValue>>,
    pub steps: Vec<Step>,
}

impl Case {
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.area, self.name)
    }
}

/// One request, or one look at what a watch or the callback server has received.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Step {
    pub id: String,
    pub about: String,
    /// The status code its author expected. Recording reports others.
    pub want: Option<u16>,

    // The request. `${name}` stands for a value of this run.
    pub method: Option<String>,
    pub path: String,
    /// `admin` unless set, `limited`, `viewer`, `bad`, `anonymous`, or `$name` for a captured token.
    #[serde(rename = "as")]
    pub identity: Option<String>,
    /// Null removes a header, a list sends it several times.
    pub headers: BTreeMap<String, Value>,
    /// Sent as it is written here: the order of members can matter.
    pub body: Option<Box<RawValue>>,
    /// A captured document that `edit` changes.
    pub body_from: Option<String>,
    /// `[set|append|del, path, value]`
    pub edit: Vec<Vec<Value>>,
    pub raw: Option<String>,
    pub b64: Option<String>,
    pub proto: Option<Value>,
    /// Text before, a number of `x`, text after.
    pub huge: Option<(String, usize, String)>,
    /// `json`, `merge`, `smp` or `apply`.
    pub patch: Option<String>,
    /// The response may be shared between all steps with the same request.
    pub cached: bool,

    // Watches and callbacks.
    pub watch: bool,
    pub start_watch: Option<String>,
    pub collect: Option<String>,
    pub calls: Option<String>,
    pub max_calls: Option<usize>,
    pub count: usize,
    pub bookmarks: bool,
    pub ended: bool,

    // Time, in seconds.
    pub sleep: Option<f64>,
    pub until: Option<Until>,
    pub timeout: Option<f64>,
    pub slow: Option<f64>,
    pub wait: Option<f64>,
    pub grace: Option<f64>,

    // The values to capture, and the parts to compare.
    pub capture: BTreeMap<String, String>,
    pub compare: Compare,
    pub view: Option<String>,
    pub superset: bool,
    pub check_headers: Vec<String>,
    pub ignore_headers: Vec<String>,
    pub ignore: Vec<String>,
    pub unordered: Vec<String>,
    pub mask: Vec<(String, String)>,
    /// `loose`: only whether there is a message is compared.
    pub message: Option<String>,
}

impl Step {
    pub(crate) fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("GET")
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.collect, &self.calls) {
            (Some(name), _) => write!(f, "events of watch {name}"),
            (_, Some(name)) => write!(f, "calls of {name}"),
            _ => {
                write!(f, "{} {}", self.method(), self.path)?;
                self.identity.iter().try_for_each(|who| write!(f, " (as {who})"))
            }
        }
    }
}

#[derive(Deserialize, Default, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compare {
    #[default]
    Everything,
    /// The status code and the headers.
    Headers,
    /// The status code.
    Status,
    /// The first digit of the status code.
    Class,
}

/// A step with this is repeated until the response satisfies it: its cause takes effect asynchronously.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Until {
    pub status: Option<u16>,
    pub header: Option<String>,
    pub calls: Option<usize>,
    pub path: Option<String>,
    pub equals: Option<Value>,
    pub contains: Option<String>,
    pub exists: bool,
}
