//! The cases, grouped by kind of attacker.

mod accounts;
mod anonymous;
mod backends;
mod chains;
mod connections;
mod customizers;
mod definers;
mod extenders;
mod local;
mod nodes;
mod slow;
mod webhooks;
mod writers;

use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;
use std::fmt;

/// The attacker's position and permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attacker {
    /// Has no credentials.
    Anonymous,
    /// Any service account, without roles.
    Account,
    /// Has the role `admin` in one namespace.
    Writer,
    /// A kubelet.
    Node,
    /// Writes CustomResourceDefinitions, webhook configurations, policies and flow schemas.
    Definer,
    /// Writes CustomResourceDefinitions and the custom resources of one group.
    Customizer,
    /// Writes APIServices, and Services in a namespace.
    Extender,
    /// Runs a server that an APIService names.
    Backend,
    /// Reads slowly or not at all.
    SlowReader,
    /// A process on the gateway's machine.
    Local,
    /// Runs a webhook for authentication, authorization or audit.
    Webhook,
}

impl Attacker {
    pub(crate) const ALL: [Self; 11] = [
        Self::Anonymous,
        Self::Account,
        Self::Writer,
        Self::Node,
        Self::Definer,
        Self::Customizer,
        Self::Extender,
        Self::Backend,
        Self::SlowReader,
        Self::Local,
        Self::Webhook,
    ];

    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Anonymous | Self::Local => "",
            Self::Account => "t-account",
            Self::Writer | Self::SlowReader => "t-writer",
            Self::Node => "t-node",
            Self::Definer => "t-definer",
            Self::Customizer => "t-customizer",
            Self::Extender | Self::Backend => "t-extender",
            Self::Webhook => "t-audited",
        }
    }

    /// The bounded form runs one in this many cases, to add no more than about a minute to `make test`. Most
    /// past findings came from attackers with write access, so every second of their cases runs.
    pub(crate) fn bounded_every(self) -> usize {
        match self {
            Self::Local => 1,
            Self::Writer | Self::Account | Self::Node => 2,
            _ => 3,
        }
    }

    /// Whether the attacked gateway is configured with webhooks, which behave as set in
    /// [`crate::stage::Stage::webhook`].
    pub(crate) fn needs_webhooks(self) -> bool {
        self == Self::Webhook
    }
}

impl fmt::Display for Attacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Anonymous => "anonymous",
            Self::Account => "account",
            Self::Writer => "writer",
            Self::Node => "node",
            Self::Definer => "definer",
            Self::Customizer => "customizer",
            Self::Extender => "extender",
            Self::Backend => "backend",
            Self::SlowReader => "slow",
            Self::Local => "local",
            Self::Webhook => "webhook",
        })
    }
}

/// One attack.
pub(crate) struct Case {
    pub name: String,
    pub attack: Box<dyn FnOnce(&mut Scene<'_>) + Send>,
}

/// Collects cases.
#[derive(Default)]
pub(crate) struct Cases(pub Vec<Case>);

impl Cases {
    pub(crate) fn add(&mut self, name: impl Into<String>, attack: impl FnOnce(&mut Scene<'_>) + Send + 'static) {
        self.0.push(Case {
            name: name.into(),
            attack: Box::new(attack),
        });
    }

    /// A single request, built when the case runs.
    pub(crate) fn request(&mut self, name: impl Into<String>, request: impl FnOnce() -> Request + Send + 'static) {
        self.add(name, |scene| drop(scene.send(&request())));
    }

    /// The same request, `n` times concurrently.
    pub(crate) fn at_once(
        &mut self,
        name: impl Into<String>,
        n: usize,
        request: impl FnOnce() -> Request + Send + 'static,
    ) {
        self.add(name, move |scene| drop(scene.send_all(&vec![request(); n])));
    }
}

/// All cases of an attacker.
pub(crate) fn cases(attacker: Attacker, scale: &Scale) -> Vec<Case> {
    let mut cases = Cases::default();
    match attacker {
        Attacker::Anonymous => {
            anonymous::requests(&mut cases, scale);
            connections::all(&mut cases, scale);
            chains::of_clients(&mut cases, scale);
        }
        Attacker::Account => accounts::all(&mut cases, scale),
        Attacker::Writer => writers::all(&mut cases, scale),
        Attacker::Node => nodes::all(&mut cases, scale),
        Attacker::Definer => definers::all(&mut cases, scale),
        Attacker::Customizer => customizers::all(&mut cases, scale),
        Attacker::Extender => extenders::all(&mut cases, scale),
        Attacker::Backend => {
            backends::all(&mut cases, scale);
            chains::of_backends(&mut cases, scale);
        }
        Attacker::SlowReader => slow::all(&mut cases, scale),
        Attacker::Local => local::all(&mut cases, scale),
        Attacker::Webhook => webhooks::all(&mut cases, scale),
    }
    cases.0
}
