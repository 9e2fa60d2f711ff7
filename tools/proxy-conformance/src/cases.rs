//! The cases, grouped by topic. Numeric ids begin with the number of their topic;
//! `docs/proxy-conformance.md` lists the topics.

mod bodies;
mod connections;
mod deadlines;
mod faults;
mod front_proxy;
mod identity;
mod no_upgrade;
mod own_requests;
mod request;
mod response;
mod smuggling;
mod spoofing;
mod trust;
mod upgrades;
mod url;

pub use smuggling::{Interpreted, interpret};

use crate::case::Case;

/// All cases.
pub fn all() -> Vec<Case> {
    [
        url::cases(),
        request::cases(),
        identity::cases(),
        bodies::cases(),
        response::cases(),
        connections::cases(),
        trust::cases(),
        front_proxy::cases(),
        deadlines::cases(),
        upgrades::cases(),
        no_upgrade::cases(),
        faults::cases(),
        own_requests::cases(),
        smuggling::cases(),
        spoofing::cases(),
    ]
    .concat()
}
