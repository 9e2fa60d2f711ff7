//! Runs the steps of one case against a server.

use crate::callback::Callbacks;
use crate::case::{Step, Until};
use crate::http::{Client, Endpoint, Headers, Request, Response};
use crate::normalise::Normaliser;
use crate::recordings::Recording;
use crate::request::{self, Environment, fill_json, fill_value};
use crate::tidy::Created;
use crate::{decode, paths, response, watch};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A response, and its decoded body.
type DecodedResponse = (Response, Arc<Value>);

/// The server under test, and the state that its cases share.
pub(crate) struct Target {
    pub endpoint: Endpoint,
    pub admin: String,
    pub callbacks: Callbacks,
    /// Large documents that many steps look at.
    cache: Mutex<HashMap<String, Arc<Mutex<Option<DecodedResponse>>>>>,
}

impl Target {
    pub(crate) fn new(endpoint: Endpoint, admin: &str) -> Self {
        Self {
            endpoint,
            admin: admin.to_owned(),
            callbacks: Callbacks::start(),
            cache: Mutex::default(),
        }
    }
}

/// The outcome of a step: the normalised response, or why there is none.
pub(crate) type Outcome = Result<Value, String>;

/// How long to wait for effects that are asynchronous.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub effects: Duration,
    /// How long a watch stays open after its last expected event, to see unexpected ones.
    pub grace: Duration,
}

pub(crate) struct Runner<'a> {
    recording: &'a Recording,
    target: &'a Target,
    client: Client,
    patience: Patience,
    environment: Environment,
    normaliser: Normaliser,
    watches: BTreeMap<String, watch::Watch>,
    created: Created,
    /// The last response, as it was.
    headers: Headers,
    document: Arc<Value>,
}

/// A name and an address that are unique and have nothing in common with other texts.
fn run_name() -> (String, String) {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz";
    let random = uuid::Uuid::new_v4().into_bytes();
    let letters = random[..8].iter().map(|b| LETTERS[usize::from(*b) % LETTERS.len()]);
    let address = format!("192.0.{}.{}", 3 + random[9] % 240, 3 + random[10] % 240);
    (letters.map(char::from).collect(), address)
}

impl<'a> Runner<'a> {
    pub(crate) fn new(recording: &'a Recording, target: &'a Target, patience: Patience) -> Self {
        let (name, ip) = run_name();
        let port = target.callbacks.port.to_string();
        let environment: Environment = [
            ("x", name.as_str()),
            ("ns", &name),
            ("run", &name),
            ("ns2", &format!("{name}-b")),
            ("ip", &ip),
            ("cbport", &port),
            ("cbca", &target.callbacks.bundle),
            ("server", &target.endpoint.authority),
            ("admin", &target.admin),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        let mut normaliser = Normaliser::default();
        normaliser.texts.call(&target.endpoint.authority, "<server>".to_owned());
        for known in ["x", "cbca", "ip"] {
            normaliser.texts.call(&environment[known], format!("${{{known}}}"));
        }
        for host in ["127.0.0.1", "localhost"] {
            let name = format!("{host}:${{cbport}}");
            normaliser.texts.call(&format!("{host}:{port}"), name);
        }
        let own = i64::from(target.callbacks.port);
        normaliser.own_ports.insert(own, "${cbport}".to_owned());
        let scripts = recording.case.callbacks.iter().map(|(name, script)| {
            let script = fill_json(script.get(), &environment);
            (name.clone(), serde_json::from_str(&script).expect("a script is JSON"))
        });
        target.callbacks.register(&name, scripts.collect());
        Self {
            recording,
            target,
            client: Client::new(target.endpoint.clone()),
            patience,
            environment,
            normaliser,
            watches: BTreeMap::new(),
            created: Created::default(),
            headers: Headers::new(),
            document: Arc::default(),
        }
    }

    /// Runs the case. `is_expected` decides whether a step that waits for an effect has seen it.
    pub(crate) fn run(mut self, mut is_expected: impl FnMut(usize, &Value) -> bool) -> Vec<Outcome> {
        let ready = self.set_up();
        let mut outcomes = Vec::new();
        for (i, step) in self.recording.case.steps.iter().enumerate() {
            let outcome = match &ready {
                Ok(()) => self.step(step, &mut |result| is_expected(i, result)),
                Err(why) => Err(why.clone()),
            };
            outcomes.push(outcome);
        }
        self.watches.clear();
        self.created.remove(&mut self.client, &self.target.admin);
        outcomes
    }

    /// Creates the namespaces that the case mentions.
    fn set_up(&mut self) -> Result<(), String> {
        let recording = self.recording;
        if recording.case.no_namespace {
            return Ok(());
        }
        for name in ["ns", "ns2"].into_iter().filter(|n| recording.mentions(n)) {
            let ns = self.environment[name].clone();
            let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
            if let Some(labels) = &recording.case.ns_labels {
                object["metadata"]["labels"] = labels.clone();
            }
            self.make("/api/v1/namespaces", &object)?;
            self.created.add(format!("/api/v1/namespaces/{ns}"));
            if recording.case.sa {
                let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
                self.make(&format!("/api/v1/namespaces/{ns}/serviceaccounts"), &account)?;
            }
        }
        Ok(())
    }

    fn make(&mut self, path: &str, object: &Value) -> Result<(), String> {
        let request = crate::tidy::request(&self.target.admin, "POST", path, Some(object));
        match self.client.send(&request) {
            Ok(made) if made.status == 201 => Ok(()),
            Ok(other) => Err(format!(
                "{path}: {} {}",
                other.status,
                String::from_utf8_lossy(&other.body)
            )),
            Err(e) => Err(format!("{path}: {e}")),
        }
    }

    /// One step, repeated if it waits for an effect.
    fn step(&mut self, step: &Step, is_expected: &mut dyn FnMut(&Value) -> bool) -> Outcome {
        if let Some(seconds) = step.sleep {
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }
        let wait = match (step.slow, step.timeout) {
            (Some(slow), _) => Duration::from_secs_f64(slow).max(self.patience.effects),
            (None, Some(most)) => Duration::from_secs_f64(most).min(self.patience.effects),
            (None, None) => self.patience.effects,
        };
        let start = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let before = step.until.as_ref().map(|_| self.normaliser.clone());
            let outcome = self.once(step);
            let late = start.elapsed() > wait;
            if let Some(until) = &step.until {
                let seen = outcome.as_ref().is_ok_and(|r| self.holds(until, r) && is_expected(r));
                if !seen && !late {
                    // A discarded response does not count as seen.
                    self.normaliser = before.expect("it was kept for this");
                    std::thread::sleep(pause);
                    pause = (pause * 3 / 2).min(Duration::from_millis(300));
                    continue;
                }
                if !seen {
                    // An effect that did not appear will not appear in the next step either: do not wait as
                    // long again.
                    self.patience.effects = self.patience.effects.min(Duration::from_millis(500));
                }
            }
            if outcome.is_ok() {
                self.capture(step);
            }
            return outcome;
        }
    }

    fn holds(&self, until: &Until, result: &Value) -> bool {
        let at = until.path.as_deref().map(|p| paths::get(&self.document, p));
        let found = at.flatten();
        let equal = |wanted: &Value| found == Some(&fill_value(wanted, &self.environment));
        let contains = |wanted: &String| found.is_some_and(|v| v.to_string().contains(wanted));
        let calls = || result["calls"].as_array().map_or(0, Vec::len);
        until.status.is_none_or(|s| result["status"] == s)
            && until.header.as_ref().is_none_or(|h| result["headers"].get(h).is_some())
            && until.calls.is_none_or(|n| calls() >= n)
            && until.equals.as_ref().is_none_or(equal)
            && until.contains.as_ref().is_none_or(contains)
            && (!until.exists || found.is_some_and(|v| !v.is_null()))
    }

    fn once(&mut self, step: &Step) -> Outcome {
        if let Some(name) = &step.collect {
            let mut watch = self.watches.remove(name).ok_or("the watch was not opened")?;
            let result = self.collect(step, &mut watch);
            self.watches.insert(name.clone(), watch);
            return Ok(result);
        }
        if let Some(script) = &step.calls {
            return Ok(self.calls(step, script));
        }
        let authority = &self.target.endpoint.authority;
        let request = request::build(step, &self.environment, authority, &mut self.normaliser)?;
        if step.watch || step.start_watch.is_some() {
            return self.watch(step, &request).map_err(|e| e.to_string());
        }
        let (response, document) = self.send(step, &request).map_err(|e| e.to_string())?;
        self.created.note(&request, response.status, &document);
        Ok(self.result(step, &response, document))
    }

    fn result(&mut self, step: &Step, response: &Response, document: Arc<Value>) -> Value {
        self.headers = response.headers.clone();
        self.document = document;
        response::normalise(step, response, &self.document, &self.environment, &mut self.normaliser)
    }

    fn send(&mut self, step: &Step, request: &Request) -> std::io::Result<DecodedResponse> {
        let mut send = || {
            let response = self.client.send(request)?;
            let document = Arc::new(decode::body(&response));
            Ok((response, document))
        };
        if !step.cached {
            return send();
        }
        let key = format!("{} {:?}", request.path, request.headers);
        let entry = self
            .target
            .cache
            .lock()
            .expect("no panic")
            .entry(key)
            .or_default()
            .clone();
        // Others that want the same document wait for it.
        let mut entry = entry.lock().expect("no panic");
        if let Some(answer) = &*entry {
            return Ok(answer.clone());
        }
        let (mut response, document) = send()?;
        // The document is enough, and these are large.
        response.body.clear();
        Ok(entry.insert((response, document)).clone())
    }

    fn watch(&mut self, step: &Step, request: &Request) -> std::io::Result<Value> {
        let mut watch = watch::Watch::open(&self.client, request)?;
        let Some(name) = &step.start_watch else {
            return Ok(self.collect(step, &mut watch));
        };
        let result = match watch.is_open() {
            true => {
                let headers = response::headers(step, watch.headers(), &mut self.normaliser);
                json!({"status": 200, "headers": headers})
            }
            false => self.refusal(step, &mut watch),
        };
        self.watches.insert(name.clone(), watch);
        Ok(result)
    }

    /// The response to a watch that was refused.
    fn refusal(&mut self, step: &Step, watch: &mut watch::Watch) -> Value {
        let response = watch.whole();
        let document = Arc::new(decode::body(&response));
        self.result(step, &response, document)
    }

    fn collect(&mut self, step: &Step, watch: &mut watch::Watch) -> Value {
        if !watch.is_open() {
            return self.refusal(step, watch);
        }
        let wait = step.wait.map_or(self.patience.effects, Duration::from_secs_f64);
        let grace = step.grace.map_or(self.patience.grace, Duration::from_secs_f64);
        let events = watch.collect(step, wait, grace);
        self.document = Arc::new(json!({"events": events}));
        response::set_masks(step, &mut self.normaliser);
        let each = events.iter().enumerate().map(|(i, event)| {
            let label = format!("{}[{i}]", step.id);
            let mut event = self.normaliser.keyed(event, &label, "event");
            response::ignore(step, &mut event);
            event
        });
        let events: Vec<Value> = each.collect();
        let mut headers = response::headers(step, watch.headers(), &mut self.normaliser);
        if step.ended {
            headers["<stream>"] = json!(if watch.has_ended() { "ended" } else { "open" });
        }
        json!({"status": 200, "headers": headers, "events": events})
    }

    /// The calls that a script of the callback server received.
    fn calls(&mut self, step: &Step, script: &str) -> Value {
        let mut calls = self.target.callbacks.calls(&self.environment["x"], script);
        calls.truncate(step.max_calls.unwrap_or(50));
        let mut calls = self.normaliser.document(&Value::Array(calls), &step.id);
        response::ignore(step, &mut calls);
        json!({"status": 0, "calls": calls})
    }

    /// Keeps values of the response for later steps.
    fn capture(&mut self, step: &Step) {
        if let Some(tag) = response::etag(&self.headers) {
            self.environment.insert("etag".to_owned(), tag.to_owned());
        }
        for (name, path) in &step.capture {
            let found = match path.as_str() {
                "." => Some(&*self.document),
                path => paths::get(&self.document, path),
            };
            match found {
                Some(Value::String(s)) => drop(self.environment.insert(name.clone(), s.clone())),
                Some(v) if !v.is_null() => drop(self.environment.insert(name.clone(), v.to_string())),
                _ => {}
            }
        }
    }
}
