//! [`LevelSpec`]: the fields of a PriorityLevelConfiguration that the controller uses. Validation is left to
//! the strategy of the resource; unusable objects are skipped here.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::flowcontrol::level::EXEMPT;
use crate::flowcontrol::queueset::Queuing;
use crate::flowcontrol::seats::Shares;
use crate::flowcontrol::shuffle_sharding::Dealer;

/// A parsed PriorityLevelConfiguration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelSpec {
    pub shares: Shares,
    pub queuing: Queuing,
    /// Queues per flow; `None` for levels without queues.
    pub hand_size: Option<u32>,
}

impl LevelSpec {
    /// `None` for an object that validation would reject: it may have been stored by another version.
    pub(crate) fn parse(object: &Value) -> Option<Self> {
        let spec = object.get("spec");
        let exempt = spec.str_at(&["type"]) == "Exempt";
        // The name decides elsewhere ([`Level::is_exempt`](crate::flowcontrol::level::Level::is_exempt)); another
        // exempt level would bypass every limit.
        if exempt != (object.name() == EXEMPT) {
            return None;
        }
        let limit = spec.get(if exempt { "exempt" } else { "limited" });
        let number = |v: &Value, key: &str| v.get(key).as_i64().map(|n| u32::try_from(n).unwrap_or(0));
        let shares = Shares {
            // Upstream's defaults. An explicit 0 is not defaulted: it makes a level that lives on borrowed seats.
            shares: number(limit, "nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 }),
            lendable_percent: number(limit, "lendablePercent").unwrap_or(0).min(100),
            borrowing_percent: number(limit, "borrowingLimitPercent"),
            exempt,
        };
        let response = limit.get("limitResponse");
        let queues = response.get("queuing");
        let (queuing, hand_size) = match (exempt, response.str_at(&["type"])) {
            (true, _) => (Queuing::Exempt, None),
            (false, "Reject") => (Queuing::Reject, None),
            (false, "Queue") => {
                let hand_size = number(queues, "handSize")?;
                // No defaults here: the three numbers are defaulted when they are written. `try_new` rejects hands that
                // need more randomness than a hash has.
                let queuing = Queuing::Queues {
                    dealer: Dealer::try_new(number(queues, "queues")?, hand_size)?,
                    length_limit: number(queues, "queueLengthLimit")?,
                };
                (queuing, Some(hand_size))
            }
            _ => return None,
        };
        Some(Self {
            shares,
            queuing,
            hand_size,
        })
    }
}
