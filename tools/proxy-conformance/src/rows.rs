//! The cases, grouped by topic. Numeric ids group facts about kube-apiserver by topic; `docs/proxy-conformance.md`
//! lists the groups.

mod bodies;
mod connections;
mod deadlines;
mod faults;
mod front_proxy;
mod house;
mod identity;
mod no_upgrade;
mod request;
mod response;
mod smuggling;
mod spoofing;
mod trust;
mod upgrades;
mod url;

pub use smuggling::{Interpreted, interpret};

use crate::row::Row;

/// All cases.
pub fn all() -> Vec<Row> {
    [
        url::rows(),
        request::rows(),
        identity::rows(),
        bodies::rows(),
        response::rows(),
        connections::rows(),
        trust::rows(),
        front_proxy::rows(),
        deadlines::rows(),
        upgrades::rows(),
        no_upgrade::rows(),
        faults::rows(),
        house::rows(),
        smuggling::rows(),
        spoofing::rows(),
    ]
    .concat()
}
