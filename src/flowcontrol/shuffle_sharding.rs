//! Shuffle sharding: deals each flow a hand of queues, so that two flows rarely share all of them (upstream's
//! `k8s.io/apiserver/pkg/util/shufflesharding`). Start at [`Dealer::deal`].

/// A hand has at most this many cards: 16 of 16 would take more than [`MAX_ENTROPY_BITS`].
const MAX_HAND: usize = 15;
/// A hash has 64 bits; upstream leaves four of them unused, so that the deal stays close to uniform.
const MAX_ENTROPY_BITS: u32 = 60;
const MAX_DECK: u32 = 1 << 26;

/// Deals hands of one size from a deck of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dealer {
    deck: u32,
    hand: u8,
}

/// Distinct cards in the order in which they were dealt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand {
    cards: [u32; MAX_HAND],
    len: u8,
}

impl Dealer {
    /// `None` if the sizes are not usable: zero, more cards in a hand than in the deck, or more randomness
    /// than a hash has.
    pub(crate) fn try_new(deck: u32, hand: u32) -> Option<Self> {
        // Together these bound `hand` by `MAX_HAND`, so it fits the array and its type.
        let usable = (1..=deck).contains(&hand) && deck <= MAX_DECK && entropy_bits(deck, hand) <= MAX_ENTROPY_BITS;
        usable.then_some(Self { deck, hand: hand as u8 })
    }

    /// Number of cards in the deck.
    pub(crate) fn deck(&self) -> u32 {
        self.deck
    }

    /// Deals the hand of a flow, by the hash of its id.
    pub(crate) fn deal(&self, hash: u64) -> Hand {
        let size = usize::from(self.hand);
        let mut cards = self.draws(hash, size);
        // Walking back over the previous draws, from the last one, turns an index into the remaining deck
        // into an index into the whole deck.
        for i in (1..size).rev() {
            for later in i..size {
                if cards[later] >= cards[i - 1] {
                    cards[later] += 1;
                }
            }
        }
        Hand { cards, len: self.hand }
    }

    /// One card of the hand, without dealing those that come after it.
    pub(crate) fn card(&self, hash: u64, at: usize) -> u32 {
        let draws = self.draws(hash, at + 1);
        let before = draws[..at].iter().rev();
        before.fold(draws[at], |card, earlier| card + u32::from(card >= *earlier))
    }

    /// The number of cards in a hand.
    pub(crate) fn hand_size(&self) -> usize {
        usize::from(self.hand)
    }

    /// The first `count` cards, each as an index into the deck that remains after the previous draws.
    fn draws(&self, mut hash: u64, count: usize) -> [u32; MAX_HAND] {
        let mut draws = [0; MAX_HAND];
        for (left, draw) in (1..=u64::from(self.deck)).rev().zip(&mut draws[..count]) {
            // Mixed radix: each draw consumes the randomness of one digit, so the draws are independent.
            *draw = (hash % left) as u32;
            hash /= left;
        }
        draws
    }
}

impl Hand {
    pub(crate) fn cards(&self) -> &[u32] {
        &self.cards[..usize::from(self.len)]
    }
}

fn entropy_bits(deck: u32, hand: u32) -> u32 {
    (f64::from(deck).log2() * f64::from(hand)).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_limit_is_the_entropy_of_a_hash() {
        assert!(Dealer::try_new(128, 6).is_some() && Dealer::try_new(16, 15).is_some());
        assert!(Dealer::try_new(128, 9).is_none() && Dealer::try_new(16, 16).is_none());
        assert!(Dealer::try_new(4, 5).is_none() && Dealer::try_new(0, 0).is_none());
    }

    /// The definition: take the card at each index out of what is left of the deck.
    fn by_removal(deck: u32, hand: u32, mut hash: u64) -> Vec<u32> {
        let mut left: Vec<u32> = (0..deck).collect();
        let take = |_| {
            let size = left.len() as u64;
            let card = left.remove((hash % size) as usize);
            hash /= size;
            card
        };
        (0..hand).map(take).collect()
    }

    proptest! {
        #[test]
        fn a_hand_equals_drawing_without_replacement(deck in 1u32..200, hand in 1u32..16, hash: u64) {
            if let Some(dealer) = Dealer::try_new(deck, hand) {
                let dealt = dealer.deal(hash);
                prop_assert_eq!(dealt.cards(), by_removal(deck, hand, hash));
                let one_by_one: Vec<u32> = (0..dealer.hand_size()).map(|at| dealer.card(hash, at)).collect();
                prop_assert_eq!(dealt.cards(), one_by_one);
            }
        }
    }

    /// The hashes are of three flows by upstream's `hashFlowID`; the hands were computed in Python by taking cards out
    /// of a list.
    #[test]
    fn hands_are_upstreams() {
        let dealer = Dealer::try_new(64, 6).unwrap();
        for (hash, hand) in [
            (0xa4cb_945b_5988_d349, [9, 24, 52, 15, 25, 45]),
            (0x193b_d1c8_23fd_d75b, [27, 50, 18, 58, 55, 46]),
            (0x66a9_c5f2_aad7_2998, [24, 32, 17, 8, 18, 42]),
        ] {
            assert_eq!(dealer.deal(hash).cards(), hand, "{hash:#x}");
        }
    }

    #[test]
    fn every_queue_is_dealt_about_equally_often() {
        let dealer = Dealer::try_new(128, 6).unwrap();
        let mut dealt = [0u32; 128];
        for flow in 0..64_000u64 {
            // Consecutive numbers are not hashes; a multiplication spreads them over all bits.
            for card in dealer.deal(flow.wrapping_mul(0x9E37_79B9_7F4A_7C15)).cards() {
                dealt[*card as usize] += 1;
            }
        }
        let expected = 64_000 * 6 / 128;
        assert!(dealt.iter().all(|n| n.abs_diff(expected) < expected / 5), "{dealt:?}");
    }
}
