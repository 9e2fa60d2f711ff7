//! The rows, by what they are about. Numbers are those of the facts in `shared/facts/aggregation.md`.

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

/// All of them.
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
